/*
 * The driver on PostgreSQL. Statements are sent in pipelines: BEGIN goes with the first statement, those without an answer
 * worth waiting for go with the next one, and the end of a reader is not waited for at all. So a transaction costs as many
 * round trips as it has questions.
 */
#include "daemon/store/db_driver.h"
#include "daemon/store/db_pg.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

enum {
	QUEUE_MAX = 128,
	QUEUE_SYNC = QUEUE_MAX - 4, /* read what is queued before it grows further */
	SCHEMA_MS = 3600 * 1000,
	OID_BOOL = 16, OID_INT8 = 20, OID_INT2 = 21, OID_INT4 = 23,
	NUMBER_TEXT = 24,
};

struct pg_tx;

struct pg_stmt {
	struct db_stmt base;
	struct pg_tx *tx;
	struct pg_stmt *next;
	size_t query;
	const char *values[DB_PARAMS_MAX];
	int lengths[DB_PARAMS_MAX], formats[DB_PARAMS_MAX];
	char numbers[DB_PARAMS_MAX][NUMBER_TEXT];
	char *owned[DB_PARAMS_MAX]; /* texts that had to be mended */
	int params;
	PGresult *rows;
	int row;
	bool used;                  /* asked for and not reset */
};

struct queued {
	size_t query;
	bool prepare;
};

struct pg_tx {
	struct db_tx base;
	struct pg_db *db;
	enum db_mode mode;
	struct pg_conn *conn;
	struct pg_stmt *stmts;
	struct queued queue[QUEUE_MAX];
	int queued;
	bool begun;         /* BEGIN was sent */
	bool answered;      /* … and something was read: it cannot be begun again elsewhere */
	struct error failed;
};

struct pg_db {
	struct db base;
	struct pg_pool *pool;
	char **sql;         /* of each query, in the server's words */
	size_t n_queries;
};

static const struct db_ops pg_ops;

static int sql_error(struct pg_tx *tx, const char *doing, struct error *err)
{
	return pg_fail(tx->db->pool, tx->conn ? tx->conn->pg : NULL, NULL, doing, err);
}

/* --- transactions --- */

static int pg_begin(struct db *base, enum db_mode mode, struct db_tx **ret, struct error *err)
{
	struct pg_db *db = (struct pg_db *)base;
	struct pg_conn *c = NULL;
	if (pg_take(db->pool, &c, err) != 0)
		return -1;
	struct pg_tx *tx = xcalloc(1, sizeof(*tx));
	tx->base.ops = &pg_ops;
	tx->db = db;
	tx->mode = mode;
	tx->conn = c;
	if (mode == DB_SCHEMA)
		c->answer_ms = SCHEMA_MS;
	*ret = &tx->base;
	return 0;
}

static void clear_stmt(struct pg_stmt *s)
{
	PQclear(s->rows);
	s->rows = NULL;
	s->used = false;
	for (int i = 0; i < s->params; i++) {
		free(s->owned[i]);
		s->owned[i] = NULL;
		s->values[i] = NULL;
	}
	s->params = 0;
}

static void free_tx(struct pg_tx *tx)
{
	while (tx->stmts) {
		struct pg_stmt *next = tx->stmts->next;
		clear_stmt(tx->stmts);
		free(tx->stmts);
		tx->stmts = next;
	}
	free(tx);
}

static bool queue_text(struct pg_tx *tx, const char *sql)
{
	if (!PQsendQueryParams(tx->conn->pg, sql, 0, NULL, NULL, NULL, NULL, 1))
		return false;
	tx->queue[tx->queued++] = (struct queued){ .prepare = false };
	return true;
}

