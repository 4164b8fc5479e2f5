/* What the controller asks of a worker over the link, answered by the process's own port. */
#include "daemon/link/uplink_priv.h"

#include "daemon/link/refusal.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

enum { CHECKS_MAX = 64 };

struct asked {
	struct uplink *u;
	struct node_port *own;
	struct call_in *call;
	cJSON *j;
	struct buf *answer;
};

static void add_json(struct buf *out, cJSON *take_j)
{
	auto_json *j = take_j;
	auto_free char *text = json_print(j);
	buf_adds(out, text);
}

static int get_id(const struct asked *a, const char *key, struct id *ret, struct error *err)
{
	struct json_reader r;
	auto_free char *text = NULL;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, key, JSON_REQUIRED, ID_TEXT_LEN, &text);
	if (text && id_parse(text, ret) != 0)
		json_fail(&r, key, "is not an id");
	return json_ok(&r) ? 0 : -1;
}

static int work(const struct asked *a, struct error *err)
{
	struct uplink *u = a->u;
	(void)err;
	pthread_mutex_lock(&u->lock);
	if (u->on_work)
		u->on_work(u->work_ctx);
	pthread_mutex_unlock(&u->lock);
	return 0;
}

static int deadline_moved(const struct asked *a, struct error *err)
{
	struct id sandbox;
	if (get_id(a, "sandbox", &sandbox, err) != 0)
		return -1;
	a->own->ops->deadline_moved(a->own, &sandbox);
	return 0;
}

static int cancel(const struct asked *a, struct error *err)
{
	struct json_reader r;
	struct id operation;
	int64_t sig = 0;
	json_reader_init(&r, a->j, "", err);
	json_get_i64(&r, "signal", JSON_REQUIRED, 0, 64, &sig);
	if (!json_ok(&r) || get_id(a, "operation", &operation, err) != 0)
		return -1;
	return a->own->ops->cancel(a->own, &operation, (int)sig, err);
}

static int stats(const struct asked *a, struct error *err)
{
	struct id sandbox;
	struct runtime_stats s;
	if (get_id(a, "sandbox", &sandbox, err) != 0 || a->own->ops->stats(a->own, &sandbox, &s, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	json_add_i64(j, "cpu_us", (int64_t)s.cpu_us);
	json_add_i64(j, "memory_bytes", (int64_t)s.memory_bytes);
	json_add_i64(j, "memory_limit_bytes", (int64_t)s.memory_limit_bytes);
	json_add_i64(j, "pids", (int64_t)s.pids);
	json_add_i64(j, "pids_limit", (int64_t)s.pids_limit);
	add_json(a->answer, j);
	return 0;
}

static int checks(const struct asked *a, struct error *err)
{
	auto_free struct check_row *rows = xcalloc(CHECKS_MAX, sizeof(*rows));
	size_t n = a->own->ops->checks(a->own, rows, CHECKS_MAX);
	cJSON *j = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(j, "checks");
	(void)err;
	for (size_t i = 0; i < n; i++) {
		cJSON *one = cJSON_CreateObject();
		json_add_str(one, "part", rows[i].part);
		json_add_str(one, "status", rows[i].status);
		json_add_str(one, "detail", rows[i].detail);
		json_add_str(one, "remedy", rows[i].remedy);
		cJSON_AddItemToArray(list, one);
	}
	add_json(a->answer, j);
	return 0;
}

static void add_leak(void *ctx, const struct leak *leak)
{
	cJSON *one = cJSON_CreateObject();
	json_add_str(one, "kind", leak->kind);
	json_add_str(one, "name", leak->name);
	json_add_str(one, "owner", leak->owner.text);
	json_add_str(one, "evidence", leak->evidence);
	cJSON_AddItemToArray(ctx, one);
}

static int leaks(const struct asked *a, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(j, "leaks");
	if (a->own->ops->leaks(a->own, add_leak, list, err) != 0)
		return -1;
	add_json(a->answer, steal(&j));
	return 0;
}

static int reconcile(const struct asked *a, struct error *err)
{
	return a->own->ops->reconcile(a->own, err);
}

static int network(const struct asked *a, struct error *err)
{
	struct json_reader r;
	struct id sandbox;
	auto_free char *target = NULL;
	cJSON *seen = NULL;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, "target", JSON_OPTIONAL, EGRESS_RULE_TEXT_MAX, &target);
	if (!json_ok(&r) || get_id(a, "sandbox", &sandbox, err) != 0 || a->own->ops->network(a->own, &sandbox, target, &seen, err) != 0)
		return -1;
	add_json(a->answer, seen);
	return 0;
}

static int network_changed(const struct asked *a, struct error *err)
{
	struct id sandbox;
	bool one = cJSON_HasObjectItem(a->j, "sandbox");
	if (one && get_id(a, "sandbox", &sandbox, err) != 0)
		return -1;
	a->own->ops->network_changed(a->own, one ? &sandbox : NULL);
	return 0;
}

/* --- images --- */

static int answer_images(const struct asked *a, struct image_list *take_l)
{
	add_json(a->answer, images_to_json(take_l));
	image_list_done(take_l);
	return 0;
}

static int images(const struct asked *a, struct error *err)
{
	struct image_list l = { .len = 0 };
	return a->own->ops->image_list(a->own, &l, err) == 0 ? answer_images(a, &l) : -1;
}

static int get_name(const struct asked *a, char **ret, struct error *err)
{
	struct json_reader r;
	json_reader_init(&r, a->j, "", err);
	json_get_str(&r, "name", JSON_REQUIRED, LIMIT_IMAGE_NAME_MAX, ret);
	return json_ok(&r) ? 0 : -1;
}

static int image_remove(const struct asked *a, struct error *err)
{
	auto_free char *name = NULL;
	return get_name(a, &name, err) == 0 ? a->own->ops->image_remove(a->own, name, err) : -1;
}

static bool on_progress(void *ctx, const char *text, int percent)
{
	const struct asked *a = ctx;
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "progress", text);
	json_add_i64(j, "percent", percent);
	auto_free char *print = json_print(j);
	auto_free char *line = xasprintf("%s\n", print);
	return call_send(a->call, line, strlen(line));
}

