/* Inside the PostgreSQL driver: connections and their errors (db_pg_conn.c), used by transactions (db_pg.c) and the bus. */
#ifndef SANDBOX_DAEMON_STORE_DB_PG_H
#define SANDBOX_DAEMON_STORE_DB_PG_H

#include "daemon/store/db.h"

#include <libpq-fe.h>

struct pg_pool;

struct pg_conn {
	PGconn *pg;
	struct pg_conn *next;
	struct pg_pool *pool;
	bool *prepared; /* by query */
	int owed;       /* results of the last transaction's end that nobody has read yet */
	int64_t answer_ms; /* how long a result may take; pg_take sets it to what the pool says */
};

/* Reads url and password; connects to nothing. */
int pg_pool_new(const struct db_options *o, struct pg_pool **ret, struct error *err);
void pg_pool_free(struct pg_pool *p);
/* "user@host/name" for messages. */
const char *pg_pool_where(const struct pg_pool *p);
/* An idle connection or a new one; waits for one when all are busy. ERR_UNAVAILABLE at once while the server is known to
 * be away: one caller at a time tries it again. */
int pg_take(struct pg_pool *p, struct pg_conn **ret, struct error *err);
/* Back to the idle ones; one that broke is closed. */
void pg_put(struct pg_conn *c);
/* Closes it. `lost`: so may all the idle ones be, which are closed too. */
void pg_drop(struct pg_conn *c, bool lost);
/* A connection that does not count as one of the pool's and is not in pipeline mode; ended by PQfinish. */
int pg_connect(struct pg_pool *p, PGconn **ret, struct error *err);

struct pg_pool *db_pg_pool(struct db *db);

/* While somebody calls pg_mend again and again, callers of pg_take never try to connect to a server that is away: a thread that
 * serves streams must not wait for a network. */
void pg_pool_mended(struct pg_pool *p, bool mended);
/* Tries to connect when the server is away and its back-off is over. True: it is there. */
bool pg_mend(struct pg_pool *p);

/* Waits for the next result; NULL is one too (the end of a statement's). -1: the connection is lost or did not answer in time. */
int pg_result(struct pg_conn *c, PGresult **ret, struct error *err);
/* One clear line for a failed result (may be NULL: what the connection says). */
int pg_fail(const struct pg_pool *p, PGconn *pg, const PGresult *r, const char *doing, struct error *err);

#endif
