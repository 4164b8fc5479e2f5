/* The port of a node at the other end of a link: see node_port.h. */
#include "daemon/link/codec.h"
#include "daemon/link/link_priv.h"
#include "daemon/link/splice.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

enum { ASK_MS = 20 * 1000, SLOW_MS = 120 * 1000 };

static struct remote_node *of(struct node_port *n)
{
	return container_of(n, struct remote_node, port);
}

static void ignore(void *ctx, const struct buf *answer, const struct error *err)
{
	(void)ctx;
	(void)answer;
	(void)err;
}

void remote_node_notify(struct remote_node *n)
{
	atomic_store(&n->notified, false);
	if (n->current)
		call_post(n->calls, "work", NULL, 0, ignore, NULL);
}

static int not_connected(const struct remote_node *n, struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "node %s is not connected: its sandboxes go on there; try again when its worker is back", n->port.name);
}

static int reachable(struct node_port *p, struct error *err)
{
	return atomic_load(&of(p)->reachable) ? 0 : not_connected(of(p), err);
}

/* --- streams --- */

static int open_stream(struct node_port *p, struct mux *client, uint32_t stream, const struct node_stream *what, struct error *err)
{
	struct remote_node *n = of(p);
	struct node_stream there = *what;
	if (n->current && n->ready)
		return splice_open(muxconn_mux(n->current->conn), client, stream, what, err);
	if (n->current || !n->via_mux)
		return not_connected(n, err);
	there.node = &n->port.id;
	return splice_open(n->via_mux, client, stream, &there, err);
}

struct detached {
	struct remote_node *n;
	struct exec_grant grant;
	struct command cmd;
};

static void do_start_detached(void *arg)
{
	struct detached *d = arg;
	struct node_stream what = { .kind = MUX_KIND_EXEC, .sandbox = d->grant.sandbox, .grant = &d->grant, .command = &d->cmd, .detached = true };
	struct error err = ERROR_INIT, e = ERROR_INIT;
	if (open_stream(&d->n->port, NULL, 0, &what, &err) != 0 &&
	    controller_exec_end(d->n->s->o.controller, &d->grant.operation, NULL, err.code, err.message, &e) != 0)
		log_error("link", "recording the end of operation=%s: %s", d->grant.operation.text, e.message);
	command_done(&d->cmd);
	free(d);
}

static void start_detached(struct node_port *p, const struct exec_grant *grant, const struct command *cmd)
{
	struct detached *d = xcalloc(1, sizeof(*d));
	d->n = of(p);
	d->grant = *grant;
	command_init(&d->cmd);
	command_copy(&d->cmd, cmd);
	mailbox_post(d->n->s->o.mail, do_start_detached, d);
}

/* --- calls --- */

static int ask(struct node_port *p, const char *method, cJSON *take_j, int64_t timeout_ms, struct buf *ret, struct error *err)
{
	auto_json *j = take_j;
	auto_free char *text = j ? json_print(j) : xstrdup("");
	struct call_out q = { .method = method, .body = text, .n = strlen(text), .timeout_ms = timeout_ms };
	return call_ask(of(p)->calls, &q, ret, err);
}

static int ask_json(struct node_port *p, const char *method, cJSON *take_j, int64_t timeout_ms, cJSON **ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	if (ask(p, method, take_j, timeout_ms, &answer, err) != 0)
		return -1;
	return json_parse(buf_str(&answer), answer.len, ret, err);
}

static cJSON *about(const char *key, const struct id *id)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, key, id->text);
	return j;
}

struct moved {
	struct remote_node *n;
	char *body;
};

static void do_moved(void *arg)
{
	struct moved *m = arg;
	call_post(m->n->calls, "deadline_moved", m->body, strlen(m->body), ignore, NULL);
	free(m->body);
	free(m);
}

static void deadline_moved(struct node_port *p, const struct id *sandbox)
{
	struct moved *m = xcalloc(1, sizeof(*m));
	auto_json *j = about("sandbox", sandbox);
	m->n = of(p);
	m->body = json_print(j);
	mailbox_post(m->n->s->o.mail, do_moved, m);
}

static int cancel(struct node_port *p, const struct id *operation, int signal, struct error *err)
{
	cJSON *j = about("operation", operation);
	json_add_i64(j, "signal", signal);
	return ask(p, "cancel", j, ASK_MS, NULL, err);
}

