/*
 * The worker with a real controller, store, links and sandbox-init, on the test runtime (no engine, no root): what is
 * made, unmade, adopted after a restart, and noticed when it ends by itself.
 */
#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/runtime/fake.h"
#include "daemon/store/store.h"
#include "daemon/worker/exec.h"
#include "daemon/worker/initlink.h"
#include "daemon/worker/rights.h"
#include "daemon/worker/watch.h"
#include "daemon/worker/worker_priv.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WAIT_MS = 15 * 1000, POLL_US = 5000 };

/* A daemon without its API. */
struct world {
	char dir[64];
	char init_path[4096];
	struct daemon_config config;
	struct store *store;
	struct controller *controller;
	struct event_base *base;
	pthread_t loop;
	struct initlinks *links;
	struct upstream *up;
	struct execs *execs;
	struct runtime *runtime;
	struct worker *worker;
};

static const struct caller admin = { .role = ROLE_ADMIN, .tenant = "default", .all_tenants = true, .who = "test" };

static void *run_loop(void *arg)
{
	event_base_loop(arg, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

static void find_init(struct world *w)
{
	ssize_t n = readlink("/proc/self/exe", w->init_path, sizeof(w->init_path) - 32);

	w->init_path[n > 0 ? n : 0] = '\0';
	for (int i = 0; i < 2 && strrchr(w->init_path, '/'); i++)
		*strrchr(w->init_path, '/') = '\0';
	memcpy(w->init_path + strlen(w->init_path), "/sandbox-init", sizeof("/sandbox-init"));
}

static void check(int rc, const struct error *err)
{
	if (rc != 0)
		fail_msg("%s", err->message);
}

static void run_sql(struct world *w, const char *sql)
{
	auto_free char *path = xasprintf("%s/store.db", w->dir);
	sqlite3 *db = NULL;
	int rc;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, WAIT_MS);
	rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* The upstream of every world; what a test makes of it has to be in place before the worker's threads are. */
static const struct upstream_ops *local_ops;
static struct upstream_ops watched_ops;
/* While set, the controller gave the create to another node while this one could not be asked. */
static struct world *_Atomic elsewhere;
static atomic_int told_elsewhere;

static int complete_watched(struct upstream *up, const struct completion *done, struct error *err)
{
	struct world *w = atomic_load(&elsewhere);
	if (!w)
		return local_ops->complete(up, done, err);
	if (atomic_fetch_add(&told_elsewhere, 1) == 0)
		run_sql(w, "UPDATE sandboxes SET node_id = 'another'; UPDATE operations SET node_id = 'another'");
	return error_set(err, ERR_FORBIDDEN, "the operation is not of this node");
}

static void watch(struct upstream *up)
{
	local_ops = up->ops;
	watched_ops = *local_ops;
	watched_ops.complete = complete_watched;
	up->ops = &watched_ops;
}

static void world_start(struct world *w)
{
	struct error err = ERROR_INIT;
	auto_free char *db = xasprintf("%s/store.db", w->dir);
	struct store_options so = { .path = db, .state_dir = w->dir };
	struct worker_options wo;

	check(store_open(&so, &w->store, &err), &err);
	check(controller_new(&w->config, w->store, &w->controller, &err), &err);
	w->base = event_base_new();
	assert_int_equal(pthread_create(&w->loop, NULL, run_loop, w->base), 0);
	w->links = initlinks_new(w->base, w->dir);
	w->up = upstream_local(w->controller);
	watch(w->up);
	w->execs = execs_new(w->base, w->up, w->links, w->dir);
	check(fake_runtime_new(w->dir, &w->runtime, &err), &err);
	wo = (struct worker_options){
		.config = &w->config, .up = w->up, .runtime = w->runtime, .links = w->links, .execs = w->execs
	};
	check(worker_start(&wo, &w->worker, &err), &err);
}

static void world_stop(struct world *w)
{
	worker_stop(w->worker);
	event_base_loopexit(w->base, NULL);
	pthread_join(w->loop, NULL);
	execs_free(w->execs);
	w->up->ops->free(w->up);
	initlinks_free(w->links);
	w->runtime->ops->free(w->runtime);
	event_base_free(w->base);
	controller_free(w->controller);
	store_close(w->store);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	struct error err = ERROR_INIT;
	auto_free char *dir = NULL;
	auto_free char *init = NULL;

	log_set_level(LOG_LEVEL_ERROR);
	snprintf(w->dir, sizeof(w->dir), "/tmp/sandbox-worker-XXXXXX");
	if (!mkdtemp(w->dir))
		return -1;
	find_init(w);
	dir = xasprintf("daemon.state_dir=%s", w->dir);
	init = xasprintf("daemon.init_path=%s", w->init_path);
	if (daemon_config_defaults(&w->config, &err) != 0 || daemon_config_set(&w->config, dir, &err) != 0 ||
	    daemon_config_set(&w->config, init, &err) != 0) {
		print_message("%s\n", err.message);
		return -1;
	}
	if (access(w->init_path, X_OK) == 0)
		world_start(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	struct owned_list owned = { .items = NULL };

	if (w->worker) {
		w->runtime->ops->list_owned(w->runtime, &owned, NULL);
		for (size_t i = 0; i < owned.len; i++)
			w->runtime->ops->remove(w->runtime, &owned.items[i].sandbox_id, NULL);
		owned_list_done(&owned);
		world_stop(w);
	}
	io_remove_tree(w->dir, NULL);
	daemon_config_done(&w->config);
	free(w);
	return 0;
}

static void need_init(const struct world *w)
{
	if (w->worker)
		return;
	if (getenv("SANDBOX_TESTS_MUST_RUN"))
		fail_msg("no sandbox-init at %s: build it first", w->init_path);
	print_message("skipped: no sandbox-init at %s\n", w->init_path);
	skip();
}

static struct id ask_create(struct world *w, const char *image, struct id *ret_operation)
{
	struct create_result r;
	struct error err = ERROR_INIT;
	struct spec spec;
	struct id id;

	spec_init(&spec);
	free(spec.image);
	spec.image = xstrdup(image);
	spec.resources = (struct resources){ .cpu_millis = 100, .memory_mib = 64, .disk_mib = 64, .pids = 16 };
	create_result_init(&r);
	check(controller_create(w->controller, &admin, &spec, false, NULL, &r, &err), &err);
	id = r.sandbox.id;
	*ret_operation = r.operation.id;
	create_result_done(&r);
	spec_done(&spec);
	return id;
}

/* Waits for the operation's end; the caller frees *ret. */
static void wait_ended(struct world *w, const struct id *operation, struct operation *ret)
{
	struct error err = ERROR_INIT;
	int64_t until = clock_mono_ms() + WAIT_MS;

	for (;;) {
		operation_init(ret);
		check(controller_operation(w->controller, &admin, operation->text, ret, &err), &err);
		if (op_ended(ret->state))
			return;
		operation_done(ret);
		if (clock_mono_ms() > until)
			fail_msg("operation %s does not end", operation->text);
		usleep(POLL_US);
	}
}

static enum sandbox_state state_of(struct world *w, const struct id *id, char *ret_failure, size_t n)
{
	struct sandbox s;
	struct error err = ERROR_INIT;
	enum sandbox_state state;

	sandbox_init(&s);
	check(controller_resolve(w->controller, &admin, id->text, &s, &err), &err);
	state = s.state;
	if (ret_failure)
		snprintf(ret_failure, n, "%s", s.failure ? s.failure : "");
	sandbox_done(&s);
	return state;
}

static void wait_state(struct world *w, const struct id *id, enum sandbox_state wanted)
{
	int64_t until = clock_mono_ms() + WAIT_MS;

	while (state_of(w, id, NULL, 0) != wanted) {
		if (clock_mono_ms() > until)
			fail_msg("sandbox is %s, not %s", sandbox_state_text(state_of(w, id, NULL, 0)), sandbox_state_text(wanted));
		usleep(POLL_US);
	}
}

static struct id make_running(struct world *w)
{
	struct operation o;
	struct id op, id = ask_create(w, "any/image", &op);

	wait_ended(w, &op, &o);
	if (o.state != OP_SUCCEEDED)
		fail_msg("%s", o.error);
	operation_done(&o);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_RUNNING);
	return id;
}

static pid_t pid_of(struct world *w, const struct id *id)
{
	struct runtime_status s;

	assert_int_equal(w->runtime->ops->inspect(w->runtime, id, &s, NULL), 0);
	return s.pid;
}

static bool has_files(struct world *w, const struct id *id)
{
	auto_free char *dir = xasprintf("%s/sandboxes/%s", w->dir, id->text);

	return access(dir, F_OK) == 0;
}

/* Everything of it goes within a moment. */
static void wait_traceless(struct world *w, const struct id *id)
{
	int64_t until = clock_mono_ms() + WAIT_MS;
	struct runtime_status s;

	for (;;) {
		assert_int_equal(w->runtime->ops->inspect(w->runtime, id, &s, NULL), 0);
		if (s.state == RUNTIME_ABSENT && !has_files(w, id))
			return;
		if (clock_mono_ms() > until)
			fail_msg("something of %s is left (state %d, files %d)", id->text, s.state, has_files(w, id));
		usleep(POLL_US);
	}
}

static void created_and_deleted_without_a_trace(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	struct operation o;
	struct id id;
	pid_t pid;

	need_init(w);
	id = make_running(w);
	pid = pid_of(w, &id);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, 0), 0);
	operation_init(&o);
	check(controller_delete(w->controller, &admin, id.text, &o, &err), &err);
	const struct id op = o.id;
	operation_done(&o);
	wait_ended(w, &op, &o);
	assert_int_equal(o.state, OP_SUCCEEDED);
	operation_done(&o);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_STOPPED);
	assert_int_equal(kill(pid, 0), -1);
	wait_traceless(w, &id);
}

