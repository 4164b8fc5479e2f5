/* The store: driver, schema, failures of the disk, the clock. Each test has its own directory. */
#include "shared/base/slew.h"
#include "daemon/store/internal.h"
#include "daemon/store/store.h"
#include "daemon/store/wal_sync.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct dir {
	char path[128];
	char db[160];
};

static int setup(void **state)
{
	struct dir *d = xcalloc(1, sizeof(*d));
	snprintf(d->path, sizeof(d->path), "%s/sandbox-store-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(d->path));
	snprintf(d->db, sizeof(d->db), "%s/store.db", d->path);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct dir *d = *state;
	assert_int_equal(io_remove_tree(d->path, NULL), 0);
	free(d);
	return 0;
}

static struct store *open_store(const struct dir *d)
{
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	if (store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, &err) != 0)
		fail_msg("store_open: %s", err.message);
	return s;
}

static void refuse_store(const struct dir *d, enum error_code code, const char *text)
{
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, &err), -1);
	if (err.code != code || !strstr(err.message, text))
		fail_msg("code %d, message: %s", (int)err.code, err.message);
}

/* --- the driver --- */

static void queries_are_portable(void **state)
{
	struct dir *d = *state;
	struct store *s = open_store(d);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(store_begin(s, DB_WRITE, &tx, &err), 0);
	for (size_t i = 0; i < QUERY_COUNT; i++) {
		/* A cast by `::` would silently be another parameter, and `?` has no number in the other database. */
		assert_null(strstr(store_queries[i], "::"));
		assert_null(strchr(store_queries[i], '?'));
		struct db_stmt *q = db_query(tx, i);
		for (int n = 1; n <= DB_PARAMS_MAX; n++) {
			char word[8];
			snprintf(word, sizeof(word), "$%d", n);
			if (strstr(store_queries[i], word))
				db_bind_i64(q, n, 0);
		}
		/* Zeros may break a rule of the table; what must not happen is a query that does not compile. */
		if (db_step(q, &err) < 0 && err.code != ERR_CONFLICT)
			fail_msg("%s: %s", store_queries[i], err.message);
		db_reset(q);
	}
	db_rollback(tx);
	store_close(s);
}

static void dialects_differ_only_in_their_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < QUERY_COUNT; i++) {
		for (int k = 0; k < DB_DIALECTS; k++) {
			auto_free char *sql = db_dialect_sql((enum db_dialect)k, store_queries[i]);
			assert_null(strchr(sql, '{'));
		}
	}
	auto_free char *a = db_dialect_sql(DB_SQLITE, "x {bytes}, {ascii} y {take_sandbox}");
	auto_free char *b = db_dialect_sql(DB_POSTGRES, "x {bytes}, {ascii} y {take_sandbox}");
	assert_string_equal(a, "x BLOB, TEXT y ");
	assert_string_equal(b, "x BYTEA, TEXT COLLATE \"C\" y FOR UPDATE OF s SKIP LOCKED");
}

static const char *const odd_queries[] = {
	"SELECT $2, $1, $2",          /* numbered by first appearance in SQLite */
	"SELECT $1, $3",              /* a gap */
	"CREATE TABLE t (a BIGINT NOT NULL PRIMARY KEY, b BLOB)",
	"INSERT INTO t (a, b) VALUES ($1, $2)",
	"SELECT a, b FROM t ORDER BY a",
	"SELECT nonsense FROM nowhere",
};

static void parameters_bind_by_number(void **state)
{
	struct dir *d = *state;
	struct db *db = NULL;
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(db_open_sqlite(&(struct db_options){ .path = d->db, .queries = odd_queries, .n_queries = ARRAY_LEN(odd_queries) },
					&db, &err), 0);
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	struct db_stmt *s = db_query(tx, 0);
	db_bind_text(s, 1, "one");
	db_bind_text(s, 2, "two");
	assert_int_equal(db_step(s, &err), 1);
	assert_string_equal(db_text(s, 0), "two");
	assert_string_equal(db_text(s, 1), "one");
	assert_string_equal(db_text(s, 2), "two");
	db_reset(s);
	assert_int_equal(db_step(db_query(tx, 1), &err), -1);
	assert_non_null(strstr(err.message, "$3"));
	assert_int_equal(db_step(db_query(tx, 5), &err), -1);
	s = db_query(tx, 0);
	db_bind_i64(s, 3, 1);
	assert_int_equal(db_step(s, &err), -1);
	assert_non_null(strstr(err.message, "no placeholder $3"));
	db_rollback(tx);
	db_close(db);
}

