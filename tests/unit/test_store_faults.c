/*
 * The life of a sandbox in the records, with every call of the store failing in turn: each read, write and sync of SQLite's files,
 * each send and receive to PostgreSQL (SANDBOX_TEST_STORE=postgresql), whose connection then is gone. What fails says so and is done
 * again, as clients and workers do; afterwards every record is there once and the books balance.
 */
#include "tests/unit/controller_world.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { ROUNDS_MAX = 3000, TRIES = 50 };

/* In the order of their calls; what is called while nothing is armed is not counted. */
static struct {
	atomic_int error; /* 0: disarmed */
	atomic_long at, seen, failed;
} faults;

static void arm(int error, long at)
{
	faults.error = 0;
	faults.at = at;
	faults.seen = faults.failed = 0;
	faults.error = error;
}

static bool fails(void)
{
	if (!faults.error || ++faults.seen != faults.at)
		return false;
	faults.failed++;
	errno = faults.error;
	return true;
}

/* --- files: SQLite takes its calls from a table; those of syncs come from here, also for the store's own --- */

static ssize_t faulty_pread(int fd, void *p, size_t n, off_t at)
{
	return !on_pg() && fails() ? -1 : pread(fd, p, n, at);
}

static ssize_t faulty_pwrite(int fd, const void *p, size_t n, off_t at)
{
	return !on_pg() && fails() ? -1 : pwrite(fd, p, n, at);
}

static int faulty_ftruncate(int fd, off_t n)
{
	return !on_pg() && fails() ? -1 : ftruncate(fd, n);
}

static int faulty_open(const char *path, int flags, int mode)
{
	return !on_pg() && fails() ? -1 : open(path, flags, mode); /* SQLite sets close-on-exec itself */
}

int fdatasync(int fd)
{
	return !on_pg() && fails() ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	return !on_pg() && fails() ? -1 : (int)syscall(SYS_fsync, fd);
}

static void replace_calls(void)
{
	static const struct {
		const char *name;
		sqlite3_syscall_ptr call;
	} rows[] = {
		{ "pread", (sqlite3_syscall_ptr)faulty_pread }, { "pread64", (sqlite3_syscall_ptr)faulty_pread },
		{ "pwrite", (sqlite3_syscall_ptr)faulty_pwrite }, { "pwrite64", (sqlite3_syscall_ptr)faulty_pwrite },
		{ "ftruncate", (sqlite3_syscall_ptr)faulty_ftruncate }, { "open", (sqlite3_syscall_ptr)faulty_open },
	};
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		vfs->xSetSystemCall(vfs, rows[i].name, rows[i].call);
}

/* --- the connection: a cut before the server hears, or before it is heard --- */

static bool cut(int fd)
{
	if (!on_pg() || !fails())
		return false;
	shutdown(fd, SHUT_RDWR);
	errno = faults.error;
	return true;
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
	return cut(fd) ? -1 : (ssize_t)syscall(SYS_sendto, fd, p, n, flags, NULL, 0);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
	return cut(fd) ? -1 : (ssize_t)syscall(SYS_recvfrom, fd, p, n, flags, NULL, NULL);
}

/* --- a life --- */

struct life {
	struct id sandbox, create_op, exec_op, delete_op;
	int again; /* calls that had to be made again */
};

static int told(struct fix *f, struct life *l, int rc)
{
	if (rc >= 0)
		return rc;
	if (!f->err.message[0] || f->err.code == ERR_NONE)
		fail_msg("a call failed without a word");
	l->again++;
	controller_reap(f->c); /* what a lost commit left is settled by the reaper */
	return rc;
}

