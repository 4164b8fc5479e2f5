/*
 * Jobs: creating and deleting one sandbox. A create is a row of steps; between them it looks whether it is still
 * wanted, and whatever it made is unmade when one fails. A delete is tried until everything is gone.
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
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	GREET_MS = 15 * 1000,
	RETRY_FIRST_MS = 1000,
	RETRY_MAX_MS = 60 * 1000,
	RECORD_FIRST_MS = 300,
	RECORD_MAX_MS = 5000,
	EXIT_SEEN_MS = 5000, /* the engine notices an ended process a little after we do */
	EXIT_POLL_US = 20 * 1000,
};

struct create_job {
	struct worker *w;
	struct lease *lease;
	struct warm *warm;         /* it was started before it was asked for; NULL: it is to be made */
	int64_t until_ms;          /* monotonic */
	struct image_config image;
	char io_dir[4096];
	char *hosts_file, *hostname;
	struct workspace_mount mount;
	int hold;                  /* keeps an engine-mounted device until the container runs */
	struct runtime_status status;
	char said[256];            /* last progress text */
};

static const struct runtime_ops *ops_of(const struct worker *w)
{
	return w->o.runtime->ops;
}

/* Still wanted? Errors: the daemon stops (ERR_UNAVAILABLE), deleted (ERR_CONFLICT), out of time (ERR_TIMEOUT). */
static int check_wanted(struct create_job *j, struct error *err)
{
	if (worker_stopping(j->w))
		return error_set(err, ERR_UNAVAILABLE, "the daemon stops");
	if (j->w->o.up->ops->wants_delete(j->w->o.up, &j->lease->sandbox.id))
		return error_set(err, ERR_CONFLICT, "deleted while it was being created");
	if (clock_mono_ms() > j->until_ms)
		return error_set(err, ERR_TIMEOUT, "the create took longer than worker.create_timeout (%lld s)",
		                 (long long)(worker_settings(j->w).create_timeout_ms / 1000));
	return 0;
}

static void say(struct create_job *j, const char *text)
{
	if (strcmp(text, j->said) == 0)
		return;
	snprintf(j->said, sizeof(j->said), "%s", text);
	j->w->o.up->ops->progress(j->w->o.up, &j->lease->operation, text);
}

static bool on_pull(void *ctx, const char *text, int percent)
{
	struct create_job *j = ctx;
	char line[256];

	if (percent >= 0)
		snprintf(line, sizeof(line), "pulling %.160s: %d %%, %.40s", j->lease->sandbox.spec.image, percent, text);
	else
		snprintf(line, sizeof(line), "pulling %.160s: %.60s", j->lease->sandbox.spec.image, text);
	say(j, line);
	return check_wanted(j, NULL) == 0;
}

static int find_image(struct create_job *j, struct error *err)
{
	struct runtime *rt = j->w->o.runtime;
	const char *image = j->lease->sandbox.spec.image;
	struct error local = ERROR_INIT;

	if (runtime_traits(rt, j->lease->sandbox.tier) & RUNTIME_OWN_IMAGES) {
		j->image.user = xstrdup("");
		j->image.workdir = xstrdup("/");
		return rt->ops->image_allowed(rt, image, false, err);
	}
	if (rt->ops->image_resolve(rt, image, &j->image, &local) == 0)
		return rt->ops->image_allowed(rt, image, true, err);
	if (local.code != ERR_NOT_FOUND)
		return error_set(err, local.code, "%s", local.message);
	if (rt->ops->image_pull(rt, image, on_pull, j, &local) != 0) {
		/* Stopped by on_pull: the reason is what check_wanted says now. */
		if (local.code == ERR_CONFLICT && check_wanted(j, err) != 0)
			return -1;
		return error_set(err, local.code, "%s", local.message);
	}
	return rt->ops->image_resolve(rt, image, &j->image, err);
}

static int step_image(struct create_job *j, struct error *err)
{
	if (find_image(j, err) != 0)
		return -1;
	return j->warm ? warm_check(j->w, j->warm, j->image.digest, err) : 0;
}

