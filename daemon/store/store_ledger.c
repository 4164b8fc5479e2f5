/* The outbox, idempotency keys and retention: see store.h. */
#include "daemon/store/internal.h"

#include "shared/base/limits.h"

/* Rows one pass drops of each kind: a few milliseconds under the writer's lock. */
enum { PRUNE_ROWS = 500 };

int store_event_add(struct db_tx *tx, struct event *e, int64_t now, struct error *err)
{
	e->id = id_new();
	struct db_stmt *s = db_query(tx, Q_EVENT_ADD);
	db_bind_text(s, 1, e->id.text);
	db_bind_text(s, 2, e->type);
	db_bind_text(s, 3, e->tenant);
	db_bind_text(s, 4, e->sandbox->text);
	db_bind_text(s, 5, e->operation ? e->operation->text : NULL);
	db_bind_text(s, 6, e->detail);
	db_bind_text(s, 7, e->actor);
	db_bind_i64(s, 8, now);
	return db_run(s, NULL, err);
}

int store_event_lock(struct db_tx *tx, struct error *err)
{
	return db_run(db_query(tx, Q_EVENT_LOCK), NULL, err);
}

static int read_id(struct db_stmt *s, struct id *ret, struct error *err)
{
	int rc = db_step(s, err);
	if (rc >= 0)
		copy_id(ret, rc == 1 ? db_text(s, 0) : "");
	db_reset(s);
	return rc < 0 ? -1 : 0;
}

int store_event_last(struct db_tx *tx, struct id *ret, struct error *err)
{
	return read_id(db_query(tx, Q_EVENT_LAST), ret, err);
}

int store_mark_get(struct db_tx *tx, const char *name, struct id *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_MARK_GET);
	db_bind_text(s, 1, name);
	return read_id(s, ret, err);
}

int store_mark_put(struct db_tx *tx, const char *name, const struct id *event, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_MARK_PUT);
	db_bind_text(s, 1, name);
	db_bind_text(s, 2, event->text);
	db_bind_i64(s, 3, now);
	return db_run(s, NULL, err);
}

int store_event_each(struct db_tx *tx, const char *after, size_t limit, event_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_EVENT_PAGE);
	db_bind_text(s, 1, after);
	db_bind_i64(s, 2, (int64_t)limit);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct id sandbox, operation;
		struct event e = { .type = db_text(s, 1), .tenant = db_text(s, 2), .sandbox = &sandbox,
				   .operation = db_text(s, 4) ? &operation : NULL, .detail = db_text(s, 5), .actor = db_text(s, 6) };
		copy_id(&e.id, db_text(s, 0));
		copy_id(&sandbox, db_text(s, 3));
		copy_id(&operation, db_text(s, 4));
		fn(ctx, &e, db_i64(s, 7));
	}
	return rc;
}

/* --- idempotency --- */

static void bind_key(struct db_stmt *s, const struct idem_key *k)
{
	db_bind_text(s, 1, k->tenant);
	db_bind_text(s, 2, k->route);
	db_bind_text(s, 3, k->key);
}

int store_key_get(struct db_tx *tx, struct idem_key *k, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_KEY_GET);
	bind_key(s, k);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	k->body_hash = (uint64_t)db_i64(s, 0);
	copy_id(&k->sandbox, db_text(s, 1));
	copy_id(&k->operation, db_text(s, 2));
	db_reset(s);
	return 1;
}

int store_key_add(struct db_tx *tx, const struct idem_key *k, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_KEY_ADD);
	bind_key(s, k);
	db_bind_i64(s, 4, (int64_t)k->body_hash);
	db_bind_text(s, 5, k->sandbox.text);
	db_bind_text(s, 6, k->operation.text);
	db_bind_i64(s, 7, now);
	return db_run(s, NULL, err);
}

int store_key_drop(struct db_tx *tx, const struct idem_key *k, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_KEY_DROP);
	bind_key(s, k);
	return db_run(s, NULL, err);
}

/* --- retention --- */

/* The smallest id that something of this time can have: a UUIDv7 begins with its milliseconds. */
static void first_id_at(int64_t us, char *out, size_t n)
{
	uint64_t ms = us > 0 ? (uint64_t)us / 1000 : 0;
	snprintf(out, n, "%08llx-%04llx-", (unsigned long long)(ms >> 16 & 0xffffffff), (unsigned long long)(ms & 0xffff));
}

