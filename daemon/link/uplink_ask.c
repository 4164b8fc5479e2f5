/* What a worker asks its controller over the link: see upstream.h. */
#include "daemon/link/uplink_priv.h"

#include "daemon/worker/mailbox.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

enum { ASK_MS = 15 * 1000, QUICK_MS = 5 * 1000 };

static struct uplink *of(struct upstream *up)
{
	return container_of(up, struct uplink, up);
}

int uplink_ask(struct uplink *u, const char *method, cJSON *take_j, int64_t timeout_ms, struct buf *ret, struct error *err)
{
	auto_json *j = take_j;
	auto_free char *text = j ? json_print(j) : xstrdup("");
	struct call_out q = { .method = method, .body = text, .n = strlen(text), .timeout_ms = timeout_ms };
	return call_ask(u->calls, &q, ret, err);
}

static bool connected(struct upstream *up)
{
	struct uplink *u = of(up);
	pthread_mutex_lock(&u->lock);
	bool yes = u->up_now;
	pthread_mutex_unlock(&u->lock);
	return yes;
}

static cJSON *about(const char *key, const struct id *id)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, key, id->text);
	return j;
}

/* Kept also while nobody hears it: the next greeting has it. */
static void keep_report(struct uplink *u, const struct node_report *r)
{
	struct node_report copy = *r;
	copy.labels = (struct map)MAP_INIT;
	map_copy(&copy.labels, &r->labels);
	pthread_mutex_lock(&u->lock);
	map_done(&u->report.labels);
	u->report = copy;
	u->has_report = true;
	pthread_mutex_unlock(&u->lock);
}

static int heartbeat(struct upstream *up, const struct node_report *r, struct error *err)
{
	keep_report(of(up), r);
	if (!connected(up))
		return error_set(err, ERR_UNAVAILABLE, "the link to the controller is down");
	return uplink_ask(of(up), "heartbeat", report_to_json(r), ASK_MS, NULL, err);
}

static void hold(struct uplink *u, const struct id *operation, bool yes)
{
	pthread_mutex_lock(&u->lock);
	if (yes)
		strv_add(&u->held, operation->text);
	for (size_t i = 0; !yes && i < u->held.len; i++) {
		if (strcmp(u->held.items[i], operation->text) != 0)
			continue;
		free(u->held.items[i]);
		u->held.items[i] = u->held.items[--u->held.len];
		u->held.items[u->held.len] = NULL;
		i--;
	}
	pthread_mutex_unlock(&u->lock);
}

static int lease(struct upstream *up, const struct id *node, struct lease *ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	auto_json *j = NULL;
	(void)node;
	if (!connected(up))
		return 0;
	if (uplink_ask(of(up), "lease", NULL, ASK_MS, &answer, err) != 0)
		return -1;
	if (answer.len == 0)
		return 0;
	if (json_parse(answer.data, answer.len, &j, err) != 0 || lease_from_json(j, ret, err) != 0)
		return -1;
	hold(of(up), &ret->operation, true);
	return 1;
}

static void on_work(struct upstream *up, const struct id *node, void (*fn)(void *ctx), void *ctx)
{
	struct uplink *u = of(up);
	(void)node;
	pthread_mutex_lock(&u->lock);
	u->on_work = fn;
	u->work_ctx = ctx;
	pthread_mutex_unlock(&u->lock);
}

static void on_connect(struct upstream *up, int (*fn)(void *ctx, struct error *err), void *ctx)
{
	struct uplink *u = of(up);
	pthread_mutex_lock(&u->lock);
	u->on_connect = fn;
	u->connect_ctx = ctx;
	pthread_mutex_unlock(&u->lock);
}

static bool wants_delete(struct upstream *up, const struct id *sandbox)
{
	auto_buf answer = BUF_INIT;
	struct error err = ERROR_INIT;
	if (!connected(up))
		return false;
	/* One that was placed elsewhere while this node was away is not wanted here. */
	if (uplink_ask(of(up), "wants_delete", about("sandbox", sandbox), QUICK_MS, &answer, &err) != 0)
		return err.code == ERR_FORBIDDEN;
	return strcmp(buf_str(&answer), "yes") == 0;
}

static int64_t deadline(struct upstream *up, const struct id *sandbox)
{
	auto_buf answer = BUF_INIT;
	int64_t us = 0;
	if (!connected(up) || uplink_ask(of(up), "deadline", about("sandbox", sandbox), QUICK_MS, &answer, NULL) != 0 ||
	    parse_i64("deadline", buf_str(&answer), 0, INT64_MAX, &us, NULL) != 0)
		return 0;
	return us;
}

static int complete(struct upstream *up, const struct completion *done, struct error *err)
{
	struct error e = ERROR_INIT;
	int rc = uplink_ask(of(up), "complete", completion_to_json(done), ASK_MS, NULL, &e);
	if (rc == 0 || e.code == ERR_FORBIDDEN || e.code == ERR_NOT_FOUND)
		hold(of(up), &done->operation, false);
	return rc == 0 ? 0 : error_set(err, e.code, "%s", e.message);
}