#define AGAIN(f, l, call)                                                                   \
	__extension__({                                                                     \
		int rc_, tries_ = 0;                                                        \
		while ((rc_ = told((f), (l), (call))) < 0)                                  \
			if (++tries_ == TRIES)                                              \
				fail_msg("%s: %s", #call, (f)->err.message);                \
		rc_;                                                                        \
	})

static void make(struct fix *f, struct life *l, const char *name)
{
	struct create_result r;
	create_result_init(&r);
	while (AGAIN(f, l, try_create(f, &f->operator, name, 600000, name, &r, &f->err)) != 0)
		;
	l->sandbox = r.sandbox.id;
	l->create_op = r.operation.id;
	create_result_done(&r);
}

/* What a worker does: leases, and when it heard nothing of one, begins again as after a restart. */
static void worker(struct fix *f, struct life *l, enum op_kind kind)
{
	struct lease got;
	for (int tries = 0; AGAIN(f, l, controller_lease(f->c, &f->node, &got, &f->err)) != 1; tries++) {
		if (tries == TRIES)
			fail_msg("there is nothing to lease");
		AGAIN(f, l, controller_requeue(f->c, &f->node, &f->err));
	}
	assert_int_equal(got.kind, kind);
	assert_string_equal(got.sandbox.id.text, l->sandbox.text);
	struct completion done = { .operation = got.operation, .attempt = got.attempt, .success = true, .image_digest = "sha256:abc" };
	AGAIN(f, l, controller_complete(f->c, &done, &f->err));
	lease_done(&got);
}

static void run_command(struct fix *f, struct life *l, const char *name)
{
	auto_command cmd;
	struct exec_grant g;
	bool seen = true;
	command_init(&cmd);
	strv_add(&cmd.argv, "true");
	for (int key = 0; seen; key++) {
		auto_free char *text = xasprintf("%s-%d", name, key);
		struct exec_request req = { .sandbox = l->sandbox.text, .command = &cmd, .idempotency_key = text };
		AGAIN(f, l, controller_exec_begin_once(f->c, &f->operator, &req, &g, &seen, &f->err));
		if (!seen)
			break;
		/* It was begun and nobody was told: it must end as not started. */
		for (int i = 0; i < TRIES; i++)
			controller_reap(f->c);
		expect_op(f, &g.operation, OP_FAILED, OUTCOME_NOT_STARTED);
	}
	l->exec_op = g.operation;
	struct result result = { .outcome = OUTCOME_EXITED };
	AGAIN(f, l, controller_exec_end(f->c, &g.operation, &result, ERR_NONE, NULL, &f->err));
}

static void end_it(struct fix *f, struct life *l)
{
	auto_operation o;
	operation_init(&o);
	AGAIN(f, l, controller_delete(f->c, &f->operator, l->sandbox.text, &o, &f->err));
	l->delete_op = o.id;
}

static void live(struct fix *f, struct life *l, const char *name)
{
	struct sandbox s;
	sandbox_init(&s);
	make(f, l, name);
	worker(f, l, OPK_CREATE);
	AGAIN(f, l, controller_resolve(f->c, &f->operator, name, &s, &f->err));
	sandbox_done(&s);
	run_command(f, l, name);
	end_it(f, l);
	worker(f, l, OPK_DELETE);
}

static void expect_life(struct fix *f, const struct life *l, int number)
{
	expect_state(f, &l->sandbox, SANDBOX_STOPPED);
	expect_op(f, &l->create_op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_op(f, &l->exec_op, OP_SUCCEEDED, OUTCOME_EXITED);
	expect_op(f, &l->delete_op, OP_SUCCEEDED, OUTCOME_NONE);
	expect_consistent(f);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes"), number);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE kind = 'create'"), number);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE kind = 'delete'"), number);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE kind = 'exec' AND state = 'succeeded'"), number);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM operations WHERE ended_us = 0"), 0);
}

/* *number: of the lives so far. */
static void each_call(struct fix *f, int error, int *number)
{
	int calls = 0, again = 0;
	bool met = true;
	struct id none = { .text = "" };
	for (long n = 1; met && n < ROUNDS_MAX; n++) {
		struct life l = { .sandbox = none };
		char name[32];
		snprintf(name, sizeof(name), "life%d", *number + 1);
		arm(error, n);
		live(f, &l, name);
		met = faults.failed > 0;
		faults.error = 0;
		expect_life(f, &l, ++*number);
		calls += met;
		again += l.again > 0;
	}
	print_message("# %d calls failed in turn by %s; %d made somebody ask again\n", calls, strerror(error), again);
	assert_false(met);
	assert_true(calls > 10 && again > 0);
}

static void integrity(struct fix *f)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *check = NULL;
	if (f->url[0])
		return;
	assert_int_equal(sqlite3_open(f->db, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &check, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(check), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(check, 0), "ok");
	sqlite3_finalize(check);
	sqlite3_close(db);
}

static void every_call_of_the_store_may_fail(void **state)
{
	struct fix *f = *state;
	int number = 0;
	each_call(f, on_pg() ? ECONNRESET : EIO, &number);
	if (!on_pg())
		each_call(f, ENOSPC, &number);
	integrity(f);
	/* What a daemon finds that starts now is the same. */
	close_controller(f);
	open_controller(f);
	beat(f, 1000);
	expect_consistent(f);
	assert_int_equal(query_int(f, "SELECT COUNT(*) FROM sandboxes"), number);
}

/* Opening fails cleanly or works, and works the next time. */
static void every_call_of_opening_may_fail(void **state)
{
	struct fix *f = *state;
	struct life l = { .again = 0 };
	struct error err = ERROR_INIT;
	int opened = 0, refused = 0;
	live(f, &l, "before");
	bool met = true;
	for (long n = 1; met && n < ROUNDS_MAX; n++) {
		close_controller(f);
		arm(on_pg() ? ECONNRESET : EIO, n);
		struct store *s = NULL;
		struct controller *c = NULL;
		int rc = store_open(&(struct store_options){ .path = f->db, .state_dir = f->dir, .url = f->url }, &s, &err);
		if (rc == 0)
			rc = controller_new(&f->config, s, &c, &err);
		met = faults.failed > 0;
		faults.error = 0;
		if (rc == 0) {
			opened++;
			controller_free(c);
		} else {
			refused++;
			assert_true(err.message[0] && err.code != ERR_NONE);
		}
		store_close(s);
		open_controller(f);
		expect_life(f, &l, 1);
	}
	print_message("# opened %d times all the same, refused %d times\n", opened, refused);
	assert_false(met);
	assert_true(refused > 0);
	integrity(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_call_of_the_store_may_fail),
		T(every_call_of_opening_may_fail),
	};
	replace_calls();
	return cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
}
