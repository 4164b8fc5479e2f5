/*
 * A world for tests of the controller: a store of its own below a directory of its own, one node that offers containers
 * without a network, callers of every kind, and the test in the worker's place. With SANDBOX_TEST_STORE=postgresql the store
 * is a schema of its own there.
 */
#ifndef TESTS_UNIT_CONTROLLER_WORLD_H
#define TESTS_UNIT_CONTROLLER_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/store/store.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "tests/unit/pg_world.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))

enum { SECOND_US = 1000000 };

struct fix {
	char dir[128];
	char db[160];
	char url[256]; /* "": SQLite */
	struct daemon_config config;
	struct store *store;
	struct controller *c;
	struct id node;
	struct caller admin, operator, viewer, other;
	struct error err;
};

MAYBE_UNUSED static void open_controller(struct fix *f)
{
	struct error err = ERROR_INIT;
	if (store_open(&(struct store_options){ .path = f->db, .state_dir = f->dir, .url = f->url }, &f->store, &err) != 0 ||
	    controller_new(&f->config, f->store, &f->c, &err) != 0)
		fail_msg("%s", err.message);
	/* The one before may have to be noticed as gone. */
	for (int i = 0; i < 10000 && !store_leads(f->store); i++)
		usleep(1000);
	assert_true(store_leads(f->store));
}

MAYBE_UNUSED static void close_controller(struct fix *f)
{
	controller_free(f->c);
	store_close(f->store);
	f->c = NULL;
	f->store = NULL;
}

MAYBE_UNUSED static void beat(struct fix *f, uint32_t max_sandboxes)
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

MAYBE_UNUSED static struct caller caller_of(enum role role, const char *tenant)
{
	struct caller who = { .role = role, .all_tenants = role == ROLE_ADMIN };
	snprintf(who.tenant, sizeof(who.tenant), "%s", tenant);
	snprintf(who.who, sizeof(who.who), "uid 1000");
	return who;
}

