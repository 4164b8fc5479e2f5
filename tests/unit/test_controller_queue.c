/* Creates that wait for capacity, and refusals that no waiting turns into something weaker. */
#include "tests/unit/controller_world.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"

#include <stdatomic.h>

/* A client that waits. */
struct client {
	struct create_wait *wait;
	atomic_int answers;
	atomic_bool gone;
};

static bool there(void *ctx)
{
	struct client *k = ctx;
	return !atomic_load(&k->gone);
}

static void answered(void *ctx)
{
	struct client *k = ctx;
	atomic_fetch_add(&k->answers, 1);
}

static int join(struct fix *f, struct client *k, const struct caller *who, const char *name, uint32_t cpu_millis, const char *key)
{
	auto_spec s;
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	s.name = xstrdup0(name);
	if (cpu_millis)
		s.resources.cpu_millis = cpu_millis;
	struct create_waiter from = { .who = who, .spec = &s, .key = key, .alive = there, .done = answered, .ctx = k };
	return controller_create_wait(f->c, &from, &k->wait, &f->err);
}

static void queue_up(struct fix *f, struct client *k, const char *name)
{
	if (join(f, k, &f->operator, name, 0, NULL) != 0)
		fail_msg("%s", f->err.message);
}

/* What the client is told; its sandbox must exist by that name. */
static void expect_placed(struct fix *f, struct client *k, const char *name)
{
	struct create_result r;
	create_result_init(&r);
	assert_int_equal(atomic_load(&k->answers), 1);
	if (controller_create_end(f->c, steal(&k->wait), &r, &f->err) != 0)
		fail_msg("%s: %s", name, f->err.message);
	assert_string_equal(r.sandbox.spec.name, name);
	assert_true(r.decision.placed);
	create_result_done(&r);
	struct sandbox s = get(f, name);
	assert_int_equal(s.state, SANDBOX_SCHEDULED);
	sandbox_done(&s);
}

static void expect_waiting(struct fix *f, struct client *k, const char *name)
{
	auto_sandbox s;
	sandbox_init(&s);
	assert_int_equal(atomic_load(&k->answers), 0);
	expect_error(f, controller_resolve(f->c, &f->admin, name, &s, &f->err), ERR_NOT_FOUND, name);
}

static void expect_refused(struct fix *f, struct client *k, enum error_code code, const char *text)
{
	struct create_result r;
	create_result_init(&r);
	expect_error(f, controller_create_end(f->c, steal(&k->wait), &r, &f->err), code, text);
	assert_false(r.decision.placed);
	create_result_done(&r);
}

static void end(struct fix *f, const char *name)
{
	delete_it(f, name);
	work(f, OPK_DELETE, true, NULL);
}

static void in_the_order_of_coming(void **state)
{
	struct fix *f = *state;
	struct client one = { .wait = NULL }, two = { .wait = NULL };
	beat(f, 1);
	create_running(f, "first", 60000);
	queue_up(f, &one, "second");
	queue_up(f, &two, "third");
	controller_reap(f->c);
	expect_waiting(f, &one, "second");
	end(f, "first");
	controller_reap(f->c);
	expect_waiting(f, &two, "third");
	expect_placed(f, &one, "second");
	work(f, OPK_CREATE, true, NULL);
	end(f, "second");
	controller_reap(f->c);
	expect_placed(f, &two, "third");
	expect_consistent(f);
}

static void who_comes_later_does_not_overtake(void **state)
{
	struct fix *f = *state;
	struct client k = { .wait = NULL };
	struct create_result r;
	create_result_init(&r);
	beat(f, 1);
	create_running(f, "first", 60000);
	queue_up(f, &k, "patient");
	end(f, "first");
	/* Nobody has looked at the queue since; this one must not profit from it. */
	expect_error(f, try_create(f, &f->operator, "pushy", 60000, NULL, &r, &f->err), ERR_NO_CAPACITY, "its limit is 1");
	create_result_done(&r);
	expect_placed(f, &k, "patient");
	expect_consistent(f);
}

static void what_does_not_fit_holds_up_nobody(void **state)
{
	struct fix *f = *state;
	struct client big = { .wait = NULL }, small = { .wait = NULL };
	beat(f, 2);
	create_running(f, "one", 60000);
	create_running(f, "two", 60000);
	assert_int_equal(join(f, &big, &f->operator, "big", LIMIT_CPU_MILLIS_MAX, NULL), 0);
	assert_int_equal(join(f, &small, &f->operator, "small", 100, NULL), 0);
	struct node_report tight = { .node = f->node, .name = "local", .max_sandboxes = 3, .network = { [NETWORK_DENY] = true },
				     .total = { .cpu_millis = 100000, .memory_mib = 1000000, .disk_mib = 1000000, .pids = 1000000 } };
	tight.tiers[TIER_CONTAINER].offered = true;
	assert_int_equal(controller_heartbeat(f->c, &tight, &f->err), 0);
	controller_reap(f->c);
	expect_placed(f, &small, "small");
	expect_waiting(f, &big, "big");
	expect_refused(f, &big, ERR_NO_CAPACITY, "local has 100000 CPU millis in all");
	expect_consistent(f);
}