enum { FLUSHERS = 4, FLUSHES = 50 };

struct flusher {
	pthread_t thread;
	struct db *db;
	int64_t first;
	int failed;
};

/* Commits and waits for the disk, as many do at once; the lock is free meanwhile. */
static void *write_and_flush(void *arg)
{
	struct flusher *f = arg;
	for (int64_t i = 0; i < FLUSHES; i++) {
		struct db_tx *tx = NULL;
		enum db_mode mode = i % 2 ? DB_SYNCED : DB_WRITE;
		if (db_begin(f->db, mode, &tx, NULL) != 0)
			return NULL;
		struct db_stmt *s = db_query(tx, 3);
		db_bind_i64(s, 1, f->first + i);
		f->failed += db_run(s, NULL, NULL) != 0;
		f->failed += db_commit(tx, NULL) != 0;
		f->failed += mode == DB_WRITE && db_flush(f->db, NULL) != 0;
	}
	return NULL;
}

static void many_wait_for_the_disk_together(void **state)
{
	struct dir *d = *state;
	struct db *db = NULL;
	struct db_tx *tx = NULL;
	struct flusher all[FLUSHERS] = { 0 };
	struct db_options options = { .path = d->db, .queries = odd_queries, .n_queries = ARRAY_LEN(odd_queries) };
	auto_free char *log = xasprintf("%s-wal", d->db);
	assert_int_equal(db_open_sqlite(&options, &db, NULL), 0);
	assert_int_equal(db_flush(db, NULL), 0); /* nothing yet, not even a log */
	assert_int_equal(db_begin(db, DB_WRITE, &tx, NULL), 0);
	assert_int_equal(db_run(db_query(tx, 2), NULL, NULL), 0);
	assert_int_equal(db_commit(tx, NULL), 0);
	for (int i = 0; i < FLUSHERS; i++) {
		all[i].db = db;
		all[i].first = 1000 * (i + 1);
		assert_int_equal(pthread_create(&all[i].thread, NULL, write_and_flush, &all[i]), 0);
	}
	for (int i = 0; i < FLUSHERS; i++) {
		pthread_join(all[i].thread, NULL);
		assert_int_equal(all[i].failed, 0);
	}
	db_close(db);
	assert_int_equal(access(log, F_OK), -1);
}

