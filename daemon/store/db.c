/* What the drivers share: the words of dialect.def, and the way to whichever driver it is. See db.h. */
#include "daemon/store/db_driver.h"

#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"

static const struct {
	const char *word;
	const char *text[DB_DIALECTS];
} dialect_rows[] = {
#define DIALECT(word, sqlite, postgres) { word, { [DB_SQLITE] = sqlite, [DB_POSTGRES] = postgres } },
#include "daemon/store/dialect.def"
#undef DIALECT
};

char *db_dialect_sql(enum db_dialect dialect, const char *sql)
{
	struct buf out = BUF_INIT;
	while (*sql) {
		size_t i, n = 0;
		for (i = 0; i < ARRAY_LEN(dialect_rows); i++) {
			n = strlen(dialect_rows[i].word);
			if (strncmp(sql, dialect_rows[i].word, n) == 0)
				break;
		}
		if (i < ARRAY_LEN(dialect_rows)) {
			buf_adds(&out, dialect_rows[i].text[dialect]);
			sql += n;
		} else {
			buf_addc(&out, *sql++);
		}
	}
	return buf_steal(&out);
}

void db_close(struct db *db)
{
	if (db)
		db->ops->close(db);
}

int db_begin(struct db *db, enum db_mode mode, struct db_tx **ret, struct error *err)
{
	int64_t now = clock_mono_us();
	atomic_fetch_add_explicit(&db->transactions, 1, memory_order_relaxed);
	if (db->ops->begin(db, mode, ret, err) != 0) {
		atomic_fetch_add_explicit(&db->failures, 1, memory_order_relaxed);
		return -1;
	}
	(*ret)->of = db;
	(*ret)->begun_us = now;
	return 0;
}

static void note_end(struct db *db, int64_t begun_us)
{
	atomic_fetch_add_explicit(&db->busy_us, (uint64_t)(clock_mono_us() - begun_us), memory_order_relaxed);
}

int db_commit(struct db_tx *tx, struct error *err)
{
	struct db *db = tx->of;
	int64_t begun = tx->begun_us;
	int rc = tx->ops->commit(tx, err);
	if (rc != 0)
		atomic_fetch_add_explicit(&db->failures, 1, memory_order_relaxed);
	note_end(db, begun);
	return rc;
}

struct db_stats db_stats(const struct db *db)
{
	return (struct db_stats){ .transactions = atomic_load(&db->transactions), .failures = atomic_load(&db->failures),
				  .busy_us = atomic_load(&db->busy_us) };
}

void db_rollback(struct db_tx *tx)
{
	struct db *db = tx->of;
	int64_t begun = tx->begun_us;
	tx->ops->rollback(tx);
	note_end(db, begun);
}

int db_flush(struct db *db, struct error *err)
{
	return db->ops->flush ? db->ops->flush(db, err) : 0;
}

bool db_doubtful(const struct error *err)
{
	return err && err->code == ERR_UNAVAILABLE && err->sys == DB_IN_DOUBT;
}

int db_script(struct db_tx *tx, const char *sql, struct error *err)
{
	return tx->ops->script(tx, sql, err);
}

struct db_stmt *db_query(struct db_tx *tx, size_t query)
{
	return tx->ops->query(tx, query);
}

void db_bind_i64(struct db_stmt *s, int n, int64_t value)
{
	s->ops->bind_i64(s, n, value);
}

void db_bind_text(struct db_stmt *s, int n, const char *value)
{
	s->ops->bind_text(s, n, value);
}

void db_bind_bytes(struct db_stmt *s, int n, const void *p, size_t len)
{
	s->ops->bind_bytes(s, n, p, len);
}

int db_step(struct db_stmt *s, struct error *err)
{
	return s->ops->step(s, err);
}

int db_run(struct db_stmt *s, int64_t *ret_changed, struct error *err)
{
	return s->ops->run(s, ret_changed, err);
}

void db_reset(struct db_stmt *s)
{
	s->ops->reset(s);
}

int64_t db_i64(struct db_stmt *s, int column)
{
	return s->ops->i64(s, column);
}

const char *db_text(struct db_stmt *s, int column)
{
	return s->ops->text(s, column);
}

const void *db_bytes(struct db_stmt *s, int column, size_t *ret_len)
{
	return s->ops->bytes(s, column, ret_len);
}
