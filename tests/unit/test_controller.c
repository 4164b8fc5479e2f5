/* The controller on a real store, with the test in the worker's place. Each test has its own state directory. */
#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/store/store.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SECOND_US = 1000000 };

struct fix {
	char dir[128];
	char db[160];
	struct daemon_config config;
	struct store *store;
	struct controller *c;
	struct id node;
	struct caller admin, operator, viewer, other;
	struct error err;
};

/* --- the fixture --- */

static void open_controller(struct fix *f)
{
	struct error err = ERROR_INIT;
	if (store_open(&(struct store_options){ .path = f->db, .state_dir = f->dir }, &f->store, &err) != 0 ||
	    controller_new(&f->config, f->store, &f->c, &err) != 0)
		fail_msg("%s", err.message);
}

static void close_controller(struct fix *f)
{
	controller_free(f->c);
	store_close(f->store);
	f->c = NULL;
	f->store = NULL;
}

static void beat(struct fix *f, uint32_t max_sandboxes)
{
	struct node_report r = {
		.node = f->node, .name = "local", .max_sandboxes = max_sandboxes, .region = "here",
		.total = { .cpu_millis = 10000000, .memory_mib = 100000000, .disk_mib = 100000000, .pids = 100000000 },
	};
	r.tiers[TIER_CONTAINER].offered = true;
	snprintf(r.tiers[TIER_MICROVM].reason, sizeof(r.tiers[TIER_MICROVM].reason), "no VMM here");
	r.network[NETWORK_DENY] = true;
	snprintf(r.network_reason[NETWORK_OPEN], sizeof(r.network_reason[NETWORK_OPEN]), "open networks are not offered yet");
	if (controller_heartbeat(f->c, &r, &f->err) != 0)
		fail_msg("%s", f->err.message);
}

static struct caller caller_of(enum role role, const char *tenant)
{
	struct caller who = { .role = role, .all_tenants = role == ROLE_ADMIN };
	snprintf(who.tenant, sizeof(who.tenant), "%s", tenant);
	snprintf(who.who, sizeof(who.who), "uid 1000");
	return who;
}

