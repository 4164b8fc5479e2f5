/* The controller: many at once, watchers, death at any moment, and what things cost. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/controller.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* --- many at once --- */

enum { RACERS = 50, SLOTS = 5 };

struct racer {
	struct fix *f;
	pthread_barrier_t *start;
	const char *name, *key;
	enum error_code code;
	struct id id;
	bool won, replayed;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	struct create_result res;
	struct error err = ERROR_INIT;
	create_result_init(&res);
	pthread_barrier_wait(r->start);
	r->won = try_create(r->f, &r->f->operator, r->name, 60000, r->key, &res, &err) == 0;
	r->code = err.code;
	r->id = res.sandbox.id;
	r->replayed = res.replayed;
	create_result_done(&res);
	return NULL;
}

static int run_race(struct fix *f, const char *name, const char *key, struct racer *racers)
{
	pthread_t threads[RACERS];
	pthread_barrier_t start;
	int won = 0;
	pthread_barrier_init(&start, NULL, RACERS);
	for (int i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){ .f = f, .start = &start, .name = name, .key = key };
		assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
	}
	for (int i = 0; i < RACERS; i++) {
		pthread_join(threads[i], NULL);
		won += racers[i].won;
	}
	pthread_barrier_destroy(&start);
	return won;
}

static void the_last_slots_go_to_exactly_as_many(void **state)
{
	struct fix *f = *state;
	struct racer racers[RACERS];
	beat(f, SLOTS);
	assert_int_equal(run_race(f, NULL, NULL, racers), SLOTS);
	for (int i = 0; i < RACERS; i++)
		assert_true(racers[i].won || racers[i].code == ERR_NO_CAPACITY);
	expect_consistent(f);
	for (int i = 0; i < RACERS; i++)
		if (racers[i].won)
			delete_it(f, racers[i].id.text);
	assert_int_equal(run_race(f, NULL, NULL, racers), SLOTS);
	/* After a restart nothing is free that is taken. */
	close_controller(f);
	open_controller(f);
	beat(f, SLOTS);
	assert_int_equal(run_race(f, NULL, NULL, racers), 0);
	beat(f, SLOTS + 2);
	assert_int_equal(run_race(f, NULL, NULL, racers), 2);
	expect_consistent(f);
}

static void one_name_one_winner(void **state)
{
	struct fix *f = *state;
	struct racer racers[RACERS];
	assert_int_equal(run_race(f, "same", NULL, racers), 1);
	for (int i = 0; i < RACERS; i++)
		assert_true(racers[i].won || racers[i].code == ERR_CONFLICT);
}

static void one_key_one_sandbox(void **state)
{
	struct fix *f = *state;
	struct racer racers[RACERS];
	int made = 0;
	assert_int_equal(run_race(f, "same", "key", racers), RACERS);
	for (int i = 0; i < RACERS; i++) {
		assert_string_equal(racers[i].id.text, racers[0].id.text);
		made += !racers[i].replayed;
	}
	assert_int_equal(made, 1);
}

static void limits_bind_by_every_resource(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	struct node_report small = { .node = f->node, .name = "local", .max_sandboxes = 100,
				     .total = { .cpu_millis = 100000, .memory_mib = 4000, .disk_mib = 1000000, .pids = 100000 } };
	small.tiers[TIER_CONTAINER].offered = true;
	small.network[NETWORK_DENY] = true;
	assert_int_equal(controller_heartbeat(f->c, &small, &f->err), 0);
	int made = 0;
	while (made < 100 && try_create(f, &f->operator, NULL, 60000, NULL, &r, &f->err) == 0) {
		made++;
		create_result_done(&r);
	}
	assert_int_equal(f->err.code, ERR_NO_CAPACITY);
	assert_non_null(strstr(f->err.message, "memory"));
	struct spec defaults;
	spec_init(&defaults);
	assert_true(made >= 1 && (uint32_t)made * defaults.resources.memory_mib <= 4000);
	spec_done(&defaults);
	create_result_done(&r);
	expect_consistent(f);
}