static void who_left_gets_nothing(void **state)
{
	struct fix *f = *state;
	struct client gone = { .wait = NULL }, next = { .wait = NULL };
	beat(f, 1);
	create_running(f, "first", 60000);
	queue_up(f, &gone, "gone");
	queue_up(f, &next, "next");
	atomic_store(&gone.gone, true);
	end(f, "first");
	controller_reap(f->c);
	assert_int_equal(atomic_load(&gone.answers), 1);
	expect_refused(f, &gone, ERR_UNAVAILABLE, "the client left");
	expect_placed(f, &next, "next");
	auto_sandbox s;
	sandbox_init(&s);
	expect_error(f, controller_resolve(f->c, &f->admin, "gone", &s, &f->err), ERR_NOT_FOUND, "gone");
	expect_consistent(f);
}

static void a_key_keeps_the_place_between_two_polls(void **state)
{
	struct fix *f = *state;
	struct client one = { .wait = NULL }, two = { .wait = NULL };
	beat(f, 1);
	create_running(f, "first", 60000);
	assert_int_equal(join(f, &one, &f->operator, "keyed", 0, "k1"), 0);
	queue_up(f, &two, "behind");
	expect_refused(f, &one, ERR_NO_CAPACITY, "its limit is 1");
	/* Free while its client is between two polls: nobody else's client may get the place of one that will be back. */
	assert_int_equal(join(f, &one, &f->operator, "keyed", 0, "k1"), 0);
	end(f, "first");
	controller_reap(f->c);
	expect_placed(f, &one, "keyed");
	expect_waiting(f, &two, "behind");
	/* Another's key is another place, and given up is gone. */
	assert_int_equal(controller_create_end(f->c, steal(&two.wait), NULL, NULL), -1);
	expect_consistent(f);
}

static void other_faults_end_the_wait(void **state)
{
	struct fix *f = *state;
	struct client k = { .wait = NULL };
	beat(f, 1);
	create_running(f, "taken", 60000);
	queue_up(f, &k, "taken");
	assert_int_equal(atomic_load(&k.answers), 1);
	expect_refused(f, &k, ERR_CONFLICT, "the name 'taken' is taken");
	assert_int_equal(join(f, &k, &f->viewer, "x", 0, NULL), 0);
	expect_refused(f, &k, ERR_FORBIDDEN, "");
}

static void only_so_many_wait(void **state)
{
	struct fix *f = *state;
	struct client *all = xcalloc(LIMIT_CAPACITY_WAITERS + 1, sizeof(*all));
	beat(f, 1);
	create_running(f, "first", 60000);
	for (int i = 0; i < LIMIT_CAPACITY_WAITERS; i++)
		assert_int_equal(join(f, &all[i], &f->operator, NULL, 0, NULL), 0);
	expect_error(f, join(f, &all[LIMIT_CAPACITY_WAITERS], &f->operator, NULL, 0, NULL), ERR_RATE_LIMITED, "wait for capacity already");
	for (int i = 0; i < LIMIT_CAPACITY_WAITERS; i++)
		controller_create_end(f->c, all[i].wait, NULL, NULL);
	free(all);
	struct client k = { .wait = NULL };
	queue_up(f, &k, "late");
	expect_refused(f, &k, ERR_NO_CAPACITY, "its limit is 1");
}

/* Places come free one by one: everybody gets one, never more than there are, in order. */
enum { CROWD = 24, PLACES = 3 };

struct crowd {
	struct fix *f;
	struct client clients[CROWD];
};