static int stats(struct node_port *p, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader r;
	int64_t v[5] = { 0 };
	static const char *const keys[] = { "cpu_us", "memory_bytes", "memory_limit_bytes", "pids", "pids_limit" };
	if (ask_json(p, "stats", about("sandbox", sandbox), ASK_MS, &j, err) != 0)
		return -1;
	json_reader_init(&r, j, "", err);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		json_get_i64(&r, keys[i], JSON_REQUIRED, 0, INT64_MAX, &v[i]);
	if (!json_ok(&r))
		return -1;
	*ret = (struct runtime_stats){ .cpu_us = (uint64_t)v[0], .memory_bytes = (uint64_t)v[1], .memory_limit_bytes = (uint64_t)v[2],
				       .pids = (uint64_t)v[3], .pids_limit = (uint64_t)v[4] };
	return 0;
}

static void get_text(struct json_reader *r, const char *key, char *ret, size_t n)
{
	auto_free char *text = NULL;
	json_get_str(r, key, JSON_REQUIRED, n - 1, &text);
	snprintf(ret, n, "%s", text ? text : "");
}

static size_t take_checks(const cJSON *j, struct check_row *ret, size_t max, struct error *err)
{
	struct json_reader r, one;
	const cJSON *rows;
	json_reader_init(&r, j, "", err);
	size_t n = json_get_array(&r, "checks", JSON_REQUIRED, max, &rows);
	for (size_t i = 0; i < n && json_element(&r, "checks", rows, i, &one); i++) {
		get_text(&one, "part", ret[i].part, sizeof(ret[i].part));
		get_text(&one, "status", ret[i].status, sizeof(ret[i].status));
		get_text(&one, "detail", ret[i].detail, sizeof(ret[i].detail));
		get_text(&one, "remedy", ret[i].remedy, sizeof(ret[i].remedy));
	}
	return json_ok(&r) ? n : 0;
}

static size_t checks(struct node_port *p, struct check_row *ret, size_t max)
{
	auto_json *j = NULL;
	struct error err = ERROR_INIT;
	if (max == 0)
		return 0;
	size_t n = ask_json(p, "checks", NULL, SLOW_MS, &j, &err) == 0 ? take_checks(j, ret, max, &err) : 0;
	if (n > 0)
		return n;
	ret[0] = (struct check_row){ .part = "node", .status = "fail" };
	snprintf(ret[0].detail, sizeof(ret[0].detail), "%s: %s", p->name, err.message);
	snprintf(ret[0].remedy, sizeof(ret[0].remedy), "look at the worker's log and its network; sandbox node remove %s when it is gone for good", p->name);
	return 1;
}

static int leaks(struct node_port *p, worker_leak_fn fn, void *ctx, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader r, one;
	const cJSON *rows;
	if (ask_json(p, "leaks", NULL, SLOW_MS, &j, err) != 0)
		return -1;
	json_reader_init(&r, j, "", err);
	size_t n = json_get_array(&r, "leaks", JSON_REQUIRED, SIZE_MAX, &rows);
	for (size_t i = 0; i < n && json_element(&r, "leaks", rows, i, &one); i++) {
		char kind[32], name[4096], owner[ID_TEXT_LEN + 1], evidence[512];
		struct leak leak = { .kind = kind, .name = name, .evidence = evidence };
		get_text(&one, "kind", kind, sizeof(kind));
		get_text(&one, "name", name, sizeof(name));
		get_text(&one, "owner", owner, sizeof(owner));
		get_text(&one, "evidence", evidence, sizeof(evidence));
		if (json_ok(&one) && id_parse(owner, &leak.owner) == 0)
			fn(ctx, &leak);
	}
	return json_ok(&r) ? 0 : -1;
}

static int reconcile(struct node_port *p, struct error *err)
{
	return ask(p, "reconcile", NULL, SLOW_MS, NULL, err);
}

static int network(struct node_port *p, const struct id *sandbox, const char *target, cJSON **ret, struct error *err)
{
	cJSON *j = about("sandbox", sandbox);
	json_add_str(j, "target", target);
	return ask_json(p, "network", j, ASK_MS, ret, err);
}

/* One that is away asks when it is back. */
static void network_changed(struct node_port *p, const struct id *sandbox)
{
	struct error err = ERROR_INIT;
	if (ask(p, "network_changed", sandbox ? about("sandbox", sandbox) : cJSON_CreateObject(), ASK_MS, NULL, &err) != 0)
		log_warn("link", "node=%s does not hear yet that rules of egress changed: %s", p->name, err.message);
}

/* --- images --- */

static int take_images(const struct buf *answer, struct image_list *ret, struct error *err)
{
	auto_json *j = NULL;
	if (json_parse(buf_str(answer), answer->len, &j, err) != 0)
		return -1;
	return images_from_json(j, ret, err);
}

