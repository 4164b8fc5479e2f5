/* Creates whose node goes away: which are placed anew, which wait for it, and what is said of them. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/fleet.h"

enum { AWAY_US = (LIMIT_NODE_AWAY_MS + 200) * 1000 };

static void second_node(struct fix *f, const struct id *node, uint32_t max_sandboxes)
{
	struct node_report r = {
		.node = *node, .name = "second", .max_sandboxes = max_sandboxes, .region = "there",
		.total = { .cpu_millis = 10000000, .memory_mib = 100000000, .disk_mib = 100000000, .pids = 100000000 },
	};
	r.tiers[TIER_CONTAINER].offered = true;
	r.network[NETWORK_DENY] = true;
	if (controller_heartbeat(f->c, &r, &f->err) != 0)
		fail_msg("%s", f->err.message);
}

/* A create whose sandbox begins with a command. */
static struct id create_with_command(struct fix *f)
{
	struct create_result r;
	auto_spec s;
	spec_init(&s);
	create_result_init(&r);
	free(s.image);
	s.image = xstrdup("base");
	s.ttl_ms = 3600 * 1000;
	strv_add(&s.command, "true");
	if (controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err) != 0)
		fail_msg("create: %s", f->err.message);
	struct id id = r.sandbox.id;
	create_result_done(&r);
	return id;
}

static struct lease lease_from(struct fix *f, const struct id *node)
{
	struct lease l;
	if (controller_lease(f->c, node, &l, &f->err) != 1)
		fail_msg("nothing to lease");
	return l;
}

static void complete_it(struct fix *f, const struct lease *l)
{
	struct completion done = { .operation = l->operation, .attempt = l->attempt, .success = true, .image_digest = "sha256:abc" };
	if (controller_complete(f->c, &done, &f->err) != 0)
		fail_msg("%s", f->err.message);
}

static void expect_node(struct fix *f, const struct id *sandbox, const struct id *node)
{
	struct sandbox s = get(f, sandbox->text);
	assert_string_equal(s.node_id.text, node->text);
	sandbox_done(&s);
}

static void goes_away(struct fix *f, const struct id *node)
{
	controller_link_closed(f->c, node, 0);
	usleep(AWAY_US);
}

/* One that nobody had in hands, and one whose lease was given out but never answered. */
static void what_cannot_have_begun_is_placed_anew(void **state)
{
	struct fix *f = *state;
	struct id other = id_new(), waiting, given;
	given = create(f, "given", 3600 * 1000);
	struct lease lost = lease_from(f, &f->node);
	waiting = create(f, "waiting", 3600 * 1000);
	/* While it may come back soon nothing moves. */
	second_node(f, &other, 1);
	controller_reap(f->c);
	expect_node(f, &given, &f->node);
	goes_away(f, &f->node);
	/* There is room for one: the older; the other waits, and says for what. */
	controller_reap(f->c);
	expect_node(f, &given, &other);
	expect_node(f, &waiting, &f->node);
	second_node(f, &other, 2);
	controller_reap(f->c);
	expect_node(f, &waiting, &other);
	expect_consistent(f);

	struct lease again = lease_from(f, &other), fresh = lease_from(f, &other);
	assert_string_equal(again.sandbox.id.text, given.text);
	assert_int_equal(again.attempt, 2);
	assert_int_equal(fresh.attempt, 1);
	/* The old node comes back and says it is done: that is nobody's attempt any more. */
	complete_it(f, &lost);
	expect_state(f, &given, SANDBOX_CREATING);
	complete_it(f, &again);
	complete_it(f, &fresh);
	expect_state(f, &given, SANDBOX_RUNNING);
	expect_state(f, &waiting, SANDBOX_RUNNING);
	struct id node;
	assert_int_equal(controller_operation_node(f->c, &lost.operation, &node, &f->err), 0);
	assert_string_equal(node.text, other.text);
	lease_done(&lost);
	lease_done(&again);
	lease_done(&fresh);
	expect_consistent(f);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM events WHERE type = 'sandbox.rescheduled'"), 2);
}

static void expect_says(struct fix *f, const struct id *op, const char *text)
{
	struct operation o = get_op(f, op);
	assert_true(o.unreachable);
	assert_non_null(o.progress);
	if (!strstr(o.progress, text))
		fail_msg("it says: %s (wanted: %s)", o.progress, text);
	operation_done(&o);
}

static void what_may_have_begun_waits_and_says_so(void **state)
{
	struct fix *f = *state;
	struct id other = id_new(), begun, fresh, unwanted;
	begun = create_with_command(f);
	struct lease l = lease_from(f, &f->node);
	unwanted = create(f, "unwanted", 3600 * 1000);
	struct lease l2 = lease_from(f, &f->node);
	delete_it(f, "unwanted");
	fresh = create_with_command(f);
	second_node(f, &other, 10);
	goes_away(f, &f->node);
	controller_progress(f->c, &l.operation, "pulling");
	controller_reap(f->c);
	expect_node(f, &begun, &f->node);
	expect_says(f, &l.operation, "may have begun there");
	/* Its command waits with it: nobody has begun. */
	expect_node(f, &fresh, &other);
	expect_node(f, &unwanted, &f->node);
	expect_state(f, &unwanted, SANDBOX_STOPPING);
	/* It comes back: what it had in hands goes on there. */
	beat(f, 1000);
	complete_it(f, &l);
	expect_state(f, &begun, SANDBOX_RUNNING);
	lease_done(&l);
	lease_done(&l2);
	expect_consistent(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_cannot_have_begun_is_placed_anew), T(what_may_have_begun_waits_and_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
