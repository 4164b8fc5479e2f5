/* Handlers: images. Everything here asks the runtime, so it runs on threads of its own. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/api/stream.h"
#include "daemon/api/upload.h"
#include "daemon/worker/worker.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

static struct runtime *runtime_of(struct request *r)
{
	return worker_runtime(r->api->o.worker);
}

static cJSON *image_json(const struct image_info *i)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", i->name);
	json_add_str(j, "digest", i->digest);
	json_add_i64(j, "size_bytes", i->size_bytes);
	json_add_time(j, "created_at", i->created_us);
	return j;
}

static int images_job(struct request *r, struct answer *a, struct error *err)
{
	struct runtime *rt = runtime_of(r);
	struct image_list l = { .items = NULL };
	if (rt->ops->image_list(rt, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *items = cJSON_AddArrayToObject(j, "images");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(items, image_json(&l.items[i]));
	image_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_images(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, images_job, err);
}

static int remove_job(struct request *r, struct answer *a, struct error *err)
{
	struct runtime *rt = runtime_of(r);
	if (rt->ops->image_remove(rt, r->params.value[0], err) != 0)
		return -1;
	a->status = r->route->status;
	return 0;
}

int handle_image_remove(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, remove_job, err);
}

/* A pull or an import under way; it outlives its request. */
struct image_job {
	struct api *api;
	struct runtime *rt;
	struct stream *stream;
	char *name;
	int fd; /* import: the archive */
};

static void image_job_free(struct image_job *j)
{
	close_fdp(&j->fd);
	free(j->name);
	free(j);
}

static bool on_progress(void *ctx, const char *text, int percent)
{
	struct image_job *j = ctx;
	cJSON *line = cJSON_CreateObject();
	json_add_str(line, "progress", text);
	if (percent >= 0)
		json_add_i64(line, "percent", percent);
	else
		cJSON_AddNullToObject(line, "percent");
	stream_progress(j->stream, line);
	return !api_stopping(j->api);
}

/* The row of a list that an image name stands for. */
static const struct image_info *find_image(const struct image_list *l, const char *name, const char *digest)
{
	const struct image_info *same = NULL;
	for (size_t i = 0; i < l->len; i++) {
		if (strcmp(l->items[i].digest, digest) != 0)
			continue;
		if (!same || strncmp(l->items[i].name, name, strlen(name)) == 0)
			same = &l->items[i];
	}
	return same;
}

static int describe(struct image_job *j, cJSON **ret, struct error *err)
{
	struct image_config config = { .digest = NULL };
	struct image_list l = { .items = NULL };
	if (j->rt->ops->image_resolve(j->rt, j->name, &config, err) != 0)
		return -1;
	int rc = j->rt->ops->image_list(j->rt, &l, err);
	const struct image_info *i = rc == 0 ? find_image(&l, j->name, config.digest) : NULL;
	if (rc == 0 && !i)
		rc = error_set(err, ERR_NOT_FOUND, "image %s was removed meanwhile", j->name);
	if (rc == 0)
		*ret = image_json(i);
	image_list_done(&l);
	image_config_done(&config);
	return rc;
}

static void finish(struct image_job *j, int rc, const struct error *e)
{
	cJSON *line = cJSON_CreateObject(), *image = NULL;
	struct error d = ERROR_INIT;
	if (rc == 0 && describe(j, &image, &d) != 0) {
		rc = -1;
		e = &d;
	}
	if (rc == 0) {
		cJSON_AddItemToObject(line, "image", image);
	} else {
		cJSON *o = cJSON_AddObjectToObject(line, "error");
		json_add_str(o, "code", error_wire(e->code));
		json_add_str(o, "message", e->message);
	}
	log_info("image", "%s image=%s%s%s", rc == 0 ? "ready" : "failed", j->name, rc == 0 ? "" : ": ", rc == 0 ? "" : e->message);
	struct api *a = j->api;
	stream_end(j->stream, line);
	image_job_free(j);
	api_thread_end(a);
}

static void *pull_thread(void *arg)
{
	struct image_job *j = arg;
	struct error e = ERROR_INIT;
	int rc = j->rt->ops->image_pull(j->rt, j->name, on_progress, j, &e);
	finish(j, rc, &e);
	return NULL;
}

static void *import_thread(void *arg)
{
	struct image_job *j = arg;
	struct error e = ERROR_INIT;
	int rc = j->rt->ops->image_import(j->rt, j->fd, j->name, NULL, &e);
	/* Whoever still sends learns by the closed socket that nobody reads. */
	close_fdp(&j->fd);
	finish(j, rc, &e);
	return NULL;
}

/* Starts the thread and makes its stream the answer. Takes fd. */
static int start(struct request *r, void *(*fn)(void *), const char *name, int take_fd, struct answer *a, struct error *err)
{
	struct image_job *j = xcalloc(1, sizeof(*j));
	j->api = r->api;
	j->rt = runtime_of(r);
	j->name = xstrdup(name);
	j->fd = take_fd;
	j->stream = stream_new(r->api);
	stream_answer(j->stream, r, a);
	if (api_thread(r->api, fn, j, err) == 0)
		return 0;
	stream_end(j->stream, cJSON_CreateObject());
	answer_done(a);
	image_job_free(j);
	return -1;
}

static int check_name(const char *name, struct error *err)
{
	if (!name || !*name)
		return error_set(err, ERR_INVALID, "an image name is needed");
	if (strlen(name) > LIMIT_IMAGE_NAME_MAX)
		return error_set(err, ERR_INVALID, "the image name is longer than %d bytes", LIMIT_IMAGE_NAME_MAX);
	return 0;
}

int handle_image_pull(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = NULL;
	auto_free char *name = NULL;
	struct json_reader root;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "image", JSON_REQUIRED, LIMIT_IMAGE_NAME_MAX, &name);
	if (json_end(&root) != 0 || check_name(name, err) != 0)
		return -1;
	struct runtime *rt = runtime_of(r);
	if (rt->ops->image_allowed(rt, name, false, err) != 0)
		return -1;
	return start(r, pull_thread, name, -1, a, err);
}

int handle_image_import(struct request *r, struct answer *a, struct error *err)
{
	const char *name = target_query(&r->target, "name");
	int fd = -1;
	if (check_name(name, err) != 0 || upload_new(r, &r->upload, &fd, err) != 0)
		return -1;
	return start(r, import_thread, name, fd, a, err);
}
