/* Warm pools in the controller: what fills them, who gets one, and that nobody else notices. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/fleet.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"

#include <pthread.h>
#include <stdatomic.h>

enum { QUIET_MS = 500 };

/* --- the world --- */

static void configure(struct fix *f, const char *const *sets)
{
	for (; *sets; sets++)
		if (daemon_config_set(&f->config, *sets, &f->err) != 0)
			fail_msg("%s: %s", *sets, f->err.message);
	controller_reload(f->c, &f->config);
}

static void no_pools(struct fix *f)
{
	struct daemon_config fresh;
	assert_int_equal(daemon_config_defaults(&fresh, &f->err), 0);
	fresh.retention_ms = f->config.retention_ms;
	daemon_config_reload(&f->config, &fresh);
	daemon_config_done(&fresh);
	controller_reload(f->c, &f->config);
}

struct seen {
	size_t ready, starting;
	uint64_t claims, misses;
	char why[512];
};

static void see(void *ctx, const struct pool_view *v)
{
	struct seen *s = ctx;
	*s = (struct seen){ .ready = v->ready, .starting = v->starting, .claims = v->claims, .misses = v->misses };
	snprintf(s->why, sizeof(s->why), "%s", v->why ? v->why : "");
}

static struct seen look(struct fix *f)
{
	struct seen s = { .ready = 0 };
	assert_int_equal(controller_pools(f->c, see, &s, &f->err), 0);
	return s;
}

/* Lets the pools be kept until there is nothing more to do for the worker. */
static void settle(struct fix *f)
{
	struct lease l;
	int rc;
	controller_reap(f->c);
	while ((rc = controller_lease(f->c, &f->node, &l, &f->err)) == 1) {
		struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true, .image_digest = "sha256:abc" };
		assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
		lease_done(&l);
		controller_reap(f->c);
	}
	assert_int_equal(rc, 0);
}

static void expect_pool(struct fix *f, size_t ready, size_t starting)
{
	struct seen s = look(f);
	if (s.ready != ready || s.starting != starting)
		fail_msg("%zu ready, %zu starting (%s); not %zu, %zu", s.ready, s.starting, s.why, ready, starting);
}

static void asked(struct spec *s)
{
	spec_init(s);
	s->image = xstrdup("base");
	s->resources.disk_mib = 1024;
}

static void filled(struct fix *f, const char *size)
{
	auto_free char *set = xasprintf("pool small.size=%s", size);
	configure(f, (const char *const[]){ "pool small.image=base", set, NULL });
	settle(f);
}

static int warm_rows(struct fix *f)
{
	return query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE live = 1 AND tenant = ''");
}

/* Creates it; true when it came from the pool. */
static bool from_pool(struct fix *f, const struct spec *s, struct create_result *r)
{
	int before = warm_rows(f);
	if (controller_create(f->c, &f->operator, s, false, NULL, r, &f->err) != 0)
		fail_msg("%s", f->err.message);
	return warm_rows(f) == before - 1;
}

/* --- tests --- */

static void count_event(void *ctx, const struct event_view *e)
{
	(void)e;
	++*(int *)ctx;
}

static int events_of(struct fix *f)
{
	struct id cursor = { .text = "" };
	int n = 0;
	while (controller_events(f->c, &f->admin, &cursor, count_event, &n, &f->err) > 0) {
	}
	return n;
}

static void it_fills_and_nobody_sees_it(void **state)
{
	struct fix *f = *state;
	auto_sandbox s;
	auto_operation op;
	struct sandbox_list l;
	struct operation_list ops;
	filled(f, "5");
	expect_pool(f, 5, 0);
	sandbox_init(&s);
	operation_init(&op);
	assert_int_equal(controller_list(f->c, &f->admin, &(struct list_query){ .all = true }, &l, &f->err), 0);
	assert_int_equal(l.len, 0);
	sandbox_list_done(&l);
	assert_int_equal(controller_operations(f->c, &f->admin, NULL, 0, &ops, &f->err), 0);
	assert_int_equal(ops.len, 0);
	operation_list_done(&ops);
	assert_int_equal(events_of(f), 0);
	/* The worker has them, and they take room. */
	assert_int_equal(controller_desired(f->c, &f->node, &l, NULL, &f->err), 0);
	assert_int_equal(l.len, 5);
	const char *id = l.items[0].id.text;
	expect_error(f, controller_resolve(f->c, &f->admin, id, &s, &f->err), ERR_NOT_FOUND, id);
	expect_error(f, controller_resolve(f->c, &f->admin, id + 28, &s, &f->err), ERR_NOT_FOUND, id + 28);
	expect_error(f, controller_delete(f->c, &f->admin, id, &op, &f->err), ERR_NOT_FOUND, id);
	refuse_exec(f, id, ERR_NOT_FOUND, id);
	sandbox_list_done(&l);
	assert_int_equal(query_int(f, "SELECT SUM(sandboxes) FROM nodes"), 5);
	expect_consistent(f);
}

