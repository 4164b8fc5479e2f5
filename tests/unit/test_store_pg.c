/* The driver on PostgreSQL: the same queries, what is refused, losses of the connection. Each test has its own schema. */
#include "daemon/store/internal.h"
#include "daemon/store/store.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "tests/unit/pg_world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

struct world {
	char url[256];
};

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	*state = w;
	if (pg_server())
		pg_schema_new(w->url, sizeof(w->url));
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	if (w->url[0])
		pg_schema_drop(w->url);
	free(w);
	return 0;
}

static void need_pg(void)
{
	if (!pg_server()) {
		print_message("# no PostgreSQL: run below tests/lib/with-postgres\n");
		skip();
	}
}

static struct store *open_store(const struct world *w)
{
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	if (store_open(&(struct store_options){ .url = w->url, .timeout_ms = 10 * 1000 }, &s, &err) != 0)
		fail_msg("store_open: %s", err.message);
	return s;
}

static void refuse(const char *url, const char *password_file, enum error_code code, const char *text)
{
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	int64_t start = clock_mono_ms();
	assert_int_equal(store_open(&(struct store_options){ .url = url, .password_file = password_file, .timeout_ms = 300 }, &s, &err), -1);
	if (err.code != code || !strstr(err.message, text))
		fail_msg("code %s, message: %s", error_wire(err.code), err.message);
	assert_null(strstr(err.message, "hunter2"));
	assert_true(clock_mono_ms() - start < 8000);
}

/* --- the same queries --- */

static void every_query_compiles(void **state)
{
	need_pg();
	struct world *w = *state;
	store_close(open_store(w));
	PGconn *c = PQconnectdb(w->url);
	for (size_t i = 0; i < QUERY_COUNT; i++) {
		auto_free char *sql = db_dialect_sql(DB_POSTGRES, store_queries[i]);
		PGresult *r = PQprepare(c, "", sql, 0, NULL);
		if (PQresultStatus(r) != PGRES_COMMAND_OK)
			fail_msg("%s: %s", sql, PQerrorMessage(c));
		PQclear(r);
	}
	PQfinish(c);
}

static const char *const own_queries[] = {
	"SELECT $2, $1, $2",
	"INSERT INTO t (a, b, c) VALUES ($1, $2, $3)",
	"SELECT a, b, c FROM t ORDER BY a",
	"SELECT nonsense FROM nowhere",
	"UPDATE t SET a = a + 100 WHERE a < $1",
	"SELECT COUNT(*) FROM t",
	"SELECT COUNT(*) FROM (SELECT pg_sleep(10)) s",
	"SELECT pg_backend_pid()",
};
enum own { ECHO, INSERT, ALL, BROKEN, BUMP, COUNT, SLOW, PID };

static struct db *open_own(const struct world *w)
{
	struct db *db = NULL;
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	struct db_options o = { .url = w->url, .queries = own_queries, .n_queries = ARRAY_LEN(own_queries), .timeout_ms = 500, .connections = 3 };
	if (db_open_pg(&o, &db, &err) != 0 || db_begin(db, DB_WRITE, &tx, &err) != 0 ||
	    db_script(tx, "CREATE TABLE t (a BIGINT NOT NULL PRIMARY KEY, b {bytes}, c TEXT); CREATE INDEX t_c ON t (c)", &err) != 0 ||
	    db_commit(tx, &err) != 0)
		fail_msg("%s", err.message);
	return db;
}

static int insert(struct db_tx *tx, int64_t a, const void *b, size_t n, const char *c, struct error *err)
{
	struct db_stmt *s = db_query(tx, INSERT);
	db_bind_i64(s, 1, a);
	db_bind_bytes(s, 2, b, n);
	db_bind_text(s, 3, c);
	return db_run(s, NULL, err);
}

static int64_t count(struct db *db)
{
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	int64_t n = -1;
	if (db_begin(db, DB_READ, &tx, &err) != 0)
		return -1;
	struct db_stmt *s = db_query(tx, COUNT);
	if (db_step(s, &err) == 1)
		n = db_i64(s, 0);
	db_rollback(tx);
	return n;
}

