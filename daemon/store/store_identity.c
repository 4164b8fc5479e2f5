/* Tokens, audit log, quotas: see identity.h. */
#include "daemon/store/identity.h"

#include "daemon/store/internal.h"
#include "shared/base/limits.h"

enum { HASH_PREFIX = 16, PRUNE_ROWS = 500 };

int store_token_add(struct db_tx *tx, const struct token_row *t, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TOKEN_ADD);
	db_bind_text(s, 1, t->id.text);
	db_bind_text(s, 2, t->name);
	db_bind_text(s, 3, t->hash);
	db_bind_text(s, 4, role_text(t->role));
	db_bind_text(s, 5, t->tenants);
	db_bind_i64(s, 6, t->created_us);
	db_bind_text(s, 7, t->created_by);
	db_bind_i64(s, 8, t->expires_us);
	return db_run(s, NULL, err);
}

static int read_token(struct db_stmt *s, struct token_row *t, struct error *err)
{
	copy_id(&t->id, db_text(s, 0));
	copy_text(t->name, sizeof(t->name), db_text(s, 1));
	copy_text(t->hash, sizeof(t->hash), db_text(s, 2));
	copy_text(t->tenants, sizeof(t->tenants), db_text(s, 4));
	t->created_us = db_i64(s, 5);
	copy_text(t->created_by, sizeof(t->created_by), db_text(s, 6));
	t->expires_us = db_i64(s, 7);
	t->revoked_us = db_i64(s, 8);
	t->used_us = db_i64(s, 9);
	copy_text(t->used_from, sizeof(t->used_from), db_text(s, 10));
	return READ_ENUM(role, s, 3, &t->role, err);
}

static int one_token(struct db_stmt *s, struct token_row *ret, struct error *err)
{
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct token_row t;
	if (read_token(s, &t, err) != 0)
		rc = -1;
	db_reset(s);
	if (rc == 1)
		*ret = t;
	return rc;
}

int store_token_by_hash(struct db_tx *tx, const char *hash, struct token_row *ret, struct error *err)
{
	char from[HASH_PREFIX + 1], to[HASH_PREFIX + 2];
	snprintf(from, sizeof(from), "%.*s", HASH_PREFIX, hash);
	snprintf(to, sizeof(to), "%sg", from);
	struct db_stmt *s = db_query(tx, Q_TOKEN_BY_HASH);
	db_bind_text(s, 1, from);
	db_bind_text(s, 2, to);
	return one_token(s, ret, err);
}

int store_token_find(struct db_tx *tx, const char *ref, struct token_row *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TOKEN_FIND);
	db_bind_text(s, 1, ref);
	return one_token(s, ret, err);
}

int store_token_each(struct db_tx *tx, token_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TOKEN_ALL);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct token_row t;
		if (read_token(s, &t, err) != 0) {
			db_reset(s);
			return -1;
		}
		fn(ctx, &t);
	}
	return rc;
}

int store_token_revoke(struct db_tx *tx, const struct id *id, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TOKEN_REVOKE);
	db_bind_text(s, 1, id->text);
	db_bind_i64(s, 2, now);
	return db_run(s, NULL, err);
}

int store_token_used(struct db_tx *tx, const struct id *id, const char *from, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TOKEN_USED);
	db_bind_text(s, 1, id->text);
	db_bind_i64(s, 2, now);
	db_bind_text(s, 3, from);
	return db_run(s, NULL, err);
}

/* --- audit --- */

int store_audit_add(struct db_tx *tx, struct audit_row *a, struct error *err)
{
	const char *const texts[] = { a->who, a->from, a->tenant, a->action, a->target, a->outcome, a->detail, a->request_id };
	a->id = id_new();
	struct db_stmt *s = db_query(tx, Q_AUDIT_ADD);
	db_bind_text(s, 1, a->id.text);
	db_bind_i64(s, 2, a->at_us);
	for (int i = 0; i < 8; i++)
		db_bind_text(s, 3 + i, texts[i] ? texts[i] : "");
	return db_run(s, NULL, err);
}

int store_audit_each(struct db_tx *tx, const struct audit_filter *f, audit_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_AUDIT_PAGE);
	db_bind_text(s, 1, f->before ? f->before : "g");
	db_bind_text(s, 2, f->who ? f->who : "");
	db_bind_text(s, 3, f->action ? f->action : "");
	db_bind_text(s, 4, f->target ? f->target : "");
	db_bind_i64(s, 5, (int64_t)f->limit);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct audit_row a = { .at_us = db_i64(s, 1), .who = db_text(s, 2), .from = db_text(s, 3), .tenant = db_text(s, 4),
				       .action = db_text(s, 5), .target = db_text(s, 6), .outcome = db_text(s, 7), .detail = db_text(s, 8),
				       .request_id = db_text(s, 9) };
		copy_id(&a.id, db_text(s, 0));
		fn(ctx, &a);
	}
	return rc;
}

int store_audit_prune(struct db_tx *tx, int64_t before, bool *ret_more, struct error *err)
{
	int64_t dropped = 0;
	struct db_stmt *s = db_query(tx, Q_AUDIT_PRUNE);
	db_bind_i64(s, 1, before);
	db_bind_i64(s, 2, LIMIT_AUDIT_KEPT_MAX);
	db_bind_i64(s, 3, PRUNE_ROWS);
	if (db_run(s, &dropped, err) != 0)
		return -1;
	*ret_more = *ret_more || dropped >= PRUNE_ROWS;
	return 0;
}

/* --- quotas --- */

static int read_quota(struct db_stmt *s, struct quota *ret, struct error *err)
{
	int rc = db_step(s, err);
	if (rc == 1) {
		*ret = (struct quota){ db_i64(s, 0), db_i64(s, 1), db_i64(s, 2), db_i64(s, 3) };
		db_reset(s);
	}
	return rc;
}

int store_quota_get(struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_QUOTA_GET);
	db_bind_text(s, 1, tenant);
	return read_quota(s, ret, err);
}

int store_quota_put(struct db_tx *tx, const char *tenant, const struct quota *q, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_QUOTA_PUT);
	db_bind_text(s, 1, tenant);
	db_bind_i64(s, 2, q->sandboxes);
	db_bind_i64(s, 3, q->cpu_millis);
	db_bind_i64(s, 4, q->memory_mib);
	db_bind_i64(s, 5, q->ttl_ms);
	db_bind_i64(s, 6, now);
	return db_run(s, NULL, err);
}

int store_quota_used(struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_QUOTA_USED);
	db_bind_text(s, 1, tenant);
	return read_quota(s, ret, err) < 0 ? -1 : 0;
}
