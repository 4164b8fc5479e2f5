/* Handlers: images. Everything here asks the runtime, so it runs on threads of its own. */
#include "daemon/api/handlers.h"

#include "daemon/api/image_json.h"
#include "daemon/api/server.h"
#include "daemon/api/stream.h"
#include "daemon/api/upload.h"
#include "daemon/controller/registries.h"
#include "daemon/link/node_port.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

/* The node a call is about: ?node=, or the only one. */
static struct node_port *node_of(struct request *r, struct error *err)
{
	return node_ports_named(r->api->o.nodes, target_query(&r->target, "node"), err);
}

cJSON *image_json(const struct image_info *i)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", i->name);
	json_add_str(j, "digest", i->digest);
	json_add_i64(j, "size_bytes", i->size_bytes);
	json_add_time(j, "created_at", i->created_us);
	json_add_bool(j, "private", i->private);
	return j;
}

static int images_job(struct request *r, struct answer *a, struct error *err)
{
	struct node_port *n = node_of(r, err);
	struct image_list l = { .items = NULL };
	if (!n || n->ops->image_list(n, &l, err) != 0)
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
	struct node_port *n = node_of(r, err);
	if (!n || n->ops->image_remove(n, r->params.value[0], err) != 0)
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
	struct node_port *node;
	struct stream *stream;
	char *name;
	int fd; /* import: the archive */
	struct secret login; /* pull */
};

static void image_job_free(struct image_job *j)
{
	close_fdp(&j->fd);
	secret_done(&j->login);
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

static void finish(struct image_job *j, int rc, struct image_list *take_image, const struct error *e)
{
	cJSON *line = cJSON_CreateObject();
	if (rc == 0) {
		cJSON_AddItemToObject(line, "image", image_json(&take_image->items[0]));
		image_list_done(take_image);
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
	struct image_list image;
	struct image_pull p = { .image = j->name, .login = &j->login, .progress = on_progress, .ctx = j };
	int rc = j->node->ops->image_pull(j->node, &p, &image, &e);
	finish(j, rc, &image, &e);
	return NULL;
}

static void *import_thread(void *arg)
{
	struct image_job *j = arg;
	struct error e = ERROR_INIT;
	struct image_list image;
	int rc = j->node->ops->image_import(j->node, j->name, j->fd, &image, &e);
	/* Whoever still sends learns by the closed socket that nobody reads. */
	close_fdp(&j->fd);
	finish(j, rc, &image, &e);
	return NULL;
}

/* Starts the thread and makes its stream the answer. Takes the descriptor and the login of job, copies its name. */
static int start(struct request *r, struct image_job job, void *(*fn)(void *), struct answer *a, struct error *err)
{
	struct image_job *j = xcalloc(1, sizeof(*j));
	*j = job;
	j->api = r->api;
	j->name = xstrdup(job.name);
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
	struct node_port *n = node_of(r, err);
	struct image_job job = { .node = n, .name = name, .fd = -1, .login = SECRET_INIT };
	if (!n || (n->ops->image_allowed && n->ops->image_allowed(n, name, err) != 0) ||
	    controller_registry_login(r->api->o.controller, r->caller.tenant, name, &job.login, err) != 0)
		return -1;
	return start(r, job, pull_thread, a, err);
}

int handle_image_import(struct request *r, struct answer *a, struct error *err)
{
	char *name = (char *)(uintptr_t)target_query(&r->target, "name");
	struct node_port *n;
	int fd = -1;
	if (check_name(name, err) != 0 || !(n = node_of(r, err)) || upload_new(r, &r->upload, &fd, err) != 0)
		return -1;
	return start(r, (struct image_job){ .node = n, .name = name, .fd = fd }, import_thread, a, err);
}