static void a_missing_image_fails_with_its_reason(void **state)
{
	struct world *w = *state;
	struct operation o;
	struct id op, id;

	need_init(w);
	id = ask_create(w, "registry.example.com/missing:1", &op);
	wait_ended(w, &op, &o);
	assert_int_equal(o.state, OP_FAILED);
	assert_int_equal(o.error_code, ERR_NOT_FOUND);
	assert_non_null(strstr(o.error, "registry.example.com/missing:1"));
	operation_done(&o);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_FAILED);
	wait_traceless(w, &id);
}

static void an_end_of_process_1_is_noticed(void **state)
{
	struct world *w = *state;
	char failure[256];
	struct id id;

	need_init(w);
	id = make_running(w);
	kill(pid_of(w, &id), SIGKILL);
	wait_state(w, &id, SANDBOX_FAILED);
	state_of(w, &id, failure, sizeof(failure));
	assert_non_null(strstr(failure, "process 1 ended"));
	wait_traceless(w, &id);
}

static void start_command(struct world *w, const struct id *sandbox, const char *script, struct exec_grant *ret)
{
	struct error err = ERROR_INIT;
	struct command cmd;

	command_init(&cmd);
	strv_add(&cmd.argv, "/bin/sh");
	strv_add(&cmd.argv, "-c");
	strv_add(&cmd.argv, script);
	cmd.cwd = xstrdup("/");
	check(controller_exec_begin(w->controller, &admin, sandbox->text, &cmd, ret, &err), &err);
	execs_start_detached(w->execs, ret, &cmd);
	command_done(&cmd);
}

