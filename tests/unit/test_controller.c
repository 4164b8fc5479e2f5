/* The controller: the life of sandboxes and commands, deadlines, nodes. */
#include "tests/unit/controller_world.h"

#include "daemon/controller/controller.h"

#include <stdatomic.h>

/* --- life --- */

static void a_sandbox_lives(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "web", 60000);
	struct sandbox s = get(f, "web");
	assert_int_equal(s.state, SANDBOX_SCHEDULED);
	assert_string_equal(s.spec.tenant, "team");
	assert_string_equal(s.node_name, "local");
	assert_non_null(strstr(s.decision, "\"placed\":true"));
	assert_true(s.expires_us - s.created_us == 60LL * SECOND_US);
	sandbox_done(&s);

	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_int_equal(l.attempt, 1);
	assert_string_equal(l.sandbox.id.text, id.text);
	expect_state(f, &id, SANDBOX_CREATING);
	struct lease none;
	assert_int_equal(controller_lease(f->c, &f->node, &none, &f->err), 0);
	controller_progress(f->c, &l.operation, "pulling 40 %");
	struct operation o = get_op(f, &l.operation);
	assert_string_equal(o.progress, "pulling 40 %");
	operation_done(&o);
	struct completion done = { .operation = l.operation, .attempt = 1, .success = true, .image_digest = "sha256:abc" };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	o = get_op(f, &l.operation);
	assert_int_equal(o.state, OP_SUCCEEDED);
	assert_null(o.progress);
	operation_done(&o);
	lease_done(&l);
	s = get(f, "web");
	assert_int_equal(s.state, SANDBOX_RUNNING);
	assert_string_equal(s.image_digest, "sha256:abc");
	sandbox_done(&s);

	struct id op = delete_it(f, "web");
	expect_state(f, &id, SANDBOX_STOPPING);
	assert_true(controller_wants_delete(f->c, &id));
	assert_string_equal(delete_it(f, "web").text, op.text);
	expect_op(f, &op, OP_PENDING, OUTCOME_NONE);
	work(f, OPK_DELETE, true, NULL);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_state(f, &id, SANDBOX_STOPPED);
	assert_string_equal(delete_it(f, id.text).text, op.text);
	expect_consistent(f);
}

static void a_failed_create_frees_its_name(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "api", 60000);
	struct create_result r;
	create_result_init(&r);
	expect_error(f, try_create(f, &f->operator, "api", 60000, NULL, &r, &f->err), ERR_CONFLICT, "the name 'api' is taken by sandbox");
	create_result_done(&r);
	work(f, OPK_CREATE, false, "no such image: base");
	struct sandbox s = get(f, id.text);
	assert_int_equal(s.state, SANDBOX_FAILED);
	assert_string_equal(s.failure, "no such image: base");
	sandbox_done(&s);
	expect_consistent(f);
	struct id next = create_running(f, "api", 60000);
	s = get(f, "api");
	assert_string_equal(s.id.text, next.text);
	sandbox_done(&s);
	refuse_exec(f, id.text, ERR_CONFLICT, "no such image: base");

	/* Deleting the failed one asks its node to remove leftovers; it holds nothing meanwhile. */
	struct id op = delete_it(f, id.text);
	expect_state(f, &id, SANDBOX_FAILED);
	assert_string_equal(work(f, OPK_DELETE, true, NULL).text, id.text);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_state(f, &id, SANDBOX_STOPPED);
	expect_consistent(f);
}

static void names_belong_to_a_tenant(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	create(f, "store", 60000);
	assert_int_equal(try_create(f, &f->other, "store", 60000, NULL, &r, &f->err), 0);
	auto_sandbox s;
	sandbox_init(&s);
	assert_int_equal(controller_resolve(f->c, &f->other, "store", &s, &f->err), 0);
	assert_string_equal(s.spec.tenant, "rival");
	assert_string_equal(s.id.text, r.sandbox.id.text);
	/* An admin without one of their own cannot mean one of two. */
	expect_error(f, controller_resolve(f->c, &f->admin, "store", &s, &f->err), ERR_CONFLICT, "matches more than one sandbox");
	create_result_done(&r);
}

