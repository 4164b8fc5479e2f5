/* Waiting for an operation with long polls: see create.h. The server's restart in the meantime is waited out. */
#include "cli/create.h"

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { POLL_SLOW_S = 10, RETRY_MS = 200, AWAY_MAX_MS = 15 * 1000 };

struct waiting {
	struct cli *cli;
	const char *id;
	int64_t deadline_ms; /* -1: none */
	int64_t away_ms;     /* since when the server does not answer; 0: it does */
	bool near, away;     /* near: a node that is away is not waited for; away: it is */
	char *now;           /* what the operation is doing, by the server's word; NULL: nothing said */
};

static int timed_out(const struct waiting *w, int64_t timeout_ms, struct error *err)
{
	cli_hint(w->cli, "the operation goes on; look again with `sandbox wait %s`", w->id);
	return error_set(err, ERR_TIMEOUT, "operation %s has not ended within %.3g s; its outcome is unknown", w->id,
			 (double)timeout_ms / 1000.0);
}

static int64_t poll_seconds(const struct waiting *w)
{
	int64_t s = w->cli->progress ? 1 : POLL_SLOW_S;
	if (w->deadline_ms >= 0) {
		int64_t left = (w->deadline_ms - clock_mono_ms() + 999) / 1000;
		s = left < s ? left : s;
	}
	return s < 1 ? 1 : s;
}

/* One long poll. 1: ended, 0: not yet, -1. */
static int ask(struct waiting *w, cJSON **ret, struct error *err)
{
	int64_t seconds = poll_seconds(w);
	auto_free char *path = session_path("/v1/operations/%s", w->id);
	auto_free char *target = xasprintf("%s?wait=%lld", path, (long long)seconds);
	auto_json *j = NULL;
	struct call c = { .method = "GET", .target = target, .timeout_ms = (seconds + 15) * 1000, .no_start = true };
	if (session_call(w->cli, &c, &j, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(j, "operation");
	const char *state = json_text(op, "state");
	if (strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0) {
		*ret = op;
		return 1;
	}
	bool sane = *state != '\0';
	free(w->now);
	w->now = xstrdup(json_text(op, "progress"));
	w->away = w->near && json_flag(op, "unreachable");
	cJSON_Delete(op);
	return sane ? 0 : error_set(err, ERR_PROTOCOL, "the server's answer holds no operation");
}

/* Whether a failed poll is worth another: the server is away, for a while. */
static bool retryable(struct waiting *w, const struct error *err)
{
	int64_t now = clock_mono_ms();
	if (err->code != ERR_UNREACHABLE && err->code != ERR_UNAVAILABLE)
		return false;
	if (!w->away_ms)
		w->away_ms = now;
	if (now - w->away_ms > AWAY_MAX_MS)
		return false;
	struct pollfd p = { .fd = interrupt_fd(), .events = POLLIN };
	return poll(&p, 1, RETRY_MS) <= 0;
}

static int node_away(const struct waiting *w, struct error *err)
{
	cli_hint(w->cli, "it is recorded; wait for it with `sandbox wait %s`", w->id);
	return error_set(err, ERR_TIMEOUT, "operation %s: %s", w->id, w->now);
}

static int wait_for(struct cli *cli, const char *id, bool near, const char *doing, int64_t timeout_ms, cJSON **ret, struct error *err)
{
	struct waiting w = { .cli = cli, .id = id, .near = near, .deadline_ms = timeout_ms < 0 ? -1 : clock_mono_ms() + timeout_ms };
	struct progress p;
	progress_begin(&p, cli);
	int r;
	for (;;) {
		struct error e = ERROR_INIT;
		r = ask(&w, ret, &e);
		if (r > 0)
			break;
		if (r < 0 && !retryable(&w, &e)) {
			if (err)
				*err = e;
			break;
		}
		if (r == 0 && w.away) {
			r = node_away(&w, err);
			break;
		}
		if (r == 0)
			w.away_ms = 0;
		if (w.deadline_ms >= 0 && clock_mono_ms() >= w.deadline_ms) {
			r = timed_out(&w, timeout_ms, err);
			break;
		}
		if (w.away_ms)
			progress_update(&p, "%s, the server does not answer", doing);
		else
			progress_update(&p, "%s%s%s", doing, w.now && *w.now ? ": " : "", w.now ? w.now : "");
	}
	progress_end(&p);
	free(w.now);
	return r > 0 ? 0 : -1;
}

int operation_wait(struct cli *cli, const char *id, const char *doing, int64_t timeout_ms, cJSON **ret, struct error *err)
{
	return wait_for(cli, id, false, doing, timeout_ms, ret, err);
}

int operation_wait_near(struct cli *cli, const char *id, const char *doing, int64_t timeout_ms, cJSON **ret, struct error *err)
{
	return wait_for(cli, id, true, doing, timeout_ms, ret, err);
}