/* What cannot be synced is said, and nobody knows what is on the disk then. */
static void a_log_that_cannot_be_synced_is_doubtful(void **state)
{
	struct dir *d = *state;
	auto_free char *nowhere = xasprintf("%s/none/log", d->path);
	struct wal_sync *w = wal_sync_new(nowhere);
	struct error err = ERROR_INIT;
	assert_int_equal(wal_sync_wait(w, &err), 0);
	wal_sync_wrote(w);
	assert_int_equal(wal_sync_wait(w, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_true(db_doubtful(&err));
	wal_sync_free(w);
}

static void transactions_are_whole(void **state)
{
	struct dir *d = *state;
	struct db *db = NULL;
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	static const char bytes[] = { 'a', 0, (char)0xff, 'b' };
	struct db_options options = { .path = d->db, .queries = odd_queries, .n_queries = ARRAY_LEN(odd_queries) };
	assert_int_equal(db_open_sqlite(&options, &db, &err), 0);
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	assert_int_equal(db_run(db_query(tx, 2), NULL, &err), 0);
	assert_int_equal(db_commit(tx, &err), 0);

	assert_int_equal(db_begin(db, DB_SYNCED, &tx, &err), 0);
	int64_t changed = 0;
	struct db_stmt *s = db_query(tx, 3);
	db_bind_i64(s, 1, INT64_MAX);
	db_bind_bytes(s, 2, bytes, sizeof(bytes));
	assert_int_equal(db_run(s, &changed, &err), 0);
	assert_int_equal(changed, 1);
	assert_int_equal(db_commit(tx, &err), 0);

	/* The same key again: refused, and nothing of that transaction stays. */
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	s = db_query(tx, 3);
	db_bind_i64(s, 1, 7);
	assert_int_equal(db_run(s, NULL, &err), 0);
	s = db_query(tx, 3);
	db_bind_i64(s, 1, INT64_MAX);
	assert_int_equal(db_run(s, NULL, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_non_null(strstr(err.message, "UNIQUE"));
	assert_null(strstr(err.message, "INSERT")); /* statements are for the log, not for clients */
	db_rollback(tx);

	assert_int_equal(db_begin(db, DB_READ, &tx, &err), 0);
	s = db_query(tx, 4);
	size_t n = 0;
	assert_int_equal(db_step(s, &err), 1);
	assert_true(db_i64(s, 0) == INT64_MAX);
	const void *p = db_bytes(s, 1, &n);
	assert_int_equal(n, sizeof(bytes));
	assert_memory_equal(p, bytes, n);
	assert_int_equal(db_step(db_query(tx, 4), &err), -1); /* its rows are being read */
	assert_int_equal(db_step(db_query(tx, 3), &err), -1);
	assert_non_null(strstr(err.message, "a reader may not run"));
	db_rollback(tx);
	db_close(db);
}

/* --- opening --- */

static void opens_twice_in_a_row(void **state)
{
	struct dir *d = *state;
	struct store *s = open_store(d);
	struct error err = ERROR_INIT;
	assert_int_equal(store_ping(s, &err), 0);
	assert_non_null(strstr(store_describe(s), "schema 9"));
	assert_true(id_valid(store_boot_id(s)));
	store_close(s);
	s = open_store(d);
	store_close(s);
	struct stat st;
	assert_int_equal(stat(d->db, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void one_daemon_per_state_directory(void **state)
{
	struct dir *d = *state;
	struct store *s = open_store(d);
	auto_free char *text = xasprintf("another sandboxd (pid %d) uses %s", (int)getpid(), d->path);
	refuse_store(d, ERR_CONFLICT, text);
	store_close(s);
	store_close(open_store(d));
}

static void the_lock_goes_with_the_process(void **state)
{
	struct dir *d = *state;
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		struct store *s = NULL;
		if (store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, NULL) != 0)
			_exit(1);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	refuse_store(d, ERR_CONFLICT, "another sandboxd (pid ");
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	store_close(open_store(d));
}

/* As when a killed daemon's threads are still busy with the disk: here a child of it holds the lock a little longer. */
static void a_dying_holder_is_waited_for(void **state)
{
	struct dir *d = *state;
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		struct store *s = NULL;
		if (store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, NULL) != 0)
			_exit(1);
		if (fork() == 0) {
			if (write(ready[1], "x", 1) != 1)
				_exit(1);
			usleep(400 * 1000);
			_exit(0);
		}
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(kill(child, SIGKILL), 0);
	store_close(open_store(d));
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void run_sql(const char *path, const char *sql)
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	char *message = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s: %s", sql, message);
	sqlite3_close(db);
}

static void a_newer_schema_is_refused(void **state)
{
	struct dir *d = *state;
	store_close(open_store(d));
	run_sql(d->db, "INSERT INTO migrations (version, name, applied_us) VALUES (9000, 'tomorrow', 1)");
	refuse_store(d, ERR_CONFLICT, "the store has schema 9000 ('tomorrow') and this sandboxd knows 9");
	/* And it is left as it was. */
	run_sql(d->db, "DELETE FROM migrations WHERE version = 9000");
	store_close(open_store(d));
}

static void other_files_are_refused(void **state)
{
	struct dir *d = *state;
	run_sql(d->db, "CREATE TABLE theirs (a)");
	refuse_store(d, ERR_SYSTEM, "is a database of another program");
	static const char text[] = "this is a text file, and not a short one, because SQLite reads its first hundred bytes "
				   "before it decides what it has in front of it.";
	assert_int_equal(io_write_file_atomic(d->db, text, sizeof(text), 0600, false, NULL), 0);
	refuse_store(d, ERR_SYSTEM, "is not a database");
}

static void damage_is_named(void **state)
{
	struct dir *d = *state;
	char junk[4096];
	store_close(open_store(d));
	memset(junk, 0xa5, sizeof(junk));
	int fd = open(d->db, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	/* Behind the first page, so that the header is still ours. */
	for (int i = 1; i < 20; i++)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), i * 4096), sizeof(junk));
	close(fd);
	refuse_store(d, ERR_SYSTEM, "is damaged");
}

static void a_locked_file_is_named(void **state)
{
	struct dir *d = *state;
	store_close(open_store(d));
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(d->db, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
	refuse_store(d, ERR_UNAVAILABLE, "is locked by another program");
	sqlite3_close(db);
	store_close(open_store(d));
}

static void a_missing_folder_is_named(void **state)
{
	struct dir *d = *state;
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	auto_free char *path = xasprintf("%s/no/such/folder.db", d->path);
	assert_int_equal(store_open(&(struct store_options){ .path = path, .state_dir = d->path }, &s, &err), -1);
	assert_non_null(strstr(err.message, path));
	assert_non_null(strstr(err.message, "No such file"));
}

/* A tmpfs of our own, for what needs a full or a read-only file system. */
static void mount_small(const struct dir *d, unsigned long flags, const char *options)
{
	if (mount("none", d->path, "tmpfs", flags, options) != 0) {
		print_message("# skipped: mounting a tmpfs needs root\n");
		skip();
	}
}

static void a_read_only_file_system_is_named(void **state)
{
	struct dir *d = *state;
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	mount_small(d, MS_RDONLY, "size=1m");
	int rc = store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, &err);
	umount2(d->path, MNT_DETACH);
	assert_int_equal(rc, -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.message, "cannot be written"));
}

static int add_event(struct store *s, const char *detail, struct error *err)
{
	struct db_tx *tx = NULL;
	struct id sandbox = id_new();
	struct event e = { .type = "test.event", .tenant = "t", .sandbox = &sandbox, .detail = detail };
	if (store_begin(s, DB_WRITE, &tx, err) != 0)
		return -1;
	if (store_event_add(tx, &e, store_now(s), err) != 0) {
		db_rollback(tx);
		return -1;
	}
	return db_commit(tx, err);
}

static void count_event(void *ctx, const struct event *e, int64_t created_us)
{
	assert_non_null(e->type);
	assert_true(created_us > 0);
	++*(int *)ctx;
}

static int count_events(struct store *s)
{
	struct db_tx *tx = NULL;
	int n = 0;
	assert_int_equal(store_begin(s, DB_READ, &tx, NULL), 0);
	assert_int_equal(store_event_each(tx, "", 1000000, count_event, &n, NULL), 0);
	db_rollback(tx);
	return n;
}

static void a_full_disk_is_named_and_loses_nothing(void **state)
{
	struct dir *d = *state;
	struct error err = ERROR_INIT;
	char detail[8192];
	int written = 0, rc = 0;
	mount_small(d, 0, "size=1m");
	memset(detail, 'x', sizeof(detail) - 1);
	detail[sizeof(detail) - 1] = '\0';
	struct store *s = open_store(d);
	while (written < 1000 && (rc = add_event(s, detail, &err)) == 0)
		written++;
	int kept = count_events(s);
	bool named = err.code == ERR_UNAVAILABLE && strstr(err.message, "is full");
	/* Space again, and it goes on without a restart. */
	assert_int_equal(mount("none", d->path, "tmpfs", MS_REMOUNT, "size=8m"), 0);
	int again = add_event(s, detail, NULL);
	store_close(s);
	umount2(d->path, MNT_DETACH);
	assert_int_equal(rc, -1);
	if (!named)
		fail_msg("message: %s", err.message);
	assert_true(written > 10);
	assert_int_equal(kept, written);
	assert_int_equal(again, 0);
}

/* Whatever a writer was doing when it was killed, what it reported as committed is there, and the file is sound. */
static void killed_writers_leave_a_sound_store(void **state)
{
	struct dir *d = *state;
	int told = 0;
	store_close(open_store(d));
	for (int round = 0; round < 20; round++) {
		int pipes[2];
		char buf[4096];
		ssize_t n;
		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		pid_t child = fork();
		if (child == 0) {
			struct store *s = NULL;
			if (store_open(&(struct store_options){ .path = d->db, .state_dir = d->path }, &s, NULL) != 0)
				_exit(1);
			while (add_event(s, "x", NULL) == 0)
				if (write(pipes[1], "x", 1) != 1)
					break;
			_exit(1);
		}
		close(pipes[1]);
		usleep((useconds_t)(5000 + round * 1300));
		assert_int_equal(kill(child, SIGKILL), 0);
		while ((n = read(pipes[0], buf, sizeof(buf))) > 0)
			told += (int)n;
		close(pipes[0]);
		assert_int_equal(waitpid(child, NULL, 0), child);
		struct store *s = open_store(d);
		int kept = count_events(s);
		store_close(s);
		/* One more than told: killed between the commit and the telling. */
		assert_in_range(kept, told, told + round + 1);
	}
	assert_true(told > 0);
	sqlite3 *db = NULL;
	sqlite3_stmt *check = NULL;
	assert_int_equal(sqlite3_open(d->db, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &check, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(check), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(check, 0), "ok");
	sqlite3_finalize(check);
	sqlite3_close(db);
}

/* --- the clock --- */

enum { SECOND = 1000000 };

static void time_follows_the_wall_slowly(void **state)
{
	(void)state;
	static const int64_t steps[] = { 0, 7200LL * SECOND, -7200LL * SECOND };
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct slew_clock c;
		int64_t boot = 50 * SECOND, wall = 1700000000LL * SECOND, last = 0;
		slew_clock_start(&c, boot, wall);
		/* Ten minutes in odd steps after the wall clock has jumped. */
		for (int64_t t = 0; t < 600LL * SECOND; t += 77777) {
			int64_t now = slew_clock_read(&c, boot + t, wall + steps[i] + t);
			assert_true(now >= last);
			assert_in_range(now, wall + t - t / CLOCK_SLEW - 1, wall + t + t / CLOCK_SLEW + 1);
			last = now;
		}
	}
}

static void small_corrections_are_followed(void **state)
{
	(void)state;
	struct slew_clock c;
	int64_t boot = SECOND, wall = 1700000000LL * SECOND, now = 0;
	slew_clock_start(&c, boot, wall);
	/* The wall clock runs 200 ppm fast, as under a time daemon's care; readings come as fast as they like. */
	for (int64_t t = 0; t < 100LL * SECOND; t += 333)
		now = slew_clock_read(&c, boot + t, wall + t + t / 5000);
	assert_in_range(now, wall + 100LL * SECOND + 100 * SECOND / 5000 - 1000, wall + 100LL * SECOND + 100 * SECOND / 5000 + 1000);
}

static void time_never_runs_backward(void **state)
{
	(void)state;
	struct slew_clock c;
	int64_t last = 0;
	slew_clock_start(&c, 0, 1000 * SECOND);
	for (int64_t t = 0; t < 100000; t++) {
		int64_t now = slew_clock_read(&c, t, t % 2 ? 0 : 2000LL * SECOND);
		assert_true(now >= last);
		last = now;
	}
}

static void the_store_tells_wall_time(void **state)
{
	struct dir *d = *state;
	struct store *s = open_store(d);
	int64_t wall = clock_wall_us();
	assert_in_range(store_now(s), wall - SECOND, wall + SECOND);
	assert_in_range(store_wall(s, store_now(s) + 5 * SECOND), wall + 4 * SECOND, wall + 6 * SECOND);
	store_close(s);
}

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(queries_are_portable),
		STORE_TEST(dialects_differ_only_in_their_words),
		STORE_TEST(parameters_bind_by_number),
		STORE_TEST(transactions_are_whole),
		STORE_TEST(many_wait_for_the_disk_together),
		STORE_TEST(a_log_that_cannot_be_synced_is_doubtful),
		STORE_TEST(opens_twice_in_a_row),
		STORE_TEST(one_daemon_per_state_directory),
		STORE_TEST(the_lock_goes_with_the_process),
		STORE_TEST(a_dying_holder_is_waited_for),
		STORE_TEST(a_newer_schema_is_refused),
		STORE_TEST(other_files_are_refused),
		STORE_TEST(damage_is_named),
		STORE_TEST(a_locked_file_is_named),
		STORE_TEST(a_missing_folder_is_named),
		STORE_TEST(a_read_only_file_system_is_named),
		STORE_TEST(a_full_disk_is_named_and_loses_nothing),
		STORE_TEST(killed_writers_leave_a_sound_store),
		STORE_TEST(time_follows_the_wall_slowly),
		STORE_TEST(small_corrections_are_followed),
		STORE_TEST(time_never_runs_backward),
		STORE_TEST(the_store_tells_wall_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
