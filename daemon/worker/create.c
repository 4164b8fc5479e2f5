/*
 * Creating one sandbox: a row of steps. Between them it looks whether it is still wanted, and whatever it made is unmade when one
 * fails. One that waited in a pool has most of them behind it.
 */
#include "daemon/worker/warm.h"

#include "daemon/worker/exec.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { GREET_MS = 15 * 1000 };

struct create_job {
	struct worker *w;
	struct lease *lease;
	struct warm *warm;         /* it was started before it was asked for; NULL: it is to be made */
	int64_t until_ms;          /* monotonic */
	struct image_config image;
	char io_dir[4096];
	char *hosts_file, *resolv_file, *hostname;
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
	auto_secret login = SECRET_INIT;

	if (runtime_traits(rt, j->lease->sandbox.tier) & RUNTIME_OWN_IMAGES) {
		j->image.user = xstrdup("");
		j->image.workdir = xstrdup("/");
		return rt->ops->image_allowed(rt, image, false, err);
	}
	if (rt->ops->image_resolve(rt, image, &j->image, &local) == 0)
		return rt->ops->image_allowed(rt, image, true, err) == 0 ? image_may_use(j->w, &j->lease->sandbox, &j->image.names, err) : -1;
	if (local.code != ERR_NOT_FOUND)
		return error_set(err, local.code, "%s", local.message);
	if (rt->ops->image_allowed(rt, image, false, err) != 0 ||
	    j->w->o.up->ops->registry_login(j->w->o.up, &j->w->node, &j->lease->sandbox.id, &login, err) != 0)
		return -1;
	if (image_fetch(j->w, &(struct image_pull){ .image = image, .login = &login, .progress = on_pull, .ctx = j }, &local) != 0) {
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

static int write_resolv(struct create_job *j, const char *dir, struct error *err)
{
	auto_buf text = BUF_INIT;

	open_net_resolv(j->w->open_net, &text);
	j->resolv_file = xasprintf("%s/resolv.conf", dir);
	return io_write_file_atomic(j->resolv_file, buf_str(&text), text.len, 0644, false, err);
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
	if (io_write_file_atomic(j->hosts_file, text, strlen(text), 0644, false, err) != 0)
		return -1;
	return s->spec.network == NETWORK_OPEN ? write_resolv(j, dir, err) : 0;
}

/* Of one for a pool they are its user's to say; writing them twice would have the file system flush the first when the second takes its place. */
static int step_defaults(struct create_job *j, struct error *err)
{
	deadlines_note(j->w, &j->lease->sandbox.id, j->lease->sandbox.expires_us);
	if (!j->lease->sandbox.spec.tenant[0])
		return 0;
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
		.resolv_file = j->resolv_file,
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
		/* A ready one is through with the rest before anybody could want otherwise; what the store is asked holds others up. */
		if (!j->warm && check_wanted(j, err) != 0)
			return -1;
		say(j, steps[i].doing);
		if (steps[i].run(j, err) != 0)
			return -1;
		log_debug("worker", "sandbox=%s step=\"%s\" us=%lld", j->lease->sandbox.id.text, steps[i].doing,
		          (long long)(clock_mono_us() - started));
	}
	return check_wanted(j, err);
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
	job_complete(j->w, j->lease, j->image.digest, failure);
	log_warn("worker", "create failed sandbox=%s: %s", s->id.text, failure->message);
}

static void job_done(struct create_job *j)
{
	close_fdp(&j->hold);
	image_config_done(&j->image);
	free(j->hosts_file);
	free(j->resolv_file);
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
		job_complete(w, l, j.image.digest, NULL);
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

void job_create(struct worker *w, struct lease *l)
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
		job_complete(w, l, j.image.digest, NULL);
		log_info("worker", "created sandbox=%s ms=%lld", sandbox->text, (long long)((clock_mono_us() - started) / 1000));
	}
	job_done(&j);
}