static void what_a_command_wrote_outlives_its_sandbox(void **state)
{
	struct world *w = *state;
	struct exec_grant grant;
	struct operation o;
	struct id id;
	auto_free char *mark = xasprintf("%s/written", w->dir);
	auto_free char *script = xasprintf("echo last words; sleep 0.2; : >%s; sleep 60", mark);
	int64_t until = clock_mono_ms() + WAIT_MS;

	need_init(w);
	id = make_running(w);
	start_command(w, &id, script, &grant);
	while (access(mark, F_OK) != 0 && clock_mono_ms() < until)
		usleep(POLL_US);
	kill(pid_of(w, &id), SIGKILL);
	wait_ended(w, &grant.operation, &o);
	assert_int_equal(o.result.outcome, OUTCOME_LOST);
	assert_int_equal(o.result.out.total, 11);
	assert_memory_equal(o.result.out.head.data, "last words\n", 11);
	operation_done(&o);
	wait_state(w, &id, SANDBOX_FAILED);
	wait_traceless(w, &id);
}

/* As when the disk is full for a while: neither operation stays as it was, and the delete does not wait for ever. */
static void an_end_that_cannot_be_recorded_is_recorded_later(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	struct operation o, deleted;
	struct id op, id;

	need_init(w);
	log_set_level(LOG_LEVEL_ERROR + 1);
	run_sql(w, "CREATE TRIGGER refuse BEFORE UPDATE OF state ON operations WHEN NEW.state = 'succeeded' "
		   "BEGIN SELECT RAISE(ABORT, 'not now'); END");
	id = ask_create(w, "any/image", &op);
	usleep(1000 * 1000);
	operation_init(&o);
	check(controller_operation(w->controller, &admin, op.text, &o, &err), &err);
	assert_int_equal(o.state, OP_RUNNING);
	operation_done(&o);
	operation_init(&deleted);
	check(controller_delete(w->controller, &admin, id.text, &deleted, &err), &err);
	run_sql(w, "DROP TRIGGER refuse");
	wait_ended(w, &op, &o);
	operation_done(&o);
	wait_ended(w, &deleted.id, &o);
	assert_int_equal(o.state, OP_SUCCEEDED);
	operation_done(&o);
	operation_done(&deleted);
	wait_traceless(w, &id);
	log_set_level(LOG_LEVEL_ERROR);
}