/* Below *bound lies what is old enough, or what is too many when `keep` rows are kept. Returns 1 for the latter. */
static int id_bound(struct db_tx *tx, enum query over, int64_t keep, int64_t before, char *bound, size_t n, struct error *err)
{
	first_id_at(before, bound, n);
	struct db_stmt *s = db_query(tx, over);
	db_bind_i64(s, 1, keep);
	int rc = db_step(s, err);
	if (rc == 1 && strcmp(db_text(s, 0), bound) > 0)
		copy_text(bound, n, db_text(s, 0));
	else if (rc == 1)
		rc = 0;
	db_reset(s);
	return rc;
}

static int run_drop(struct db_stmt *s, bool *more, struct error *err)
{
	int64_t dropped = 0;
	if (db_run(s, &dropped, err) != 0)
		return -1;
	*more = *more || dropped >= PRUNE_ROWS;
	return 0;
}

static struct db_stmt *bind_old(struct db_tx *tx, enum query query, const char *bound, int64_t before)
{
	struct db_stmt *s = db_query(tx, query);
	db_bind_text(s, 1, bound);
	db_bind_i64(s, 2, before);
	db_bind_i64(s, 3, PRUNE_ROWS);
	return s;
}

/* An operation's id tells when it began; when it ended may be much later, so both are asked. Both queries choose the same rows:
 * outputs first, then the rows that name them. */
static int drop_operations(struct db_tx *tx, int64_t before, bool *more, struct error *err)
{
	char bound[ID_TEXT_LEN + 1];
	bool ignored = false;
	int over = id_bound(tx, Q_OPERATION_OVER, LIMIT_OPERATIONS_KEPT_MAX, before, bound, sizeof(bound), err);
	if (over < 0)
		return -1;
	if (over)
		before = INT64_MAX;
	if (run_drop(bind_old(tx, Q_PRUNE_OUTPUTS, bound, before), &ignored, err) != 0)
		return -1;
	return run_drop(bind_old(tx, Q_PRUNE_OPERATIONS, bound, before), more, err);
}

static int drop_events(struct db_tx *tx, int64_t before, bool *more, struct error *err)
{
	char bound[ID_TEXT_LEN + 1];
	if (id_bound(tx, Q_EVENT_OVER, LIMIT_EVENTS_KEPT_MAX, before, bound, sizeof(bound), err) < 0)
		return -1;
	struct db_stmt *s = db_query(tx, Q_PRUNE_EVENTS);
	db_bind_text(s, 1, bound);
	db_bind_i64(s, 2, PRUNE_ROWS);
	return run_drop(s, more, err);
}

static int drop_sandboxes(struct db_tx *tx, int64_t before, bool *more, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_PRUNE_SANDBOXES);
	db_bind_i64(s, 1, before);
	db_bind_i64(s, 2, PRUNE_ROWS);
	return run_drop(s, more, err);
}

static int drop_keys(struct db_tx *tx, int64_t before, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_PRUNE_KEYS);
	db_bind_i64(s, 1, before);
	return db_run(s, NULL, err);
}

int store_prune(struct db_tx *tx, int64_t before, bool *ret_more, struct error *err)
{
	bool more = false;
	if (drop_keys(tx, before, err) != 0 || drop_operations(tx, before, &more, err) != 0 || drop_sandboxes(tx, before, &more, err) != 0 ||
	    drop_events(tx, before, &more, err) != 0)
		return -1;
	*ret_more = more;
	return 0;
}

static int oldest(struct db_tx *tx, enum query query, int64_t *at, struct error *err)
{
	struct db_stmt *s = db_query(tx, query);
	int rc = db_step(s, err);
	if (rc == 1 && (*at == 0 || db_i64(s, 0) < *at))
		*at = db_i64(s, 0);
	db_reset(s);
	return rc < 0 ? -1 : 0;
}

int store_oldest_end(struct db_tx *tx, int64_t *ret, struct error *err)
{
	int64_t at = 0;
	if (oldest(tx, Q_OLDEST_OPERATION, &at, err) != 0 || oldest(tx, Q_OLDEST_SANDBOX, &at, err) != 0)
		return -1;
	*ret = at;
	return 0;
}
