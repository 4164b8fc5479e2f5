/* Handler: an image that one worker has is brought to others, by way of a file of this daemon's. On a thread of its own. */
#include "daemon/api/handlers.h"

#include "daemon/api/image_json.h"
#include "daemon/api/server.h"
#include "daemon/api/stream.h"
#include "daemon/config.h"
#include "daemon/link/node_port.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/model/image_ref.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct push {
	struct api *api;
	struct stream *stream;
	char *image;
	struct node_port *from; /* NULL: the first that has it */
	struct node_port **to;
	size_t n_to;
	struct image_list found; /* the one image, as the source has it */
	int fd;                  /* its archive, whole; -1: not asked for yet */
	struct error unread;     /* why it could not be had: it is asked for once */
	int64_t bytes;
	bool full;
	cJSON *done;             /* {node, result} of those that have it now */
};

static void push_free(struct push *p)
{
	image_list_done(&p->found);
	close_fdp(&p->fd);
	cJSON_Delete(p->done);
	free(p->to);
	free(p->image);
	free(p);
}

static void say(struct push *p, const char *doing, const char *node)
{
	cJSON *line = cJSON_CreateObject();
	auto_free char *text = xasprintf("%s %s", doing, node);
	json_add_str(line, "progress", text);
	cJSON_AddNullToObject(line, "percent");
	stream_progress(p->stream, line);
}

/* --- who has it --- */

static bool same_name(const char *a, const char *b)
{
	struct image_ref x, y;
	if (image_ref_parse(a, &x, NULL) != 0 || image_ref_parse(b, &y, NULL) != 0 || x.is_id || y.is_id)
		return false;
	return strcmp(x.registry, y.registry) == 0 && strcmp(x.repository, y.repository) == 0 && strcmp(x.tag, y.tag) == 0;
}

/* 1: the node has it, ret is the one image; 0; -1. */
static int look_on(struct push *p, struct node_port *n, struct image_list *ret, struct error *err)
{
	struct image_list all = { .items = NULL };
	if (n->ops->image_list(n, &all, err) != 0)
		return -1;
	for (size_t i = 0; i < all.len; i++) {
		if (!same_name(all.items[i].name, p->image))
			continue;
		*ret = (struct image_list){ .items = xcalloc(1, sizeof(*ret->items)), .len = 1 };
		ret->items[0] = all.items[i];
		all.items[i] = all.items[--all.len];
		image_list_done(&all);
		return 1;
	}
	image_list_done(&all);
	return 0;
}

static int find_source(struct push *p, struct error *err)
{
	size_t n = node_ports_list(p->api->o.nodes, NULL, 0);
	auto_free struct node_port **all = xcalloc(n + 1, sizeof(struct node_port *));
	size_t there = node_ports_list(p->api->o.nodes, all, n);
	struct error e = ERROR_INIT;
	if (p->from) {
		int rc = look_on(p, p->from, &p->found, err);
		return rc > 0 ? 0 : rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "node %s has no image '%s'", p->from->name, p->image);
	}
	for (size_t i = 0; i < n && i < there; i++) {
		p->from = all[i];
		if (all[i]->ops->reachable(all[i], NULL) == 0 && look_on(p, all[i], &p->found, &e) == 1)
			return 0;
	}
	return error_set(err, ERR_NOT_FOUND, "no connected node has an image '%s': sandbox image pull or import it on one of them (--node)", p->image);
}

/* --- carrying --- */

static bool keep(void *ctx, const void *data, size_t n)
{
	struct push *p = ctx;
	p->bytes += (int64_t)n;
	p->full = p->bytes > (int64_t)LIMIT_IMAGE_IMPORT_MIB << 20 || io_write_full(p->fd, data, n) != 0;
	return !p->full && !api_stopping(p->api);
}