static int step_link(struct create_job *j, struct error *err)
{
	return initlink_listen(j->w->o.links, &j->lease->sandbox.id, j->io_dir, sizeof(j->io_dir), err);
}

static int step_names(struct create_job *j, struct error *err)
{
	const struct sandbox *s = &j->lease->sandbox;
	auto_free char *dir = workspaces_dir(j->w->spaces, &s->id);
	auto_free char *text = NULL;

	j->hostname = xstrdup(s->spec.name ? s->spec.name : "sandbox");
	j->hosts_file = xasprintf("%s/hosts", dir);
	text = xasprintf("127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback %s\n", j->hostname, j->hostname);
	if (j->warm)
		return warm_name(j->warm, s->spec.name, j->hosts_file, text, err);
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	return io_write_file_atomic(j->hosts_file, text, strlen(text), 0644, false, err);
}

static int step_defaults(struct create_job *j, struct error *err)
{
	deadlines_note(j->w, &j->lease->sandbox.id, j->lease->sandbox.expires_us);
	return execs_set_defaults(j->w->o.execs, &j->lease->sandbox, &j->image, err);
}

static int step_workspace(struct create_job *j, struct error *err)
{
	const struct spec *spec = &j->lease->sandbox.spec;
	struct workspace_request r = {
		.sandbox = j->lease->sandbox.id,
		.disk_mib = spec->resources.disk_mib,
		.memory_mib = spec->resources.memory_mib,
		.image_user = j->image.user,
	};

	if (runtime_traits(j->w->o.runtime, j->lease->sandbox.tier) & RUNTIME_OWN_DISK)
		return 0; /* the mount stays of kind NONE */
	return workspace_make(j->w->spaces, &r, &j->mount, &j->hold, err);
}

static int step_container(struct create_job *j, struct error *err)
{
	const struct sandbox *s = &j->lease->sandbox;
	struct runtime_create req = {
		.sandbox_id = s->id,
		.spec = &s->spec,
		.tier = s->tier,
		.image_digest = j->image.digest,
		.init_path = j->w->init_path,
		.io_dir = j->io_dir,
		.workspace = &j->mount,
		.hosts_file = j->hosts_file,
		.hostname = j->hostname,
		.deadline_us = s->expires_us,
	};

	return ops_of(j->w)->create(j->w->o.runtime, &req, err);
}