MAYBE_UNUSED static int setup(void **state)
{
	struct fix *f = xcalloc(1, sizeof(*f));
	snprintf(f->dir, sizeof(f->dir), "%s/sandbox-controller-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->db, sizeof(f->db), "%s/store.db", f->dir);
	assert_int_equal(daemon_config_defaults(&f->config, &f->err), 0);
	f->config.retention_ms = 3600 * 1000;
	if (on_pg())
		pg_schema_new(f->url, sizeof(f->url));
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

MAYBE_UNUSED static int teardown(void **state)
{
	struct fix *f = *state;
	close_controller(f);
	daemon_config_done(&f->config);
	if (f->url[0])
		pg_schema_drop(f->url);
	assert_int_equal(io_remove_tree(f->dir, NULL), 0);
	free(f);
	return 0;
}

/* Callable where cmocka's checks are not: from other threads and processes. */
MAYBE_UNUSED static int try_create(struct fix *f, const struct caller *who, const char *name, int64_t ttl_ms, const char *key, struct create_result *ret,
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

MAYBE_UNUSED static struct id create(struct fix *f, const char *name, int64_t ttl_ms)
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
MAYBE_UNUSED static struct id work(struct fix *f, enum op_kind kind, bool success, const char *error)
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

MAYBE_UNUSED static struct id create_running(struct fix *f, const char *name, int64_t ttl_ms)
{
	struct id id = create(f, name, ttl_ms);
	work(f, OPK_CREATE, true, NULL);
	return id;
}

MAYBE_UNUSED static struct sandbox get(struct fix *f, const char *ref)
{
	struct sandbox s;
	sandbox_init(&s);
	if (controller_resolve(f->c, &f->admin, ref, &s, &f->err) != 0)
		fail_msg("%s: %s", ref, f->err.message);
	return s;
}

MAYBE_UNUSED static void expect_state(struct fix *f, const struct id *id, enum sandbox_state state)
{
	struct sandbox s = get(f, id->text);
	if (s.state != state)
		fail_msg("%s is %s, not %s", id->text, sandbox_state_text(s.state), sandbox_state_text(state));
	sandbox_done(&s);
}

MAYBE_UNUSED static struct operation get_op(struct fix *f, const struct id *id)
{
	struct operation o;
	operation_init(&o);
	if (controller_operation(f->c, &f->admin, id->text, &o, &f->err) != 0)
		fail_msg("%s: %s", id->text, f->err.message);
	return o;
}

MAYBE_UNUSED static void expect_op(struct fix *f, const struct id *id, enum op_state state, enum outcome outcome)
{
	struct operation o = get_op(f, id);
	if (o.state != state || o.result.outcome != outcome)
		fail_msg("operation is %s, %s; not %s, %s", op_state_text(o.state), outcome_text(o.result.outcome), op_state_text(state),
			 outcome_text(outcome));
	operation_done(&o);
}

MAYBE_UNUSED static struct id delete_it(struct fix *f, const char *ref)
{
	auto_operation o;
	operation_init(&o);
	if (controller_delete(f->c, &f->operator, ref, &o, &f->err) != 0)
		fail_msg("delete %s: %s", ref, f->err.message);
	assert_int_equal(o.kind, OPK_DELETE);
	return o.id;
}

MAYBE_UNUSED static int try_exec(struct fix *f, const struct caller *who, const char *ref, struct exec_grant *ret, struct error *err)
{
	auto_command cmd;
	command_init(&cmd);
	strv_add(&cmd.argv, "printf");
	strv_add(&cmd.argv, "a b\n");
	strv_add(&cmd.argv, "");
	strv_add(&cmd.env, "TOKEN=s3cr3tval");
	return controller_exec_begin(f->c, who, ref, &cmd, ret, err);
}

MAYBE_UNUSED static struct id exec_begin(struct fix *f, const struct id *sandbox)
{
	struct exec_grant g;
	if (try_exec(f, &f->operator, sandbox->text, &g, &f->err) != 0)
		fail_msg("exec: %s", f->err.message);
	assert_string_equal(g.sandbox.text, sandbox->text);
	assert_string_equal(g.node.text, f->node.text);
	return g.operation;
}

MAYBE_UNUSED static void expect_error(struct fix *f, int rc, enum error_code code, const char *text)
{
	assert_int_equal(rc, -1);
	if (f->err.code != code || !strstr(f->err.message, text))
		fail_msg("code %s, message: %s (wanted: %s)", error_wire(f->err.code), f->err.message, text);
}

MAYBE_UNUSED static void refuse_exec(struct fix *f, const char *ref, enum error_code code, const char *text)
{
	struct exec_grant g;
	expect_error(f, try_exec(f, &f->operator, ref, &g, &f->err), code, text);
}

/* What is reserved equals what is live, in rows and in counters; looked at from outside. */
MAYBE_UNUSED static int query_int(const struct fix *f, const char *sql)
{
	if (f->url[0]) {
		auto_free char *text = pg_ask(f->url, sql);
		return *text ? (int)strtol(text, NULL, 10) : -1;
	}
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;
	int value = -1;
	if (sqlite3_open_v2(f->db, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK && sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		value = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	sqlite3_close(db);
	return value;
}

MAYBE_UNUSED static void change_rows(const struct fix *f, const char *sql)
{
	if (f->url[0]) {
		pg_run(f->url, sql);
		return;
	}
	sqlite3 *db = NULL;
	char *message = NULL;
	assert_int_equal(sqlite3_open(f->db, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s", message);
	sqlite3_close(db);
}

MAYBE_UNUSED static void expect_consistent(struct fix *f)
{
	int live = query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE live = 1");
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM reservations"), live);
	assert_int_equal(query_int(f, "SELECT SUM(sandboxes) FROM nodes"), live);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM reservations r WHERE NOT EXISTS "
					  "(SELECT 1 FROM sandboxes s WHERE s.id = r.sandbox_id AND s.live = 1)"), 0);
	assert_int_equal(query_int(f, "SELECT (SELECT SUM(used_memory_mib) FROM nodes) - (SELECT COALESCE(SUM(memory_mib), 0) FROM reservations)"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes WHERE (live = 1) <> (ended_us = 0)"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE (state IN ('pending', 'running')) <> (ended_us = 0)"), 0);
	/* Every live sandbox has somebody who will move it on, or runs. */
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes s WHERE live = 1 AND state <> 'running' AND NOT EXISTS "
					  "(SELECT 1 FROM operations o WHERE o.sandbox_id = s.id AND o.ended_us = 0 AND kind <> 'exec')"), 0);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations o WHERE kind = 'exec' AND ended_us = 0 AND NOT EXISTS "
					  "(SELECT 1 FROM sandboxes s WHERE s.id = o.sandbox_id AND s.live = 1)"), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
