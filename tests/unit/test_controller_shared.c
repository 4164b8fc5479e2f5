/* Two controllers on one PostgreSQL: they never give one thing twice, hear of each other, and take over from each other. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/controller.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RACERS = 50, SLOTS = 5 };

/* The second controller: another state directory, the same database. */
struct pair {
	struct fix a, b;
};

static int pair_setup(void **state)
{
	struct pair *p = xcalloc(1, sizeof(*p));
	*state = p;
	if (!pg_server())
		return 0;
	pg_schema_new(p->a.url, sizeof(p->a.url));
	p->b = p->a;
	struct fix *sides[] = { &p->a, &p->b };
	for (int i = 0; i < 2; i++) {
		struct fix *f = sides[i];
		struct error err = ERROR_INIT;
		snprintf(f->dir, sizeof(f->dir), "%s/sandbox-controller-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
		assert_non_null(mkdtemp(f->dir));
		assert_int_equal(daemon_config_defaults(&f->config, &f->err), 0);
		f->config.retention_ms = 3600 * 1000;
		f->node = i == 0 ? id_new() : p->a.node;
		f->admin = caller_of(ROLE_ADMIN, "root");
		f->operator = caller_of(ROLE_OPERATOR, "team");
		if (store_open(&(struct store_options){ .state_dir = f->dir, .url = f->url, .connections = 16, .timeout_ms = 20000 }, &f->store, &err) != 0 ||
		    controller_new(&f->config, f->store, &f->c, &err) != 0)
			fail_msg("%s", err.message);
	}
	beat(&p->a, 1000);
	return 0;
}

static int pair_teardown(void **state)
{
	struct pair *p = *state;
	if (pg_server()) {
		struct fix *sides[] = { &p->a, &p->b };
		for (int i = 0; i < 2; i++) {
			close_controller(sides[i]);
			daemon_config_done(&sides[i]->config);
			assert_int_equal(io_remove_tree(sides[i]->dir, NULL), 0);
		}
		pg_schema_drop(p->a.url);
	}
	free(p);
	return 0;
}

static void need_pg(void)
{
	if (!pg_server()) {
		print_message("# no PostgreSQL: run below tests/lib/with-postgres\n");
		skip();
	}
}

static bool within(int ms, bool (*fn)(void *ctx), void *ctx)
{
	for (int i = 0; i < ms; i++) {
		if (fn(ctx))
			return true;
		usleep(1000);
	}
	return fn(ctx);
}

/* --- creates --- */

struct racer {
	struct fix *f;
	pthread_barrier_t *start;
	const char *name, *key;
	enum error_code code;
	char message[256];
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
	snprintf(r->message, sizeof(r->message), "%s", err.message);
	r->id = res.sandbox.id;
	r->replayed = res.replayed;
	create_result_done(&res);
	return NULL;
}

static int run_race(struct pair *p, const char *name, const char *key, struct racer *racers)
{
	pthread_t threads[RACERS];
	pthread_barrier_t start;
	int won = 0;
	pthread_barrier_init(&start, NULL, RACERS);
	for (int i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){ .f = i % 2 ? &p->a : &p->b, .start = &start, .name = name, .key = key };
		assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
	}
	for (int i = 0; i < RACERS; i++) {
		pthread_join(threads[i], NULL);
		won += racers[i].won;
	}
	pthread_barrier_destroy(&start);
	return won;
}

static void fifty_creates_for_five_slots(void **state)
{
	need_pg();
	struct pair *p = *state;
	struct racer racers[RACERS];
	beat(&p->a, SLOTS);
	for (int round = 0; round < 4; round++) {
		assert_int_equal(run_race(p, NULL, NULL, racers), SLOTS);
		for (int i = 0; i < RACERS; i++)
			if (!racers[i].won && racers[i].code != ERR_NO_CAPACITY)
				fail_msg("%s", racers[i].message);
		expect_consistent(&p->a);
		/* What one frees the other may give at once. */
		for (int i = 0; i < RACERS; i++)
			if (racers[i].won)
				delete_it(racers[i].f == &p->a ? &p->b : &p->a, racers[i].id.text);
		expect_consistent(&p->a);
	}
}

static void one_name_one_winner(void **state)
{
	need_pg();
	struct pair *p = *state;
	struct racer racers[RACERS];
	assert_int_equal(run_race(p, "same", NULL, racers), 1);
	for (int i = 0; i < RACERS; i++)
		if (!racers[i].won && (racers[i].code != ERR_CONFLICT || !strstr(racers[i].message, "the name 'same' is taken by sandbox")))
			fail_msg("%s", racers[i].message);
	expect_consistent(&p->a);
}

static void one_key_one_sandbox(void **state)
{
	need_pg();
	struct pair *p = *state;
	struct racer racers[RACERS];
	int made = 0;
	assert_int_equal(run_race(p, "same", "key", racers), RACERS);
	for (int i = 0; i < RACERS; i++) {
		assert_string_equal(racers[i].id.text, racers[0].id.text);
		made += !racers[i].replayed;
	}
	assert_int_equal(made, 1);
}

