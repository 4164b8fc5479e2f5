/*
 * Jobs: what is leased or queued for one sandbox, and taking everything of one away. A delete is tried until everything is
 * gone. Creates are in create.c.
 */
#include "daemon/worker/warm.h"

#include "daemon/worker/exec.h"
#include "daemon/egress/egress.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	RETRY_FIRST_MS = 1000,
	RETRY_MAX_MS = 60 * 1000,
	RECORD_FIRST_MS = 300,
	RECORD_MAX_MS = 5000,
	EXIT_SEEN_MS = 5000, /* the engine notices an ended process a little after we do */
	EXIT_POLL_US = 20 * 1000,
};

static const struct runtime_ops *ops_of(const struct worker *w)
{
	return w->o.runtime->ops;
}

static int remove_files(struct worker *w, const struct id *sandbox, struct error *err)
{
	auto_free char *dir = workspaces_dir(w->spaces, sandbox);

	if (workspace_drop(w->spaces, sandbox, err) != 0)
		return -1;
	return io_remove_tree(dir, err);
}

int job_unmake(struct worker *w, const struct id *sandbox, enum outcome why, struct error *err)
{
	enum mux_error reason = why == OUTCOME_EXPIRED ? MUX_ERR_EXPIRED : why == OUTCOME_DELETED ? MUX_ERR_DELETED : MUX_ERR_LOST;
	auto_close int pidfd = watch_take(w->watch, sandbox);

	growth_forget(w, sandbox);
	warm_forget(w, sandbox);
	deadlines_note(w, sandbox, 0);
	execs_drop(w->o.execs, sandbox, why, NULL);
	if (ops_of(w)->remove(w->o.runtime, sandbox, err) != 0) {
		/* The runtime hangs: at least nothing runs in the sandbox any more. (First would be slower: an engine is
		 * quickest at ends that it brought about.) */
		if (pidfd >= 0)
			syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
		return -1;
	}
	egress_drop(w->o.egress, sandbox);
	initlink_close(w->o.links, sandbox, reason);
	return remove_files(w, sandbox, err);
}

/* The store does not take it (a full disk): the work is done and stays so, only the record waits. */
static void complete_later(struct worker *w, const struct id *sandbox, const struct completion *c, int64_t delay_ms)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_COMPLETE;
	t->sandbox = *sandbox;
	t->done = *c;
	t->done.error = xstrdup0(c->error);
	t->done.image_digest = xstrdup0(c->image_digest);
	t->delay_ms = delay_ms * 2 > RECORD_MAX_MS ? RECORD_MAX_MS : delay_ms * 2;
	t->due_ms = clock_mono_ms() + delay_ms;
	worker_post(w, t);
}

static void record(struct worker *w, const struct id *sandbox, const struct completion *c, int64_t delay_ms)
{
	struct error err = ERROR_INIT;

	if (w->o.up->ops->complete(w->o.up, c, &err) == 0)
		return;
	/* It was given to another node, or is past its retention: reconciliation removes what was made. */
	if (err.code == ERR_FORBIDDEN || err.code == ERR_NOT_FOUND) {
		log_warn("worker", "the end of operation=%s is of no use to the controller: %s", c->operation.text, err.message);
		worker_resync(w);
		return;
	}
	log_error("worker", "recording the end of operation=%s, next try in %lld ms: %s", c->operation.text, (long long)delay_ms, err.message);
	complete_later(w, sandbox, c, delay_ms);
}

void job_complete(struct worker *w, const struct lease *l, const char *digest, const struct error *failure)
{
	struct completion c = {
		.operation = l->operation,
		.attempt = l->attempt,
		.success = !failure,
		.code = failure ? failure->code : ERR_NONE,
		.error = failure ? failure->message : NULL,
		.image_digest = digest,
	};

	record(w, &l->sandbox.id, &c, RECORD_FIRST_MS);
}

static enum outcome end_of(const struct sandbox *s)
{
	return s->end_reason != OUTCOME_NONE ? s->end_reason : OUTCOME_DELETED;
}

static void retry_later(struct worker *w, struct lease *take_l, int64_t delay_ms, const char *why)
{
	struct task *t = xcalloc(1, sizeof(*t));
	auto_free char *text = xasprintf("delete failed, next try in %lld s: %s", (long long)(delay_ms / 1000), why);

	w->o.up->ops->progress(w->o.up, &take_l->operation, text);
	log_warn("worker", "sandbox=%s %s", take_l->sandbox.id.text, text);
	t->kind = TASK_RETRY_DELETE;
	t->sandbox = take_l->sandbox.id;
	t->lease = *take_l;
	*take_l = (struct lease){ .attempt = 0 };
	t->delay_ms = delay_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : delay_ms * 2;
	t->due_ms = clock_mono_ms() + delay_ms;
	worker_post(w, t);
}

static void delete(struct worker *w, struct lease *l, int64_t delay_ms)
{
	struct error err = ERROR_INIT;
	int64_t started = clock_mono_ms();

	if (job_unmake(w, &l->sandbox.id, end_of(&l->sandbox), &err) != 0) {
		retry_later(w, l, delay_ms, err.message);
		return;
	}
	job_complete(w, l, NULL, NULL);
	log_info("worker", "deleted sandbox=%s ms=%lld", l->sandbox.id.text, (long long)(clock_mono_ms() - started));
}

void job_lease(struct worker *w, struct lease *take_l)
{
	const struct id sandbox = take_l->sandbox.id;

	worker_take(w, &sandbox);
	if (take_l->kind == OPK_CREATE)
		job_create(w, take_l);
	else
		delete(w, take_l, RETRY_FIRST_MS);
	worker_give(w, &sandbox);
	lease_done(take_l);
}