/* Everybody does everything at once; at the end the books balance. */
struct crowd {
	struct fix *f;
	atomic_bool *stop;
	unsigned seed;
	atomic_int created;
	int errors;
};

static void one_command(struct fix *f, const struct id *id)
{
	struct exec_grant g;
	if (try_exec(f, &f->operator, id->text, &g, NULL) != 0)
		return;
	struct result r;
	result_init(&r);
	r.outcome = OUTCOME_EXITED;
	controller_exec_end(f->c, &g.operation, &r, ERR_NONE, NULL, NULL);
}

static void *crowd_user(void *arg)
{
	struct crowd *w = arg;
	while (!atomic_load(w->stop)) {
		struct create_result r;
		struct error err = ERROR_INIT;
		auto_operation o;
		create_result_init(&r);
		operation_init(&o);
		if (try_create(w->f, &w->f->operator, NULL, 1000 + (int64_t)(rand_r(&w->seed) % 2000), NULL, &r, &err) == 0) {
			atomic_fetch_add(&w->created, 1);
			for (int i = rand_r(&w->seed) % 8; i > 0; i--)
				one_command(w->f, &r.sandbox.id);
			if (rand_r(&w->seed) % 4 && controller_delete(w->f->c, &w->f->operator, r.sandbox.id.text, &o, &err) != 0)
				w->errors++;
		} else if (err.code != ERR_NO_CAPACITY) {
			w->errors++;
		}
		create_result_done(&r);
	}
	return NULL;
}

static void *crowd_worker(void *arg)
{
	struct crowd *w = arg;
	while (!atomic_load(w->stop)) {
		struct lease l;
		int rc = controller_lease(w->f->c, &w->f->node, &l, NULL);
		if (rc != 1) {
			w->errors += rc < 0;
			usleep(500);
			continue;
		}
		struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = l.kind == OPK_DELETE || rand_r(&w->seed) % 8,
					   .code = ERR_INTERNAL, .error = "bad luck" };
		controller_wants_delete(w->f->c, &l.sandbox.id);
		w->errors += controller_complete(w->f->c, &done, NULL) != 0;
		if (rand_r(&w->seed) % 16 == 0)
			controller_sandbox_gone(w->f->c, &l.sandbox.id, "it fell over", NULL);
		lease_done(&l);
	}
	return NULL;
}

static void *crowd_reaper(void *arg)
{
	struct crowd *w = arg;
	while (!atomic_load(w->stop)) {
		controller_reap(w->f->c);
		beat(w->f, 50);
		struct sandbox_list l;
		if (controller_list(w->f->c, &w->f->admin, &(struct list_query){ .all = true, .limit = 20 }, &l, NULL) == 0)
			sandbox_list_done(&l);
		usleep(2000);
	}
	return NULL;
}

static int created_by(struct crowd *crowd, size_t n)
{
	int all = 0;
	for (size_t i = 0; i < n; i++)
		all += atomic_load(&crowd[i].created);
	return all;
}

static void a_crowd_keeps_the_books(void **state)
{
	struct fix *f = *state;
	atomic_bool stop = false;
	struct crowd crowd[9];
	pthread_t threads[ARRAY_LEN(crowd)];
	beat(f, 50);
	for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
		crowd[i] = (struct crowd){ .f = f, .stop = &stop, .seed = (unsigned)i + 1 };
		void *(*fn)(void *) = i == 0 ? crowd_reaper : i < 4 ? crowd_worker : crowd_user;
		assert_int_equal(pthread_create(&threads[i], NULL, fn, &crowd[i]), 0);
	}
	int64_t start = clock_mono_ms();
	while (clock_mono_ms() - start < 1500 || (created_by(crowd, ARRAY_LEN(crowd)) <= 50 && clock_mono_ms() - start < 120 * 1000))
		usleep(10 * 1000);
	atomic_store(&stop, true);
	for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(crowd[i].errors, 0);
	}
	assert_true(created_by(crowd, ARRAY_LEN(crowd)) > 50);
	expect_consistent(f);
	/* A restarted controller counts the same. */
	close_controller(f);
	open_controller(f);
	expect_consistent(f);
}

