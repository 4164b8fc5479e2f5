/*
 * The driver on SQLite: one connection in WAL mode behind a mutex. (Several connections with a busy time-out have a worse
 * p99 than one with a lock, and one connection keeps one statement cache.) Readers hold the mutex too, for microseconds.
 */
#include "daemon/store/db_driver.h"
#include "daemon/store/internal.h"
#include "daemon/store/wal_sync.h"

#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BUSY_MS = 5000,
	WAL_PAGES = 4000,            /* a checkpoint each 16 MiB: it costs a sync, which nobody should wait for often */
	WAL_KEEP_BYTES = 32 * 1024 * 1024,
	CACHE_KIB = 1024,
};

struct lite_stmt {
	struct db_stmt base;
	struct lite *db;
	struct lite_stmt *next_active;
	sqlite3_stmt *handle;
	int slot[DB_PARAMS_MAX + 1]; /* $N → SQLite's number, by first appearance in the text */
	int params;
	struct error failed;         /* of preparing or binding; reported by the next step */
	bool active;
};

struct lite_tx {
	struct db_tx base;
	struct lite *db;
	enum db_mode mode;
	struct lite_stmt *active;
};

struct lite {
	struct db base;
	sqlite3 *handle;
	char *path;
	struct db_options options;
	struct lite_stmt *stmts;
	struct lite_tx tx;
	pthread_mutex_t lock;
	struct wal_sync *log;
};

static const struct db_ops lite_ops;

/* --- errors --- */

static int fail_full(struct lite *db, struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "the disk that holds %s is full: free some space and try again", db->path);
}

/* One clear line for what SQLite reports. What was tried (a statement's text) is for the log alone. */
static int fail(struct lite *db, int rc, const char *doing, struct error *err)
{
	int sys = db->handle ? sqlite3_system_errno(db->handle) : 0;
	const char *path = db->path;

	switch (rc & 0xff) {
	case SQLITE_FULL:
		return fail_full(db, err);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return error_set(err, ERR_UNAVAILABLE, "%s is locked by another program: close it and try again", path);
	case SQLITE_READONLY:
		return error_set(err, ERR_UNAVAILABLE, "%s cannot be written: it, its folder or its file system is read-only", path);
	case SQLITE_CORRUPT:
		return error_set(err, ERR_SYSTEM, "%s is damaged (%s): restore a copy, or move it away to start empty", path,
				 sqlite3_errmsg(db->handle));
	case SQLITE_NOTADB:
		return error_set(err, ERR_SYSTEM, "%s is not a database: move it away, or set store.path to another file", path);
	case SQLITE_CONSTRAINT:
		log_error("store", "%s: %s", sqlite3_errmsg(db->handle), doing);
		return error_set(err, ERR_CONFLICT, "the store refused a record: %s", sqlite3_errmsg(db->handle));
	case SQLITE_CANTOPEN:
		return error_set(err, ERR_UNAVAILABLE, "%s cannot be opened: %s", path, sys ? strerror(sys) : "no such folder");
	case SQLITE_IOERR:
		if (sys == ENOSPC || sys == EDQUOT)
			return fail_full(db, err);
		return error_set(err, ERR_SYSTEM, "%s: %s: %s", path, sqlite3_errstr(rc), sys ? strerror(sys) : "unknown cause");
	}
	log_error("store", "%s: %s", sqlite3_errmsg(db->handle), doing);
	return error_set(err, ERR_INTERNAL, "the store %s failed: %s", path, sqlite3_errmsg(db->handle));
}

static int exec(struct lite *db, const char *sql, struct error *err)
{
	int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
	return rc == SQLITE_OK ? 0 : fail(db, rc, sql, err);
}

/* --- opening --- */

static int read_pragma(struct lite *db, const char *sql, int64_t *ret, struct error *err)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return rc == SQLITE_ROW ? 0 : fail(db, rc, sql, err);
}

/* A file with tables that does not carry our mark belongs to someone else. */
static int claim_file(struct lite *db, struct error *err)
{
	int64_t mark = 0, tables = 0;
	if (read_pragma(db, "PRAGMA application_id", &mark, err) != 0 ||
	    read_pragma(db, "SELECT COUNT(*) FROM sqlite_master", &tables, err) != 0)
		return -1;
	if (mark == STORE_APPLICATION_ID)
		return 0;
	if (mark != 0 || tables != 0)
		return error_set(err, ERR_SYSTEM, "%s is a database of another program: set store.path to another file", db->path);
	char sql[64];
	snprintf(sql, sizeof(sql), "PRAGMA application_id=%d", STORE_APPLICATION_ID);
	return exec(db, sql, err);
}

static int configure(struct lite *db, struct error *err)
{
	char sql[256];
	sqlite3_extended_result_codes(db->handle, 1);
	sqlite3_busy_timeout(db->handle, BUSY_MS);
	snprintf(sql, sizeof(sql),
		 "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-%d;"
		 "PRAGMA wal_autocheckpoint=%d; PRAGMA journal_size_limit=%d",
		 CACHE_KIB, WAL_PAGES, WAL_KEEP_BYTES);
	return claim_file(db, err) == 0 && exec(db, sql, err) == 0 ? 0 : -1;
}