/* A reader sees one moment; a writer sees what others committed, statement by statement. */
static bool queue_begin(struct pg_tx *tx)
{
	if (tx->begun)
		return true;
	tx->begun = queue_text(tx, tx->mode == DB_READ ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" : "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
	if (tx->begun && tx->mode == DB_SCHEMA) {
		char text[64];
		snprintf(text, sizeof(text), "SET LOCAL statement_timeout = %d", SCHEMA_MS);
		tx->begun = queue_text(tx, text);
	}
	return tx->begun;
}

static void name_of(size_t query, char out[static 16])
{
	snprintf(out, 16, "q%zu", query);
}

static bool queue_stmt(struct pg_tx *tx, struct pg_stmt *s)
{
	char name[16];
	name_of(s->query, name);
	if (!queue_begin(tx))
		return false;
	bool pending = false;
	for (int i = 0; i < tx->queued; i++)
		pending = pending || (tx->queue[i].prepare && tx->queue[i].query == s->query);
	if (!tx->conn->prepared[s->query] && !pending) {
		if (!PQsendPrepare(tx->conn->pg, name, tx->db->sql[s->query], 0, NULL))
			return false;
		tx->queue[tx->queued++] = (struct queued){ .prepare = true, .query = s->query };
	}
	if (!PQsendQueryPrepared(tx->conn->pg, name, s->params, s->values, s->lengths, s->formats, 1))
		return false;
	tx->queue[tx->queued++] = (struct queued){ .query = s->query };
	return true;
}

static bool is_good(const PGresult *r)
{
	ExecStatusType status = PQresultStatus(r);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* The first failure counts; what was sent behind it was not run. */
static void note_result(struct pg_tx *tx, const struct queued *q, const PGresult *r)
{
	if (is_good(r)) {
		if (q->prepare)
			tx->conn->prepared[q->query] = true;
		return;
	}
	if (tx->failed.code == ERR_NONE && PQresultStatus(r) != PGRES_PIPELINE_ABORTED)
		pg_fail(tx->db->pool, tx->conn->pg, r, "the store", &tx->failed);
}

/* Reads the result of one queued statement and the NULL behind it. */
static int read_one(struct pg_tx *tx, const struct queued *q, PGresult **ret, struct error *err)
{
	PGresult *r = NULL, *end = NULL;
	if (pg_result(tx->conn, &r, err) != 0)
		return -1;
	if (!r)
		return error_set(err, ERR_UNAVAILABLE, "the database %s gave no answer", pg_pool_where(tx->db->pool));
	note_result(tx, q, r);
	*ret = r;
	return pg_result(tx->conn, &end, err);
}

/* Sends the queue and reads all of it; *ret is the last statement's result when everything went well. On a lost connection
 * it is given back and tx->conn is NULL. */
static int collect(struct pg_tx *tx, PGresult **ret, struct error *err)
{
	PGresult *last = NULL;
	int n = tx->queued, rc = PQpipelineSync(tx->conn->pg) ? 0 : sql_error(tx, "the store", err);
	tx->queued = 0;
	for (int i = 0; rc == 0 && i < n; i++) {
		PQclear(last);
		last = NULL;
		rc = read_one(tx, &tx->queue[i], &last, err);
	}
	PGresult *sync = NULL;
	if (rc == 0)
		rc = pg_result(tx->conn, &sync, err);
	PQclear(sync);
	if (rc != 0) {
		PQclear(last);
		pg_drop(steal(&tx->conn), true);
		if (err)
			tx->failed = *err;
		else
			error_set(&tx->failed, ERR_UNAVAILABLE, "the database %s went away", pg_pool_where(tx->db->pool));
		return -1;
	}
	tx->answered = true;
	if (tx->failed.code != ERR_NONE) {
		PQclear(last);
		if (err)
			*err = tx->failed;
		return -1;
	}
	*ret = last;
	return 0;
}

static int report_failed(struct pg_tx *tx, struct error *err)
{
	if (err)
		*err = tx->failed;
	return -1;
}

/* Queues the statement, and on request waits for its result. A connection that had died while it was idle is replaced,
 * as long as nothing of this transaction can have been run. */
static int execute(struct pg_stmt *s, PGresult **ret, struct error *err)
{
	struct pg_tx *tx = s->tx;
	struct error local = ERROR_INIT;
	for (int attempt = 0;; attempt++) {
		bool first = !tx->begun;
		if (tx->failed.code != ERR_NONE)
			return report_failed(tx, err);
		if (queue_stmt(tx, s)) {
			if (!ret && tx->queued < QUEUE_SYNC)
				return 0;
			PGresult *r = NULL;
			if (collect(tx, &r, &local) == 0) {
				if (ret)
					*ret = r;
				else
					PQclear(r);
				return 0;
			}
		} else {
			sql_error(tx, "sending", &local);
			tx->failed = local;
			pg_drop(steal(&tx->conn), true);
		}
		if (tx->conn || !first || attempt > 0 || pg_take(tx->db->pool, &tx->conn, NULL) != 0)
			return report_failed(tx, err);
		tx->failed.code = ERR_NONE;
		tx->begun = tx->answered = false;
		tx->queued = 0;
	}
}

/* Ends it without waiting for the answer; the connection's next user reads it. */
static void end_later(struct pg_tx *tx, const char *sql)
{
	struct pg_conn *c = steal(&tx->conn);
	if (!c)
		return;
	if (tx->begun) {
		if (!PQsendQueryParams(c->pg, sql, 0, NULL, NULL, NULL, NULL, 0) || !PQpipelineSync(c->pg) || PQflush(c->pg) < 0) {
			pg_drop(c, true);
			return;
		}
		c->owed = 1;
	}
	pg_put(c);
}

static int commit_now(struct pg_tx *tx, struct error *err)
{
	PGresult *r = NULL;
	if (!queue_text(tx, "COMMIT"))
		return sql_error(tx, "COMMIT", err);
	if (collect(tx, &r, err) != 0) {
		/* A server that said why has not committed. */
		if (!tx->conn && err) {
			err->code = ERR_UNAVAILABLE;
			err->sys = DB_IN_DOUBT;
		}
		return -1;
	}
	bool done = strcmp(PQcmdStatus(r), "COMMIT") == 0;
	PQclear(r);
	tx->begun = false;
	return done ? 0 : error_set(err, ERR_INTERNAL, "the database rolled the change back");
}

static int pg_commit(struct db_tx *base, struct error *err)
{
	struct pg_tx *tx = (struct pg_tx *)base;
	struct error local = ERROR_INIT;
	int rc = 0;
	if (tx->failed.code != ERR_NONE) {
		local = tx->failed;
		rc = -1;
	} else if (tx->begun && tx->mode != DB_READ) {
		rc = commit_now(tx, &local);
	}
	end_later(tx, "ROLLBACK");
	free_tx(tx);
	if (rc != 0 && err)
		*err = local;
	return rc;
}

static void pg_rollback(struct db_tx *base)
{
	struct pg_tx *tx = (struct pg_tx *)base;
	end_later(tx, "ROLLBACK");
	free_tx(tx);
}

/* Several statements in one string are no matter for a pipeline: it is left for them. */
static int pg_script(struct db_tx *base, const char *sql, struct error *err)
{
	struct pg_tx *tx = (struct pg_tx *)base;
	PGresult *r = NULL;
	if (tx->failed.code != ERR_NONE)
		return report_failed(tx, err);
	if (!queue_begin(tx))
		return sql_error(tx, "sending", err);
	if (tx->queued && collect(tx, &r, err) != 0)
		return -1;
	PQclear(r);
	auto_free char *text = db_dialect_sql(DB_POSTGRES, sql);
	PQexitPipelineMode(tx->conn->pg);
	r = PQexec(tx->conn->pg, text);
	if (!is_good(r))
		pg_fail(tx->db->pool, tx->conn->pg, r, "changing the schema", &tx->failed);
	PQclear(r);
	PQenterPipelineMode(tx->conn->pg);
	return tx->failed.code == ERR_NONE ? 0 : report_failed(tx, err);
}

/* --- statements --- */

static struct db_stmt *pg_query(struct db_tx *base, size_t query)
{
	struct pg_tx *tx = (struct pg_tx *)base;
	struct pg_stmt *s = tx->stmts;
	while (s && s->used)
		s = s->next;
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->base.ops = &pg_ops;
		s->tx = tx;
		s->next = tx->stmts;
		tx->stmts = s;
	}
	s->query = query;
	s->used = true;
	return &s->base;
}

/* False: out of range, which the next step reports. */
static bool slot(struct pg_stmt *s, int n)
{
	if (n >= 1 && n <= DB_PARAMS_MAX) {
		if (n > s->params)
			s->params = n;
		return true;
	}
	error_set(&s->tx->failed, ERR_INTERNAL, "no placeholder $%d in: %s", n, s->tx->db->sql[s->query]);
	return false;
}

static void pg_bind_i64(struct db_stmt *base, int n, int64_t value)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	if (!slot(s, n))
		return;
	snprintf(s->numbers[n - 1], NUMBER_TEXT, "%" PRId64, value);
	s->values[n - 1] = s->numbers[n - 1];
	s->formats[n - 1] = 0;
}