/* --- leases --- */

struct leaser {
	struct fix *f;
	int leased, errors;
	bool complete;
};

static void *lease_all(void *arg)
{
	struct leaser *l = arg;
	struct lease lease;
	struct error err = ERROR_INIT;
	int rc;
	while ((rc = controller_lease(l->f->c, &l->f->node, &lease, &err)) == 1) {
		struct completion done = { .operation = lease.operation, .attempt = lease.attempt, .success = true };
		l->leased++;
		if (lease.attempt != 1 || (l->complete && controller_complete(l->f->c, &done, &err) != 0))
			l->errors++;
		lease_done(&lease);
	}
	l->errors += rc != 0;
	return NULL;
}

static void each_operation_is_leased_once(void **state)
{
	need_pg();
	struct pair *p = *state;
	enum { N = 60 };
	for (int i = 0; i < N; i++)
		create(i % 2 ? &p->a : &p->b, NULL, 600000);
	struct leaser l[4] = { { .f = &p->a, .complete = true }, { .f = &p->b, .complete = true }, { .f = &p->a }, { .f = &p->b } };
	pthread_t t[4];
	int leased = 0, errors = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, lease_all, &l[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		leased += l[i].leased;
		errors += l[i].errors;
	}
	assert_int_equal(leased, N);
	assert_int_equal(errors, 0);
	expect_consistent(&p->a);
}

static void a_stale_attempt_is_ignored(void **state)
{
	need_pg();
	struct pair *p = *state;
	struct lease old, fresh;
	struct id id = create(&p->a, "x", 60000);
	assert_int_equal(controller_lease(p->a.c, &p->a.node, &old, &p->a.err), 1);
	/* The worker comes back through the other controller. */
	assert_int_equal(controller_requeue(p->b.c, &p->a.node, &p->b.err), 0);
	assert_int_equal(controller_lease(p->b.c, &p->a.node, &fresh, &p->b.err), 1);
	assert_int_equal(fresh.attempt, 2);
	struct completion late = { .operation = old.operation, .attempt = old.attempt, .success = false, .error = "stale" };
	assert_int_equal(controller_complete(p->a.c, &late, &p->a.err), 0);
	expect_state(&p->a, &id, SANDBOX_CREATING);
	struct completion done = { .operation = fresh.operation, .attempt = fresh.attempt, .success = true };
	assert_int_equal(controller_complete(p->b.c, &done, &p->b.err), 0);
	expect_state(&p->a, &id, SANDBOX_RUNNING);
	lease_done(&old);
	lease_done(&fresh);
}

/* --- news --- */