static void a_claim_is_a_create(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	struct lease l;
	auto_spec s;
	asked(&s);
	s.name = xstrdup("web");
	s.ttl_ms = 60000;
	map_set(&s.env, "A", "b");
	map_set(&s.labels, "team", "x");
	strv_add(&s.command, "serve");
	s.signals.untrusted_repository = true;
	filled(f, "2");
	int64_t before_us = store_now(f->store);
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	assert_int_equal(r.operation.state, OP_PENDING);
	assert_true(r.sandbox.created_us >= before_us);
	assert_true(r.sandbox.expires_us == r.sandbox.created_us + 60000 * 1000LL);
	assert_non_null(strstr(r.sandbox.decision, "of pool small"));
	struct sandbox shown = get(f, "web");
	assert_int_equal(shown.state, SANDBOX_SCHEDULED);
	assert_int_equal(shown.risk_score, 30);
	assert_null(shown.image_digest);
	sandbox_done(&shown);
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_int_equal(l.kind, OPK_CREATE);
	assert_string_equal(l.sandbox.id.text, r.sandbox.id.text);
	assert_string_equal(l.sandbox.spec.tenant, "team");
	assert_string_equal(map_get(&l.sandbox.spec.env, "A"), "b");
	assert_true(l.attempt > 1); /* a worker that has nothing ready for it cleans up first */
	assert_int_equal(controller_complete(f->c, &(struct completion){ .operation = l.operation, .attempt = l.attempt, .success = true, .image_digest = "sha256:abc" }, &f->err), 0);
	lease_done(&l);
	expect_state(f, &r.sandbox.id, SANDBOX_RUNNING);
	struct operation_list ops;
	assert_int_equal(controller_operations(f->c, &f->admin, "web", 0, &ops, &f->err), 0);
	assert_int_equal(ops.len, 1);
	operation_list_done(&ops);
	assert_int_equal(events_of(f), 4); /* scheduled, creating, running; the operation's end */
	assert_true(look(f).claims == 1 && look(f).misses == 0);
	create_result_done(&r);
	delete_it(f, "web");
	work(f, OPK_DELETE, true, NULL);
	expect_consistent(f);
}

/* The first six differ in what runs. */
enum { DIFFERENT = 6, VARIANTS = 9 };

static void differ(struct spec *s, int variant)
{
	switch (variant) {
	case 0:
		s->resources.memory_mib++;
		return;
	case 1:
		s->resources.pids--;
		return;
	case 2:
		s->writable_root = true;
		return;
	case 3:
		free(s->image);
		s->image = xstrdup("base:latest");
		return;
	case 4:
		strv_add(&s->placement.anti_affinity_keys, "db");
		return;
	case 5:
		s->placement.preferred_region = xstrdup("elsewhere");
		return;
	case 6:
		s->placement.preferred_region = xstrdup("here");
		return;
	case 7:
		s->sensitivity = SENSITIVITY_CONFIDENTIAL;
		s->isolation = ISOLATION_CONTAINER;
		return;
	default:
		map_set(&s->labels, "a", "b");
		s->ttl_ms = 7000;
	}
}

static void only_what_equals_it_gets_one(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	filled(f, "6");
	create_result_init(&r);
	spec_init(&s);
	for (int i = 0; i < VARIANTS; i++) {
		spec_done(&s);
		asked(&s);
		differ(&s, i);
		bool pooled = from_pool(f, &s, &r);
		if (pooled != (i >= DIFFERENT))
			fail_msg("case %d: %s", i, pooled ? "got one" : "got none");
		create_result_done(&r);
	}
	expect_consistent(f);
}

static void an_empty_pool_is_no_obstacle(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	filled(f, "1");
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	create_result_done(&r);
	assert_false(from_pool(f, &s, &r));
	create_result_done(&r);
	assert_true(look(f).claims == 1 && look(f).misses == 1);
	expect_consistent(f);
}