/* The server takes nothing that is not UTF-8; text from outside (an engine's message) may be anything. */
static char *mend_text(const char *text)
{
	char *out = xstrdup(text);
	for (char *p = out; *p;) {
		size_t n = utf8_next(p, strlen(p));
		if (n == 0)
			*p++ = '?';
		else
			p += n;
	}
	return out;
}

static void pg_bind_text(struct db_stmt *base, int n, const char *value)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	if (!slot(s, n))
		return;
	if (value && !utf8_valid(value, strlen(value)))
		value = s->owned[n - 1] = mend_text(value);
	s->values[n - 1] = value;
	s->formats[n - 1] = 0;
}

static void pg_bind_bytes(struct db_stmt *base, int n, const void *p, size_t len)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	if (!slot(s, n))
		return;
	s->values[n - 1] = p;
	s->lengths[n - 1] = (int)len;
	s->formats[n - 1] = 1;
}

static void pg_reset(struct db_stmt *base)
{
	clear_stmt((struct pg_stmt *)base);
}

static int pg_step(struct db_stmt *base, struct error *err)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	if (!s->rows) {
		if (execute(s, &s->rows, err) != 0) {
			clear_stmt(s);
			return -1;
		}
		s->row = -1;
	}
	if (++s->row < PQntuples(s->rows))
		return 1;
	clear_stmt(s);
	return 0;
}