static void progress(struct upstream *up, const struct id *operation, const char *text)
{
	cJSON *j = about("operation", operation);
	json_add_str(j, "text", text);
	if (!connected(up)) {
		cJSON_Delete(j);
		return;
	}
	if (uplink_ask(of(up), "progress", j, QUICK_MS, NULL, NULL) != 0)
		log_debug("link", "progress of operation=%s is not told", operation->text);
}

static int sandbox_gone(struct upstream *up, const struct id *sandbox, const char *why, struct error *err)
{
	cJSON *j = about("sandbox", sandbox);
	json_add_str(j, "why", why);
	return uplink_ask(of(up), "gone", j, ASK_MS, NULL, err);
}

static int desired(struct upstream *up, const struct id *node, struct sandbox_list *ret_sandboxes, struct operation_list *ret_execs,
		   struct error *err)
{
	auto_buf answer = BUF_INIT;
	(void)node;
	if (!connected(up))
		return error_set(err, ERR_UNAVAILABLE, "the link to the controller is down");
	if (uplink_ask(of(up), "desired", NULL, ASK_MS, &answer, err) != 0)
		return -1;
	return desired_from_lines(answer.data, answer.len, ret_sandboxes, ret_execs, err);
}

static void wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

static int secrets(struct upstream *up, const struct id *node, const struct id *sandbox, struct secret_values *ret, struct error *err)
{
	struct buf answer = BUF_INIT;
	(void)node;
	int rc = uplink_ask(of(up), "secrets", about("sandbox", sandbox), ASK_MS, &answer, err);
	if (rc == 0)
		rc = secret_values_from_bytes(answer.data, answer.len, ret, err);
	wipe(&answer);
	return rc;
}

static int registry_login(struct upstream *up, const struct id *node, const struct id *sandbox, struct secret *ret, struct error *err)
{
	struct buf answer = BUF_INIT;
	(void)node;
	int rc = uplink_ask(of(up), "registry_login", about("sandbox", sandbox), ASK_MS, &answer, err);
	if (rc == 0 && answer.len > 0 && !login_valid(answer.data, answer.len))
		rc = error_set(err, ERR_PROTOCOL, "the controller's login for a registry is none");
	if (rc == 0 && answer.len > 0)
		secret_set(ret, answer.data, answer.len);
	wipe(&answer);
	return rc;
}

static int egress(struct upstream *up, const struct id *node, const struct id *sandbox, struct egress_terms *ret, struct error *err)
{
	auto_buf answer = BUF_INIT;
	auto_json *j = NULL;
	(void)node;
	if (uplink_ask(of(up), "egress", about("sandbox", sandbox), ASK_MS, &answer, err) != 0 ||
	    json_parse(buf_str(&answer), answer.len, &j, err) != 0)
		return -1;
	return egress_terms_from_json(j, ret, err);
}

static void egress_denied(struct upstream *up, const struct id *sandbox, const char *detail)
{
	cJSON *j = about("sandbox", sandbox);
	json_add_str(j, "detail", detail);
	if (!connected(up)) {
		cJSON_Delete(j);
		return;
	}
	if (uplink_ask(of(up), "egress_denied", j, QUICK_MS, NULL, NULL) != 0)
		log_debug("link", "a refusal is not told sandbox=%s", sandbox->text);
}

/* The greeting says what this process holds: nothing. */
static int requeue(struct upstream *up, const struct id *node, struct error *err)
{
	(void)up;
	(void)node;
	(void)err;
	return 0;
}

struct reporting {
	struct id operation;
	upstream_done done;
	void *ctx;
};

static void on_reported(void *ctx, const struct buf *answer, const struct error *err)
{
	struct reporting *r = ctx;
	(void)answer;
	/* What the controller does not know is not told again. */
	bool settled = err && (err->code == ERR_NOT_FOUND || err->code == ERR_FORBIDDEN);
	if (settled)
		log_warn("link", "the end of operation=%s is of no use to the controller: %s", r->operation.text, err->message);
	r->done(r->ctx, &r->operation, settled ? NULL : err);
	free(r);
}

static void exec_end(struct upstream *up, const struct exec_report *report, upstream_done done, void *ctx)
{
	struct reporting *r = xcalloc(1, sizeof(*r));
	auto_tlv body = TLV_INIT;
	size_t n;
	exec_report_to_tlv(report, &body);
	const void *raw = tlv_raw(&body, &n);
	*r = (struct reporting){ .operation = report->operation, .done = done, .ctx = ctx };
	call_post(of(up)->calls, "exec_end", raw, n, on_reported, r);
}

static void free_nothing(struct upstream *up)
{
	(void)up;
}

const struct upstream_ops uplink_ops = {
	.connected = connected,
	.on_connect = on_connect,
	.heartbeat = heartbeat,
	.lease = lease,
	.on_work = on_work,
	.wants_delete = wants_delete,
	.deadline = deadline,
	.complete = complete,
	.progress = progress,
	.sandbox_gone = sandbox_gone,
	.desired = desired,
	.secrets = secrets,
	.registry_login = registry_login,
	.egress = egress,
	.egress_denied = egress_denied,
	.requeue = requeue,
	.exec_end = exec_end,
	.free = free_nothing,
};
