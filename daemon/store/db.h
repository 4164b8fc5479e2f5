/*
 * The database driver: open, transaction, statement. Thin on purpose; daemon/store/queries.def holds the only SQL, and
 * every driver runs that same text.
 *
 * A transaction owns a connection until it is committed or rolled back. Statements are prepared once per connection and
 * named by their row in the query table; they belong to the transaction and are reset when it ends.
 *
 * Portable SQL: placeholders are $1, $2, … without a gap, each used with one type (SQLite takes `$2` for a name, so
 * `$2::text` would silently be another one: write CAST). What cannot be said in one way is a row of dialect.def.
 */
#ifndef SANDBOX_DAEMON_STORE_DB_H
#define SANDBOX_DAEMON_STORE_DB_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;
struct db_tx;
struct db_stmt;

enum { DB_PARAMS_MAX = 32 };

enum db_dialect { DB_SQLITE, DB_POSTGRES, DB_DIALECTS };

/* Replaces the {words} of dialect.def; the caller frees. */
char *db_dialect_sql(enum db_dialect dialect, const char *sql);

struct db_options {
	const char *path;           /* SQLite: file of the database */
	const char *url;            /* PostgreSQL: a connection string without a password */
	const char *password_file;  /* PostgreSQL: NULL or "": none (PGPASSWORD and ~/.pgpass still count) */
	int connections;            /* PostgreSQL: at most so many at a time; 0: 8 */
	int64_t timeout_ms;         /* PostgreSQL: of one statement, and of waiting for a connection; 0: 5 s */
	const char *const *queries; /* n_queries texts; must outlive the database */
	size_t n_queries;
};

/* Opens or creates the file (mode 0600). ERR_UNAVAILABLE: locked, read-only, full or missing; ERR_SYSTEM: damaged or not
 * ours. The message says which and what to do. */
int db_open_sqlite(const struct db_options *options, struct db **ret, struct error *err);
/* Connects, so that what is wrong shows now. Later losses mend themselves: calls fail with ERR_UNAVAILABLE meanwhile. */
int db_open_pg(const struct db_options *options, struct db **ret, struct error *err);
void db_close(struct db *db);

enum db_mode {
	DB_READ,   /* sees one moment; may not change anything */
	DB_WRITE,  /* committed: survives the death of this process */
	DB_SYNCED, /* committed: survives a power loss too */
	DB_SCHEMA, /* as DB_SYNCED, for changes of the schema, which take as long as the tables are large: a statement may last an hour */
};
/* Waits for a connection. With SQLite writers exclude each other. With PostgreSQL they exclude each other only through the
 * rows they lock or change (store_lock_sandbox), and each statement of a writer sees what is committed when it runs. */
int db_begin(struct db *db, enum db_mode mode, struct db_tx **ret, struct error *err);
/* Since it was opened. */
struct db_stats {
	uint64_t transactions, failures, busy_us;
};
struct db_stats db_stats(const struct db *db);
/* Ends the transaction either way: on failure nothing was changed, unless db_doubtful says that nobody knows. */
int db_commit(struct db_tx *tx, struct error *err);
/* Waits until all that was committed survives a power loss too; not within a transaction. */
int db_flush(struct db *db, struct error *err);
/* The connection was lost while the commit was on its way, or the disk did not take what had been committed. */
bool db_doubtful(const struct error *err);
void db_rollback(struct db_tx *tx);
static inline void db_rollbackp(struct db_tx **tx)
{
	if (*tx)
		db_rollback(*tx);
}
/* Rolled back at scope end unless committed through steal(). */
#define auto_tx __attribute__((cleanup(db_rollbackp))) struct db_tx

/* Several statements without parameters or rows, for migrations. */
int db_script(struct db_tx *tx, const char *sql, struct error *err);

/* The statement of a query, ready to bind; not to be asked for again while its rows are being read. Never NULL: a failure
 * to prepare is reported by db_step. */
struct db_stmt *db_query(struct db_tx *tx, size_t query);
/* Text and bytes are borrowed until the statement is reset; NULL binds null. */
void db_bind_i64(struct db_stmt *s, int n, int64_t value);
void db_bind_text(struct db_stmt *s, int n, const char *value);
void db_bind_bytes(struct db_stmt *s, int n, const void *p, size_t len);
/* 1: a row; 0: no more (the statement is reset); -1: error, ERR_CONFLICT when a unique key is taken. */
int db_step(struct db_stmt *s, struct error *err);
/* For statements without rows. ret_changed: rows inserted, updated or deleted. Without it the statement may run with a later
 * one of the transaction, which then reports its failure. */
int db_run(struct db_stmt *s, int64_t *ret_changed, struct error *err);
/* Stops reading early. */
void db_reset(struct db_stmt *s);

/* Columns of the present row from 0; text and bytes are borrowed until the next step or reset. */
int64_t db_i64(struct db_stmt *s, int column);
const char *db_text(struct db_stmt *s, int column); /* NULL when null */
const void *db_bytes(struct db_stmt *s, int column, size_t *ret_len); /* NULL when null or empty */

#endif