static int setup(void **state)
{
	struct fix *f = xcalloc(1, sizeof(*f));
	snprintf(f->dir, sizeof(f->dir), "%s/sandbox-controller-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->db, sizeof(f->db), "%s/store.db", f->dir);
	assert_int_equal(daemon_config_defaults(&f->config, &f->err), 0);
	f->config.retention_ms = 3600 * 1000;
	f->node = id_new();
	f->admin = caller_of(ROLE_ADMIN, "root");
	f->operator = caller_of(ROLE_OPERATOR, "team");
	f->viewer = caller_of(ROLE_VIEWER, "team");
	f->other = caller_of(ROLE_OPERATOR, "rival");
	open_controller(f);
	beat(f, 1000);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;
	close_controller(f);
	daemon_config_done(&f->config);
	assert_int_equal(io_remove_tree(f->dir, NULL), 0);
	free(f);
	return 0;
}

/* Callable where cmocka's checks are not: from other threads and processes. */
static int try_create(struct fix *f, const struct caller *who, const char *name, int64_t ttl_ms, const char *key, struct create_result *ret,
		      struct error *err)
{
	auto_spec s;
	spec_init(&s);
	free(s.image);
	s.image = xstrdup("base");
	s.name = xstrdup0(name);
	s.ttl_ms = ttl_ms;
	return controller_create(f->c, who, &s, false, key, ret, err);
}

static struct id create(struct fix *f, const char *name, int64_t ttl_ms)
{
	struct create_result r;
	create_result_init(&r);
	if (try_create(f, &f->operator, name, ttl_ms, NULL, &r, &f->err) != 0)
		fail_msg("create: %s", f->err.message);
	struct id id = r.sandbox.id;
	create_result_done(&r);
	return id;
}

/* Takes the next work, which must be of this kind, and completes it. */
static struct id work(struct fix *f, enum op_kind kind, bool success, const char *error)
{
	struct lease l;
	if (controller_lease(f->c, &f->node, &l, &f->err) != 1)
		fail_msg("nothing to lease");
	assert_int_equal(l.kind, kind);
	struct id sandbox = l.sandbox.id;
	struct completion done = { .operation = l.operation, .attempt = l.attempt, .success = success, .image_digest = "sha256:abc",
				   .code = success ? ERR_NONE : ERR_NOT_FOUND, .error = error };
	lease_done(&l);
	if (controller_complete(f->c, &done, &f->err) != 0)
		fail_msg("complete: %s", f->err.message);
	return sandbox;
}

static struct id create_running(struct fix *f, const char *name, int64_t ttl_ms)
{
	struct id id = create(f, name, ttl_ms);
	work(f, OPK_CREATE, true, NULL);
	return id;
}

static struct sandbox get(struct fix *f, const char *ref)
{
	struct sandbox s;
	sandbox_init(&s);
	if (controller_resolve(f->c, &f->admin, ref, &s, &f->err) != 0)
		fail_msg("%s: %s", ref, f->err.message);
	return s;
}

static void expect_state(struct fix *f, const struct id *id, enum sandbox_state state)
{
	struct sandbox s = get(f, id->text);
	if (s.state != state)
		fail_msg("%s is %s, not %s", id->text, sandbox_state_text(s.state), sandbox_state_text(state));
	sandbox_done(&s);
}

static struct operation get_op(struct fix *f, const struct id *id)
{
	struct operation o;
	operation_init(&o);
	if (controller_operation(f->c, &f->admin, id->text, &o, &f->err) != 0)
		fail_msg("%s: %s", id->text, f->err.message);
	return o;
}

static void expect_op(struct fix *f, const struct id *id, enum op_state state, enum outcome outcome)
{
	struct operation o = get_op(f, id);
	if (o.state != state || o.result.outcome != outcome)
		fail_msg("operation is %s, %s; not %s, %s", op_state_text(o.state), outcome_text(o.result.outcome), op_state_text(state),
			 outcome_text(outcome));
	operation_done(&o);
}

static struct id delete_it(struct fix *f, const char *ref)
{
	auto_operation o;
	operation_init(&o);
	if (controller_delete(f->c, &f->operator, ref, &o, &f->err) != 0)
		fail_msg("delete %s: %s", ref, f->err.message);
	assert_int_equal(o.kind, OPK_DELETE);
	return o.id;
}

static int try_exec(struct fix *f, const struct caller *who, const char *ref, struct exec_grant *ret, struct error *err)
{
	auto_command cmd;
	command_init(&cmd);
	strv_add(&cmd.argv, "printf");
	strv_add(&cmd.argv, "a b\n");
	strv_add(&cmd.argv, "");
	strv_add(&cmd.env, "TOKEN=s3cr3tval");
	return controller_exec_begin(f->c, who, ref, &cmd, ret, err);
}

static struct id exec_begin(struct fix *f, const struct id *sandbox)
{
	struct exec_grant g;
	if (try_exec(f, &f->operator, sandbox->text, &g, &f->err) != 0)
		fail_msg("exec: %s", f->err.message);
	assert_string_equal(g.sandbox.text, sandbox->text);
	assert_string_equal(g.node.text, f->node.text);
	return g.operation;
}

static void expect_error(struct fix *f, int rc, enum error_code code, const char *text)
{
	assert_int_equal(rc, -1);
	if (f->err.code != code || !strstr(f->err.message, text))
		fail_msg("code %s, message: %s (wanted: %s)", error_wire(f->err.code), f->err.message, text);
}

static void refuse_exec(struct fix *f, const char *ref, enum error_code code, const char *text)
{
	struct exec_grant g;
	expect_error(f, try_exec(f, &f->operator, ref, &g, &f->err), code, text);
}

/* What is reserved equals what is live, in rows and in counters; looked at from outside. */
static int query_int(const char *db_path, const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;
	int value = -1;
	if (sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK && sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		value = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	sqlite3_close(db);
	return value;
}

static void expect_consistent(struct fix *f)
{
	int live = query_int(f->db, "SELECT COUNT(*) FROM sandboxes WHERE live = 1");
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM reservations"), live);
	assert_int_equal(query_int(f->db, "SELECT SUM(sandboxes) FROM nodes"), live);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM reservations r WHERE NOT EXISTS "
					  "(SELECT 1 FROM sandboxes s WHERE s.id = r.sandbox_id AND s.live = 1)"), 0);
	assert_int_equal(query_int(f->db, "SELECT (SELECT SUM(used_memory_mib) FROM nodes) - (SELECT COALESCE(SUM(memory_mib), 0) FROM reservations)"), 0);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM sandboxes WHERE (live = 1) <> (ended_us = 0)"), 0);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM operations WHERE (state IN ('pending', 'running')) <> (ended_us = 0)"), 0);
	/* Every live sandbox has somebody who will move it on, or runs. */
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM sandboxes s WHERE live = 1 AND state <> 'running' AND NOT EXISTS "
					  "(SELECT 1 FROM operations o WHERE o.sandbox_id = s.id AND o.ended_us = 0 AND kind <> 'exec')"), 0);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM operations o WHERE kind = 'exec' AND ended_us = 0 AND NOT EXISTS "
					  "(SELECT 1 FROM sandboxes s WHERE s.id = o.sandbox_id AND s.live = 1)"), 0);
}

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

static void the_timer_hears_of_earlier_deadlines(void **state)
{
	struct fix *f = *state;
	atomic_int told = 0, worked = 0;
	controller_on_deadline(f->c, set_flag, &told);
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
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM outputs"), 0);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM operations"), 0);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM events"), 0);
	exec_begin(f, &keep);
	expect_consistent(f);
}

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
	int created, errors;
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
			w->created++;
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