static int fetch(struct push *p, struct error *err)
{
	say(p, "reading it from", p->from->name);
	p->fd = open(p->api->o.config->state_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (p->fd < 0)
		return error_errno(err, "a file for the image in the state directory");
	if (p->from->ops->image_save(p->from, p->image, keep, p, err) == 0)
		return 0;
	close_fdp(&p->fd);
	if (!p->full)
		return -1;
	return error_set(err, ERR_NO_CAPACITY, "the image cannot be kept on the controller's way: its disk is full, or it is over IMAGE_IMPORT_MIB");
}

static int archive(struct push *p, struct error *err)
{
	if (p->fd < 0 && p->unread.code == ERR_NONE)
		(void)fetch(p, &p->unread);
	return p->fd >= 0 ? 0 : error_set(err, p->unread.code, "%s", p->unread.message);
}

/* 1: it has it already; 0: it was brought; -1. */
static int bring(struct push *p, struct node_port *n, struct error *err)
{
	const struct image_info *i = &p->found.items[0];
	struct image_list there = { .items = NULL };
	if (n == p->from)
		return 1;
	/* Private there before it is there. */
	if (i->private && n->ops->image_mark(n, p->image, err) != 0)
		return -1;
	int has = look_on(p, n, &there, err);
	bool same = has == 1 && strcmp(there.items[0].digest, i->digest) == 0;
	image_list_done(&there);
	if (has < 0 || same)
		return has < 0 ? -1 : 1;
	if (archive(p, err) != 0)
		return -1;
	say(p, "bringing it to", n->name);
	if (lseek(p->fd, 0, SEEK_SET) != 0)
		return error_errno(err, "reading the image again");
	if (n->ops->image_load(n, p->image, p->fd, &there, err) != 0)
		return -1;
	same = strcmp(there.items[0].digest, i->digest) == 0;
	image_list_done(&there);
	return same ? 0 : error_set(err, ERR_CONFLICT, "what arrived is another image under that name");
}

static int push_all(struct push *p, struct error *err)
{
	auto_buf failed = BUF_INIT;
	enum error_code code = ERR_NONE;
	if (find_source(p, err) != 0)
		return -1;
	for (size_t i = 0; i < p->n_to; i++) {
		struct error e = ERROR_INIT;
		int rc = bring(p, p->to[i], &e);
		if (rc < 0) {
			code = code == ERR_NONE ? e.code : code;
			buf_addf(&failed, "%s%s: %s", failed.len ? "; " : "", p->to[i]->name, e.message);
			continue;
		}
		cJSON *one = cJSON_CreateObject();
		json_add_str(one, "node", p->to[i]->name);
		json_add_str(one, "result", rc == 1 ? "present" : "copied");
		cJSON_AddItemToArray(p->done, one);
	}
	if (failed.len == 0)
		return 0;
	return error_set(err, code, "%d of %zu nodes have the image now; %s", cJSON_GetArraySize(p->done), p->n_to, buf_str(&failed));
}

static void *push_thread(void *arg)
{
	struct push *p = arg;
	struct error e = ERROR_INIT;
	cJSON *line = cJSON_CreateObject();
	if (push_all(p, &e) == 0) {
		cJSON_AddItemToObject(line, "image", image_json(&p->found.items[0]));
		cJSON_AddItemToObject(line, "nodes", steal(&p->done));
		log_info("image", "pushed image=%s nodes=%zu", p->image, p->n_to);
	} else {
		cJSON *o = cJSON_AddObjectToObject(line, "error");
		json_add_str(o, "code", error_wire(e.code));
		json_add_str(o, "message", e.message);
		log_info("image", "failed push image=%s: %s", p->image, e.message);
	}
	struct api *a = p->api;
	stream_end(p->stream, line);
	push_free(p);
	api_thread_end(a);
	return NULL;
}

/* --- the request --- */

static int take_targets(struct push *p, struct request *r, const struct strv *names, struct error *err)
{
	struct node_ports *all = r->api->o.nodes;
	size_t n = names->len ? names->len : node_ports_list(all, NULL, 0);
	p->to = xcalloc(n + 1, sizeof(struct node_port *));
	for (size_t i = 0; i < names->len; i++)
		if (!(p->to[p->n_to++] = node_ports_named(all, names->items[i], err)))
			return -1;
	size_t there = names->len ? 0 : node_ports_list(all, p->to, n);
	for (size_t i = 0; i < n && i < there; i++)
		if (p->to[i]->ops->reachable(p->to[i], NULL) == 0)
			p->to[p->n_to++] = p->to[i];
	return 0;
}

static int read_push(struct push *p, struct request *r, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader root;
	struct strv to = STRV_INIT;
	auto_free char *from = NULL;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "image", JSON_REQUIRED, LIMIT_IMAGE_NAME_MAX, &p->image);
	json_get_str(&root, "from", JSON_OPTIONAL, NAME_MAX_LEN, &from);
	json_get_strv(&root, "to", JSON_OPTIONAL, LIMIT_PUSH_NODES_MAX, NAME_MAX_LEN, &to);
	struct image_ref ref;
	int rc = json_end(&root) == 0 ? image_ref_parse(p->image, &ref, err) : -1;
	if (rc == 0 && (ref.is_id || ref.digest[0]))
		rc = error_set(err, ERR_INVALID, "image: '%s' has to be a name with a tag, or nothing could find it there", p->image);
	if (rc == 0 && from && !(p->from = node_ports_named(r->api->o.nodes, from, err)))
		rc = -1;
	/* A list that came out empty is no wish for all. */
	if (rc == 0 && to.len == 0 && cJSON_GetObjectItemCaseSensitive(j, "to"))
		rc = error_set(err, ERR_INVALID, "to: name a node, or leave it out for all");
	if (rc == 0)
		rc = take_targets(p, r, &to, err);
	strv_done(&to);
	return rc;
}

int handle_image_push(struct request *r, struct answer *a, struct error *err)
{
	struct push *p = xcalloc(1, sizeof(*p));
	p->api = r->api;
	p->fd = -1;
	p->done = cJSON_CreateArray();
	if (read_push(p, r, err) != 0) {
		push_free(p);
		return -1;
	}
	p->stream = stream_new(r->api);
	stream_answer(p->stream, r, a);
	if (api_thread(r->api, push_thread, p, err) == 0)
		return 0;
	stream_end(p->stream, cJSON_CreateObject());
	answer_done(a);
	push_free(p);
	return -1;
}