static int image_list(struct node_port *p, struct image_list *ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	return ask(p, "images", NULL, SLOW_MS, &answer, err) == 0 ? take_images(&answer, ret, err) : -1;
}

static cJSON *named(const char *name)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", name);
	return j;
}

static int image_remove(struct node_port *p, const char *name, struct error *err)
{
	return ask(p, "image_remove", named(name), SLOW_MS, NULL, err);
}

/* An answer in lines: progress, then the image. */
struct pulling {
	runtime_progress progress;
	void *ctx;
	struct buf line;
	struct buf last;
};

static bool take_line(struct pulling *x)
{
	auto_json *j = NULL;
	auto_free char *text = NULL;
	struct json_reader r;
	struct error err = ERROR_INIT;
	int64_t percent = -1;
	bool wanted = true;
	if (json_parse(buf_str(&x->line), x->line.len, &j, &err) == 0) {
		json_reader_init(&r, j, "", &err);
		json_get_str(&r, "progress", JSON_OPTIONAL, LIMIT_JSON_BYTES_MAX, &text);
		json_get_i64(&r, "percent", JSON_OPTIONAL, -1, 100, &percent);
	}
	if (text && x->progress) {
		wanted = x->progress(x->ctx, text, (int)percent);
	} else if (!text) {
		buf_reset(&x->last);
		buf_add(&x->last, x->line.data, x->line.len);
	}
	buf_reset(&x->line);
	return wanted;
}

static bool on_lines(void *ctx, const void *p, size_t n)
{
	struct pulling *x = ctx;
	const char *at = p;
	bool wanted = true;
	for (const char *end; n > 0 && (end = memchr(at, '\n', n)); n -= (size_t)(end - at) + 1, at = end + 1) {
		buf_add(&x->line, at, (size_t)(end - at));
		wanted &= take_line(x);
	}
	buf_add(&x->line, at, n);
	return wanted;
}

static int image_pull(struct node_port *n, const struct image_pull *p, struct image_list *ret, struct error *err)
{
	struct pulling x = { .progress = p->progress, .ctx = p->ctx, .line = BUF_INIT_MAX(LIMIT_JSON_BYTES_MAX) };
	cJSON *j = pull_to_json(p);
	auto_free char *text = json_print(j);
	struct call_out q = { .method = "image_pull", .body = text, .n = strlen(text), .timeout_ms = SLOW_MS, .on_data = on_lines, .ctx = &x };
	int rc = call_ask(of(n)->calls, &q, NULL, err);
	if (rc == 0)
		rc = take_images(&x.last, ret, err);
	buf_done(&x.line);
	buf_done(&x.last);
	pull_wipe(j);
	cJSON_Delete(j);
	explicit_bzero(text, strlen(text));
	return rc;
}

static int image_save(struct node_port *p, const char *name, image_sink sink, void *ctx, struct error *err)
{
	auto_json *j = named(name);
	auto_free char *text = json_print(j);
	struct call_out q = { .method = "image_save", .body = text, .n = strlen(text), .timeout_ms = SLOW_MS, .on_data = sink, .ctx = ctx };
	return call_ask(of(p)->calls, &q, NULL, err);
}

static int image_mark(struct node_port *p, const char *name, struct error *err)
{
	return ask(p, "image_mark", named(name), SLOW_MS, NULL, err);
}

static int image_load(struct node_port *p, const char *name, int fd, struct image_list *ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	struct call_out q = { .method = "image_load", .argument = name, .from_fd = true, .body_fd = fd, .timeout_ms = SLOW_MS };
	return call_ask(of(p)->calls, &q, &answer, err) == 0 ? take_images(&answer, ret, err) : -1;
}

static int image_import(struct node_port *p, const char *name, int fd, struct image_list *ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	struct call_out q = { .method = "image_import", .argument = name, .from_fd = true, .body_fd = fd, .timeout_ms = SLOW_MS };
	return call_ask(of(p)->calls, &q, &answer, err) == 0 ? take_images(&answer, ret, err) : -1;
}

const struct node_ops remote_node_ops = {
	.open = open_stream,
	.reachable = reachable,
	.start_detached = start_detached,
	.deadline_moved = deadline_moved,
	.cancel = cancel,
	.network = network,
	.network_changed = network_changed,
	.stats = stats,
	.checks = checks,
	.leaks = leaks,
	.reconcile = reconcile,
	.image_list = image_list,
	.image_remove = image_remove,
	.image_pull = image_pull,
	.image_save = image_save,
	.image_mark = image_mark,
	.image_load = image_load,
	.image_import = image_import,
};
