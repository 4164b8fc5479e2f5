/* The controller: who may see and do what, references, lists, idempotency keys. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/controller.h"

/* --- who may --- */

static void tenants_do_not_see_each_other(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "mine", 60000), op = exec_begin(f, &id);
	auto_sandbox s;
	auto_operation o;
	struct exec_grant g;
	struct sandbox_list l;
	sandbox_init(&s);
	operation_init(&o);
	expect_error(f, controller_resolve(f->c, &f->other, id.text, &s, &f->err), ERR_NOT_FOUND, "no sandbox matches");
	expect_error(f, controller_resolve(f->c, &f->other, id_short(&id), &s, &f->err), ERR_NOT_FOUND, "no sandbox matches");
	expect_error(f, controller_resolve(f->c, &f->other, "mine", &s, &f->err), ERR_NOT_FOUND, "no sandbox matches");
	expect_error(f, controller_delete(f->c, &f->other, id.text, &o, &f->err), ERR_NOT_FOUND, "no sandbox matches");
	expect_error(f, controller_operation(f->c, &f->other, op.text, &o, &f->err), ERR_NOT_FOUND, "no operation has the id");
	expect_error(f, controller_operation(f->c, &f->other, id_short(&op), &o, &f->err), ERR_NOT_FOUND, "no operation has the id");
	expect_error(f, try_exec(f, &f->other, id.text, &g, &f->err), ERR_NOT_FOUND, "no sandbox matches");
	assert_int_equal(controller_list(f->c, &f->other, &(struct list_query){ .all = true }, &l, &f->err), 0);
	assert_int_equal(l.len, 0);
	sandbox_list_done(&l);
	expect_error(f, controller_list(f->c, &f->other, &(struct list_query){ .tenant = "team" }, &l, &f->err), ERR_FORBIDDEN, "you act in tenant");
	assert_int_equal(controller_resolve(f->c, &f->viewer, "mine", &s, &f->err), 0);
	assert_int_equal(controller_resolve(f->c, &f->admin, "mine", &s, &f->err), 0);
}

static void roles_bound_what_is_done(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "mine", 60000);
	struct create_result r;
	struct exec_grant g;
	auto_operation o;
	auto_spec s;
	create_result_init(&r);
	operation_init(&o);
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	expect_error(f, controller_create(f->c, &f->viewer, &s, false, NULL, &r, &f->err), ERR_FORBIDDEN, "a viewer may look");
	assert_int_equal(controller_create(f->c, &f->viewer, &s, true, NULL, &r, &f->err), 0);
	assert_true(r.decision.placed);
	assert_string_equal(r.sandbox.id.text, "");
	create_result_done(&r);
	expect_error(f, controller_delete(f->c, &f->viewer, "mine", &o, &f->err), ERR_FORBIDDEN, "a viewer may look");
	expect_error(f, try_exec(f, &f->viewer, id.text, &g, &f->err), ERR_FORBIDDEN, "a viewer may look");
	free(s.tenant);
	s.tenant = xstrdup("team");
	expect_error(f, controller_create(f->c, &f->other, &s, false, NULL, &r, &f->err), ERR_FORBIDDEN, "you act in tenant 'rival', not in 'team'");
	assert_int_equal(controller_create(f->c, &f->admin, &s, false, NULL, &r, &f->err), 0);
	assert_string_equal(r.sandbox.spec.tenant, "team");
	create_result_done(&r);
	free(s.tenant);
	s.tenant = xstrdup("No Such!");
	expect_error(f, controller_create(f->c, &f->admin, &s, false, NULL, &r, &f->err), ERR_INVALID, "spec.tenant");
	create_result_done(&r);
}

static void the_longest_lifetime_is_policy(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	f->config.max_ttl_ms = 60000;
	controller_reload(f->c, &f->config);
	expect_error(f, try_create(f, &f->operator, NULL, 61000, NULL, &r, &f->err), ERR_INVALID, "above the longest lifetime here, 60");
	create_result_done(&r);
	create(f, NULL, 60000);
}

/* --- references and lists --- */