static void delete_before_the_create_began(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "x", 60000), create_op, op = delete_it(f, "x");
	struct operation_list l;
	assert_int_equal(controller_operations(f->c, &f->operator, id.text, 0, &l, &f->err), 0);
	assert_int_equal(l.len, 2);
	create_op = l.items[1].id;
	operation_list_done(&l);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_op(f, &create_op, OP_FAILED, OUTCOME_DELETED);
	expect_state(f, &id, SANDBOX_STOPPED);
	struct lease lease;
	assert_int_equal(controller_lease(f->c, &f->node, &lease, &f->err), 0);
	assert_string_equal(delete_it(f, id.text).text, op.text);
	refuse_exec(f, id.text, ERR_NOT_FOUND, "was deleted at 20");
	create(f, "x", 60000);
	expect_consistent(f);
}

static void delete_wins_over_a_running_create(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "x", 60000);
	struct lease l, other;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_false(controller_wants_delete(f->c, &id));
	struct id op = delete_it(f, "x");
	assert_true(controller_wants_delete(f->c, &id));
	/* The removal waits for the hands that are still making it. */
	assert_int_equal(controller_lease(f->c, &f->node, &other, &f->err), 0);
	struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	expect_op(f, &l.operation, OP_FAILED, OUTCOME_DELETED);
	expect_state(f, &id, SANDBOX_STOPPING);
	work(f, OPK_DELETE, true, NULL);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_state(f, &id, SANDBOX_STOPPED);
	lease_done(&l);
	expect_consistent(f);
}

static void a_failed_removal_is_tried_again(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = delete_it(f, "x");
	work(f, OPK_DELETE, false, "the engine does not answer");
	struct operation o = get_op(f, &op);
	assert_int_equal(o.state, OP_PENDING);
	assert_string_equal(o.error, "the engine does not answer");
	operation_done(&o);
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 0);
	int64_t next = controller_reap(f->c);
	assert_in_range(next - clock_wall_us(), 1, SECOND_US);
	usleep(1050 * 1000);
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_int_equal(l.attempt, 2);
	struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	lease_done(&l);
	expect_state(f, &id, SANDBOX_STOPPED);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
}

static void stale_attempts_change_nothing(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, NULL, 60000);
	struct lease first, second;
	assert_int_equal(controller_lease(f->c, &f->node, &first, &f->err), 1);
	assert_int_equal(controller_requeue(f->c, &f->node, &f->err), 0);
	struct completion late = { .operation = first.operation, .attempt = first.attempt, .success = false, .code = ERR_INTERNAL, .error = "late" };
	assert_int_equal(controller_complete(f->c, &late, &f->err), 0);
	assert_int_equal(controller_lease(f->c, &f->node, &second, &f->err), 1);
	assert_string_equal(second.operation.text, first.operation.text);
	assert_true(second.attempt > first.attempt);
	assert_int_equal(controller_complete(f->c, &late, &f->err), 0);
	expect_state(f, &id, SANDBOX_CREATING);
	struct completion done = { .operation = second.operation, .attempt = second.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	assert_int_equal(controller_complete(f->c, &late, &f->err), 0);
	expect_state(f, &id, SANDBOX_RUNNING);
	lease_done(&first);
	lease_done(&second);
}

static void an_abandoned_create_that_is_deleted_is_not_begun_again(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "x", 60000);
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	lease_done(&l);
	/* Killed in the middle, restarted, deleted before the worker came back: leftovers are possible, so the node must look. */
	close_controller(f);
	open_controller(f);
	struct id op = delete_it(f, "x");
	assert_int_equal(controller_requeue(f->c, &f->node, &f->err), 0);
	assert_string_equal(work(f, OPK_DELETE, true, NULL).text, id.text);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	/* The other order. */
	beat(f, 1000);
	id = create(f, "y", 60000);
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	lease_done(&l);
	close_controller(f);
	open_controller(f);
	assert_int_equal(controller_requeue(f->c, &f->node, &f->err), 0);
	delete_it(f, "y");
	assert_string_equal(work(f, OPK_DELETE, true, NULL).text, id.text);
	expect_state(f, &id, SANDBOX_STOPPED);
	expect_consistent(f);
}