static void a_crowd_is_served_in_order(void **state)
{
	struct fix *f = *state;
	struct crowd *cr = xcalloc(1, sizeof(*cr));
	char name[16];
	int placed = 0;
	beat(f, PLACES);
	for (int i = 0; i < PLACES; i++) {
		snprintf(name, sizeof(name), "early-%d", i);
		create_running(f, name, 60000);
	}
	for (int i = 0; i < CROWD; i++) {
		snprintf(name, sizeof(name), "late-%d", i);
		queue_up(f, &cr->clients[i], name);
	}
	for (int i = 0; i < PLACES; i++) {
		snprintf(name, sizeof(name), "early-%d", i);
		end(f, name);
	}
	while (placed < CROWD) {
		controller_reap(f->c);
		assert_int_equal(query_int(f, "SELECT SUM(sandboxes) FROM nodes"), CROWD - placed < PLACES ? CROWD - placed : PLACES);
		for (int i = 0; i < CROWD; i++)
			assert_int_equal(atomic_load(&cr->clients[i].answers), i < placed + PLACES ? 1 : 0);
		for (int i = 0; i < PLACES && placed < CROWD; i++, placed++) {
			snprintf(name, sizeof(name), "late-%d", placed);
			expect_placed(f, &cr->clients[placed], name);
			work(f, OPK_CREATE, true, NULL);
			end(f, name);
		}
	}
	expect_consistent(f);
	free(cr);
}

/* --- refusals --- */

static int try_risky(struct fix *f, struct create_result *ret)
{
	auto_spec s;
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	s.signals = (struct signals){ .untrusted_repository = true, .executes_generated_code = true, .needs_secrets = true };
	map_set(&s.placement.required_labels, "pool", "risky");
	return controller_create(f->c, &f->operator, &s, false, NULL, ret, &f->err);
}

static void expect_no_place(struct fix *f, const char *text)
{
	struct create_result r;
	create_result_init(&r);
	expect_error(f, try_risky(f, &r), ERR_NO_CAPACITY, "required tier microvm");
	if (!strstr(f->err.message, text))
		fail_msg("'%s' is not in: %s", text, f->err.message);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM reservations"), 0);
	create_result_done(&r);
}

static void beat_microvm(struct fix *f, const struct id *node, const char *label, uint32_t memory_mib, double pressure)
{
	struct node_report r = { .node = *node, .name = "vm", .max_sandboxes = 4, .pressure = pressure, .network = { [NETWORK_DENY] = true },
				 .total = { .cpu_millis = 100000, .memory_mib = memory_mib, .disk_mib = 1000000, .pids = 1000000 } };
	r.tiers[TIER_MICROVM].offered = r.tiers[TIER_CONTAINER].offered = true;
	map_set(&r.labels, "pool", label);
	if (controller_heartbeat(f->c, &r, &f->err) != 0)
		fail_msg("%s", f->err.message);
	map_done(&r.labels);
}

static void high_risk_is_never_run_on_less(void **state)
{
	struct fix *f = *state;
	struct id vm = id_new();
	struct create_result r;
	create_result_init(&r);
	expect_no_place(f, "tier microvm not offered by node local: no VMM here");
	beat_microvm(f, &vm, "plain", 100000, 0.1);
	expect_no_place(f, "node vm lacks the label pool=risky");
	beat_microvm(f, &vm, "risky", 100, 0.1);
	expect_no_place(f, "node vm has 100 MiB of memory in all");
	beat_microvm(f, &vm, "risky", 100000, 0.99);
	expect_no_place(f, "node vm has pressure 0.99, over 0.92");
	beat_microvm(f, &vm, "risky", 100000, 0.1);
	/* A controller alone on its store that has just begun has heard from nobody yet. */
	close_controller(f);
	open_controller(f);
	beat(f, 1000);
	if (!on_pg())
		expect_no_place(f, "node vm has not been heard from");
	beat_microvm(f, &vm, "risky", 100000, 0.1);
	if (try_risky(f, &r) != 0)
		fail_msg("%s", f->err.message);
	assert_int_equal(r.sandbox.tier, TIER_MICROVM);
	assert_string_equal(r.sandbox.node_name, "vm");
	create_result_done(&r);
}

static void waiting_weakens_nothing(void **state)
{
	struct fix *f = *state;
	struct client k = { .wait = NULL };
	auto_spec s;
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	s.min_tier = TIER_MICROVM;
	struct create_waiter from = { .who = &f->operator, .spec = &s, .alive = there, .done = answered, .ctx = &k };
	assert_int_equal(controller_create_wait(f->c, &from, &k.wait, &f->err), 0);
	for (int i = 0; i < 3; i++)
		controller_reap(f->c);
	assert_int_equal(atomic_load(&k.answers), 0);
	expect_refused(f, &k, ERR_NO_CAPACITY, "tier microvm not offered by node local: no VMM here");
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(in_the_order_of_coming),
		T(who_comes_later_does_not_overtake),
		T(what_does_not_fit_holds_up_nobody),
		T(who_left_gets_nothing),
		T(a_key_keeps_the_place_between_two_polls),
		T(other_faults_end_the_wait),
		T(only_so_many_wait),
		T(a_crowd_is_served_in_order),
		T(high_risk_is_never_run_on_less),
		T(waiting_weakens_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