static void what_was_placed_elsewhere_meanwhile_is_removed(void **state)
{
	struct world *w = *state;
	struct id op;

	need_init(w);
	atomic_store(&told_elsewhere, 0);
	atomic_store(&elsewhere, w);
	struct id id = ask_create(w, "any/image", &op);
	int64_t until = clock_mono_ms() + WAIT_MS;
	while (atomic_load(&told_elsewhere) == 0 && clock_mono_ms() < until)
		usleep(POLL_US);
	wait_traceless(w, &id);
	/* It is not told again and again. */
	assert_int_equal(atomic_load(&told_elsewhere), 1);
	atomic_store(&elsewhere, NULL);
}

/* --- images that need a login --- */

/* A registry where one login has all, and nobody else but what is named "open". */
static int asked, pulled;

static int registry_verify(struct runtime *rt, const char *image, const struct secret *login, struct error *err)
{
	(void)rt;
	asked++;
	if (strstr(image, "/open") || (login && login->n == 5 && memcmp(login->bytes, "u\0one", 5) == 0))
		return 0;
	return error_set(err, ERR_FORBIDDEN, "no");
}

static int registry_pull(struct runtime *rt, const struct image_pull *p, struct error *err)
{
	(void)rt;
	(void)p;
	(void)err;
	pulled++;
	return 0;
}

static int fetch(struct worker *w, const char *image, const char *login, size_t n)
{
	auto_secret s = SECRET_INIT;
	struct error err = ERROR_INIT;
	secret_set(&s, login, n);
	asked = pulled = 0;
	return image_fetch(w, &(struct image_pull){ .image = image, .login = &s }, &err);
}

static void only_what_needs_a_login_becomes_private(void **state)
{
	struct world *w = *state;

	need_init(w);
	const struct runtime_ops *before = w->runtime->ops;
	struct runtime_ops ops = *before;

	ops.image_verify = registry_verify;
	ops.image_pull = registry_pull;
	w->runtime->ops = &ops;
	/* A wrong login takes nothing from others, … */
	assert_int_equal(fetch(w->worker, "r.io/closed:none", "u\0two", 5), -1);
	assert_int_equal(pulled, 0);
	assert_false(rights_private(w->worker->rights, "r.io/closed:1"));
	/* … nor does one for what everybody can have. */
	assert_int_equal(fetch(w->worker, "r.io/open:1", "u\0one", 5), 0);
	assert_int_equal(pulled, 1);
	assert_false(rights_private(w->worker->rights, "r.io/open:1"));
	assert_int_equal(fetch(w->worker, "r.io/closed:1", "u\0one", 5), 0);
	assert_int_equal(pulled, 1);
	assert_true(rights_private(w->worker->rights, "r.io/closed:none"));
	/* Then the pull itself is asked. */
	assert_int_equal(fetch(w->worker, "r.io/closed:2", "u\0one", 5), 0);
	assert_int_equal(asked, 0);
	w->runtime->ops = before;
}

/* --- processes that are ended from outside --- */

static atomic_int in_one_box, in_all, most_in_all;
static atomic_bool crowded;
static struct id box_of_two;