static void a_sandbox_that_ended_by_itself(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = exec_begin(f, &id);
	assert_int_equal(controller_sandbox_gone(f->c, &id, "process 1 was killed by signal 9", &f->err), 0);
	expect_state(f, &id, SANDBOX_FAILED);
	expect_op(f, &op, OP_FAILED, OUTCOME_LOST);
	refuse_exec(f, id.text, ERR_CONFLICT, "killed by signal 9");
	assert_int_equal(controller_sandbox_gone(f->c, &id, "again", &f->err), 0);
	struct sandbox s = get(f, id.text);
	assert_string_equal(s.failure, "process 1 was killed by signal 9");
	sandbox_done(&s);
	expect_consistent(f);
}

/* --- commands --- */

static void commands_are_recorded(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = exec_begin(f, &id);
	expect_op(f, &op, OP_RUNNING, OUTCOME_NONE);
	auto_result r;
	result_init(&r);
	r.outcome = OUTCOME_EXITED;
	buf_add(&r.out.head, "a\0\xff", 3);
	buf_add(&r.out.tail, "tail", 4);
	r.out.total = 1000;
	buf_adds(&r.err.head, "oops");
	r.err.total = 4;
	r.truncated = true;
	assert_int_equal(controller_exec_end(f->c, &op, &r, ERR_NONE, NULL, &f->err), 0);
	r.exit_code = 9; /* a repeat changes nothing */
	assert_int_equal(controller_exec_end(f->c, &op, &r, ERR_INTERNAL, "late", &f->err), 0);
	struct operation o = get_op(f, &op);
	assert_int_equal(o.state, OP_SUCCEEDED);
	assert_true(o.has_result);
	assert_int_equal(o.result.exit_code, 0);
	assert_int_equal(o.result.out.head.len, 3);
	assert_memory_equal(o.result.out.head.data, "a\0\xff", 3);
	assert_string_equal(buf_str(&o.result.out.tail), "tail");
	assert_int_equal(o.result.out.total, 1000);
	assert_string_equal(buf_str(&o.result.err.head), "oops");
	assert_int_equal(o.result.err.tail.len, 0);
	assert_int_equal(o.command.argv.len, 3);
	assert_string_equal(o.command.argv.items[1], "a b\n");
	assert_string_equal(o.command.argv.items[2], "");
	assert_int_equal(o.command.env.len, 1);
	assert_string_equal(o.command.env.items[0], "TOKEN");
	operation_done(&o);
	/* By the digits that lists show. */
	operation_init(&o);
	assert_int_equal(controller_operation(f->c, &f->operator, id_short(&op), &o, &f->err), 0);
	assert_string_equal(o.id.text, op.text);
	operation_done(&o);

	op = exec_begin(f, &id);
	result_done(&r);
	r.outcome = OUTCOME_EXITED;
	r.exit_code = 3;
	assert_int_equal(controller_exec_end(f->c, &op, &r, ERR_NONE, NULL, &f->err), 0);
	expect_op(f, &op, OP_FAILED, OUTCOME_EXITED);
	op = exec_begin(f, &id);
	assert_int_equal(controller_exec_end(f->c, &op, NULL, ERR_UNAVAILABLE, "the sandbox does not answer", &f->err), 0);
	o = get_op(f, &op);
	assert_int_equal(o.result.outcome, OUTCOME_NOT_STARTED);
	assert_int_equal(o.error_code, ERR_UNAVAILABLE);
	assert_string_equal(o.error, "the sandbox does not answer");
	operation_done(&o);
}

static bool file_has(const char *path, const char *text)
{
	auto_buf b = BUF_INIT;
	return io_read_file(path, 1 << 26, &b, NULL) == 0 && memmem(b.data, b.len, text, strlen(text)) != NULL;
}

static void environment_values_are_never_stored(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000);
	exec_begin(f, &id);
	if (f->url[0]) {
		assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE position('TOKEN' in encode(env_keys, 'escape')) > 0"), 1);
		assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations o WHERE position('s3cr3tval' in o::text) > 0"), 0);
		return;
	}
	auto_free char *wal = xasprintf("%s-wal", f->db);
	assert_true(file_has(wal, "TOKEN"));
	assert_false(file_has(wal, "s3cr3tval"));
	close_controller(f);
	assert_true(file_has(f->db, "TOKEN"));
	assert_false(file_has(f->db, "s3cr3tval"));
	open_controller(f);
}