/* --- watches --- */

struct watcher {
	atomic_int calls;
	useconds_t stay;
	struct controller *c;
	uint64_t unwatch;
};

static void on_end(void *ctx, const struct id *operation)
{
	struct watcher *w = ctx;
	(void)operation;
	if (w->stay)
		usleep(w->stay);
	if (w->unwatch)
		controller_unwatch(w->c, w->unwatch);
	atomic_fetch_add(&w->calls, 1);
}

static void watchers_are_told_once(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = exec_begin(f, &id), nobody = id_new();
	struct watcher w[4] = { { .c = f->c }, { .c = f->c }, { .c = f->c }, { .c = f->c } };
	uint64_t handle[4];
	for (int i = 0; i < 3; i++)
		assert_int_equal(controller_watch(f->c, &op, on_end, &w[i], &handle[i], &f->err), 0);
	w[1].unwatch = handle[1]; /* itself, from inside */
	assert_true(controller_unwatch(f->c, handle[2]));
	assert_false(controller_unwatch(f->c, handle[2]));
	assert_int_equal(w[0].calls, 0);
	controller_exec_end(f->c, &op, NULL, ERR_UNAVAILABLE, "no", NULL);
	assert_int_equal(w[0].calls, 1);
	assert_int_equal(w[1].calls, 1);
	assert_int_equal(w[2].calls, 0);
	assert_false(controller_unwatch(f->c, handle[0]));
	/* It has ended: told at once. */
	assert_int_equal(controller_watch(f->c, &op, on_end, &w[3], &handle[3], &f->err), 0);
	assert_int_equal(w[3].calls, 1);
	expect_error(f, controller_watch(f->c, &nobody, on_end, &w[3], &handle[3], &f->err), ERR_NOT_FOUND, "no operation has the id");
}

struct ender {
	struct fix *f;
	struct id op;
};

static void *end_it(void *arg)
{
	struct ender *e = arg;
	controller_exec_end(e->f->c, &e->op, NULL, ERR_UNAVAILABLE, "no", NULL);
	return NULL;
}

static void unwatch_waits_for_a_running_watcher(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000);
	int told = 0, untold = 0;
	for (int round = 0; round < 60; round++) {
		struct ender e = { .f = f, .op = exec_begin(f, &id) };
		struct watcher w = { .stay = 3000 };
		uint64_t handle;
		pthread_t thread;
		assert_int_equal(controller_watch(f->c, &e.op, on_end, &w, &handle, &f->err), 0);
		assert_int_equal(pthread_create(&thread, NULL, end_it, &e), 0);
		usleep((useconds_t)(round * 20));
		bool unwatched = controller_unwatch(f->c, handle);
		/* From here on w may vanish: either it has been told, or it never will be. */
		assert_int_equal(w.calls, unwatched ? 0 : 1);
		told += !unwatched;
		untold += unwatched;
		pthread_join(thread, NULL);
		assert_int_equal(w.calls, unwatched ? 0 : 1);
	}
	assert_int_equal(told + untold, 60);
	assert_true(told > 0);
}

/* --- dying --- */

static void commands_of_another_boot_are_lost(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = exec_begin(f, &id), before = exec_begin(f, &id);
	auto_free char *sql = xasprintf("UPDATE operations SET boot_id = 'before' WHERE id = '%s'", before.text);
	close_controller(f);
	change_rows(f, sql);
	open_controller(f);
	/* What a worker says when it comes back. */
	assert_int_equal(controller_requeue(f->c, &f->node, &f->err), 0);
	expect_op(f, &op, OP_RUNNING, OUTCOME_NONE);
	expect_op(f, &before, OP_FAILED, OUTCOME_LOST);
	expect_consistent(f);
}

