/* Sandboxes that belong to nobody yet: see store.h. */
#include "daemon/store/internal.h"

#include "shared/base/mem.h"
#include "shared/json/model_json.h"

int store_warm_mark(struct db_tx *tx, const struct id *sandbox, const char *pool, const char *key, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_WARM_MARK);
	db_bind_text(s, 1, sandbox->text);
	db_bind_text(s, 2, pool);
	db_bind_text(s, 3, key);
	return db_run(s, NULL, err);
}

int store_warm_each(struct db_tx *tx, warm_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_WARM_ALL);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct warm_row w = { .pool = db_text(s, 1), .key = db_text(s, 2) };
		copy_id(&w.id, db_text(s, 0));
		copy_id(&w.node, db_text(s, 4));
		if (READ_ENUM(sandbox_state, s, 3, &w.state, err) != 0) {
			db_reset(s);
			return -1;
		}
		fn(ctx, &w);
	}
	return rc;
}

int store_warm_next(struct db_tx *tx, const char *key, int64_t usable_until_us, const struct id *after, struct id *ret, struct id *ret_node,
		    struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_WARM_NEXT);
	db_bind_text(s, 1, key);
	db_bind_i64(s, 2, usable_until_us);
	db_bind_text(s, 3, after->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	copy_id(ret, db_text(s, 0));
	copy_id(ret_node, db_text(s, 1));
	db_reset(s);
	return 1;
}

static int drop_operations(struct db_tx *tx, const struct id *sandbox, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_WARM_FORGET_OPS);
	db_bind_text(s, 1, sandbox->text);
	return db_run(s, NULL, err);
}

int store_warm_claim(struct db_tx *tx, const struct sandbox *x, struct error *err)
{
	cJSON *tree = spec_to_json(&x->spec);
	auto_free char *spec = json_print(tree);
	cJSON_Delete(tree);
	int64_t changed = 0;
	struct db_stmt *s = db_query(tx, Q_WARM_CLAIM);
	db_bind_text(s, 1, x->id.text);
	db_bind_text(s, 2, x->spec.tenant);
	db_bind_text(s, 3, x->spec.name);
	db_bind_i64(s, 4, x->risk_score);
	db_bind_i64(s, 5, x->created_us);
	db_bind_i64(s, 6, x->expires_us);
	db_bind_text(s, 7, x->decision);
	db_bind_text(s, 8, spec);
	if (db_run(s, &changed, err) != 0)
		return -1;
	if (changed != 1)
		return error_set(err, ERR_INTERNAL, "sandbox %s waits in no pool any more", x->id.text);
	return drop_operations(tx, &x->id, err);
}

int store_warm_failed(struct db_tx *tx, const char *pool, int64_t since_us, struct warm_failure *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_WARM_FAILED);
	db_bind_text(s, 1, pool);
	db_bind_i64(s, 2, since_us);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	*ret = (struct warm_failure){ .at_us = db_i64(s, 0), .why = xstrdup(db_text(s, 1) ? db_text(s, 1) : ""), .count = db_i64(s, 2) };
	db_reset(s);
	return 1;
}

int store_creates_open(struct db_tx *tx, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_CREATES_OPEN);
	if (db_step(s, err) < 0)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}