static void references_are_found(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "web", 60000);
	char part[ID_TEXT_LEN + 1];
	const char *const wrong[] = { "we", "WEB", "", "zzzz", "0190", "web2", "../etc", "abc", "\x1b[31m" };
	for (int n = 4; n <= ID_TEXT_LEN; n++) {
		snprintf(part, sizeof(part), "%s", id.text + ID_TEXT_LEN - n);
		struct sandbox s = get(f, part);
		assert_string_equal(s.id.text, id.text);
		sandbox_done(&s);
		snprintf(part, sizeof(part), "%.*s", n, id.text);
		s = get(f, part);
		assert_string_equal(s.id.text, id.text);
		sandbox_done(&s);
		for (char *p = part; *p; p++)
			*p = *p >= 'a' && *p <= 'f' ? (char)(*p - 32) : *p;
		s = get(f, part);
		assert_string_equal(s.id.text, id.text);
		sandbox_done(&s);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		auto_sandbox s;
		sandbox_init(&s);
		if (strncmp(wrong[i], id.text, strlen(wrong[i])) == 0 && wrong[i][0])
			continue;
		assert_int_equal(controller_resolve(f->c, &f->admin, wrong[i], &s, &f->err), -1);
		assert_int_equal(f->err.code, ERR_NOT_FOUND);
		assert_null(strchr(f->err.message, '\x1b'));
	}
}

static void ambiguous_references_name_candidates(void **state)
{
	struct fix *f = *state;
	struct id a = create_running(f, "one", 60000), b = create_running(f, "two", 60000);
	char part[ID_TEXT_LEN + 1];
	auto_sandbox s;
	sandbox_init(&s);
	snprintf(part, sizeof(part), "%.6s", a.text); /* both begin with the same hour */
	expect_error(f, controller_resolve(f->c, &f->admin, part, &s, &f->err), ERR_CONFLICT, "matches more than one sandbox");
	assert_non_null(strstr(f->err.message, a.text));
	assert_non_null(strstr(f->err.message, b.text));
	assert_non_null(strstr(f->err.message, "one"));
	/* Of a live and an ended one the live one is meant. */
	delete_it(f, "one");
	work(f, OPK_DELETE, true, NULL);
	assert_int_equal(controller_resolve(f->c, &f->admin, part, &s, &f->err), 0);
	assert_string_equal(s.id.text, b.text);
	/* An ended one is still found by name, and a new one of that name comes first. */
	assert_int_equal(controller_resolve(f->c, &f->admin, "one", &s, &f->err), 0);
	assert_string_equal(s.id.text, a.text);
	struct id c = create(f, "one", 60000);
	assert_int_equal(controller_resolve(f->c, &f->admin, "one", &s, &f->err), 0);
	assert_string_equal(s.id.text, c.text);
}

static void lists_page_and_filter(void **state)
{
	struct fix *f = *state;
	struct id ids[600];
	struct sandbox_list l;
	for (int i = 0; i < 600; i++)
		ids[i] = create(f, NULL, 60000);
	struct list_query q = { .limit = 0 };
	assert_int_equal(controller_list(f->c, &f->operator, &q, &l, &f->err), 0);
	assert_int_equal(l.len, 600);
	for (int i = 0; i < 600; i++)
		assert_string_equal(l.items[i].id.text, ids[599 - i].text);
	sandbox_list_done(&l);
	q.limit = 100;
	q.after = ids[300].text;
	assert_int_equal(controller_list(f->c, &f->operator, &q, &l, &f->err), 0);
	assert_int_equal(l.len, 100);
	assert_string_equal(l.items[0].id.text, ids[299].text);
	sandbox_list_done(&l);
	delete_it(f, ids[0].text);
	q = (struct list_query){ .tenant = "team" };
	assert_int_equal(controller_list(f->c, &f->admin, &q, &l, &f->err), 0);
	assert_int_equal(l.len, 599);
	sandbox_list_done(&l);
	q.all = true;
	assert_int_equal(controller_list(f->c, &f->admin, &q, &l, &f->err), 0);
	assert_int_equal(l.len, 600);
	sandbox_list_done(&l);
	q.after = "nonsense";
	expect_error(f, controller_list(f->c, &f->admin, &q, &l, &f->err), ERR_INVALID, "after:");
}