void job_why_ended(const struct runtime_status *s, char *ret, size_t n)
{
	switch (s->state) {
	case RUNTIME_EXITED:
		if (s->oom_killed)
			snprintf(ret, n, "its process 1 was killed: out of memory (exit status %d)", s->exit_code);
		else if (s->pids_exhausted)
			snprintf(ret, n, "its process 1 ended at the PID limit (exit status %d)", s->exit_code);
		else
			snprintf(ret, n, "its process 1 ended (exit status %d)", s->exit_code);
		break;
	case RUNTIME_ABSENT:
		snprintf(ret, n, "its container was removed from outside");
		break;
	case RUNTIME_CREATED:
	case RUNTIME_RUNNING:
		snprintf(ret, n, "its container does not run");
		break;
	}
}

/* The process is gone for sure; the engine says how a little later. */
static int inspect_ended(struct worker *w, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	int64_t until = clock_mono_ms() + EXIT_SEEN_MS;

	do {
		if (ops_of(w)->inspect(w->o.runtime, sandbox, ret, err) != 0)
			return -1;
		if (ret->state != RUNTIME_RUNNING)
			return 0;
		usleep(EXIT_POLL_US);
	} while (clock_mono_ms() < until && !worker_stopping(w));
	return 0;
}

/* Its commands are recorded first: what the controller ends together with the sandbox has no output. */
void job_gone(struct worker *w, const struct id *sandbox, const char *why)
{
	int64_t deadline_us = w->o.up->ops->deadline(w->o.up, sandbox);
	if (deadline_us == 0)
		deadline_us = deadlines_get(w, sandbox);
	enum outcome outcome = deadline_us > 0 && deadline_us <= worker_now(w) ? OUTCOME_EXPIRED : OUTCOME_LOST;
	struct error err = ERROR_INIT;

	log_warn("worker", "sandbox=%s %s", sandbox->text, why);
	execs_drop(w->o.execs, sandbox, outcome, why);
	if (w->o.up->ops->sandbox_gone(w->o.up, sandbox, why, &err) != 0) {
		log_error("worker", "recording it sandbox=%s: %s", sandbox->text, err.message);
		worker_resync(w);
	}
	if (job_unmake(w, sandbox, outcome, &err) != 0) {
		log_warn("worker", "unmaking it, reconciliation will go on sandbox=%s: %s", sandbox->text, err.message);
		worker_resync(w);
	}
}

/* It ended, or has to, without anyone's delete. */
static void end_it(struct worker *w, const struct id *sandbox, const char *why)
{
	if (!w->o.up->ops->wants_delete(w->o.up, sandbox)) /* else the delete does the rest */
		job_gone(w, sandbox, why);
}

static void exited(struct worker *w, const struct id *sandbox)
{
	struct runtime_status s;
	struct error err = ERROR_INIT;
	char why[128];

	/* Of one that was made anew since. */
	if (watch_has(w->watch, sandbox) || w->o.up->ops->wants_delete(w->o.up, sandbox))
		return;
	if (inspect_ended(w, sandbox, &s, &err) != 0) {
		log_warn("worker", "process 1 ended, the runtime does not say how sandbox=%s: %s", sandbox->text, err.message);
		worker_resync(w); /* asks again */
		return;
	}
	job_why_ended(&s, why, sizeof(why));
	end_it(w, sandbox, why);
}

static void tell_deadline(struct worker *w, const struct id *sandbox, int64_t deadline_us)
{
	struct error err = ERROR_INIT;

	if (ops_of(w)->deadline(w->o.runtime, sandbox, deadline_us, &err) != 0)
		log_warn("worker", "telling the runtime that sandbox=%s ends later: %s", sandbox->text, err.message);
}

/* Only the controller records it, when it can be asked again: it finds the sandbox gone past its deadline. */
static void expired(struct worker *w, const struct id *sandbox)
{
	struct error err = ERROR_INIT;

	if (job_unmake(w, sandbox, OUTCOME_EXPIRED, &err) != 0) {
		log_warn("worker", "unmaking it, reconciliation will go on sandbox=%s: %s", sandbox->text, err.message);
		worker_resync(w);
	}
}

void job_task(struct worker *w, struct task *take_t)
{
	const struct id sandbox = take_t->sandbox;

	if (take_t->kind == TASK_DENIED) {
		w->o.up->ops->egress_denied(w->o.up, &sandbox, take_t->detail);
		task_free(take_t);
		return;
	}
	worker_take(w, &sandbox);
	switch (take_t->kind) {
	case TASK_EXITED:
		exited(w, &sandbox);
		break;
	case TASK_OVERGROWN:
		end_it(w, &sandbox, "its writable root grew past resources.disk_mib; create it with more");
		break;
	case TASK_STARVED:
		if (!rescue_starved(w, &sandbox, take_t->inside, take_t->given_up))
			end_it(w, &sandbox, "its process 1 could not end all processes of a command when it had to");
		break;
	case TASK_STUCK:
		end_it(w, &sandbox, "its process 1 did not end a command when it had to");
		break;
	case TASK_STALE:
		/* Not once it was claimed: then its claim has found out. */
		if (warm_waits(w, &sandbox))
			job_gone(w, &sandbox, take_t->why);
		break;
	case TASK_EXPIRED:
		expired(w, &sandbox);
		break;
	case TASK_RETRY_DELETE:
		delete(w, &take_t->lease, take_t->delay_ms);
		break;
	case TASK_COMPLETE:
		record(w, &sandbox, &take_t->done, take_t->delay_ms);
		break;
	case TASK_DEADLINE:
		tell_deadline(w, &sandbox, take_t->deadline_us);
		break;
	case TASK_DENIED:
		break;
	}
	worker_give(w, &sandbox);
	task_free(take_t);
}