static void deleted_before_the_worker_began(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	filled(f, "1");
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	struct id op = delete_it(f, r.sandbox.id.text);
	/* There is something to remove: the node must be asked, and the place is taken until it has. */
	expect_op(f, &op, OP_PENDING, OUTCOME_NONE);
	expect_state(f, &r.sandbox.id, SANDBOX_STOPPING);
	work(f, OPK_DELETE, true, NULL);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	create_result_done(&r);
	expect_consistent(f);
}

static void nothing_is_started_while_somebody_waits(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	filled(f, "2");
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	create_result_done(&r);
	controller_reap(f->c);
	expect_pool(f, 1, 0);
	usleep((QUIET_MS + 100) * 1000);
	controller_reap(f->c); /* its create has not ended */
	expect_pool(f, 1, 0);
	work(f, OPK_CREATE, true, NULL);
	controller_reap(f->c);
	expect_pool(f, 1, 1);
	/* And what users ask for goes first. */
	s.resources.memory_mib++;
	assert_false(from_pool(f, &s, &r));
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_string_equal(l.sandbox.id.text, r.sandbox.id.text);
	lease_done(&l);
	create_result_done(&r);
}

static void another_configuration(void **state)
{
	struct fix *f = *state;
	filled(f, "4");
	configure(f, (const char *const[]){ "pool small.size=2", NULL });
	settle(f);
	expect_pool(f, 2, 0);
	assert_int_equal(warm_rows(f), 2);
	configure(f, (const char *const[]){ "pool small.memory=256m", NULL });
	settle(f);
	expect_pool(f, 2, 0);
	assert_int_equal(query_int(f, "SELECT SUM(used_memory_mib) FROM nodes"), 512);
	/* A restart finds them. */
	close_controller(f);
	open_controller(f);
	beat(f, 1000);
	settle(f);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE tenant = ''"), 6);
	no_pools(f);
	settle(f);
	assert_int_equal(warm_rows(f), 0);
	expect_consistent(f);
}

static void what_fails_is_told_and_not_repeated_at_once(void **state)
{
	struct fix *f = *state;
	configure(f, (const char *const[]){ "pool small.image=base", "pool small.size=1", NULL });
	controller_reap(f->c);
	work(f, OPK_CREATE, false, "no such image: base");
	controller_reap(f->c);
	expect_pool(f, 0, 0);
	assert_string_equal(look(f).why, "no such image: base");
	expect_consistent(f);
}

static void one_that_is_out_of_date_is_replaced_at_once(void **state)
{
	struct fix *f = *state;
	struct sandbox_list l;
	filled(f, "1");
	assert_int_equal(controller_desired(f->c, &f->node, &l, NULL, &f->err), 0);
	assert_int_equal(controller_sandbox_gone(f->c, &l.items[0].id, "recycled: the image is another one now", &f->err), 0);
	sandbox_list_done(&l);
	controller_reap(f->c);
	expect_pool(f, 0, 1);
	/* A claim between two looks of the worker: it may say gone as often as it likes. */
	settle(f);
	struct create_result r;
	auto_spec s;
	asked(&s);
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	assert_int_equal(controller_sandbox_gone(f->c, &r.sandbox.id, "recycled: too late", &f->err), 0);
	expect_state(f, &r.sandbox.id, SANDBOX_SCHEDULED);
	create_result_done(&r);
	expect_consistent(f);
}

static void age_ends_one(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	create_result_init(&r);
	configure(f, (const char *const[]){ "pool small.image=base", "pool small.size=1", NULL });
	f->config.pools[0].max_age_ms = 300;
	controller_reload(f->c, &f->config);
	controller_reap(f->c);
	work(f, OPK_CREATE, true, NULL);
	/* So near its end it is not given away. */
	assert_false(from_pool(f, &s, &r));
	create_result_done(&r);
	work(f, OPK_CREATE, true, NULL);
	usleep(400 * 1000);
	controller_reap(f->c);
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_int_equal(l.kind, OPK_DELETE);
	assert_string_equal(l.sandbox.spec.tenant, "");
	lease_done(&l);
}

static void no_room_is_told(void **state)
{
	struct fix *f = *state;
	beat(f, 2);
	filled(f, "3");
	expect_pool(f, 2, 0);
	assert_non_null(strstr(look(f).why, "its limit is 2"));
	expect_consistent(f);
}