/* SQLite would create the file with the umask's mode; its -wal and -shm follow the file's. */
static int create_file(const char *path, struct error *err)
{
	auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		return 0;
	if (errno == EROFS || errno == EACCES || errno == EPERM)
		return error_set(err, ERR_UNAVAILABLE, "%s cannot be written: %s", path, strerror(errno));
	if (errno == ENOSPC || errno == EDQUOT)
		return error_set(err, ERR_UNAVAILABLE, "the disk that holds %s is full: free some space and try again", path);
	return error_errno(err, "opening the store %s", path);
}

int db_open_sqlite(const struct db_options *options, struct db **ret, struct error *err)
{
	if (create_file(options->path, err) != 0)
		return -1;
	struct lite *db = xcalloc(1, sizeof(*db));
	db->base.ops = &lite_ops;
	db->path = xstrdup(options->path);
	auto_free char *log = xasprintf("%s-wal", options->path);
	db->log = wal_sync_new(log);
	db->options = *options;
	db->stmts = xcalloc(options->n_queries, sizeof(*db->stmts));
	pthread_mutex_init(&db->lock, NULL);
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
	int rc = sqlite3_open_v2(db->path, &db->handle, flags, NULL);
	if (rc != SQLITE_OK)
		fail(db, rc, "opening", err);
	if (rc != SQLITE_OK || configure(db, err) != 0) {
		db_close(&db->base);
		return -1;
	}
	*ret = &db->base;
	return 0;
}

static void lite_close(struct db *base)
{
	struct lite *db = (struct lite *)base;
	for (size_t i = 0; i < db->options.n_queries; i++)
		sqlite3_finalize(db->stmts[i].handle);
	sqlite3_close(db->handle);
	wal_sync_free(db->log);
	pthread_mutex_destroy(&db->lock);
	free(db->stmts);
	free(db->path);
	free(db);
}

/* --- transactions --- */

static int lite_begin(struct db *base, enum db_mode mode, struct db_tx **ret, struct error *err)
{
	struct lite *db = (struct lite *)base;
	pthread_mutex_lock(&db->lock);
	if (mode != DB_READ && exec(db, "BEGIN IMMEDIATE", err) != 0) {
		pthread_mutex_unlock(&db->lock);
		return -1;
	}
	db->tx = (struct lite_tx){ .base.ops = &lite_ops, .db = db, .mode = mode };
	*ret = &db->tx.base;
	return 0;
}

static void end(struct lite_tx *tx)
{
	struct lite *db = tx->db;
	while (tx->active)
		db_reset(&tx->active->base);
	/* A failed COMMIT may leave the transaction open. */
	if (!sqlite3_get_autocommit(db->handle))
		sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
	pthread_mutex_unlock(&db->lock);
}

static int lite_commit(struct db_tx *base, struct error *err)
{
	struct lite_tx *tx = (struct lite_tx *)base;
	struct lite *db = tx->db;
	enum db_mode mode = tx->mode;
	while (tx->active)
		db_reset(&tx->active->base);
	int rc = mode == DB_READ ? 0 : exec(db, "COMMIT", err);
	if (rc == 0 && mode != DB_READ)
		wal_sync_wrote(db->log);
	end(tx); /* from here on tx is another's */
	return rc == 0 && (mode == DB_SYNCED || mode == DB_SCHEMA) ? wal_sync_wait(db->log, err) : rc;
}

static int lite_flush(struct db *base, struct error *err)
{
	return wal_sync_wait(((struct lite *)base)->log, err);
}

static void lite_rollback(struct db_tx *base)
{
	struct lite_tx *tx = (struct lite_tx *)base;
	end(tx);
}

static int lite_script(struct db_tx *base, const char *sql, struct error *err)
{
	struct lite_tx *tx = (struct lite_tx *)base;
	auto_free char *text = db_dialect_sql(DB_SQLITE, sql);
	return exec(tx->db, text, err);
}

/* --- statements --- */

/* SQLite numbers the names $1, $2 in the order in which it meets them; a gap would bind the wrong value somewhere else. */
static int map_parameters(struct lite_stmt *s, const char *sql, struct error *err)
{
	s->params = sqlite3_bind_parameter_count(s->handle);
	for (int i = 1; i <= s->params; i++) {
		const char *name = sqlite3_bind_parameter_name(s->handle, i);
		char *rest = NULL;
		long n = name && name[0] == '$' ? strtol(name + 1, &rest, 10) : 0;
		if (n < 1 || n > s->params || n > DB_PARAMS_MAX || *rest)
			return error_set(err, ERR_INTERNAL, "placeholder %s is not one of $1 to $%d in: %s", name ? name : "?",
					 s->params, sql);
		s->slot[n] = i;
	}
	return 0;
}