static void a_crowd_keeps_the_books(void **state)
{
	struct fix *f = *state;
	atomic_bool stop = false;
	struct crowd crowd[9];
	pthread_t threads[ARRAY_LEN(crowd)];
	int created = 0;
	beat(f, 50);
	for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
		crowd[i] = (struct crowd){ .f = f, .stop = &stop, .seed = (unsigned)i + 1 };
		void *(*fn)(void *) = i == 0 ? crowd_reaper : i < 4 ? crowd_worker : crowd_user;
		assert_int_equal(pthread_create(&threads[i], NULL, fn, &crowd[i]), 0);
	}
	usleep(1500 * 1000);
	atomic_store(&stop, true);
	for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(crowd[i].errors, 0);
		created += crowd[i].created;
	}
	assert_true(created > 50);
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

/* --- nodes --- */

static void silent_nodes_get_nothing(void **state)
{
	struct fix *f = *state;
	struct create_result r;
	create_result_init(&r);
	create_running(f, "x", 60000);
	close_controller(f);
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

/* --- dying --- */

static void commands_of_another_boot_are_lost(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 60000), op = exec_begin(f, &id), before = exec_begin(f, &id);
	auto_free char *sql = xasprintf("UPDATE operations SET boot_id = 'before' WHERE id = '%s'", before.text);
	close_controller(f);
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(f->db, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	open_controller(f);
	expect_op(f, &op, OP_RUNNING, OUTCOME_NONE);
	expect_op(f, &before, OP_FAILED, OUTCOME_LOST);
	expect_consistent(f);
}

/* A process that does everything until it is killed. It tells when it has begun: starting takes a while in instrumented builds. */
static void live_until_killed(struct fix *f, int told)
{
	if (store_open(&(struct store_options){ .path = f->db, .state_dir = f->dir }, &f->store, NULL) != 0 ||
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
	close_controller(f);
	for (int round = 0; round < 25; round++) {
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
	assert_true(query_int(f->db, "SELECT COUNT(*) FROM sandboxes") > 25);
	assert_int_equal(query_int(f->db, "SELECT COUNT(*) FROM sandboxes WHERE live = 1"), 0);
	expect_consistent(f);
}

/* --- figures --- */

static void a_command_costs_little(void **state)
{
	struct fix *f = *state;
	struct id id = create_running(f, "x", 3600 * 1000);
	enum { N = 5000 };
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
	assert_true(per < 3000);
}

static void fill_rows(const char *db_path, int n)
{
	sqlite3 *db = NULL;
	auto_free char *sql = xasprintf(
		"PRAGMA synchronous=OFF; BEGIN;"
		"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d) "
		"INSERT INTO sandboxes (id, rid, tenant, name, state, live, node_id, node_name, tier, risk_score, writable_root, created_us, "
		"updated_us, expires_us, ended_us, end_reason, spec) "
		"SELECT printf('00000000-0000-7000-8000-%%012d', i), printf('%%06d', i) || '000000-0008-0007-0000-00000000', 'team', NULL, 'running', 1, node_id, node_name, "
		"tier, 0, 0, created_us, updated_us, expires_us, 0, 'none', spec FROM c, (SELECT * FROM sandboxes LIMIT 1); COMMIT", n);
	assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
	char *message = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s", message);
	sqlite3_close(db);
}

static void long_lists_start_fast(void **state)
{
	struct fix *f = *state;
	enum { ROWS = 100000 };
	create(f, "web", 3600 * 1000);
	close_controller(f);
	fill_rows(f->db, ROWS);
	open_controller(f);
	struct sandbox_list l;
	int64_t start = clock_mono_us();
	assert_int_equal(controller_list(f->c, &f->operator, &(struct list_query){ .limit = 100 }, &l, &f->err), 0);
	int64_t page = clock_mono_us() - start;
	assert_int_equal(l.len, 100);
	sandbox_list_done(&l);
	start = clock_mono_us();
	struct sandbox s = get(f, "123450"); /* a suffix of one of them */
	int64_t suffix = clock_mono_us() - start;
	sandbox_done(&s);
	start = clock_mono_us();
	assert_int_equal(controller_list(f->c, &f->operator, &(struct list_query){ .limit = 0 }, &l, &f->err), 0);
	assert_int_equal(l.len, ROWS + 1);
	int64_t all = clock_mono_us() - start;
	sandbox_list_done(&l);
	print_message("# of %d: first 100 in %lld us, one by suffix in %lld us, all in %lld ms\n", ROWS, (long long)page, (long long)suffix,
		      (long long)all / 1000);
	assert_true(page < 200 * 1000);
	assert_true(suffix < 100 * 1000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
		T(the_last_slots_go_to_exactly_as_many),
		T(one_name_one_winner),
		T(one_key_one_sandbox),
		T(limits_bind_by_every_resource),
		T(a_crowd_keeps_the_books),
		T(watchers_are_told_once),
		T(unwatch_waits_for_a_running_watcher),
		T(silent_nodes_get_nothing),
		T(what_is_not_offered_is_said),
		T(what_a_node_should_have),
		T(commands_of_another_boot_are_lost),
		T(killed_at_any_moment_it_goes_on),
		T(a_command_costs_little),
		T(long_lists_start_fast),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