static void long_commands_have_short_records(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000);
	struct exec_grant g;
	auto_command cmd;
	command_init(&cmd);
	for (int i = 0; i < 4000; i++)
		strv_add(&cmd.argv, "0123456789abcdef");
	assert_int_equal(controller_exec_begin(f->c, &f->operator, id.text, &cmd, &g, &f->err), 0);
	struct operation o = get_op(f, &g.operation);
	assert_in_range(o.command.argv.len, 900, 1000);
	assert_non_null(strstr(o.command.argv.items[o.command.argv.len - 1], "more arguments"));
	operation_done(&o);
}

static void commands_need_a_running_sandbox(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "x", 60000);
	refuse_exec(f, "x", ERR_CONFLICT, "is still being created: sandbox wait ");
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	refuse_exec(f, "x", ERR_CONFLICT, l.operation.text);
	struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	lease_done(&l);
	struct id running = exec_begin(f, &id);
	delete_it(f, "x");
	refuse_exec(f, "x", ERR_CONFLICT, "is being deleted");
	/* Still running for the worker to end; the sandbox's end ends what nobody ended. */
	expect_op(f, &running, OP_RUNNING, OUTCOME_NONE);
	work(f, OPK_DELETE, true, NULL);
	expect_op(f, &running, OP_FAILED, OUTCOME_DELETED);
	refuse_exec(f, id.text, ERR_NOT_FOUND, "was deleted at 20");
	refuse_exec(f, "x", ERR_NOT_FOUND, "was deleted at 20");
	refuse_exec(f, "never", ERR_NOT_FOUND, "no sandbox matches 'never'");
	expect_consistent(f);
}

static void too_many_commands_are_refused(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), last = id;
	for (int i = 0; i < LIMIT_EXECS_PER_SANDBOX; i++)
		last = exec_begin(f, &id);
	refuse_exec(f, "x", ERR_RATE_LIMITED, "512 commands run in sandbox x");
	assert_int_equal(controller_exec_end(f->c, &last, NULL, ERR_UNAVAILABLE, "no", &f->err), 0);
	exec_begin(f, &id);
}

/* --- expiry --- */

static void wait_until(int64_t wall_us)
{
	int64_t left = wall_us - clock_wall_us();
	if (left > 0)
		usleep((useconds_t)left + 2000);
}

static void deadlines_are_kept(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 1300), op = exec_begin(f, &id);
	struct sandbox s = get(f, "x");
	int64_t next = controller_reap(f->c);
	assert_in_range(next - s.expires_us + 2000, 0, 4000);
	expect_state(f, &id, SANDBOX_RUNNING);
	wait_until(next);
	refuse_exec(f, "x", ERR_EXPIRED, "expired at 20"); /* before anybody has reaped it */
	controller_reap(f->c);
	expect_state(f, &id, SANDBOX_STOPPING);
	refuse_exec(f, "x", ERR_EXPIRED, "expired at 20");
	assert_true(controller_wants_delete(f->c, &id));
	work(f, OPK_DELETE, true, NULL);
	expect_op(f, &op, OP_FAILED, OUTCOME_EXPIRED);
	refuse_exec(f, id.text, ERR_EXPIRED, "expired at 20");
	refuse_exec(f, "x", ERR_EXPIRED, "expired at 20");
	sandbox_done(&s);
	s = get(f, id.text);
	assert_int_equal(s.state, SANDBOX_STOPPED);
	assert_int_equal(s.end_reason, OUTCOME_EXPIRED);
	sandbox_done(&s);
	/* Deleting it afterwards is a success: what was wanted has happened. */
	op = delete_it(f, id.text);
	expect_op(f, &op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_error(f, controller_extend(f->c, &f->operator, id.text, 60000, &s, &f->err), ERR_EXPIRED, "expired at 20");
	expect_consistent(f);
}