static int pg_run(struct db_stmt *base, int64_t *ret_changed, struct error *err)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	PGresult *r = NULL;
	int rc = execute(s, ret_changed ? &r : NULL, err);
	if (rc == 0 && ret_changed)
		*ret_changed = strtoll(PQcmdTuples(r), NULL, 10);
	PQclear(r);
	clear_stmt(s);
	return rc;
}

/* --- columns, in the server's binary form --- */

static int64_t pg_i64(struct db_stmt *base, int column)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	const char *p = PQgetvalue(s->rows, s->row, column);
	uint64_t v8;
	uint32_t v4;
	uint16_t v2;
	if (PQgetisnull(s->rows, s->row, column))
		return 0;
	switch (PQftype(s->rows, column)) {
	case OID_INT8:
		memcpy(&v8, p, sizeof(v8));
		return (int64_t)be64toh(v8);
	case OID_INT4:
		memcpy(&v4, p, sizeof(v4));
		return (int32_t)be32toh(v4);
	case OID_INT2:
		memcpy(&v2, p, sizeof(v2));
		return (int16_t)be16toh(v2);
	case OID_BOOL:
		return *p != 0;
	}
	return strtoll(p, NULL, 10);
}

static const char *pg_text(struct db_stmt *base, int column)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	return PQgetisnull(s->rows, s->row, column) ? NULL : PQgetvalue(s->rows, s->row, column);
}

static const void *pg_bytes(struct db_stmt *base, int column, size_t *ret_len)
{
	struct pg_stmt *s = (struct pg_stmt *)base;
	*ret_len = (size_t)PQgetlength(s->rows, s->row, column);
	return *ret_len ? PQgetvalue(s->rows, s->row, column) : NULL;
}

/* --- opening --- */

static void pg_close(struct db *base)
{
	struct pg_db *db = (struct pg_db *)base;
	pg_pool_free(db->pool);
	for (size_t i = 0; i < db->n_queries; i++)
		free(db->sql[i]);
	free(db->sql);
	free(db);
}

int db_open_pg(const struct db_options *options, struct db **ret, struct error *err)
{
	struct pg_db *db = xcalloc(1, sizeof(*db));
	struct pg_conn *c = NULL;
	db->base.ops = &pg_ops;
	db->n_queries = options->n_queries;
	db->sql = xcalloc(options->n_queries, sizeof(*db->sql));
	for (size_t i = 0; i < options->n_queries; i++)
		db->sql[i] = db_dialect_sql(DB_POSTGRES, options->queries[i]);
	if (pg_pool_new(options, &db->pool, err) != 0 || pg_take(db->pool, &c, err) != 0) {
		pg_close(&db->base);
		return -1;
	}
	pg_put(c);
	*ret = &db->base;
	return 0;
}

struct pg_pool *db_pg_pool(struct db *base)
{
	return ((struct pg_db *)base)->pool;
}

static const struct db_ops pg_ops = {
	.close = pg_close, .begin = pg_begin, .commit = pg_commit, .rollback = pg_rollback, .script = pg_script,
	.query = pg_query, .bind_i64 = pg_bind_i64, .bind_text = pg_bind_text, .bind_bytes = pg_bind_bytes,
	.step = pg_step, .run = pg_run, .reset = pg_reset, .i64 = pg_i64, .text = pg_text, .bytes = pg_bytes,
};