static int end_below_slowly(struct runtime *rt, const struct id *sandbox, pid_t inside, size_t *ret_ended, struct error *err)
{
	bool shared = strcmp(sandbox->text, box_of_two.text) == 0;
	(void)rt;
	(void)inside;
	(void)err;
	int all = atomic_fetch_add(&in_all, 1) + 1;
	if (all > atomic_load(&most_in_all))
		atomic_store(&most_in_all, all);
	if (shared && atomic_fetch_add(&in_one_box, 1) > 0)
		atomic_store(&crowded, true);
	/* Whoever may come in beside this one has come. */
	int64_t until = clock_mono_ms() + (shared ? 200 : WAIT_MS);
	while (clock_mono_ms() < until && (shared || atomic_load(&in_one_box) == 0))
		usleep(POLL_US);
	if (shared)
		atomic_fetch_sub(&in_one_box, 1);
	atomic_fetch_sub(&in_all, 1);
	*ret_ended = 1;
	return 0;
}

static bool not_to_be_deleted(struct upstream *up, const struct id *sandbox)
{
	(void)up;
	(void)sandbox;
	return false;
}

struct starving {
	struct worker *worker;
	struct id sandbox;
};

static void *starve(void *arg)
{
	struct starving *s = arg;
	return rescue_starved(s->worker, &s->sandbox, 2, false) ? s : NULL;
}

static void a_sandbox_is_rescued_by_one_at_a_time_beside_others(void **state)
{
	struct world *w = *state;

	need_init(w);
	const struct runtime_ops *before = w->runtime->ops;
	struct runtime_ops ops = *before;
	struct starving s[3];
	pthread_t threads[ARRAY_LEN(s)];
	void *done;

	const struct upstream_ops *up_before = w->up->ops;
	struct upstream_ops up = *up_before;
	ops.end_below = end_below_slowly;
	w->runtime->ops = &ops;
	up.wants_delete = not_to_be_deleted;
	w->up->ops = &up;
	box_of_two = id_new();
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		s[i] = (struct starving){ .worker = w->worker, .sandbox = i == 0 ? id_new() : box_of_two };
		assert_int_equal(pthread_create(&threads[i], NULL, starve, &s[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		pthread_join(threads[i], &done);
		assert_non_null(done);
	}
	w->runtime->ops = before;
	w->up->ops = up_before;
	assert_false(atomic_load(&crowded));
	assert_true(atomic_load(&most_in_all) >= 2);
}

static void the_worker_knows_a_moved_deadline(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	struct sandbox s;
	struct id id;
	int64_t left;

	need_init(w);
	id = make_running(w);
	sandbox_init(&s);
	check(controller_extend(w->controller, &admin, id.text, 5000 * 1000, &s, &err), &err);
	sandbox_done(&s);
	left = controller_deadline(w->controller, &id) - clock_wall_us();
	assert_in_range(left / 1000000, 4900, 5000);
	worker_deadline_moved(w->worker, &id);
}

static void a_restart_adopts_what_runs(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	struct id id;
	pid_t pid;

	need_init(w);
	id = make_running(w);
	pid = pid_of(w, &id);
	world_stop(w);
	assert_int_equal(kill(pid, 0), 0);
	world_start(w);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_RUNNING);
	assert_int_equal(pid_of(w, &id), pid);
	check(initlink_wait(w->links, &id, WAIT_MS, &err), &err);
	/* and it is watched again */
	kill(pid, SIGKILL);
	wait_state(w, &id, SANDBOX_FAILED);
}

static void a_restart_finds_what_ended_meanwhile(void **state)
{
	struct world *w = *state;
	struct id id;
	pid_t pid;

	need_init(w);
	id = make_running(w);
	pid = pid_of(w, &id);
	world_stop(w);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	world_start(w);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_FAILED);
	wait_traceless(w, &id);
}

