/* What crosses a link: every record comes back as it went, damage is refused; and links whose epoch is over count for nothing. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/fleet.h"
#include "daemon/link/codec.h"

/* --- codec --- */

static void reports_come_back(void **state)
{
	(void)state;
	struct node_report r = { .node = id_new(), .name = "rack-1", .region = "eu", .max_sandboxes = 7, .pressure = 0.25 }, back;
	struct error err = ERROR_INIT;
	r.total = (struct resources){ .cpu_millis = 4000, .memory_mib = 1 << 20, .disk_mib = 5, .pids = 6 };
	r.tiers[TIER_GVISOR].offered = true;
	snprintf(r.tiers[TIER_MICROVM].reason, sizeof(r.tiers[0].reason), "no \"kvm\"");
	r.network[NETWORK_DENY] = true;
	map_set(&r.labels, "disk", "ssd");
	auto_json *j = report_to_json(&r);
	assert_int_equal(report_from_json(j, &back, &err), 0);
	assert_string_equal(back.node.text, r.node.text);
	assert_string_equal(back.name, "rack-1");
	assert_memory_equal(&back.total, &r.total, sizeof(r.total));
	assert_true(back.tiers[TIER_GVISOR].offered && !back.tiers[TIER_CONTAINER].offered && back.network[NETWORK_DENY]);
	assert_string_equal(back.tiers[TIER_MICROVM].reason, "no \"kvm\"");
	assert_string_equal(map_get(&back.labels, "disk"), "ssd");
	assert_true(back.pressure > 0.24 && back.pressure < 0.26);
	cJSON_DeleteItemFromObject(j, "tiers");
	assert_int_equal(report_from_json(j, &back, &err), -1);
	map_done(&r.labels);
	map_done(&back.labels);
}

static void fill(struct buf *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_addc(b, (char)(i * 7)); /* NULs among them */
}

static void results_come_back(void **state)
{
	(void)state;
	struct error err = ERROR_INIT;
	auto_tlv t = TLV_INIT;
	auto_result r;
	result_init(&r);
	r.outcome = OUTCOME_SIGNALED;
	r.signal = 9;
	r.oom_killed = r.truncated = true;
	fill(&r.out.head, 60000);
	fill(&r.out.tail, 500);
	r.out.total = 1000000;
	struct exec_report report = { .operation = id_new(), .result = &r, .code = ERR_UNAVAILABLE, .error = "lost\n" }, back;
	exec_report_to_tlv(&report, &t);
	size_t n;
	const void *raw = tlv_raw(&t, &n);
	struct tlv view;
	assert_int_equal(tlv_parse(&view, raw, n, &err), 0);
	assert_int_equal(exec_report_from_tlv(&view, &back, &err), 0);
	assert_int_equal(back.result->outcome, OUTCOME_SIGNALED);
	assert_int_equal(back.result->signal, 9);
	assert_true(back.result->oom_killed && back.result->truncated);
	assert_int_equal(back.result->out.total, 1000000);
	assert_int_equal(back.result->out.head.len, 60000);
	assert_memory_equal(back.result->out.head.data, r.out.head.data, 60000);
	assert_memory_equal(back.result->out.tail.data, r.out.tail.data, 500);
	assert_int_equal(back.code, ERR_UNAVAILABLE);
	assert_string_equal(back.error, "lost\\x0a");
	exec_report_done(&back);
}

static void results_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const struct {
		enum mux_field field;
		uint64_t value;
	} bad[] = { { MUX_F_OUTCOME, OUTCOME_COUNT }, { MUX_F_EXIT_CODE, 256 }, { MUX_F_SIGNAL, 65 }, { MUX_F_OFFSET_OUT, 3 } };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_tlv t = TLV_INIT;
		struct exec_report back;
		struct error err = ERROR_INIT;
		tlv_add_str(&t, MUX_F_OPERATION, id_new().text);
		tlv_add_u64(&t, bad[i].field, bad[i].value); /* the first of a field counts */
		tlv_add_u64(&t, MUX_F_OUTCOME, OUTCOME_EXITED);
		tlv_add_bytes(&t, MUX_F_OUT_HEAD, "four", 4);
		tlv_add_u64(&t, MUX_F_OFFSET_OUT, 4);
		assert_int_equal(exec_report_from_tlv(&t, &back, &err), -1);
		assert_int_equal(err.code, ERR_PROTOCOL);
	}
}

