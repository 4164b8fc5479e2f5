/*
 * Process 1 that is late in ending a command. First its processes are ended from outside, since a storm of them may leave it no turn;
 * when that was of no use either, the sandbox as a whole is ended.
 */
#include "daemon/worker/worker_priv.h"

#include "daemon/worker/exec.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

static void on_starved(void *ctx, const struct id *sandbox, pid_t supervisor, bool given_up)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_STARVED;
	t->sandbox = *sandbox;
	t->inside = supervisor;
	t->given_up = given_up;
	worker_post(ctx, t);
}

static void on_stuck(void *ctx, const struct id *sandbox)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_STUCK;
	t->sandbox = *sandbox;
	worker_post(ctx, t);
}

static const struct execs_rescuer rescuer = { .starved = on_starved, .stuck = on_stuck };

void rescue_start(struct worker *w)
{
	execs_on_late(w->o.execs, &rescuer, w);
}

void rescue_stop(struct worker *w)
{
	execs_on_late(w->o.execs, NULL, NULL);
}

bool rescue_starved(struct worker *w, const struct id *sandbox, pid_t inside, bool given_up)
{
	const struct runtime_ops *ops = w->o.runtime->ops;
	struct error err = ERROR_INIT;
	size_t ended = 0;

	if (w->o.up->ops->wants_delete(w->o.up, sandbox))
		return true;
	if (!ops->end_below)
		error_set(&err, ERR_UNAVAILABLE, "this runtime does not show its processes");
	else
		(void)ops->end_below(w->o.runtime, sandbox, inside, &ended, &err);
	if (ended > 0)
		log_warn("worker", "its process 1 did not end a command in time, %zu processes were ended from outside sandbox=%s", ended, sandbox->text);
	if (err.code == ERR_NONE || err.code == ERR_NOT_FOUND) /* the latter: init was faster after all */
		return true;
	log_info("worker", "its process 1 did not end a command in time, nor can it be helped sandbox=%s: %s", sandbox->text, err.message);
	return !given_up || err.code != ERR_UNAVAILABLE;
}

void rescue_thaw(struct worker *w, const struct id *sandbox)
{
	struct error err = ERROR_INIT;

	/* What is not to be stopped from here was not stopped. */
	if (w->o.runtime->ops->thaw && w->o.runtime->ops->thaw(w->o.runtime, sandbox, &err) != 0 && err.code != ERR_UNAVAILABLE)
		log_warn("reconcile", "letting its processes go on sandbox=%s: %s", sandbox->text, err.message);
}