static void it_gives_way(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	beat(f, 3);
	filled(f, "3");
	asked(&s);
	s.resources.memory_mib = 300;
	create_result_init(&r);
	expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "its limit is 3");
	assert_true(r.yielded);
	create_result_done(&r);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE tenant = '' AND state = 'stopping'"), 1);
	work(f, OPK_DELETE, true, NULL);
	assert_false(from_pool(f, &s, &r));
	create_result_done(&r);
	assert_int_equal(warm_rows(f), 2);
	/* What would not fit an empty node either ends nothing; nor does a quota. */
	s.resources.cpu_millis = LIMIT_CPU_MILLIS_MAX;
	s.min_tier = TIER_MICROVM;
	expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "no VMM here");
	assert_false(r.yielded);
	create_result_done(&r);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE tenant = '' AND state = 'stopping'"), 0);
	expect_consistent(f);
}

static void a_quota_holds_for_claims(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	configure(f, (const char *const[]){ "quota.sandboxes=1", NULL });
	filled(f, "3");
	create_result_init(&r);
	assert_true(from_pool(f, &s, &r));
	create_result_done(&r);
	expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "quota of sandboxes");
	create_result_done(&r);
	expect_consistent(f);
}

static void a_node_that_drains_keeps_none(void **state)
{
	struct fix *f = *state;
	struct id node;
	filled(f, "2");
	if (controller_node_drain(f->c, &f->admin, "local", true, &node, &f->err) != 0)
		fail_msg("%s", f->err.message);
	settle(f);
	assert_int_equal(warm_rows(f), 0);
	assert_non_null(strstr(look(f).why, "is draining"));
	expect_consistent(f);
}

static void a_key_gets_one_once(void **state)
{
	struct fix *f = *state;
	struct create_result one, two;
	auto_spec s;
	asked(&s);
	filled(f, "3");
	create_result_init(&one);
	create_result_init(&two);
	assert_int_equal(controller_create(f->c, &f->operator, &s, false, "k", &one, &f->err), 0);
	assert_int_equal(controller_create(f->c, &f->operator, &s, false, "k", &two, &f->err), 0);
	assert_true(two.replayed);
	assert_string_equal(one.sandbox.id.text, two.sandbox.id.text);
	assert_int_equal(warm_rows(f), 2);
	create_result_done(&one);
	create_result_done(&two);
}

static void a_node_that_takes_nothing_gives_nothing(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	asked(&s);
	filled(f, "2");
	close_controller(f);
	open_controller(f); /* has not heard from the node; where others share the store, they tell */
	create_result_init(&r);
	if (!on_pg()) {
		expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "has not been heard from");
		assert_false(r.yielded);
		create_result_done(&r);
	}
	assert_int_equal(warm_rows(f), 2);
	beat(f, 1000);
	assert_true(from_pool(f, &s, &r));
	create_result_done(&r);
}

/* --- many at once --- */

enum { CROWD = 12, POOL = 8 };

struct claimer {
	struct fix *f;
	struct id got;
	int rc;
};

static void *claim(void *arg)
{
	struct claimer *k = arg;
	struct create_result r;
	auto_spec s;
	asked(&s);
	create_result_init(&r);
	k->rc = controller_create(k->f->c, &k->f->operator, &s, false, NULL, &r, NULL);
	k->got = r.sandbox.id;
	create_result_done(&r);
	return NULL;
}

static void a_crowd_gets_each_one_once(void **state)
{
	struct fix *f = *state;
	struct claimer all[CROWD];
	pthread_t threads[CROWD];
	filled(f, "8");
	for (int i = 0; i < CROWD; i++) {
		all[i] = (struct claimer){ .f = f };
		assert_int_equal(pthread_create(&threads[i], NULL, claim, &all[i]), 0);
	}
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < CROWD; i++) {
		assert_int_equal(all[i].rc, 0);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(all[i].got.text, all[k].got.text);
	}
	assert_int_equal(warm_rows(f), 0);
	assert_int_equal(look(f).claims, POOL);
	assert_int_equal(look(f).misses, CROWD - POOL);
	expect_consistent(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_fills_and_nobody_sees_it),
		T(a_claim_is_a_create),
		T(only_what_equals_it_gets_one),
		T(an_empty_pool_is_no_obstacle),
		T(deleted_before_the_worker_began),
		T(nothing_is_started_while_somebody_waits),
		T(another_configuration),
		T(what_fails_is_told_and_not_repeated_at_once),
		T(one_that_is_out_of_date_is_replaced_at_once),
		T(age_ends_one),
		T(no_room_is_told),
		T(it_gives_way),
		T(a_quota_holds_for_claims),
		T(a_node_that_drains_keeps_none),
		T(a_key_gets_one_once),
		T(a_node_that_takes_nothing_gives_nothing),
		T(a_crowd_gets_each_one_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