static void what_no_record_knows_is_removed(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	struct id stray = id_new(), half = id_new(), id;
	struct spec spec;
	auto_free char *dir = xasprintf("%s/sandboxes/%s/io", w->dir, stray.text);
	struct runtime_create req = { .sandbox_id = half, .spec = &spec, .init_path = w->init_path, .io_dir = w->dir };
	struct runtime_status s;

	need_init(w);
	id = make_running(w);
	spec_init(&spec);
	check(io_mkdirs(dir, 0700, &err), &err);
	check(w->runtime->ops->create(w->runtime, &req, &err), &err);
	check(worker_reconcile(w->worker, &err), &err);
	assert_false(has_files(w, &stray));
	assert_int_equal(w->runtime->ops->inspect(w->runtime, &half, &s, NULL), 0);
	assert_int_equal(s.state, RUNTIME_ABSENT);
	assert_int_equal(state_of(w, &id, NULL, 0), SANDBOX_RUNNING);
	assert_true(pid_of(w, &id) > 1);
	spec_done(&spec);
}

static void many_at_once_all_go(void **state)
{
	enum { MANY = 24 };
	struct world *w = *state;
	struct id ids[MANY], ops[MANY];
	struct error err = ERROR_INIT;
	struct operation o;
	struct owned_list owned;

	need_init(w);
	for (int i = 0; i < MANY; i++)
		ids[i] = ask_create(w, "any/image", &ops[i]);
	/* Every second one is deleted while it is being created. */
	for (int i = 0; i < MANY; i += 2) {
		operation_init(&o);
		check(controller_delete(w->controller, &admin, ids[i].text, &o, &err), &err);
		operation_done(&o);
	}
	for (int i = 0; i < MANY; i++)
		wait_state(w, &ids[i], i % 2 ? SANDBOX_RUNNING : SANDBOX_STOPPED);
	for (int i = 1; i < MANY; i += 2) {
		operation_init(&o);
		check(controller_delete(w->controller, &admin, ids[i].text, &o, &err), &err);
		operation_done(&o);
	}
	for (int i = 0; i < MANY; i++)
		wait_state(w, &ids[i], SANDBOX_STOPPED);
	for (int i = 0; i < MANY; i++)
		wait_traceless(w, &ids[i]);
	check(w->runtime->ops->list_owned(w->runtime, &owned, &err), &err);
	assert_int_equal(owned.len, 0);
	owned_list_done(&owned);
}

static void the_test_runtime_is_no_secret(void **state)
{
	struct world *w = *state;
	struct check_row rows[32];
	bool said = false;
	size_t n;

	need_init(w);
	n = worker_checks(w->worker, rows, ARRAY_LEN(rows));
	assert_in_range(n, 5, ARRAY_LEN(rows));
	for (size_t i = 0; i < n; i++)
		said = said || (strcmp(rows[i].status, "fail") == 0 && strstr(rows[i].detail, "WITHOUT any isolation"));
	assert_true(said);
	assert_int_equal(worker_checks(w->worker, rows, 1), 1);
}

static void the_node_keeps_its_id(void **state)
{
	struct world *w = *state;
	struct error err = ERROR_INIT;
	auto_free char *path = xasprintf("%s/node-id", w->dir);
	struct id a, b;

	check(worker_node_id(&w->config, &a, &err), &err);
	check(worker_node_id(&w->config, &b, &err), &err);
	assert_string_equal(a.text, b.text);
	check(io_write_file_atomic(path, "garbage\n", 8, 0600, false, &err), &err);
	assert_int_equal(worker_node_id(&w->config, &b, &err), -1);
	assert_non_null(strstr(err.message, "node-id"));
	auto_free char *line = xasprintf("%s\n", a.text);
	check(io_write_file_atomic(path, line, strlen(line), 0600, false, &err), &err);
}

static void note_end(void *ctx, const struct id *sandbox)
{
	(void)sandbox;
	__atomic_add_fetch((int *)ctx, 1, __ATOMIC_SEQ_CST);
}

static void wait_count(int *count, int wanted)
{
	for (int i = 0; i < 1000 && __atomic_load_n(count, __ATOMIC_SEQ_CST) < wanted; i++)
		usleep(POLL_US);
	assert_int_equal(__atomic_load_n(count, __ATOMIC_SEQ_CST), wanted);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	return pid;
}

