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

/* One at a time: who is done lets the sandbox go on, and what another has read of its processes meanwhile would be of others by now. */
static void take_turn(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	while (idmap_get(&w->in_rescue, sandbox))
		pthread_cond_wait(&w->changed, &w->lock);
	idmap_put(&w->in_rescue, sandbox, w);
	pthread_mutex_unlock(&w->lock);
}

static void end_turn(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	idmap_remove(&w->in_rescue, sandbox);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static size_t end_from_outside(struct worker *w, const struct id *sandbox, pid_t inside, struct error *err)
{
	const struct runtime_ops *ops = w->o.runtime->ops;
	size_t ended = 0;

	if (!ops->end_below) {
		error_set(err, ERR_UNAVAILABLE, "this runtime does not show its processes");
		return 0;
	}
	take_turn(w, sandbox);
	(void)ops->end_below(w->o.runtime, sandbox, inside, &ended, err);
	end_turn(w, sandbox);
	return ended;
}

bool rescue_starved(struct worker *w, const struct id *sandbox, pid_t inside, bool given_up)
{
	struct error err = ERROR_INIT;

	if (w->o.up->ops->wants_delete(w->o.up, sandbox))
		return true;
	size_t ended = end_from_outside(w, sandbox, inside, &err);
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