static int prepare(struct lite_stmt *s, const char *query, struct error *err)
{
	auto_free char *sql = db_dialect_sql(DB_SQLITE, query);
	int rc = sqlite3_prepare_v3(s->db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->handle, NULL);
	if (rc != SQLITE_OK)
		return fail(s->db, rc, sql, err);
	if (map_parameters(s, sql, err) == 0)
		return 0;
	sqlite3_finalize(s->handle);
	s->handle = NULL;
	return -1;
}

static struct db_stmt *lite_query(struct db_tx *base, size_t query)
{
	struct lite_tx *tx = (struct lite_tx *)base;
	struct lite *db = tx->db;
	struct lite_stmt *s = &db->stmts[query];
	const char *sql = db->options.queries[query];
	if (s->active) {
		/* Asking again while its rows are read would bind into a running statement. */
		error_set(&s->failed, ERR_INTERNAL, "asked for a second time while being read: %s", sql);
		return &s->base;
	}
	s->base.ops = &lite_ops;
	s->db = db;
	s->failed.code = ERR_NONE;
	if (s->handle || prepare(s, sql, &s->failed) == 0)
		if (tx->mode == DB_READ && !sqlite3_stmt_readonly(s->handle))
			error_set(&s->failed, ERR_INTERNAL, "a reader may not run: %s", sql);
	s->active = true;
	s->next_active = tx->active;
	tx->active = s;
	return &s->base;
}

/* 0 when the statement is already unusable. */
static int slot(struct lite_stmt *s, int n)
{
	if (s->failed.code != ERR_NONE)
		return 0;
	if (n >= 1 && n <= s->params)
		return s->slot[n];
	error_set(&s->failed, ERR_INTERNAL, "no placeholder $%d in: %s", n, sqlite3_sql(s->handle));
	return 0;
}

static void note_bind(struct lite_stmt *s, int rc)
{
	if (rc != SQLITE_OK && s->failed.code == ERR_NONE)
		fail(s->db, rc, "binding", &s->failed);
}

static void lite_bind_i64(struct db_stmt *base, int n, int64_t value)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	int i = slot(s, n);
	if (i)
		note_bind(s, sqlite3_bind_int64(s->handle, i, value));
}

static void lite_bind_text(struct db_stmt *base, int n, const char *value)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	int i = slot(s, n);
	if (i && value)
		note_bind(s, sqlite3_bind_text(s->handle, i, value, -1, SQLITE_STATIC));
}

static void lite_bind_bytes(struct db_stmt *base, int n, const void *p, size_t len)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	int i = slot(s, n);
	if (i && p)
		note_bind(s, sqlite3_bind_blob64(s->handle, i, p, len, SQLITE_STATIC));
}

static int lite_step(struct db_stmt *base, struct error *err)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	int rc = s->failed.code == ERR_NONE ? sqlite3_step(s->handle) : SQLITE_ERROR;
	if (rc == SQLITE_ROW)
		return 1;
	int result = 0;
	if (s->failed.code != ERR_NONE) {
		if (err)
			*err = s->failed;
		result = -1;
	} else if (rc != SQLITE_DONE) {
		result = fail(s->db, rc, sqlite3_sql(s->handle), err);
	}
	db_reset(base);
	return result;
}

static int lite_run(struct db_stmt *base, int64_t *ret_changed, struct error *err)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	struct lite *db = s->db;
	int rc = lite_step(base, err);
	if (rc > 0) {
		db_reset(base);
		return error_set(err, ERR_INTERNAL, "rows where none were expected");
	}
	if (rc == 0 && ret_changed)
		*ret_changed = sqlite3_changes(db->handle);
	return rc;
}

static void lite_reset(struct db_stmt *base)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	if (!s->active)
		return;
	for (struct lite_stmt **p = &s->db->tx.active; *p; p = &(*p)->next_active) {
		if (*p == s) {
			*p = s->next_active;
			break;
		}
	}
	s->active = false;
	if (s->handle) {
		sqlite3_reset(s->handle);
		sqlite3_clear_bindings(s->handle);
	}
}

/* --- columns --- */

static int64_t lite_i64(struct db_stmt *base, int column)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	return sqlite3_column_int64(s->handle, column);
}

static const char *lite_text(struct db_stmt *base, int column)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	return (const char *)sqlite3_column_text(s->handle, column);
}

static const void *lite_bytes(struct db_stmt *base, int column, size_t *ret_len)
{
	struct lite_stmt *s = (struct lite_stmt *)base;
	const void *p = sqlite3_column_blob(s->handle, column);
	*ret_len = (size_t)sqlite3_column_bytes(s->handle, column);
	return p;
}

static const struct db_ops lite_ops = {
	.close = lite_close, .begin = lite_begin, .commit = lite_commit, .flush = lite_flush, .rollback = lite_rollback, .script = lite_script,
	.query = lite_query, .bind_i64 = lite_bind_i64, .bind_text = lite_bind_text, .bind_bytes = lite_bind_bytes,
	.step = lite_step, .run = lite_run, .reset = lite_reset, .i64 = lite_i64, .text = lite_text, .bytes = lite_bytes,
};