static void values_come_back_as_they_went(void **state)
{
	need_pg();
	struct db *db = open_own(*state);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	size_t n = 0;
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	assert_int_equal(insert(tx, INT64_MIN, "\0\xff", 2, "größe", &err), 0);
	assert_int_equal(insert(tx, INT64_MAX, NULL, 0, NULL, &err), 0);
	assert_int_equal(insert(tx, 7, "x", 1, "bad \xff byte", &err), 0);
	struct db_stmt *s = db_query(tx, ALL);
	assert_int_equal(db_step(s, &err), 1);
	assert_true(db_i64(s, 0) == INT64_MIN);
	assert_memory_equal(db_bytes(s, 1, &n), "\0\xff", 2);
	assert_int_equal(n, 2);
	assert_string_equal(db_text(s, 2), "größe");
	assert_int_equal(db_step(s, &err), 1);
	assert_string_equal(db_text(s, 2), "bad ? byte");
	assert_int_equal(db_step(s, &err), 1);
	assert_true(db_i64(s, 0) == INT64_MAX);
	assert_null(db_bytes(s, 1, &n));
	assert_null(db_text(s, 2));
	assert_int_equal(db_step(s, &err), 0);
	s = db_query(tx, ECHO);
	db_bind_text(s, 1, "one");
	db_bind_text(s, 2, "two");
	assert_int_equal(db_step(s, &err), 1);
	assert_string_equal(db_text(s, 0), "two");
	assert_string_equal(db_text(s, 1), "one");
	assert_int_equal(db_commit(tx, &err), 0);
	assert_int_equal(count(db), 3);
	db_close(db);
}