static void count_up(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static void on_ended(void *ctx, const struct id *operation)
{
	(void)operation;
	count_up(ctx);
}

static bool is_positive(void *ctx)
{
	return atomic_load((atomic_int *)ctx) > 0;
}

static void each_hears_what_the_other_does(void **state)
{
	need_pg();
	struct pair *p = *state;
	atomic_int worked = 0, ended = 0, events = 0;
	uint64_t handle;
	struct create_result r;
	create_result_init(&r);
	usleep(300 * 1000); /* both listen */
	controller_on_work(p->a.c, &p->a.node, count_up, &worked);
	controller_on_event(p->a.c, count_up, &events);
	assert_int_equal(try_create(&p->b, &p->b.operator, NULL, 60000, NULL, &r, &p->b.err), 0);
	assert_true(within(1500, is_positive, &worked));
	assert_true(within(1500, is_positive, &events));
	assert_int_equal(controller_watch(p->b.c, &r.operation.id, on_ended, &ended, &handle, &p->b.err), 0);
	work(&p->a, OPK_CREATE, true, NULL);
	assert_true(within(1500, is_positive, &ended));
	controller_on_work(p->a.c, &p->a.node, NULL, NULL);
	controller_off_event(p->a.c, &events);
	create_result_done(&r);
}

/* --- one leads --- */

static bool one_leads(void *ctx)
{
	struct pair *p = ctx;
	return store_leads(p->a.store) != store_leads(p->b.store);
}

static bool b_leads(void *ctx)
{
	return store_leads(((struct pair *)ctx)->b.store);
}

static void exactly_one_reaps_and_another_takes_over(void **state)
{
	need_pg();
	struct pair *p = *state;
	assert_true(within(5000, one_leads, p));
	if (store_leads(p->b.store)) {
		struct fix f = p->a;
		p->a = p->b;
		p->b = f;
	}
	beat(&p->b, 1000);
	struct id id = create_running(&p->b, "x", 1000);
	usleep(1100 * 1000);
	controller_reap(p->b.c);
	expect_state(&p->b, &id, SANDBOX_RUNNING);
	controller_reap(p->a.c);
	expect_state(&p->b, &id, SANDBOX_STOPPING);
	/* The leader's connection breaks: somebody leads again soon. */
	close_controller(&p->a);
	assert_true(within(5000, b_leads, p));
	assert_true(controller_reap(p->b.c) >= 0);
}

/* --- everything at once, while connections break --- */

struct user {
	struct fix *f;
	atomic_bool *stop;
	unsigned seed;
	int done, internal;
	char message[256];
};

static void note(struct user *u, int rc, const struct error *err)
{
	u->done++;
	if (rc != 0 && err->code == ERR_INTERNAL) {
		u->internal++;
		snprintf(u->message, sizeof(u->message), "%s", err->message);
	}
}

static void *use(void *arg)
{
	struct user *u = arg;
	while (!atomic_load(u->stop)) {
		struct error err = ERROR_INIT;
		struct create_result r;
		create_result_init(&r);
		int rc = try_create(u->f, &u->f->operator, NULL, 60000, NULL, &r, &err);
		note(u, rc, &err);
		struct id id = r.sandbox.id;
		create_result_done(&r);
		struct exec_grant g;
		struct result result;
		result_init(&result);
		result.outcome = OUTCOME_EXITED;
		for (int i = 0; rc == 0 && i < 4; i++) {
			struct error e = ERROR_INIT;
			int begun = try_exec(u->f, &u->f->operator, id.text, &g, &e);
			note(u, begun, &e);
			while (begun == 0 && controller_exec_end(u->f->c, &g.operation, &result, ERR_NONE, NULL, &e) != 0)
				usleep(1000);
		}
		auto_operation o;
		operation_init(&o);
		if (rc == 0)
			note(u, controller_delete(u->f->c, &u->f->operator, id.text, &o, &err), &err);
	}
	return NULL;
}

static void *serve_node(void *arg)
{
	struct user *u = arg;
	while (!atomic_load(u->stop)) {
		struct lease l;
		struct error err = ERROR_INIT;
		int rc = controller_lease(u->f->c, &u->f->node, &l, &err);
		note(u, rc < 0 ? -1 : 0, &err);
		if (rc != 1) {
			usleep(2000);
			continue;
		}
		struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
		while (controller_complete(u->f->c, &done, &err) != 0)
			usleep(1000);
		lease_done(&l);
	}
	return NULL;
}

static bool nothing_open(void *ctx)
{
	struct pair *p = ctx;
	controller_reap(p->a.c);
	controller_reap(p->b.c);
	struct user last = { .f = &p->a };
	struct lease l;
	struct error err = ERROR_INIT;
	while (controller_lease(last.f->c, &last.f->node, &l, &err) == 1) {
		struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
		controller_complete(last.f->c, &done, &err);
		lease_done(&l);
	}
	return query_int(&p->a, "SELECT COUNT(*) FROM operations WHERE ended_us = 0") == 0;
}

static void the_books_balance_over_losses(void **state)
{
	need_pg();
	struct pair *p = *state;
	atomic_bool stop = false;
	struct user u[8];
	pthread_t t[8];
	beat(&p->a, 6);
	for (int i = 0; i < 8; i++) {
		u[i] = (struct user){ .f = i % 2 ? &p->a : &p->b, .stop = &stop, .seed = (unsigned)i };
		assert_int_equal(pthread_create(&t[i], NULL, i < 6 ? use : serve_node, &u[i]), 0);
	}
	for (int i = 0; i < 12; i++) {
		usleep(150 * 1000);
		pg_run(pg_server(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sandboxd'");
		int over = query_int(&p->a, "SELECT COUNT(*) FROM nodes WHERE sandboxes > 6");
		assert_int_equal(over, 0);
	}
	atomic_store(&stop, true);
	int done = 0;
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		done += u[i].done;
		if (u[i].internal)
			fail_msg("%d internal errors, the last: %s", u[i].internal, u[i].message);
	}
	assert_true(done > 50);
	/* Deletes that were refused are asked for again; what a lost commit left is settled. */
	struct sandbox_list l;
	for (int i = 0; i < 200 && controller_list(p->a.c, &p->a.admin, &(struct list_query){ .limit = 0 }, &l, &p->a.err) != 0; i++)
		usleep(20 * 1000);
	for (size_t i = 0; i < l.len; i++)
		delete_it(&p->a, l.items[i].id.text);
	sandbox_list_done(&l);
	assert_true(within(3000, nothing_open, p));
	expect_consistent(&p->a);
	assert_int_equal(query_int(&p->a, "SELECT COUNT(*) FROM sandboxes WHERE live = 1"), 0);
	assert_int_equal(query_int(&p->a, "SELECT SUM(sandboxes) FROM nodes"), 0);
}

#define P(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		P(fifty_creates_for_five_slots), P(one_name_one_winner), P(one_key_one_sandbox), P(each_operation_is_leased_once),
		P(a_stale_attempt_is_ignored), P(each_hears_what_the_other_does), P(exactly_one_reaps_and_another_takes_over),
		P(the_books_balance_over_losses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