static void lists_filter_by_label(void **state)
{
	struct fix *f = *state;
	struct sandbox_list l;
	for (int i = 0; i < 10; i++) {
		struct create_result r;
		auto_spec s;
		create_result_init(&r);
		spec_init(&s);
		free(s.image);
		s.image = xstrdup("base");
		map_set(&s.labels, "ci", i % 2 ? "yes" : "no");
		map_set(&s.labels, "n", i < 5 ? "low" : "high");
		assert_int_equal(controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), 0);
		create_result_done(&r);
	}
	auto_map want = MAP_INIT;
	map_set(&want, "ci", "yes");
	map_set(&want, "n", "low");
	struct list_query q = { .labels = &want, .limit = 2 };
	assert_int_equal(controller_list(f->c, &f->operator, &q, &l, &f->err), 0);
	assert_int_equal(l.len, 2);
	assert_string_equal(map_get(&l.items[0].spec.labels, "ci"), "yes");
	sandbox_list_done(&l);
}

/* --- idempotency --- */

static void keys_make_creates_repeatable(void **state)
{
	struct fix *f = *state;
	struct create_result a, b;
	create_result_init(&a);
	create_result_init(&b);
	assert_int_equal(try_create(f, &f->operator, "x", 60000, "key-1", &a, &f->err), 0);
	assert_false(a.replayed);
	assert_int_equal(try_create(f, &f->operator, "x", 60000, "key-1", &b, &f->err), 0);
	assert_true(b.replayed);
	assert_string_equal(a.sandbox.id.text, b.sandbox.id.text);
	assert_string_equal(a.operation.id.text, b.operation.id.text);
	create_result_done(&b);
	expect_error(f, try_create(f, &f->operator, "x", 61000, "key-1", &b, &f->err), ERR_CONFLICT, "was used with another body");
	create_result_done(&b);
	/* Another tenant's keys are other keys. */
	assert_int_equal(try_create(f, &f->other, "x", 60000, "key-1", &b, &f->err), 0);
	assert_false(b.replayed);
	create_result_done(&b);
	expect_error(f, try_create(f, &f->operator, "y", 60000, "", &b, &f->err), ERR_INVALID, "Idempotency-Key");
	create_result_done(&b);
	create_result_done(&a);
	close_controller(f);
	open_controller(f);
	assert_int_equal(try_create(f, &f->operator, "x", 60000, "key-1", &b, &f->err), 0);
	assert_true(b.replayed);
	create_result_done(&b);
}

static void a_refused_create_keeps_no_key(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	create(f, NULL, 60000);
	beat(f, 1);
	expect_error(f, try_create(f, &f->operator, "x", 60000, "key-1", &r, &f->err), ERR_NO_CAPACITY, "");
	assert_false(r.decision.placed);
	assert_true(r.decision.refusal[0] != '\0');
	create_result_done(&r);
	beat(f, 10);
	assert_int_equal(try_create(f, &f->operator, "x", 60000, "key-1", &r, &f->err), 0);
	assert_false(r.replayed);
	create_result_done(&r);
}

static void keys_make_commands_repeatable(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000);
	struct exec_grant a, b;
	bool seen = true;
	auto_command cmd;
	command_init(&cmd);
	strv_add(&cmd.argv, "deploy");
	struct exec_request req = { .sandbox = "x", .command = &cmd, .idempotency_key = "k" };
	assert_int_equal(controller_exec_begin_once(f->c, &f->operator, &req, &a, &seen, &f->err), 0);
	assert_false(seen);
	assert_int_equal(controller_exec_begin_once(f->c, &f->operator, &req, &b, &seen, &f->err), 0);
	assert_true(seen);
	assert_string_equal(a.operation.text, b.operation.text);
	assert_string_equal(b.sandbox.text, id.text);
	strv_add(&cmd.argv, "--force");
	expect_error(f, controller_exec_begin_once(f->c, &f->operator, &req, &b, &seen, &f->err), ERR_CONFLICT, "used with another command");
	/* The answer stays the same when the sandbox has gone meanwhile. */
	strv_done(&cmd.argv);
	strv_add(&cmd.argv, "deploy");
	delete_it(f, "x");
	assert_int_equal(controller_exec_begin_once(f->c, &f->operator, &req, &b, &seen, &f->err), 0);
	assert_true(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(tenants_do_not_see_each_other),
		T(roles_bound_what_is_done),
		T(the_longest_lifetime_is_policy),
		T(references_are_found),
		T(ambiguous_references_name_candidates),
		T(lists_page_and_filter),
		T(lists_filter_by_label),
		T(keys_make_creates_repeatable),
		T(a_refused_create_keeps_no_key),
		T(keys_make_commands_repeatable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
