/* Sealed secrets and egress rules: see secrets.h. */
#include "daemon/store/secrets.h"

#include "daemon/store/internal.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

int store_secret_put(struct db_tx *tx, const struct secret_row *r, const struct buf *sealed, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_PUT);
	db_bind_text(s, 1, r->tenant);
	db_bind_text(s, 2, r->name);
	db_bind_bytes(s, 3, sealed->data, sealed->len);
	db_bind_i64(s, 4, r->size);
	db_bind_i64(s, 5, r->updated_us);
	db_bind_text(s, 6, r->updated_by);
	return db_run(s, NULL, err);
}

int store_secret_get(struct db_tx *tx, const char *tenant, const char *name, struct buf *ret_sealed, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_GET);
	size_t n = 0;
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, name);
	int rc = db_step(s, err);
	if (rc != 1)
		return rc;
	const void *p = db_bytes(s, 0, &n);
	buf_add(ret_sealed, p, n);
	db_reset(s);
	return 1;
}

int store_secret_count(struct db_tx *tx, const char *tenant, const char *other_than, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_COUNT);
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, other_than);
	int rc = db_step(s, err);
	if (rc != 1)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}

int store_secret_any(struct db_tx *tx, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_ANY);
	if (db_step(s, err) != 1)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}

int store_secret_each(struct db_tx *tx, const char *tenant, secret_row_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_ALL);
	int rc;
	db_bind_text(s, 1, tenant ? tenant : "");
	while ((rc = db_step(s, err)) == 1) {
		struct secret_row r = { .size = db_i64(s, 2), .created_us = db_i64(s, 3), .updated_us = db_i64(s, 4) };
		copy_text(r.tenant, sizeof(r.tenant), db_text(s, 0));
		copy_text(r.name, sizeof(r.name), db_text(s, 1));
		copy_text(r.updated_by, sizeof(r.updated_by), db_text(s, 5));
		fn(ctx, &r);
	}
	return rc;
}

int store_secret_delete(struct db_tx *tx, const char *tenant, const char *name, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SECRET_DELETE);
	int64_t changed = 0;
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, name);
	if (db_run(s, &changed, err) != 0)
		return -1;
	return changed > 0;
}

int store_egress_get(struct db_tx *tx, const char *tenant, char **ret_rules, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_EGRESS_GET);
	db_bind_text(s, 1, tenant);
	int rc = db_step(s, err);
	if (rc != 1)
		return rc;
	*ret_rules = xstrdup(db_text(s, 0));
	db_reset(s);
	return 1;
}

int store_egress_put(struct db_tx *tx, const char *tenant, const char *rules, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, rules ? Q_EGRESS_PUT : Q_EGRESS_DELETE);
	db_bind_text(s, 1, tenant);
	if (rules) {
		db_bind_text(s, 2, rules);
		db_bind_i64(s, 3, now);
	}
	return db_run(s, NULL, err);
}

int store_sandbox_set_spec(struct db_tx *tx, const struct id *id, const struct spec *spec, int64_t now, struct error *err)
{
	cJSON *tree = spec_to_json(spec);
	auto_free char *text = json_print(tree);
	cJSON_Delete(tree);
	struct db_stmt *s = db_query(tx, Q_SANDBOX_SET_SPEC);
	db_bind_text(s, 1, id->text);
	db_bind_text(s, 2, text);
	db_bind_i64(s, 3, now);
	return db_run(s, NULL, err);
}
