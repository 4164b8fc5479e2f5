/*
 * Between db.c and the drivers: what a driver implements. Its own structs begin with these. The functions are those of
 * db.h, called after the same checks; see the contracts there.
 */
#ifndef SANDBOX_DAEMON_STORE_DB_DRIVER_H
#define SANDBOX_DAEMON_STORE_DB_DRIVER_H

#include "daemon/store/db.h"

#include <stdatomic.h>

/* error.sys of a commit whose end is unknown; no errno. */
enum { DB_IN_DOUBT = -2 };

struct db_ops {
	void (*close)(struct db *db);
	int (*begin)(struct db *db, enum db_mode mode, struct db_tx **ret, struct error *err);
	int (*commit)(struct db_tx *tx, struct error *err);
	int (*flush)(struct db *db, struct error *err); /* NULL: every commit does */
	void (*rollback)(struct db_tx *tx);
	int (*script)(struct db_tx *tx, const char *sql, struct error *err);
	struct db_stmt *(*query)(struct db_tx *tx, size_t query);
	void (*bind_i64)(struct db_stmt *s, int n, int64_t value);
	void (*bind_text)(struct db_stmt *s, int n, const char *value);
	void (*bind_bytes)(struct db_stmt *s, int n, const void *p, size_t len);
	int (*step)(struct db_stmt *s, struct error *err);
	int (*run)(struct db_stmt *s, int64_t *ret_changed, struct error *err);
	void (*reset)(struct db_stmt *s);
	int64_t (*i64)(struct db_stmt *s, int column);
	const char *(*text)(struct db_stmt *s, int column);
	const void *(*bytes)(struct db_stmt *s, int column, size_t *ret_len);
};

/* Behind the ops of these two stands what db.c counts; drivers leave it alone. */
struct db {
	const struct db_ops *ops;
	_Atomic uint64_t transactions, failures, busy_us;
};

struct db_tx {
	const struct db_ops *ops;
	struct db *of;
	int64_t begun_us;
};

struct db_stmt {
	const struct db_ops *ops;
};

#endif