/* Starts share the host's CPUs: more than a few at once make each slower without finishing more. */
static void start_slot(struct worker *w, bool take)
{
	pthread_mutex_lock(&w->lock);
	while (take && w->starting >= (unsigned)w->o.config->worker_jobs)
		pthread_cond_wait(&w->changed, &w->lock);
	w->starting += take ? 1 : -1U;
	if (!take)
		pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static int step_start(struct create_job *j, struct error *err)
{
	int rc;

	start_slot(j->w, true);
	rc = ops_of(j->w)->start(j->w->o.runtime, &j->lease->sandbox.id, &j->status, err);
	start_slot(j->w, false);
	close_fdp(&j->hold);
	return rc;
}

/* The engine may bind another directory of that name than the one mounted here: then the size would not be enforced. */
static int step_check_workspace(struct create_job *j, struct error *err)
{
	auto_free char *path = xasprintf("/proc/%d/root/workspace", (int)j->status.mounts_pid);
	struct stat inside, outside;

	if (j->mount.kind != WORKSPACE_DIR || (j->lease->sandbox.tier == TIER_MICROVM && j->status.mounts_pid == 0))
		return 0;
	if (stat(path, &inside) != 0 || stat(j->mount.source, &outside) != 0)
		return error_errno(err, "looking at the sandbox's workspace");
	if (inside.st_dev == outside.st_dev && inside.st_ino == outside.st_ino)
		return 0;
	return error_set(err, ERR_UNAVAILABLE, "the engine did not mount the sized workspace: restart the engine and the daemon in one mount namespace");
}

static int step_greet(struct create_job *j, struct error *err)
{
	const struct sandbox *s = &j->lease->sandbox;
	struct runtime_status now;

	worker_deadline_moved(j->w, &s->id); /* it may have been extended since the container was made */
	if (j->warm)
		return initlink_wait(j->w->o.links, &s->id, GREET_MS, err);
	initlink_expect(j->w->o.links, &s->id, j->status.pid, s->tier != TIER_CONTAINER);
	if (initlink_wait(j->w->o.links, &s->id, GREET_MS, err) == 0)
		return 0;
	if (ops_of(j->w)->inspect(j->w->o.runtime, &s->id, &now, NULL) == 0 && now.state == RUNTIME_EXITED)
		return error_set(err, ERR_UNAVAILABLE, "sandbox-init ended at once (exit status %d%s)", now.exit_code, now.oom_killed ? ", out of memory" : "");
	return -1;
}

static int step_network(struct create_job *j, struct error *err)
{
	return network_open(j->w, &j->lease->sandbox, err);
}

static int step_secrets(struct create_job *j, struct error *err)
{
	return secrets_deliver(j->w, &j->lease->sandbox, j->image.user && *j->image.user ? j->image.user : "0", err);
}

static int step_main(struct create_job *j, struct error *err)
{
	const struct sandbox *s = &j->lease->sandbox;

	return s->spec.command.len > 0 ? execs_start_main(j->w->o.execs, s, err) : 0;
}

static const struct step {
	const char *doing;
	int (*run)(struct create_job *j, struct error *err);
	bool standing; /* done already of one that was started before it was asked for */
} steps[] = {
	{ "looking for the image", step_image, false },
	{ "preparing", step_link, true },
	{ "preparing", step_names, false },
	{ "preparing", step_defaults, false },
	{ "making the workspace", step_workspace, true },
	{ "creating the container", step_container, true },
	{ "starting the container", step_start, true },
	{ "checking the workspace", step_check_workspace, true },
	{ "waiting for sandbox-init", step_greet, false },
	{ "opening the way out", step_network, false },
	{ "handing over secrets", step_secrets, false },
	{ "starting the command", step_main, false },
};

static int run_steps(struct create_job *j, struct error *err)
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		int64_t started = clock_mono_us();

		if (j->warm && steps[i].standing)
			continue;
		if (check_wanted(j, err) != 0)
			return -1;
		say(j, steps[i].doing);
		if (steps[i].run(j, err) != 0)
			return -1;
		log_debug("worker", "sandbox=%s step=\"%s\" us=%lld", j->lease->sandbox.id.text, steps[i].doing,
		          (long long)(clock_mono_us() - started));
	}
	return check_wanted(j, err);
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
	execs_drop(w->o.execs, sandbox, why);
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
	log_error("worker", "recording the end of operation=%s, next try in %lld ms: %s", c->operation.text, (long long)delay_ms, err.message);
	complete_later(w, sandbox, c, delay_ms);
}

static void complete(struct worker *w, const struct lease *l, const char *digest, const struct error *failure)
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

static void create_failed(struct create_job *j, struct error *failure)
{
	const struct sandbox *s = &j->lease->sandbox;
	struct error err = ERROR_INIT;

	if (job_unmake(j->w, &s->id, OUTCOME_NOT_STARTED, &err) != 0)
		log_warn("worker", "unmaking a failed create, reconciliation will go on sandbox=%s: %s", s->id.text, err.message);
	/* The operation stays running and is leased again after the restart. */
	if (worker_stopping(j->w))
		return;
	complete(j->w, j->lease, j->image.digest, failure);
	log_warn("worker", "create failed sandbox=%s: %s", s->id.text, failure->message);
}

static void job_done(struct create_job *j)
{
	close_fdp(&j->hold);
	image_config_done(&j->image);
	free(j->hosts_file);
	free(j->hostname);
	warm_free(j->warm);
}