static void a_watch_tells_each_end_once(void **state)
{
	struct watch *watch;
	struct error err = ERROR_INIT;
	struct id a = id_new(), b = id_new(), c = id_new();
	int ends = 0;
	pid_t pa = sleeper(), pb = sleeper();

	(void)state;
	check(watch_new(note_end, &ends, &watch, &err), &err);
	check(watch_add(watch, &a, pa, &err), &err);
	check(watch_add(watch, &b, pb, &err), &err);
	assert_true(watch_has(watch, &a));
	watch_remove(watch, &b);
	assert_false(watch_has(watch, &b));
	kill(pb, SIGKILL);
	waitpid(pb, NULL, 0);
	kill(pa, SIGKILL);
	waitpid(pa, NULL, 0);
	wait_count(&ends, 1);
	assert_false(watch_has(watch, &a));
	/* gone before it was watched */
	check(watch_add(watch, &c, pa, &err), &err);
	wait_count(&ends, 2);
	watch_free(watch);
	assert_int_equal(ends, 2);
}

/* --- probing once more --- */

static atomic_int probes;

/* Too slow the first time for one tier; and the second time for another, which had been seen to work. */
static int busy_probe(struct runtime *rt, struct runtime_probe *p, struct error *err)
{
	bool first = atomic_fetch_add(&probes, 1) == 0;

	(void)rt;
	(void)err;
	for (int t = 0; t < TIER_COUNT; t++)
		snprintf(p->tiers[t].reason, sizeof(p->tiers[t].reason), "probe %s", first ? "one" : "two");
	p->tiers[first ? TIER_CONTAINER : TIER_GVISOR].offered = true;
	p->tiers[first ? TIER_GVISOR : TIER_CONTAINER].again = true;
	p->mounts_nothing = true;
	return 0;
}

static void a_tier_missed_on_a_busy_machine_is_tried_again(void **state)
{
	struct world *w = *state;
	static struct runtime_ops busy;
	struct error err = ERROR_INIT;

	need_init(w);
	busy = *w->runtime->ops;
	busy.probe = busy_probe;
	w->runtime->ops = &busy;
	atomic_store(&probes, 0);
	pthread_mutex_lock(&w->worker->lock);
	w->worker->probed = false;
	pthread_mutex_unlock(&w->worker->lock);
	check(worker_probe(w->worker, &err), &err);
	check(worker_probe(w->worker, &err), &err);
	assert_int_equal(atomic_load(&probes), 1); /* not at once */
	assert_false(w->worker->probe.tiers[TIER_GVISOR].offered);
	pthread_mutex_lock(&w->worker->lock);
	w->worker->probe_pause_ms = 0;
	pthread_mutex_unlock(&w->worker->lock);
	check(worker_probe(w->worker, &err), &err);
	assert_int_equal(atomic_load(&probes), 2);
	assert_true(w->worker->probe.tiers[TIER_GVISOR].offered);
	assert_true(w->worker->probe.tiers[TIER_CONTAINER].offered);
	assert_string_equal(w->worker->probe.tiers[TIER_CONTAINER].reason, "probe one");
	check(worker_probe(w->worker, &err), &err);
	assert_int_equal(atomic_load(&probes), 2); /* there is nothing left to find */
	world_stop(w);
	w->worker = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watch_tells_each_end_once),
		cmocka_unit_test_setup_teardown(the_node_keeps_its_id, setup, teardown),
		cmocka_unit_test_setup_teardown(created_and_deleted_without_a_trace, setup, teardown),
		cmocka_unit_test_setup_teardown(a_missing_image_fails_with_its_reason, setup, teardown),
		cmocka_unit_test_setup_teardown(an_end_of_process_1_is_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_command_wrote_outlives_its_sandbox, setup, teardown),
		cmocka_unit_test_setup_teardown(an_end_that_cannot_be_recorded_is_recorded_later, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_placed_elsewhere_meanwhile_is_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(only_what_needs_a_login_becomes_private, setup, teardown),
		cmocka_unit_test_setup_teardown(a_sandbox_is_rescued_by_one_at_a_time_beside_others, setup, teardown),
		cmocka_unit_test_setup_teardown(the_worker_knows_a_moved_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(a_restart_adopts_what_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(a_restart_finds_what_ended_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(what_no_record_knows_is_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(many_at_once_all_go, setup, teardown),
		cmocka_unit_test_setup_teardown(the_test_runtime_is_no_secret, setup, teardown),
		cmocka_unit_test_setup_teardown(a_tier_missed_on_a_busy_machine_is_tried_again, setup, teardown),
	};

	evthread_use_pthreads();
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