static void commands_come_back(void **state)
{
	(void)state;
	struct error err = ERROR_INIT;
	auto_tlv t = TLV_INIT;
	auto_command c;
	command_init(&c);
	strv_add(&c.argv, "printf");
	strv_add(&c.argv, "\xff\n");
	command_set_env(&c, "A=b=c");
	c.user = xstrdup("1000:1000");
	c.tty = c.stdin_open = true;
	c.rows = 24;
	c.cols = 80;
	c.timeout_ms = 1234;
	struct exec_grant g = { .operation = id_new(), .sandbox = id_new(), .deadline_us = 77, .writable_root = true };
	struct node_stream s = { .kind = MUX_KIND_EXEC, .sandbox = g.sandbox, .owner = "team/uid 1", .grant = &g, .command = &c,
				 .flags = MUX_OPEN_SHELL_FALLBACK }, back;
	node_stream_to_tlv(&s, &t);
	assert_int_equal(node_stream_from_tlv(&t, &back, &err), 0);
	assert_string_equal(back.grant->operation.text, g.operation.text);
	assert_string_equal(back.sandbox.text, g.sandbox.text);
	assert_string_equal(back.owner, "team/uid 1");
	assert_true(back.grant->writable_root && !back.detached && back.command->tty && back.command->stdin_open);
	assert_int_equal(back.flags, MUX_OPEN_SHELL_FALLBACK);
	assert_int_equal(back.command->timeout_ms, 1234);
	assert_string_equal(back.command->argv.items[1], "\xff\n");
	assert_string_equal(back.command->env.items[0], "A=b=c");
	node_stream_done(&back);
}

static void inner_fields_must_be_of_the_kind(void **state)
{
	(void)state;
	struct error err = ERROR_INIT;
	auto_tlv inner = TLV_INIT, t = TLV_INIT;
	struct node_stream s = { .kind = MUX_KIND_FILES_PUT, .sandbox = id_new(), .fields = &inner }, back;
	tlv_add_u64(&inner, MUX_F_KIND, MUX_KIND_EXEC);
	node_stream_to_tlv(&s, &t);
	assert_int_equal(node_stream_from_tlv(&t, &back, &err), -1);
	assert_int_equal(err.code, ERR_PROTOCOL);
}

static void secrets_come_back(void **state)
{
	(void)state;
	struct error err = ERROR_INIT;
	auto_buf bytes = BUF_INIT;
	auto_secret_values back = SECRET_VALUES_INIT;
	char big[LIMIT_SECRET_BYTES_MAX] = "\0middle";
	struct secret_value items[] = { { .env = (char[]){ "API" } }, { .file = (char[]){ "/run/secrets/key" } } };
	struct secret_values v = { .items = items, .len = 2 };
	secret_set(&items[0].value, "one", 3);
	secret_set(&items[1].value, big, sizeof(big));
	secret_values_to_bytes(&v, &bytes);
	assert_int_equal(secret_values_from_bytes(bytes.data, bytes.len, &back, &err), 0);
	assert_int_equal(back.len, 2);
	assert_string_equal(back.items[0].env, "API");
	assert_null(back.items[0].file);
	assert_string_equal(back.items[1].file, "/run/secrets/key");
	assert_true(secret_equal(&back.items[0].value, &items[0].value) && secret_equal(&back.items[1].value, &items[1].value));
	for (size_t n = 1; n < bytes.len; n += 997) {
		auto_secret_values none = SECRET_VALUES_INIT;
		if (secret_values_from_bytes(bytes.data, n, &none, &err) == 0)
			assert_int_equal(none.len, 1); /* cut between two of them */
	}
	secret_done(&items[0].value);
	secret_done(&items[1].value);
}

static void terms_come_back(void **state)
{
	(void)state;
	struct error err = ERROR_INIT;
	auto_egress_terms back = EGRESS_TERMS_INIT;
	struct egress_terms t = { .server = (char[]){ "*:*" }, .standard = (char[]){ "a.example" }, .open = (char[]){ "" } };
	strv_add(&t.sandbox, "!b.example:*");
	auto_json *j = egress_terms_to_json(&t);
	assert_int_equal(egress_terms_from_json(j, &back, &err), 0);
	assert_string_equal(back.server, "*:*");
	assert_null(back.tenant);
	assert_string_equal(back.sandbox.items[0], "!b.example:*");
	cJSON_DeleteItemFromObject(j, "server");
	assert_int_equal(egress_terms_from_json(j, &back, &err), -1);
	strv_done(&t.sandbox);
}

/* --- identity and links --- */

