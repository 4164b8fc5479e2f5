/* How a command ended: judged from init's CLOSE or from what went wrong, kept in the spool, recorded, then told. */
#include "daemon/worker/exec_priv.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

enum { RECORD_TRIES = 3, RECORD_RETRY_MS = 300, RECORD_RETRY_SLOW_MS = 5000 };

struct spool_end exec_end_text(enum outcome outcome, enum mux_error why, const char *text)
{
	struct spool_end end = { .outcome = outcome, .code = code_of_mux_error(why), .mux_error = (int)why };

	snprintf(end.text, sizeof(end.text), "%s", text);
	return end;
}

/* --- from init --- */

/* Its message, made safe to show; ours when it has none. */
static void take_message(const struct tlv *fields, const char *fallback, char *out, size_t n)
{
	size_t len = 0;
	const char *p = tlv_bytes(fields, MUX_F_MESSAGE, &len);

	if (p && len > 0)
		text_escape(p, len, out, n);
	else
		snprintf(out, n, "%s", fallback);
}

static void judge_error(const struct exec *x, const struct tlv *fields, struct spool_end *end)
{
	uint64_t why = tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);

	if (why > MUX_ERR_IO)
		why = MUX_ERR_REFUSED;
	end->outcome = OUTCOME_NOT_STARTED;
	take_message(fields, "sandbox-init gave no reason", end->text, sizeof(end->text));
	if (x->resuming && why == MUX_ERR_NOT_FOUND)
		snprintf(end->text, sizeof(end->text), "sandbox-init no longer knows the command; whether it ended is unknown");
	/* It may have run: only when init says that it did not, it did not. */
	if (tlv_u64(fields, MUX_F_OUTCOME, OUTCOME_NONE) != OUTCOME_NOT_STARTED &&
	    (x->state == EXEC_RUNNING || x->resuming || why == MUX_ERR_LOST)) {
		end->outcome = OUTCOME_LOST;
		why = MUX_ERR_LOST;
	}
	end->mux_error = (int)why;
	end->code = code_of_mux_error((enum mux_error)why);
}

/* 0, or -1 when the numbers make no sense. */
static int judge_outcome(const struct exec *x, const struct tlv *fields, struct spool_end *end)
{
	uint64_t code = tlv_u64(fields, MUX_F_EXIT_CODE, 0), sig = tlv_u64(fields, MUX_F_SIGNAL, 0);
	uint64_t outcome = tlv_u64(fields, MUX_F_OUTCOME, OUTCOME_NONE);

	if (outcome != OUTCOME_EXITED && outcome != OUTCOME_SIGNALED && outcome != OUTCOME_TIMEOUT && outcome != OUTCOME_CANCELED)
		return -1;
	if (code > 255 || sig > 64 || (outcome == OUTCOME_SIGNALED && sig == 0))
		return -1;
	end->outcome = (enum outcome)outcome;
	if (x->canceling && outcome == OUTCOME_SIGNALED)
		end->outcome = OUTCOME_CANCELED;
	else if (x->rescued && outcome == OUTCOME_SIGNALED && sig == SIGKILL)
		end->outcome = OUTCOME_TIMEOUT; /* the worker's KILL was faster than init's */
	end->exit_code = (int)code;
	end->signal = (int)sig;
	end->oom_killed = tlv_u64(fields, MUX_F_OOM, 0) == 1;
	return 0;
}

/* Init counts every byte it sent; what it counts and never sent is missing from the record. */
static bool totals_match(const struct exec *x, const struct tlv *fields)
{
	return tlv_u64(fields, MUX_F_OFFSET_OUT, exec_total(x, SPOOL_OUT)) == exec_total(x, SPOOL_OUT) &&
	       tlv_u64(fields, MUX_F_OFFSET_ERR, exec_total(x, SPOOL_ERR)) == exec_total(x, SPOOL_ERR);
}

void exec_end_from_init(struct exec *x, const struct tlv *fields)
{
	struct spool_end end = { .outcome = OUTCOME_NONE };

	if (tlv_has(fields, MUX_F_ERROR)) {
		judge_error(x, fields, &end);
	} else if (tlv_u64(fields, MUX_F_OUTCOME, OUTCOME_NONE) == OUTCOME_LOST) {
		end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, "");
		take_message(fields, "sandbox-init lost the command", end.text, sizeof(end.text));
	} else if (judge_outcome(x, fields, &end) != 0) {
		end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, "sandbox-init reported an outcome that cannot be");
	} else if (!totals_match(x, fields)) {
		end.truncated = true;
		log_warn("exec", "output is not whole operation=%s", x->key.text);
	}
	exec_end(x, &end);
	if ((end.outcome == OUTCOME_TIMEOUT || end.outcome == OUTCOME_CANCELED) && tlv_has(fields, MUX_F_MESSAGE))
		execs_starved(x->all, &x->info.sandbox, x->supervisor, true);
}

/* --- the record --- */

/* What a shell would have exited with. */
static int status_of_end(const struct spool_end *end)
{
	if (end->outcome != OUTCOME_NOT_STARTED)
		return end->exit_code;
	if (end->mux_error == MUX_ERR_NO_PROGRAM)
		return 127;
	return end->mux_error == MUX_ERR_NOT_EXECUTABLE || end->mux_error == MUX_ERR_TOO_LARGE ? 126 : 0;
}