static int image_pull(const struct asked *a, struct error *err)
{
	auto_free char *name = NULL;
	auto_secret login = SECRET_INIT;
	struct image_list l;
	int rc = pull_from_json(a->j, &name, &login, err);
	pull_wipe(a->j);
	struct image_pull p = { .image = name, .login = &login, .progress = on_progress, .ctx = (void *)(uintptr_t)a };
	if (rc != 0 || a->own->ops->image_pull(a->own, &p, &l, err) != 0)
		return -1;
	answer_images(a, &l);
	buf_addc(a->answer, '\n');
	return 0;
}

static bool on_piece(void *ctx, const void *p, size_t n)
{
	const struct asked *a = ctx;
	return call_send_all(a->call, p, n);
}

static int image_save(const struct asked *a, struct error *err)
{
	auto_free char *name = NULL;
	return get_name(a, &name, err) == 0 ? a->own->ops->image_save(a->own, name, on_piece, (void *)(uintptr_t)a, err) : -1;
}

static int image_mark(const struct asked *a, struct error *err)
{
	auto_free char *name = NULL;
	return get_name(a, &name, err) == 0 ? a->own->ops->image_mark(a->own, name, err) : -1;
}

static int image_load(const struct asked *a, struct error *err)
{
	const char *name = call_argument(a->call);
	struct image_list l;
	if (!name || strlen(name) > LIMIT_IMAGE_NAME_MAX)
		return error_set(err, ERR_INVALID, "an archive without the image's name");
	return a->own->ops->image_load(a->own, name, call_file(a->call), &l, err) == 0 ? answer_images(a, &l) : -1;
}

static int image_import(const struct asked *a, struct error *err)
{
	const char *name = call_argument(a->call);
	struct image_list l;
	if (!name || strlen(name) > LIMIT_IMAGE_NAME_MAX)
		return error_set(err, ERR_INVALID, "an import without a name");
	return a->own->ops->image_import(a->own, name, call_file(a->call), &l, err) == 0 ? answer_images(a, &l) : -1;
}

static const struct {
	const char *name;
	bool json;
	int (*answer)(const struct asked *a, struct error *err);
} methods[] = {
	{ "work", false, work },
	{ "deadline_moved", true, deadline_moved },
	{ "cancel", true, cancel },
	{ "stats", true, stats },
	{ "network", true, network },
	{ "network_changed", true, network_changed },
	{ "checks", false, checks },
	{ "leaks", false, leaks },
	{ "reconcile", false, reconcile },
	{ "images", false, images },
	{ "image_remove", true, image_remove },
	{ "image_pull", true, image_pull },
	{ "image_save", true, image_save },
	{ "image_mark", true, image_mark },
	{ "image_load", false, image_load },
	{ "image_import", false, image_import },
};

int uplink_answer(void *ctx, struct call_in *c, struct buf *answer, struct error *err)
{
	struct uplink *u = ctx;
	auto_json *j = NULL;
	struct asked a = { .u = u, .own = u->own, .call = c, .answer = answer };
	const struct buf *body = call_body(c);
	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		if (strcmp(methods[i].name, call_method(c)) != 0)
			continue;
		if (methods[i].json && json_parse(buf_str(body), body->len, &j, err) != 0)
			return -1;
		a.j = j;
		return methods[i].answer(&a, err);
	}
	return error_set(err, ERR_INVALID, "this worker does not know '%.40s': update it", call_method(c));
}

/* --- streams --- */

static void ignore_done(void *ctx, const struct id *operation, const struct error *err)
{
	(void)ctx;
	if (err)
		log_warn("link", "recording the refusal of operation=%s: %s", operation->text, err->message);
}

/* A command is running by its record: refused, it ends there. */
static void not_started(struct uplink *u, const struct tlv *fields, const struct error *why)
{
	struct exec_report report = { .code = why->code, .error = why->message };
	auto_free char *id = NULL;
	if (tlv_u64(fields, MUX_F_KIND, 0) == MUX_KIND_EXEC && tlv_str(fields, MUX_F_OPERATION, ID_TEXT_LEN, &id, NULL) == 0 && id &&
	    id_parse(id, &report.operation) == 0)
		u->up.ops->exec_end(&u->up, &report, ignore_done, NULL);
}

void uplink_opened(struct uplink *u, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct node_stream what;
	struct error err = ERROR_INIT;
	auto_tlv refusal = TLV_INIT;
	int rc = node_stream_from_tlv(fields, &what, &err);
	if (rc == 0) {
		rc = u->own->ops->open(u->own, m, stream, &what, &err);
		node_stream_done(&what);
	}
	if (rc == 0)
		return;
	not_started(u, fields, &err);
	refusal_fields(&refusal, mux_error_of_code(err.code), err.message);
	mux_close(m, stream, &refusal);
}