static void late_failures_undo_everything(void **state)
{
	need_pg();
	struct db *db = open_own(*state);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	int64_t changed = 0;
	/* The second insert is sent with the commit, which reports what became of it. */
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	assert_int_equal(insert(tx, 1, NULL, 0, "a", &err), 0);
	assert_int_equal(insert(tx, 1, NULL, 0, "b", &err), 0);
	assert_int_equal(db_commit(tx, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_false(db_doubtful(&err));
	assert_int_equal(count(db), 0);
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	assert_int_equal(insert(tx, 1, NULL, 0, "a", &err), 0);
	assert_int_equal(db_step(db_query(tx, BROKEN), &err), -1);
	assert_int_equal(err.code, ERR_INTERNAL);
	assert_int_equal(db_commit(tx, &err), -1);
	assert_int_equal(count(db), 0);
	/* More than one pipeline takes. */
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(insert(tx, i, "xyz", 3, "c", &err), 0);
	struct db_stmt *s = db_query(tx, BUMP);
	db_bind_i64(s, 1, 10);
	assert_int_equal(db_run(s, &changed, &err), -1); /* 100 … 109 are there */
	assert_int_equal(err.code, ERR_CONFLICT);
	db_rollback(tx);
	assert_int_equal(count(db), 0);
	db_close(db);
}

static void readers_may_not_write(void **state)
{
	need_pg();
	struct db *db = open_own(*state);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	int64_t changed;
	assert_int_equal(db_begin(db, DB_READ, &tx, &err), 0);
	struct db_stmt *s = db_query(tx, BUMP);
	db_bind_i64(s, 1, 10);
	assert_int_equal(db_run(s, &changed, &err), -1);
	db_rollback(tx);
	db_close(db);
}

/* --- what is refused --- */

static void schemas_of_other_versions(void **state)
{
	need_pg();
	struct world *w = *state;
	store_close(open_store(w));
	pg_run(w->url, "INSERT INTO migrations (version, name, applied_us) VALUES (9000, 'tomorrow', 1)");
	refuse(w->url, NULL, ERR_CONFLICT, "the store has schema 9000 ('tomorrow')");
	pg_run(w->url, "DELETE FROM migrations WHERE version = 9000");
	store_close(open_store(w));
}

static void *open_at_once(void *arg)
{
	store_close(open_store(arg));
	return NULL;
}

static void many_that_start_at_once_migrate_once(void **state)
{
	need_pg();
	struct world *w = *state;
	pthread_t t[6];
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, open_at_once, w), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		pthread_join(t[i], NULL);
	auto_free char *n = pg_ask(w->url, "SELECT COUNT(*) FROM migrations WHERE version = 1");
	assert_string_equal(n, "1");
}

static void *hold_the_schema(void *arg)
{
	const struct world *w = arg;
	pg_run(w->url, "BEGIN; SELECT pg_advisory_xact_lock(73083403, hashtext(current_schema())); SELECT pg_sleep(1.5); COMMIT");
	return NULL;
}

/* Another daemon's migration, or this one's, may take longer than any other statement may. */
static void a_change_of_the_schema_takes_its_time(void **state)
{
	need_pg();
	struct world *w = *state;
	pthread_t t;
	struct store *s = NULL;
	struct error err = ERROR_INIT;
	int64_t start = clock_mono_ms();
	assert_int_equal(pthread_create(&t, NULL, hold_the_schema, w), 0);
	for (bool held = false; !held;) {
		auto_free char *n = pg_ask(w->url, "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 73083403");
		held = strcmp(n, "0") != 0;
		assert_true(clock_mono_ms() - start < 20 * 1000);
	}
	if (store_open(&(struct store_options){ .url = w->url, .timeout_ms = 500 }, &s, &err) != 0)
		fail_msg("store_open: %s", err.message);
	pthread_join(t, NULL);
	assert_true(clock_mono_ms() - start >= 1200);
	store_close(s);
}

/* As on a standby: nothing may be written, whatever a session asks for. */
static void a_read_only_database(void **state)
{
	need_pg();
	struct world *w = *state;
	struct store *s = open_store(w);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	struct id event = id_new();
	pg_run(w->url, "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS "
		       "$$ BEGIN RAISE EXCEPTION 'cannot execute INSERT in a read-only transaction' USING ERRCODE = '25006'; END $$; "
		       "CREATE TRIGGER stop BEFORE INSERT ON marks EXECUTE FUNCTION stop()");
	assert_int_equal(store_begin(s, DB_WRITE, &tx, &err), 0);
	assert_int_equal(store_mark_put(tx, "x", &event, 1, &err), 0);
	assert_int_equal(db_commit(tx, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.message, "is read-only (a standby?)"));
	assert_int_equal(store_ping(s, &err), 0);
	store_close(s);
}

static void connections_that_cannot_be_made(void **state)
{
	need_pg();
	(void)state;
	char path[] = "/tmp/sandbox-password-XXXXXX";
	refuse("host=/nonexistent user=x dbname=y", NULL, ERR_UNAVAILABLE, "cannot connect to the database /nonexistent/y");
	refuse("postgresql://u:hunter2@localhost/x", NULL, ERR_INVALID, "must not hold a password");
	refuse("this is = = not one hunter2", NULL, ERR_INVALID, "store.url is not a connection string");
	refuse(pg_server(), "/nonexistent/hunter", ERR_NOT_FOUND, "store.password_file");
	int fd = mkstemp(path);
	assert_int_equal(write(fd, "hunter2\n", 8), 8);
	assert_int_equal(fchmod(fd, 0644), 0);
	close(fd);
	refuse(pg_server(), path, ERR_INVALID, "everybody may read");
	unlink(path);
	auto_free char *url = xasprintf("%s dbname=nowhere", pg_server());
	refuse(url, NULL, ERR_UNAVAILABLE, "does not exist");
}

/* --- losses --- */

static void kill_backends(const struct world *w)
{
	(void)w;
	pg_run(pg_server(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sandboxd'");
}

static void idle_connections_that_died_are_replaced(void **state)
{
	need_pg();
	struct world *w = *state;
	struct db *db = open_own(w);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	for (int i = 0; i < 20; i++) {
		kill_backends(w);
		assert_int_equal(count(db), i);
		kill_backends(w);
		assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
		struct db_stmt *s = db_query(tx, BUMP);
		int64_t changed = -1;
		db_bind_i64(s, 1, -1000);
		if (db_run(s, &changed, &err) != 0)
			fail_msg("round %d: %s", i, err.message);
		assert_int_equal(insert(tx, i, NULL, 0, NULL, &err), 0);
		assert_int_equal(db_commit(tx, &err), 0);
	}
	db_close(db);
}

static void a_transaction_that_loses_its_connection_fails(void **state)
{
	need_pg();
	struct world *w = *state;
	struct db *db = open_own(w);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	assert_int_equal(db_begin(db, DB_WRITE, &tx, &err), 0);
	assert_int_equal(insert(tx, 1, NULL, 0, NULL, &err), 0);
	assert_int_equal(db_step(db_query(tx, COUNT), &err), 1);
	kill_backends(w);
	assert_int_equal(insert(tx, 2, NULL, 0, NULL, &err), 0);
	assert_int_equal(db_commit(tx, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_int_equal(count(db), 0);
	db_close(db);
}

static void slow_statements_end(void **state)
{
	need_pg();
	struct db *db = open_own(*state);
	struct db_tx *tx = NULL;
	struct error err = ERROR_INIT;
	int64_t start = clock_mono_ms();
	assert_int_equal(db_begin(db, DB_READ, &tx, &err), 0);
	assert_int_equal(db_step(db_query(tx, SLOW), &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.message, "too slow"));
	assert_true(clock_mono_ms() - start < 5000);
	db_rollback(tx);
	assert_int_equal(count(db), 0);
	db_close(db);
}

static void busy_pools_say_so(void **state)
{
	need_pg();
	struct db *db = open_own(*state);
	struct db_tx *tx[4];
	struct error err = ERROR_INIT;
	for (int i = 0; i < 3; i++)
		assert_int_equal(db_begin(db, DB_READ, &tx[i], &err), 0);
	assert_int_equal(db_begin(db, DB_READ, &tx[3], &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.message, "all 3 connections"));
	db_rollback(tx[0]);
	assert_int_equal(db_begin(db, DB_READ, &tx[3], &err), 0);
	for (int i = 1; i < 4; i++)
		db_rollback(tx[i]);
	db_close(db);
}

static int open_descriptors(void)
{
	auto_dir DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(d))
		n++;
	return n;
}

struct user {
	struct db *db;
	atomic_bool *stop;
	int good, bad;
};

static void *use(void *arg)
{
	struct user *u = arg;
	while (!atomic_load(u->stop)) {
		if (count(u->db) >= 0)
			u->good++;
		else
			u->bad++;
	}
	return NULL;
}

static void twenty_users_over_losses(void **state)
{
	need_pg();
	struct world *w = *state;
	struct db *db = open_own(w);
	atomic_bool stop = false;
	struct user users[20];
	pthread_t t[ARRAY_LEN(users)];
	int good = 0, before = open_descriptors();
	for (size_t i = 0; i < ARRAY_LEN(users); i++) {
		users[i] = (struct user){ .db = db, .stop = &stop };
		assert_int_equal(pthread_create(&t[i], NULL, use, &users[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		usleep(60 * 1000);
		kill_backends(w);
	}
	atomic_store(&stop, true);
	for (size_t i = 0; i < ARRAY_LEN(users); i++) {
		pthread_join(t[i], NULL);
		good += users[i].good;
	}
	assert_true(good > 50);
	for (int i = 0; i < 100 && count(db) < 0; i++)
		usleep(50 * 1000);
	assert_int_equal(count(db), 0);
	assert_true(open_descriptors() <= before + 3);
	db_close(db);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_query_compiles), T(values_come_back_as_they_went), T(late_failures_undo_everything), T(readers_may_not_write),
		T(schemas_of_other_versions), T(many_that_start_at_once_migrate_once), T(a_change_of_the_schema_takes_its_time),
		T(a_read_only_database), T(connections_that_cannot_be_made),
		T(idle_connections_that_died_are_replaced), T(a_transaction_that_loses_its_connection_fails), T(slow_statements_end),
		T(busy_pools_say_so), T(twenty_users_over_losses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