static void fill_result(const struct exec *x, struct result *r)
{
	bool cut = x->end.truncated;

	r->outcome = x->end.outcome;
	r->exit_code = status_of_end(&x->end);
	r->signal = x->end.signal;
	r->oom_killed = x->end.oom_killed;
	if (x->spool) {
		cut |= spool_capture(x->spool, SPOOL_OUT, &r->out);
		cut |= spool_capture(x->spool, SPOOL_ERR, &r->err);
	}
	r->truncated = cut;
}

/* The file has done its duty once the record is there, unless it holds more than the record does. */
static void put_away(struct exec *x, bool in_record)
{
	char live[PATH_MAX], kept[PATH_MAX];

	if (!x->spool || spool_path(x->all, SPOOL_LIVE, &x->key, x->info.main, live, sizeof(live)) != 0 ||
	    spool_path(x->all, SPOOL_KEPT, &x->key, x->info.main, kept, sizeof(kept)) != 0)
		return;
	if (in_record)
		(void)unlink(live);
	else if (strcmp(live, kept) != 0 && !spool_degraded(x->spool))
		keeper_archive(x->all->keeper, live, kept);
}

static void recorded(struct exec *x)
{
	x->recorded = x->told = true;
	put_away(x, x->whole);
}

/* The outcome is told once the record is committed. When the store does not take it (a full disk), the tries go on,
 * but those who wait are told after the first few: what happened did happen, and the spool keeps it. */
static void not_recorded(struct exec *x, const struct error *err)
{
	log_error("exec", "recording the end of operation=%s: %s", x->key.text, err->message);
	if (x->record_tries == 0)
		spool_finish(exec_spool(x), &x->end);
	x->record_tries++;
	x->told = x->record_tries >= RECORD_TRIES;
	x->record_at_ms = clock_mono_ms() + (x->told ? RECORD_RETRY_SLOW_MS : RECORD_RETRY_MS);
}

static void on_reported(void *ctx, const struct id *operation, const struct error *err)
{
	struct execs *e = ctx;
	struct exec *x = idmap_get(&e->table, operation);

	if (!x || !x->reporting)
		return;
	x->reporting = false;
	if (err)
		not_recorded(x, err);
	else
		recorded(x);
	exec_arm(x);
	exec_settle(x);
}

void exec_record(struct exec *x)
{
	struct result result;
	struct exec_report report = { .operation = x->key, .result = &result, .code = x->end.code, .error = x->end.text[0] ? x->end.text : NULL };

	if (x->info.main) {
		x->recorded = x->told = true;
		put_away(x, false);
		return;
	}
	result_init(&result);
	fill_result(x, &result);
	x->whole = !result.truncated;
	x->record_at_ms = 0;
	x->reporting = true;
	x->all->up->ops->exec_end(x->all->up, &report, on_reported, x->all);
	result_done(&result);
}

void exec_end(struct exec *x, const struct spool_end *end)
{
	if (x->state == EXEC_ENDED)
		return;
	x->state = EXEC_ENDED;
	x->end = *end;
	x->link_by_ms = x->resume_by_ms = x->rescue_ms = x->overdue_ms = 0;
	stream_close(&x->init, NULL);
	ring_done(&x->in.ring);
	x->in = (struct stdin_pipe){ .eof = true };
	if (x->info.main)
		(void)exec_spool(x);
	if (x->spool)
		spool_finish(x->spool, end);
	exec_record(x);
	exec_arm(x);
	exec_settle(x);
}

void exec_close_fields(const struct exec *x, struct tlv *fields)
{
	const struct spool_end *end = &x->end;

	tlv_add_u64(fields, MUX_F_OUTCOME, end->outcome);
	if (end->outcome == OUTCOME_EXITED)
		tlv_add_u64(fields, MUX_F_EXIT_CODE, (uint64_t)end->exit_code);
	if (end->signal)
		tlv_add_u64(fields, MUX_F_SIGNAL, (uint64_t)end->signal);
	if (end->oom_killed)
		tlv_add_u64(fields, MUX_F_OOM, 1);
	tlv_add_u64(fields, MUX_F_OFFSET_OUT, exec_total(x, SPOOL_OUT));
	tlv_add_u64(fields, MUX_F_OFFSET_ERR, exec_total(x, SPOOL_ERR));
	if (end->truncated)
		tlv_add_u64(fields, MUX_F_TRUNCATED, 1);
	if (end->mux_error)
		tlv_add_u64(fields, MUX_F_ERROR, (uint64_t)end->mux_error);
	if (end->text[0])
		tlv_add_str(fields, MUX_F_MESSAGE, end->text);
}

/* --- once per turn --- */

void exec_settle(struct exec *x)
{
	if (x->dirty)
		return;
	x->dirty = true;
	x->dirty_next = x->all->dirty;
	x->all->dirty = x;
	event_active(x->all->ev_dirty, EV_TIMEOUT, 0);
}

void execs_settle_dirty(struct execs *e)
{
	struct exec *x;

	while ((x = e->dirty)) {
		e->dirty = x->dirty_next;
		x->dirty = false;
		for (struct reader *r = x->readers, *next; r; r = next) {
			next = r->next;
			reader_pump(r);
		}
		if (x->state == EXEC_ENDED && x->recorded && !x->readers)
			exec_free(x);
	}
}