static void a_token_joins_once_and_rotates(void **state)
{
	struct fix *f = *state;
	struct join_token t;
	char join[NODE_SECRET_LEN + 1], secret[NODE_SECRET_LEN + 1], next[NODE_SECRET_LEN + 1];
	struct caller who = { .role = ROLE_ADMIN };
	assert_int_equal(controller_join_token(f->c, &f->operator, "rack", NULL, 1000, &t, join, &f->err), -1);
	assert_int_equal(f->err.code, ERR_FORBIDDEN);
	assert_int_equal(controller_join_token(f->c, &f->admin, "rack", "sha256//x", JOIN_LIFETIME_MS + 1, &t, join, &f->err), -1);
	assert_int_equal(controller_join_token(f->c, &f->admin, "rack", "sha256//x", 60000, &t, join, &f->err), 0);
	struct join_request q = { .token = join, .name = "rack", .node = id_new() };
	assert_int_equal(controller_node_join(f->c, &q, secret, &f->err), -1); /* no pin seen */
	q.pin = "sha256//x";
	q.name = "other";
	assert_int_equal(controller_node_join(f->c, &q, secret, &f->err), -1);
	q.name = "rack";
	assert_int_equal(controller_node_join(f->c, &q, secret, &f->err), 0);
	assert_int_equal(controller_node_join(f->c, &q, next, &f->err), -1);
	assert_int_equal(f->err.code, ERR_UNAUTHORIZED);
	assert_int_equal(controller_node_caller(f->c, secret, &who, &f->err), 0);
	assert_string_equal(who.node.text, q.node.text);
	assert_int_equal(who.role, ROLE_VIEWER);
	assert_false(who.all_tenants);
	assert_int_equal(controller_node_rotate(f->c, &q.node, next, &f->err), 0);
	assert_int_equal(controller_node_caller(f->c, secret, &who, &f->err), 0); /* until the next one is used */
	assert_int_equal(controller_node_caller(f->c, next, &who, &f->err), 0);
	assert_int_equal(controller_node_caller(f->c, secret, &who, &f->err), -1);
}

static int64_t open_link(struct fix *f, const char *session, const struct strv *held)
{
	int64_t epoch = 0;
	struct link_opening o = { .node = f->node, .session = session, .boot_id = "boot", .version = "1", .controller = "here", .held = held };
	if (controller_link_open(f->c, &o, &epoch, &f->err) != 0)
		fail_msg("%s", f->err.message);
	return epoch;
}

static void only_the_newest_link_counts(void **state)
{
	struct fix *f = *state;
	static const struct strv none = STRV_INIT;
	int64_t first = open_link(f, "one", &none), second = open_link(f, "one", &none);
	assert_true(second > first);
	assert_int_equal(controller_link_check(f->c, &f->node, first, &f->err), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	assert_int_equal(controller_link_check(f->c, &f->node, second, &f->err), 0);
}

/* What a worker still has in its hands is not given out again; what it lost is, and its late word changes nothing. */
static void leases_that_are_not_held_go_back(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	struct lease l, again;
	auto_strv held = STRV_INIT;
	create_result_init(&r);
	open_link(f, "one", &held);
	assert_int_equal(try_create(f, &f->operator, "box", 60000, NULL, &r, &f->err), 0);
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	strv_add(&held, l.operation.text);
	open_link(f, "one", &held);
	assert_int_equal(controller_lease(f->c, &f->node, &again, &f->err), 0);
	open_link(f, "two", &held); /* another process cannot hold it */
	assert_int_equal(controller_lease(f->c, &f->node, &again, &f->err), 1);
	assert_string_equal(again.operation.text, l.operation.text);
	assert_int_equal(again.attempt, l.attempt + 1);
	struct completion late = { .operation = l.operation, .attempt = l.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &late, &f->err), 0);
	auto_sandbox s;
	sandbox_init(&s);
	assert_int_equal(controller_resolve(f->c, &f->operator, "box", &s, &f->err), 0);
	assert_int_equal(s.state, SANDBOX_CREATING);
	lease_done(&l);
	lease_done(&again);
	create_result_done(&r);
}

static void a_node_with_sandboxes_is_removed_by_force_alone(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	struct id node;
	create_result_init(&r);
	assert_int_equal(try_create(f, &f->operator, "box", 60000, NULL, &r, &f->err), 0);
	assert_int_equal(controller_node_remove(f->c, &f->admin, "local", false, &node, &f->err), -1);
	assert_int_equal(f->err.code, ERR_CONFLICT);
	assert_int_equal(controller_node_remove(f->c, &f->operator, "local", true, &node, &f->err), -1);
	assert_int_equal(f->err.code, ERR_FORBIDDEN);
	assert_int_equal(controller_node_remove(f->c, &f->admin, "local", true, &node, &f->err), 0);
	auto_operation o;
	operation_init(&o);
	assert_int_equal(controller_operation(f->c, &f->operator, r.operation.id.text, &o, &f->err), 0);
	assert_int_equal(o.state, OP_FAILED);
	create_result_done(&r);
	create_result_init(&r);
	assert_int_equal(try_create(f, &f->operator, "box", 60000, NULL, &r, &f->err), -1);
	create_result_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports_come_back),
		cmocka_unit_test(results_come_back),
		cmocka_unit_test(results_that_cannot_be_are_refused),
		cmocka_unit_test(commands_come_back),
		cmocka_unit_test(inner_fields_must_be_of_the_kind),
		cmocka_unit_test(secrets_come_back),
		cmocka_unit_test(terms_come_back),
		cmocka_unit_test_setup_teardown(a_token_joins_once_and_rotates, setup, teardown),
		cmocka_unit_test_setup_teardown(only_the_newest_link_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(leases_that_are_not_held_go_back, setup, teardown),
		cmocka_unit_test_setup_teardown(a_node_with_sandboxes_is_removed_by_force_alone, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