static void expiry_before_creation(void **state)
{
	struct fix *f = *state;
	struct id id = create(f, "x", 1000), late = create(f, "y", 1000);
	struct lease l;
	assert_int_equal(controller_lease(f->c, &f->node, &l, &f->err), 1);
	assert_string_equal(l.sandbox.id.text, id.text);
	usleep(1010 * 1000);
	controller_reap(f->c);
	expect_state(f, &id, SANDBOX_STOPPING);
	expect_state(f, &late, SANDBOX_STOPPED);
	struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = true };
	assert_int_equal(controller_complete(f->c, &done, &f->err), 0);
	expect_op(f, &l.operation, OP_FAILED, OUTCOME_EXPIRED);
	lease_done(&l);
	work(f, OPK_DELETE, true, NULL);
	refuse_exec(f, id.text, ERR_EXPIRED, "expired at 20");
	refuse_exec(f, late.text, ERR_EXPIRED, "expired at 20");
	expect_consistent(f);
}

static void process_one_that_ends_at_the_deadline_is_an_expiry(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 1000);
	usleep(1010 * 1000);
	assert_int_equal(controller_sandbox_gone(f->c, &id, "process 1 exited", &f->err), 0);
	expect_state(f, &id, SANDBOX_STOPPING);
	work(f, OPK_DELETE, true, NULL);
	refuse_exec(f, id.text, ERR_EXPIRED, "expired at 20");
}

static void only_extend_moves_the_deadline(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000);
	struct sandbox s = get(f, "x");
	int64_t first = s.expires_us;
	exec_begin(f, &id);
	controller_reap(f->c);
	sandbox_done(&s);
	s = get(f, "x");
	assert_true(s.expires_us == first);
	assert_int_equal(controller_extend(f->c, &f->operator, "x", 120000, &s, &f->err), 0);
	assert_true(s.expires_us > first + 50LL * SECOND_US);
	assert_int_equal(controller_extend(f->c, &f->operator, "x", 1500, &s, &f->err), 0);
	assert_in_range(controller_reap(f->c) - clock_wall_us(), SECOND_US, 1600000);
	expect_error(f, controller_extend(f->c, &f->operator, "x", 0, &s, &f->err), ERR_INVALID, "must be from 1 to 604800");
	expect_error(f, controller_extend(f->c, &f->operator, "x", INT64_MAX, &s, &f->err), ERR_INVALID, "must be from 1 to 604800");
	expect_error(f, controller_extend(f->c, &f->viewer, "x", 60000, &s, &f->err), ERR_FORBIDDEN, "viewer");
	expect_error(f, controller_extend(f->c, &f->other, "x", 60000, &s, &f->err), ERR_NOT_FOUND, "no sandbox matches 'x'");
	sandbox_done(&s);
}

static void set_flag(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static int64_t told_us;

static void set_told(void *ctx, int64_t after_us)
{
	told_us = after_us;
	set_flag(ctx);
}

static void the_timer_hears_of_earlier_deadlines(void **state)
{
	struct fix *f = *state;
	atomic_int told = 0, worked = 0;
	controller_on_deadline(f->c, set_told, &told);
	controller_on_work(f->c, &f->node, set_flag, &worked);
	assert_true(controller_reap(f->c) == 0);
	create(f, "slow", 3600 * 1000);
	assert_int_equal(told, 1);
	assert_int_equal(worked, 1);
	controller_reap(f->c);
	create(f, "slower", 7200 * 1000);
	assert_int_equal(told, 1);
	assert_int_equal(worked, 2);
	create(f, "fast", 1000);
	assert_int_equal(told, 2);
	assert_in_range(told_us, 1, SECOND_US);
	assert_in_range(controller_reap(f->c) - clock_wall_us(), 1, SECOND_US);
	controller_on_work(f->c, &f->node, NULL, NULL);
	create(f, "last", 1000);
	assert_int_equal(worked, 3);
	controller_on_deadline(f->c, NULL, NULL);
}

static void records_have_a_retention(void **state)
{
	struct fix *f = *state;
	struct id keep = create_running(f, "keep", 60000), gone = create_running(f, "gone", 60000), op = exec_begin(f, &keep);
	auto_result r;
	result_init(&r);
	r.outcome = OUTCOME_EXITED;
	buf_adds(&r.out.head, "text");
	r.out.total = 4;
	assert_int_equal(controller_exec_end(f->c, &op, &r, ERR_NONE, NULL, &f->err), 0);
	delete_it(f, "gone");
	work(f, OPK_DELETE, true, NULL);
	controller_reap(f->c);
	expect_state(f, &gone, SANDBOX_STOPPED);
	f->config.retention_ms = 1000;
	controller_reload(f->c, &f->config);
	int64_t next = controller_reap(f->c);
	assert_true(next != 0);
	wait_until(next);
	controller_reap(f->c);
	auto_operation o;
	operation_init(&o);
	expect_error(f, controller_operation(f->c, &f->admin, op.text, &o, &f->err), ERR_NOT_FOUND, "no operation has the id");
	refuse_exec(f, gone.text, ERR_NOT_FOUND, "no sandbox matches");
	expect_state(f, &keep, SANDBOX_RUNNING);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM outputs"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM events"), 0);
	exec_begin(f, &keep);
	expect_consistent(f);
}