/* Ready when it was asked for: it only becomes the one that was asked for. -1: it does not stand as it should, or is not wanted. */
static int take_warm(struct worker *w, struct lease *l, struct warm *take_m, struct error *err)
{
	struct create_job j = { .w = w, .lease = l, .hold = -1, .warm = take_m, .until_ms = clock_mono_ms() + GREET_MS };
	int rc = watch_has(w->watch, &l->sandbox.id) ? run_steps(&j, err) : error_set(err, ERR_UNAVAILABLE, "its process 1 has ended");

	if (rc == 0) {
		growth_watch(w, &l->sandbox);
		complete(w, l, j.image.digest, NULL);
	}
	job_done(&j);
	return rc;
}

static int make_new(struct create_job *j, struct error *err)
{
	const struct sandbox *s = &j->lease->sandbox;

	if (run_steps(j, err) != 0)
		return -1;
	growth_watch(j->w, s);
	if (watch_add(j->w->watch, &s->id, j->status.pid, err) != 0)
		log_warn("worker", "sandbox=%s: %s; its end is noticed by reconciliation only", s->id.text, err->message);
	return s->spec.tenant[0] ? 0 : warm_add(j->w, s, j->image.digest, j->status.pid, err);
}

static void create(struct worker *w, struct lease *l)
{
	struct create_job j = { .w = w, .lease = l, .hold = -1, .until_ms = clock_mono_ms() + worker_settings(w).create_timeout_ms };
	const struct id *sandbox = &l->sandbox.id;
	struct warm *ready = warm_take(w, sandbox);
	struct error err = ERROR_INIT;
	int64_t started = clock_mono_us();

	if (ready && take_warm(w, l, ready, &err) == 0) {
		log_info("worker", "claimed sandbox=%s us=%lld", sandbox->text, (long long)(clock_mono_us() - started));
		return;
	}
	if (ready)
		log_info("worker", "made anew sandbox=%s: %s", sandbox->text, err.message);
	/* An earlier attempt was cut off in the middle, or what waited for it will not do. */
	if ((ready || l->attempt > 1) && job_unmake(w, sandbox, OUTCOME_NOT_STARTED, &err) != 0) {
		error_wrap(&err, "cleaning up after an earlier attempt");
		create_failed(&j, &err);
	} else if (make_new(&j, &err) != 0) {
		create_failed(&j, &err);
	} else {
		complete(w, l, j.image.digest, NULL);
		log_info("worker", "created sandbox=%s ms=%lld", sandbox->text, (long long)((clock_mono_us() - started) / 1000));
	}
	job_done(&j);
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
	complete(w, l, NULL, NULL);
	log_info("worker", "deleted sandbox=%s ms=%lld", l->sandbox.id.text, (long long)(clock_mono_ms() - started));
}

void job_lease(struct worker *w, struct lease *take_l)
{
	const struct id sandbox = take_l->sandbox.id;

	worker_take(w, &sandbox);
	if (take_l->kind == OPK_CREATE)
		create(w, take_l);
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
	enum outcome outcome = deadline_us > 0 && deadline_us <= clock_wall_us() ? OUTCOME_EXPIRED : OUTCOME_LOST;
	struct error err = ERROR_INIT;

	log_warn("worker", "sandbox=%s %s", sandbox->text, why);
	execs_drop(w->o.execs, sandbox, outcome);
	if (w->o.up->ops->sandbox_gone(w->o.up, sandbox, why, &err) != 0)
		log_error("worker", "recording it sandbox=%s: %s", sandbox->text, err.message);
	if (job_unmake(w, sandbox, outcome, &err) != 0)
		log_warn("worker", "unmaking it, reconciliation will go on sandbox=%s: %s", sandbox->text, err.message);
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
		return; /* reconciliation asks again */
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

	if (job_unmake(w, sandbox, OUTCOME_EXPIRED, &err) != 0)
		log_warn("worker", "unmaking it, reconciliation will go on sandbox=%s: %s", sandbox->text, err.message);
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
		end_it(w, &sandbox, "its writable root grew past resources.disk_mib");
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