/* A process that does everything until it is killed. It tells when it has begun: starting takes a while in instrumented builds. */
static void live_until_killed(struct fix *f, int told)
{
	if (store_open(&(struct store_options){ .path = f->db, .state_dir = f->dir, .url = f->url }, &f->store, NULL) != 0 ||
	    controller_new(&f->config, f->store, &f->c, NULL) != 0 || controller_requeue(f->c, &f->node, NULL) != 0)
		_exit(1);
	beat(f, 20);
	atomic_bool stop = false;
	struct crowd users[2] = { { .f = f, .stop = &stop, .seed = (unsigned)getpid() }, { .f = f, .stop = &stop, .seed = 7 } };
	pthread_t thread;
	if (pthread_create(&thread, NULL, crowd_user, &users[1]) != 0)
		_exit(1);
	if (write(told, "x", 1) != 1)
		_exit(1);
	crowd_worker(&users[0]);
	_exit(0);
}

static void killed_at_any_moment_it_goes_on(void **state)
{
	struct fix *f = *state;
	int64_t enough = f->url[0] ? 2 : 25;
	close_controller(f);
	/* 25 rounds, and on a slow machine as many as it takes until some were killed in the middle of much. */
	for (int round = 0; round < 25 || (round < 400 && query_int(f, "SELECT COUNT(*) FROM sandboxes") <= enough); round++) {
		int begun[2];
		char byte;
		assert_int_equal(pipe2(begun, O_CLOEXEC), 0);
		pid_t child = fork();
		if (child == 0)
			live_until_killed(f, begun[1]);
		close(begun[1]);
		assert_int_equal(read(begun[0], &byte, 1), 1);
		close(begun[0]);
		usleep((useconds_t)(1000 + round * 1700));
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		open_controller(f);
		expect_consistent(f);
		assert_int_equal(controller_requeue(f->c, &f->node, &f->err), 0);
		expect_consistent(f);
		close_controller(f);
	}
	/* And all of it can be brought to an end. */
	open_controller(f);
	beat(f, 20);
	struct sandbox_list l;
	assert_int_equal(controller_list(f->c, &f->admin, &(struct list_query){ .limit = 0 }, &l, &f->err), 0);
	for (size_t i = 0; i < l.len; i++)
		delete_it(f, l.items[i].id.text);
	sandbox_list_done(&l);
	struct lease lease;
	while (controller_lease(f->c, &f->node, &lease, &f->err) == 1) {
		struct completion done = { .operation = lease.operation, .attempt = lease.attempt, .success = true };
		assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
		lease_done(&lease);
	}
	assert_true(query_int(f, "SELECT COUNT(*) FROM sandboxes") > enough);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE live = 1"), 0);
	expect_consistent(f);
}

/* --- figures --- */

static void a_command_costs_little(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 3600 * 1000);
	const int N = f->url[0] ? 500 : 5000;
	int64_t start = clock_mono_us();
	for (int i = 0; i < N; i++)
		one_command(f, &id);
	double per = (double)(clock_mono_us() - start) / N;
	print_message("# begin and end of a command: %.1f us\n", per);
	start = clock_mono_us();
	for (int i = 0; i < N; i++)
		controller_wants_delete(f->c, &id);
	print_message("# a look: %.1f us\n", (double)(clock_mono_us() - start) / N);
	start = clock_mono_us();
	for (int i = 0; i < 300; i++)
		create(f, NULL, 3600 * 1000);
	print_message("# create, synced: %.1f us\n", (double)(clock_mono_us() - start) / 300);
	/* Generous, for instrumented builds and busy machines: what it guards against is a sync or a scan per command. */
	assert_true(per < (f->url[0] ? 30000 : 3000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_last_slots_go_to_exactly_as_many),
		T(one_name_one_winner),
		T(one_key_one_sandbox),
		T(limits_bind_by_every_resource),
		T(a_crowd_keeps_the_books),
		T(watchers_are_told_once),
		T(unwatch_waits_for_a_running_watcher),
		T(commands_of_another_boot_are_lost),
		T(killed_at_any_moment_it_goes_on),
		T(a_command_costs_little),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
