/* Requests and waits of a tool call: what may be cut short, and what must not. */
#include "cli/mcp/mcp.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { REQUEST_MS = 20 * 1000, TOLD_EVERY_S = 2, POLL_S = 30, AWAY_MAX_MS = 10 * 1000, RETRY_MS = 200 };

int mcp_request(struct tool_call *c, const struct call_request *q, cJSON **ret, struct error *err)
{
	auto_free char *target = q->target;
	struct idem key = idem_new();
	int interrupt = c->cli.interrupt;
	struct call call = { .method = q->method, .target = target, .body = q->body, .key = q->keyed ? key.text : NULL, .timeout_ms = REQUEST_MS };
	/* Reading may be cut short; a change must be known to have happened or not. */
	if (strcmp(q->method, "GET") != 0)
		c->cli.interrupt = -1;
	int rc = session_call(&c->cli, &call, ret, err);
	c->cli.interrupt = interrupt;
	return rc;
}

bool mcp_ended(const cJSON *operation)
{
	const char *state = json_text(operation, "state");
	return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0;
}

static int was_cancelled(struct error *err)
{
	error_set(err, ERR_TIMEOUT, "the call was cancelled");
	err->sys = EINTR;
	return -1;
}

/* The server is away for a moment, perhaps being restarted: true when another try is worth it. */
static bool try_again(struct tool_call *c, int64_t *away_ms, const struct error *err)
{
	int64_t now = clock_mono_ms();
	if (err->code != ERR_UNREACHABLE && err->code != ERR_UNAVAILABLE)
		return false;
	if (!*away_ms)
		*away_ms = now;
	struct pollfd p = { .fd = c->cli.interrupt, .events = POLLIN };
	return now - *away_ms < AWAY_MAX_MS && poll(&p, 1, RETRY_MS) <= 0;
}

static int ask(struct tool_call *c, const char *operation, int64_t seconds, cJSON **ret, struct error *err)
{
	auto_free char *path = session_path("/v1/operations/%s", operation);
	auto_free char *target = seconds > 0 ? xasprintf("%s?wait=%lld", path, (long long)seconds) : xstrdup(path);
	auto_json *j = NULL;
	struct call call = { .method = "GET", .target = target, .timeout_ms = seconds * 1000 + REQUEST_MS };
	if (session_call(&c->cli, &call, &j, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(j, "operation");
	if (!op)
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no operation");
	*ret = op;
	return 0;
}

static void tell(struct tool_call *c, const char *doing, const cJSON *op)
{
	const char *progress = json_text(op, "progress");
	auto_free char *text = xasprintf("%s for %lld s%s%s", doing, (long long)(clock_mono_ms() - c->started_ms) / 1000, *progress ? ": " : "", progress);
	call_progress(c, text);
}

int mcp_wait(struct tool_call *c, const char *operation, const char *doing, int64_t ms, cJSON **ret, struct error *err)
{
	int64_t until = clock_mono_ms() + ms, away_ms = 0;
	auto_json *op = NULL;
	for (;;) {
		int64_t left = (until - clock_mono_ms() + 999) / 1000, step = c->progress_token ? TOLD_EVERY_S : POLL_S;
		struct error e = ERROR_INIT;
		cJSON *next = NULL;
		if (call_cancelled(c))
			return was_cancelled(err);
		if (ask(c, operation, left < step ? left : step, &next, &e) == 0) {
			cJSON_Delete(op);
			op = next;
			away_ms = 0;
			if (mcp_ended(op) || clock_mono_ms() >= until)
				break;
			tell(c, doing, op);
		} else if (call_cancelled(c)) {
			return was_cancelled(err);
		} else if (clock_mono_ms() >= until || !try_again(c, &away_ms, &e)) {
			*err = e;
			return -1;
		}
	}
	*ret = steal(&op);
	return 0;
}
