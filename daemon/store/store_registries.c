/* Logins to image registries: see registries.h. */
#include "daemon/store/registries.h"

#include "daemon/store/internal.h"

int store_registry_put(struct db_tx *tx, const struct registry_row *r, const struct buf *sealed, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_REGISTRY_PUT);
	db_bind_text(s, 1, r->tenant);
	db_bind_text(s, 2, r->registry);
	db_bind_text(s, 3, r->username);
	db_bind_bytes(s, 4, sealed->data, sealed->len);
	db_bind_i64(s, 5, r->updated_us);
	db_bind_text(s, 6, r->updated_by);
	return db_run(s, NULL, err);
}

int store_registry_get(struct db_tx *tx, const char *tenant, const char *registry, struct buf *ret_sealed, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_REGISTRY_GET);
	size_t n = 0;
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, registry);
	int rc = db_step(s, err);
	if (rc != 1)
		return rc;
	const void *p = db_bytes(s, 0, &n);
	buf_add(ret_sealed, p, n);
	db_reset(s);
	return 1;
}

int store_registry_count(struct db_tx *tx, const char *tenant, const char *other_than, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_REGISTRY_COUNT);
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, other_than);
	if (db_step(s, err) != 1)
		return -1;
	*ret = db_i64(s, 0);
	db_reset(s);
	return 0;
}

int store_registry_each(struct db_tx *tx, const char *tenant, registry_row_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_REGISTRY_ALL);
	int rc;
	db_bind_text(s, 1, tenant ? tenant : "");
	while ((rc = db_step(s, err)) == 1) {
		struct registry_row r = { .created_us = db_i64(s, 3), .updated_us = db_i64(s, 4) };
		copy_text(r.tenant, sizeof(r.tenant), db_text(s, 0));
		copy_text(r.registry, sizeof(r.registry), db_text(s, 1));
		copy_text(r.username, sizeof(r.username), db_text(s, 2));
		copy_text(r.updated_by, sizeof(r.updated_by), db_text(s, 5));
		fn(ctx, &r);
	}
	return rc;
}

int store_registry_delete(struct db_tx *tx, const char *tenant, const char *registry, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_REGISTRY_DELETE);
	int64_t changed = 0;
	db_bind_text(s, 1, tenant);
	db_bind_text(s, 2, registry);
	if (db_run(s, &changed, err) != 0)
		return -1;
	return changed > 0;
}
