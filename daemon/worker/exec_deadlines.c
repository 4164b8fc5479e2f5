/*
 * What a command has to wait for, and for how long: its link, its client, its end, its record. One timer for all of them; what is
 * over its time is ended, at last by whoever can end the sandbox.
 */
#include "daemon/worker/exec_priv.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>

static void on_timer(evutil_socket_t fd, short what, void *ctx);

static int64_t soonest(const struct exec *x)
{
	const int64_t all[] = { x->link_by_ms, x->resume_by_ms, x->rescue_ms, x->overdue_ms, x->record_at_ms };
	int64_t first = 0;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (all[i] && (!first || all[i] < first))
			first = all[i];
	}
	return first;
}

void exec_arm(struct exec *x)
{
	int64_t first = soonest(x), wait = first - clock_mono_ms();
	struct timeval tv;

	if (!first) {
		if (x->timer)
			evtimer_del(x->timer);
		return;
	}
	if (wait < 0)
		wait = 0;
	if (!x->timer && !(x->timer = evtimer_new(x->all->base, on_timer, x)))
		abort();
	tv = (struct timeval){ .tv_sec = wait / 1000, .tv_usec = wait % 1000 * 1000 };
	evtimer_add(x->timer, &tv);
}

void exec_due(struct exec *x, int64_t in_ms)
{
	int64_t due = clock_mono_ms() + in_ms;

	x->rescue_ms = due + LIMIT_RESCUE_WAIT_MS;
	x->overdue_ms = due + LIMIT_CANCEL_WAIT_MS;
}

static bool passed(int64_t *at_ms, int64_t now)
{
	if (!*at_ms || now < *at_ms)
		return false;
	*at_ms = 0;
	return true;
}

static void link_too_late(struct exec *x)
{
	bool stuck = x->delivered && x->canceling;
	struct spool_end end;

	if (x->state == EXEC_OPENING)
		end = exec_end_text(OUTCOME_LOST, MUX_ERR_LOST,
				    "sandbox-init does not answer; whether the command started or ended is unknown");
	else if (x->delivered)
		end = exec_end_text(
			OUTCOME_LOST, MUX_ERR_LOST,
			"the connection to the sandbox broke and did not come back; whether the command ended is unknown");
	else
		end = exec_end_text(OUTCOME_NOT_STARTED, MUX_ERR_UNAVAILABLE,
				    "the sandbox does not answer: sandbox-init has not connected");
	exec_end(x, &end);
	if (stuck) /* it was to be ended, and may be running */
		execs_stuck(x->all, &x->info.sandbox);
}

/* Process 1 gets no turn among the command's processes, or does not move at all. The first can be mended from outside, if not at once,
 * and is then given its time anew. */
static void rescue(struct exec *x, int64_t now)
{
	if (x->state != EXEC_RUNNING || x->supervisor == 0)
		return;
	if (!x->rescued)
		x->overdue_ms = now + LIMIT_CANCEL_WAIT_MS;
	x->rescued = true;
	x->rescue_ms = now + LIMIT_RESCUE_WAIT_MS;
	execs_starved(x->all, &x->info.sandbox, x->supervisor, false);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct exec *x = ctx;
	int64_t now = clock_mono_ms();

	(void)fd;
	(void)what;
	if (passed(&x->record_at_ms, now))
		exec_record(x);
	if (x->state != EXEC_ENDED && passed(&x->link_by_ms, now))
		link_too_late(x);
	if (x->state != EXEC_ENDED && passed(&x->rescue_ms, now))
		rescue(x, now);
	if (x->state != EXEC_ENDED && passed(&x->overdue_ms, now)) {
		struct spool_end end =
			exec_end_text(OUTCOME_LOST, MUX_ERR_LOST, "sandbox-init did not end the command when it had to");

		exec_end(x, &end);
		execs_stuck(x->all, &x->info.sandbox);
	}
	if (x->state != EXEC_ENDED && passed(&x->resume_by_ms, now)) {
		log_info("exec", "client did not come back, canceling operation=%s", x->key.text);
		exec_cancel(x);
	}
	exec_arm(x);
	exec_settle(x);
}
