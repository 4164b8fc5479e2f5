/*
 * The local worker: threads and what they share. Job threads take leases and tasks; the maintainer probes, sends
 * heartbeats and reconciles; the watch tells when a sandbox's process 1 ends. None of them holds the lock while it
 * calls the controller, the runtime or the file system.
 */
#include "daemon/worker/rights.h"
#include "daemon/worker/warm.h"

#include "daemon/egress/egress.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	/* Over the configured jobs: slow pulls hold their thread, and a delete must not wait for one. */
	SPARE_THREADS = 32,
	THREAD_IDLE_MS = 10 * 1000,
	THREAD_STACK = 512 * 1024,
	HEARTBEAT_MS = 10 * 1000,
	RECONCILE_MS = 60 * 1000,
	RESYNC_MS = 1000,
	ENGINE_RETRY_MS = 2 * 1000,
	PROBE_AGAIN_MS = 60 * 1000, /* doubles each time … */
	PROBE_AGAIN_MAX_MS = 16 * 60 * 1000,
	LEASE_POLL_MS = 5 * 1000, /* a lost wake-up costs at most this */
};

bool worker_stopping(struct worker *w)
{
	bool stopping;

	pthread_mutex_lock(&w->lock);
	stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

static struct settings settings_of(const struct daemon_config *c)
{
	return (struct settings){
		.create_timeout_ms = c->create_timeout_ms,
		.cpu_millis = c->worker_cpu_millis,
		.memory = c->worker_memory,
		.disk = c->worker_disk,
		.pids = c->worker_pids,
		.max_sandboxes = c->max_sandboxes,
	};
}

struct settings worker_settings(struct worker *w)
{
	struct settings s;

	pthread_mutex_lock(&w->lock);
	s = w->settings;
	pthread_mutex_unlock(&w->lock);
	return s;
}

void worker_reload(struct worker *w)
{
	struct settings s = settings_of(w->o.config);

	pthread_mutex_lock(&w->lock);
	w->settings = s;
	pthread_mutex_unlock(&w->lock);
	w->o.runtime->ops->set_registries(w->o.runtime, w->o.config->allowed_registries);
	capacity_measure(w);
	worker_network_changed(w, NULL);
}

/* --- one job per sandbox --- */

void worker_take(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	while (idmap_get(&w->in_hand, sandbox))
		pthread_cond_wait(&w->changed, &w->lock);
	idmap_put(&w->in_hand, sandbox, w);
	pthread_mutex_unlock(&w->lock);
}

bool worker_try_take(struct worker *w, const struct id *sandbox)
{
	bool taken;

	pthread_mutex_lock(&w->lock);
	taken = !idmap_get(&w->in_hand, sandbox);
	if (taken)
		idmap_put(&w->in_hand, sandbox, w);
	pthread_mutex_unlock(&w->lock);
	return taken;
}

void worker_give(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	idmap_remove(&w->in_hand, sandbox);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* --- job threads --- */

static struct timespec after_ms(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* With the lock: the first task that is due, taken out; *ret_wait is lowered to when the next one will be. */
static struct task *due_task(struct worker *w, int64_t *ret_wait)
{
	int64_t now = clock_mono_ms();

	for (struct task **at = &w->tasks; *at; at = &(*at)->next) {
		struct task *t = *at;

		if (t->due_ms <= now) {
			*at = t->next;
			return t;
		}
		if (t->due_ms - now < *ret_wait)
			*ret_wait = t->due_ms - now;
	}
	return NULL;
}

/* Runs one task or lease. False: there was nothing. */
static bool do_one(struct worker *w, struct task *take_t, bool work)
{
	struct lease lease = { .attempt = 0 };
	struct error err = ERROR_INIT;
	int rc;

	if (take_t) {
		worker_spawn(w);
		job_task(w, take_t);
		return true;
	}
	if (!work)
		return false;
	rc = w->o.up->ops->lease(w->o.up, &w->node, &lease, &err);
	if (rc < 0)
		log_warn("worker", "leasing work: %s", err.message);
	if (rc != 1)
		return false;
	pthread_mutex_lock(&w->lock);
	w->work = true; /* there may be more: the next thread looks */
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	worker_spawn(w);
	job_lease(w, &lease);
	return true;
}

/* Waits for something to do; false: this thread is to end. */
static bool next_turn(struct worker *w, int64_t idle_since, struct task **ret_task, bool *ret_work)
{
	pthread_mutex_lock(&w->lock);
	w->idle++;
	for (;;) {
		int64_t wait = LEASE_POLL_MS;
		struct timespec until;
		bool late;

		*ret_task = w->stopping ? NULL : due_task(w, &wait);
		*ret_work = !*ret_task && w->work && !w->stopping;
		if (*ret_work)
			w->work = false;
		if (w->stopping || *ret_task || *ret_work)
			break;
		until = after_ms(wait);
		late = pthread_cond_timedwait(&w->wake, &w->lock, &until) == ETIMEDOUT;
		if (late && w->idle > 1 && clock_mono_ms() - idle_since > THREAD_IDLE_MS)
			break;
		if (late && clock_mono_ms() - w->polled_ms >= LEASE_POLL_MS) {
			w->polled_ms = clock_mono_ms();
			w->work = true;
		}
	}
	w->idle--;
	pthread_mutex_unlock(&w->lock);
	return *ret_task || *ret_work;
}

static void *job_thread(void *arg)
{
	struct worker *w = arg;
	struct task *task;
	int64_t idle_since = clock_mono_ms();
	bool work;

	while (next_turn(w, idle_since, &task, &work))
		while (do_one(w, task, work) && !worker_stopping(w)) {
			idle_since = clock_mono_ms();
			task = NULL;
			work = true;
		}
	pthread_mutex_lock(&w->lock);
	w->threads--;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void worker_spawn(struct worker *w)
{
	pthread_attr_t attr;
	pthread_t thread;
	bool wanted;

	pthread_mutex_lock(&w->lock);
	wanted = !w->stopping && w->idle == 0 && w->threads < SPARE_THREADS + (unsigned)w->o.config->worker_jobs;
	w->threads += wanted;
	pthread_mutex_unlock(&w->lock);
	if (!wanted)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, job_thread, w) != 0) {
		log_warn("worker", "no thread for another job: it waits");
		pthread_mutex_lock(&w->lock);
		w->threads--;
		pthread_mutex_unlock(&w->lock);
	}
	pthread_attr_destroy(&attr);
}

void worker_post(struct worker *w, struct task *take_t)
{
	pthread_mutex_lock(&w->lock);
	take_t->next = w->tasks;
	w->tasks = take_t;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

static void on_work(void *ctx)
{
	struct worker *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->work = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void task_free(struct task *t)
{
	lease_done(&t->lease);
	free(t->why);
	free((char *)(uintptr_t)t->done.error);
	free((char *)(uintptr_t)t->done.image_digest);
	free(t->detail);
	free(t);
}

static void on_exited(void *ctx, const struct id *sandbox)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_EXITED;
	t->sandbox = *sandbox;
	worker_post(ctx, t);
}

/* --- the engine --- */

static bool try_workspaces(struct worker *w, struct workspace_mount *m, bool *ret_full, char *why, size_t n)
{
	struct error err = ERROR_INIT;

	*ret_full = false;
	if (workspaces_probe_make(w->spaces, m, &err) == 0)
		return true;
	*ret_full = err.code == ERR_NO_CAPACITY;
	snprintf(why, n, "%s", err.message);
	return false;
}

/* again: how workspaces are made stays as it is. */
static int run_probe(struct worker *w, bool again, struct runtime_probe *p, struct error *err)
{
	auto_free char *io_dir = xasprintf("%s/probe/io", w->o.config->state_dir);
	struct workspace_mount m;
	char why[256] = "";
	bool full;
	bool mounted = try_workspaces(w, &m, &full, why, sizeof(why));
	int rc;

	*p = (struct runtime_probe){ .init_path = w->init_path, .io_dir = io_dir, .workspace = mounted ? &m : NULL };
	rc = io_mkdirs(io_dir, 0711, err);
	if (rc == 0)
		rc = w->o.runtime->ops->probe(w->o.runtime, p, err);
	workspaces_probe_drop(w->spaces);
	p->io_dir = NULL;
	p->workspace = NULL;
	if (rc != 0 || again)
		return rc;
	if (p->mounts_nothing)
		workspaces_set_mode(w->spaces, WORKSPACE_MODE_NONE, "the test runtime mounts nothing");
	else if (full) /* a full disk is no reason to hand out memory instead: creates are refused until there is room, and each checks its mount */
		workspaces_set_mode(w->spaces, WORKSPACE_MODE_LOOP, why);
	else if (!mounted)
		workspaces_set_mode(w->spaces, WORKSPACE_MODE_MEMORY, why);
	else if (p->workspace_seen)
		workspaces_set_mode(w->spaces, WORKSPACE_MODE_LOOP, "a probe saw this worker's mount inside a container");
	else
		workspaces_set_mode(w->spaces, WORKSPACE_MODE_ENGINE, "the engine does not see this worker's mounts, so it mounts the image itself");
	return 0;
}

static void note_engine(struct worker *w, bool up, const char *text)
{
	bool changed;

	pthread_mutex_lock(&w->lock);
	changed = w->engine_up != up || !*w->engine;
	w->engine_up = up;
	if (!up)
		w->probed = false;
	snprintf(w->engine, sizeof(w->engine), "%s", text);
	pthread_mutex_unlock(&w->lock);
	if (changed && up)
		log_info("worker", "runtime answers: %s", text);
	else if (changed)
		log_warn("worker", "runtime does not answer: %s", text);
}

static bool worth_another(const struct runtime_probe *p)
{
	for (int t = 0; t < TIER_COUNT; t++)
		if (!p->tiers[t].offered && p->tiers[t].again)
			return true;
	return false;
}

/* Only adds: what was seen to work once is not taken back because the machine is busy now. */
static void probe_again(struct worker *w)
{
	struct runtime_probe p;
	struct error err = ERROR_INIT;
	bool due;

	pthread_mutex_lock(&w->lock);
	due = worth_another(&w->probe) && clock_mono_ms() - w->probed_ms >= w->probe_pause_ms;
	pthread_mutex_unlock(&w->lock);
	if (!due)
		return;
	if (run_probe(w, true, &p, &err) != 0)
		log_warn("worker", "probing once more: %s", err.message);
	pthread_mutex_lock(&w->lock);
	for (int t = 0; t < TIER_COUNT && !*err.message; t++)
		if (!w->probe.tiers[t].offered)
			w->probe.tiers[t] = p.tiers[t];
	w->probed_ms = clock_mono_ms();
	w->probe_pause_ms = w->probe_pause_ms * 2 > PROBE_AGAIN_MAX_MS ? PROBE_AGAIN_MAX_MS : w->probe_pause_ms * 2;
	pthread_mutex_unlock(&w->lock);
}

int worker_probe(struct worker *w, struct error *err)
{
	struct runtime_probe p;
	struct error local = ERROR_INIT;
	char text[128];
	bool probed;

	if (w->o.runtime->ops->ping(w->o.runtime, text, sizeof(text), &local) != 0) {
		note_engine(w, false, local.message);
		return error_set(err, local.code, "%s", local.message);
	}
	note_engine(w, true, text);
	pthread_mutex_lock(&w->lock);
	probed = w->probed;
	pthread_mutex_unlock(&w->lock);
	if (probed) {
		probe_again(w);
		return 0;
	}
	if (run_probe(w, false, &p, err) != 0)
		return -1;
	pthread_mutex_lock(&w->lock);
	w->probe = p;
	w->probed = true;
	w->probed_ms = clock_mono_ms();
	w->probe_pause_ms = PROBE_AGAIN_MS;
	pthread_mutex_unlock(&w->lock);
	capacity_measure(w);
	log_info("worker", "probed: container tier %s: %s", p.tiers[TIER_CONTAINER].offered ? "offered" : "not offered",
	         p.tiers[TIER_CONTAINER].reason);
	return 0;
}

void worker_resync(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->resync = true;
	if (w->pause_ms > RESYNC_MS)
		w->pause_ms = RESYNC_MS;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* --- the maintainer --- */

/* Probe, heartbeat, reconcile as due. Returns the pause until the next round. */
static int64_t maintain(struct worker *w)
{
	struct error err = ERROR_INIT;
	bool up = worker_probe(w, &err) == 0, connected = w->o.up->ops->connected(w->o.up), due;

	network_maintain(w);
	if (capacity_heartbeat(w, &err) != 0 && connected)
		log_warn("worker", "heartbeat: %s", err.message);
	if (up)
		growth_check(w);
	if (!connected) {
		offline_expire(w);
		return WORKER_OFFLINE_MS;
	}
	if (!up)
		return ENGINE_RETRY_MS;
	warm_check_all(w);
	pthread_mutex_lock(&w->lock);
	due = !w->recovered || w->resync || clock_mono_ms() - w->reconciled_ms >= RECONCILE_MS;
	w->resync = false;
	pthread_mutex_unlock(&w->lock);
	if (due && worker_reconcile(w, &err) != 0) {
		log_warn("worker", "reconciling: %s", err.message);
		return ENGINE_RETRY_MS;
	}
	return HEARTBEAT_MS;
}

/* With the lock: waits for the next round; the pause may be shortened meanwhile. */
static void wait_round(struct worker *w)
{
	int64_t since = clock_mono_ms(), left;

	while (!w->stopping && (left = since + w->pause_ms - clock_mono_ms()) > 0) {
		struct timespec until = after_ms(left);

		pthread_cond_timedwait(&w->changed, &w->lock, &until);
	}
}

static void *maintainer(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->lock);
	for (wait_round(w); !w->stopping; wait_round(w)) {
		int64_t pause;

		pthread_mutex_unlock(&w->lock);
		pause = maintain(w);
		pthread_mutex_lock(&w->lock);
		w->pause_ms = w->writable.len > 0 && pause > WORKER_GROWTH_MS ? WORKER_GROWTH_MS : pause;
		if (w->resync && w->pause_ms > RESYNC_MS)
			w->pause_ms = RESYNC_MS;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* --- start and stop --- */

static char *init_path_of(const struct daemon_config *c)
{
	char self[4096];
	ssize_t n;

	if (*c->init_path)
		return xstrdup(c->init_path);
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return xstrdup("/usr/local/libexec/sandbox/sandbox-init-" SANDBOX_VERSION);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	auto_free char *installed = xasprintf("%s/../libexec/sandbox/sandbox-init-" SANDBOX_VERSION, self);
	auto_free char *real = realpath(installed, NULL);
	if (real)
		return steal(&real);
	return xasprintf("%s/sandbox-init", self);
}

static void init_locks(struct worker *w)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&w->lock, NULL);
	slew_clock_start(&w->clock, slew_boot_us(), clock_wall_us());
	pthread_mutex_init(&w->reconciling, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_cond_init(&w->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static int start_threads(struct worker *w, struct error *err)
{
	int rc = pthread_create(&w->maintainer, NULL, maintainer, w);

	if (rc != 0) {
		errno = rc;
		return error_errno(err, "starting the worker's maintainer");
	}
	w->maintaining = true;
	pthread_mutex_lock(&w->lock);
	w->work = true;
	pthread_mutex_unlock(&w->lock);
	w->o.up->ops->on_work(w->o.up, &w->node, on_work, w);
	w->o.up->ops->on_connect(w->o.up, offline_over, w);
	rescue_start(w);
	egress_on_denied(w->o.egress, network_denied, w);
	worker_spawn(w);
	return 0;
}

int worker_start(const struct worker_options *o, struct worker **ret, struct error *err)
{
	struct worker *w = xcalloc(1, sizeof(*w));

	w->o = *o;
	w->init_path = init_path_of(o->config);
	w->spaces = workspaces_new(o->config->state_dir);
	w->settings = settings_of(o->config);
	init_locks(w);
	if (worker_node_id(o->config, &w->node, err) != 0 || rights_new(o->config->state_dir, &w->rights, err) != 0 || watch_new(on_exited, w, &w->watch, err) != 0 ||
	    o->up->ops->requeue(o->up, &w->node, err) != 0) {
		worker_stop(w);
		return -1;
	}
	w->open_net = open_net_new(o->config, &w->node);
	workspaces_probe_drop(w->spaces); /* of a daemon that was killed while probing */
	w->pause_ms = maintain(w);
	if (start_threads(w, err) != 0) {
		worker_stop(w);
		return -1;
	}
	*ret = w;
	return 0;
}

static void free_tasks(struct task *t)
{
	while (t) {
		struct task *next = t->next;

		task_free(t);
		t = next;
	}
}

void worker_stop(struct worker *w)
{
	w->o.up->ops->on_work(w->o.up, &w->node, NULL, NULL);
	w->o.up->ops->on_connect(w->o.up, NULL, NULL);
	rescue_stop(w);
	egress_on_denied(w->o.egress, NULL, NULL);
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->wake);
	pthread_cond_broadcast(&w->changed);
	while (w->threads > 0)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
	if (w->maintaining)
		pthread_join(w->maintainer, NULL);
	watch_free(w->watch);
	open_net_free(w->open_net);
	free_tasks(w->tasks);
	idmap_done(&w->in_hand);
	idmap_done(&w->in_rescue);
	growth_forget(w, NULL);
	idmap_done(&w->writable);
	warm_done(w);
	deadlines_done(w);
	workspaces_free(w->spaces);
	rights_free(w->rights);
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->reconciling);
	free(w->init_path);
	free(w);
}

void worker_deadline_moved(struct worker *w, const struct id *sandbox)
{
	int64_t deadline_us = w->o.up->ops->deadline(w->o.up, sandbox);

	if (deadline_us <= 0)
		return;
	deadlines_note(w, sandbox, deadline_us);
	initlink_set_deadline(w->o.links, sandbox, deadline_us);
	if (!w->o.runtime->ops->deadline)
		return;
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_DEADLINE;
	t->sandbox = *sandbox;
	t->deadline_us = deadline_us;
	worker_post(w, t);
}

int worker_sandbox_stats(struct worker *w, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	return w->o.runtime->ops->stats(w->o.runtime, sandbox, ret, err);
}