/* --- nodes --- */

static void silent_nodes_get_nothing(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	create_running(f, "x", 60000);
	close_controller(f);
	/* In a shared store another controller may have heard of it. */
	change_rows(f, "UPDATE nodes SET seen_us = seen_us - 60000000");
	open_controller(f);
	struct sandbox s = get(f, "x");
	assert_true(s.unreachable);
	sandbox_done(&s);
	expect_error(f, try_create(f, &f->operator, NULL, 60000, NULL, &r, &f->err), ERR_NO_CAPACITY, "");
	create_result_done(&r);
	beat(f, 1000);
	s = get(f, "x");
	assert_false(s.unreachable);
	sandbox_done(&s);
	create(f, NULL, 60000);
}

static void what_is_not_offered_is_said(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	auto_spec s;
	create_result_init(&r);
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	s.network = NETWORK_OPEN;
	expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "open networks are not offered yet");
	create_result_done(&r);
	s.network = NETWORK_RESTRICTED;
	s.signals.untrusted_repository = s.signals.executes_generated_code = true;
	expect_error(f, controller_create(f->c, &f->operator, &s, false, NULL, &r, &f->err), ERR_NO_CAPACITY, "microvm");
	assert_int_equal(r.decision.score, 60);
	create_result_done(&r);
}

static void what_a_node_should_have(void **state)
{
	struct fix *f = *state;
	struct id run = create_running(f, "run", 60000), gone = create_running(f, "gone", 60000), op = exec_begin(f, &run);
	create(f, "soon", 60000);
	delete_it(f, "gone");
	struct sandbox_list l;
	struct operation_list ops;
	assert_int_equal(controller_desired(f->c, &f->node, &l, &ops, &f->err), 0);
	assert_int_equal(l.len, 3);
	assert_string_equal(l.items[1].id.text, gone.text);
	assert_int_equal(l.items[1].state, SANDBOX_STOPPING);
	assert_string_equal(l.items[2].spec.name, "run");
	assert_int_equal(ops.len, 1);
	assert_string_equal(ops.items[0].id.text, op.text);
	sandbox_list_done(&l);
	operation_list_done(&ops);
	struct id nobody = id_new();
	assert_int_equal(controller_desired(f->c, &nobody, &l, &ops, &f->err), 0);
	assert_int_equal(l.len + ops.len, 0);
	sandbox_list_done(&l);
	operation_list_done(&ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_sandbox_lives),
		T(a_failed_create_frees_its_name),
		T(names_belong_to_a_tenant),
		T(delete_before_the_create_began),
		T(delete_wins_over_a_running_create),
		T(a_failed_removal_is_tried_again),
		T(stale_attempts_change_nothing),
		T(an_abandoned_create_that_is_deleted_is_not_begun_again),
		T(a_sandbox_that_ended_by_itself),
		T(commands_are_recorded),
		T(environment_values_are_never_stored),
		T(long_commands_have_short_records),
		T(commands_need_a_running_sandbox),
		T(too_many_commands_are_refused),
		T(deadlines_are_kept),
		T(expiry_before_creation),
		T(process_one_that_ends_at_the_deadline_is_an_expiry),
		T(only_extend_moves_the_deadline),
		T(the_timer_hears_of_earlier_deadlines),
		T(records_have_a_retention),
		T(silent_nodes_get_nothing),
		T(what_is_not_offered_is_said),
		T(what_a_node_should_have),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
