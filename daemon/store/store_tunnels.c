/* Tunnels and names: see tunnels.h. */
#include "daemon/store/tunnels.h"

#include "daemon/store/internal.h"

int store_tunnel_add(struct db_tx *tx, const struct tunnel_row *r, struct error *err)
{
	const struct tunnel *t = &r->t;
	struct db_stmt *s = db_query(tx, Q_TUNNEL_ADD);
	db_bind_text(s, 1, t->id.text);
	db_bind_text(s, 2, t->sandbox.text);
	db_bind_text(s, 3, t->tenant);
	db_bind_text(s, 4, t->label);
	db_bind_i64(s, 5, t->port);
	db_bind_text(s, 6, protocol_text(t->protocol));
	db_bind_text(s, 7, tunnel_auth_text(t->auth));
	db_bind_text(s, 8, r->hash);
	db_bind_i64(s, 9, t->keep_host);
	db_bind_text(s, 10, tunnel_state_text(t->state));
	db_bind_i64(s, 11, t->created_us);
	db_bind_i64(s, 12, t->expires_us);
	return db_run(s, &(int64_t){ 0 }, err);
}

static int read_row(struct db_stmt *s, struct tunnel_row *r, struct error *err)
{
	struct tunnel *t = &r->t;
	*r = (struct tunnel_row){ .hash = "" };
	copy_id(&t->id, db_text(s, 0));
	copy_id(&t->sandbox, db_text(s, 1));
	copy_text(t->tenant, sizeof(t->tenant), db_text(s, 2));
	copy_text(t->label, sizeof(t->label), db_text(s, 3));
	t->port = (uint16_t)db_i64(s, 4);
	copy_text(r->hash, sizeof(r->hash), db_text(s, 7));
	t->keep_host = db_i64(s, 8) != 0;
	copy_text(t->failure, sizeof(t->failure), db_text(s, 10));
	t->created_us = db_i64(s, 11);
	t->expires_us = db_i64(s, 12);
	if (READ_ENUM(protocol, s, 5, &t->protocol, err) != 0 || READ_ENUM(tunnel_auth, s, 6, &t->auth, err) != 0)
		return -1;
	return READ_ENUM(tunnel_state, s, 9, &t->state, err);
}

static int one(struct db_stmt *s, struct tunnel_row *ret, struct error *err)
{
	struct tunnel_row r;
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	rc = read_row(s, &r, err) == 0 ? 1 : -1;
	db_reset(s);
	if (rc == 1)
		*ret = r;
	return rc;
}

int store_tunnel_get(struct db_tx *tx, const struct id *id, struct tunnel_row *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_GET);
	db_bind_text(s, 1, id->text);
	return one(s, ret, err);
}

int store_tunnel_by_label(struct db_tx *tx, const char *label, struct tunnel_row *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_BY_LABEL);
	db_bind_text(s, 1, label);
	return one(s, ret, err);
}

int store_tunnel_each(struct db_tx *tx, const struct id *sandbox, const char *tenant, tunnel_row_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, sandbox ? Q_TUNNEL_OF_SANDBOX : tenant ? Q_TUNNEL_OF_TENANT : Q_TUNNEL_LIVE);
	struct tunnel_row r;
	int rc;
	if (sandbox || tenant)
		db_bind_text(s, 1, sandbox ? sandbox->text : tenant);
	while ((rc = db_step(s, err)) == 1) {
		if (read_row(s, &r, err) != 0) {
			db_reset(s);
			return -1;
		}
		fn(ctx, &r);
	}
	return rc;
}

int store_tunnel_move_all(struct db_tx *tx, const struct id *sandbox, enum tunnel_state to, const char *failure, int64_t *ret_n, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_MOVE_ALL);
	db_bind_text(s, 1, sandbox->text);
	db_bind_text(s, 2, tunnel_state_text(to));
	db_bind_i64(s, 3, to != TUNNEL_FAILED);
	db_bind_text(s, 4, failure);
	return db_run(s, ret_n, err);
}

int store_tunnel_set_hash(struct db_tx *tx, const struct id *id, const char *hash, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_SET_HASH);
	db_bind_text(s, 1, id->text);
	db_bind_text(s, 2, hash);
	return db_run(s, NULL, err);
}

int store_tunnel_drop(struct db_tx *tx, const struct id *id, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_DROP);
	db_bind_text(s, 1, id->text);
	return db_run(s, NULL, err);
}

int store_tunnel_drop_all(struct db_tx *tx, const struct id *sandbox, int64_t *ret_n, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_DROP_ALL);
	db_bind_text(s, 1, sandbox->text);
	return db_run(s, ret_n, err);
}

int store_tunnel_due(struct db_tx *tx, int64_t now, struct tunnel_row *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_DUE);
	db_bind_i64(s, 1, now);
	return one(s, ret, err);
}

int store_tunnel_next_due(struct db_tx *tx, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_NEXT_DUE);
	int rc = db_step(s, err);
	if (rc < 0)
		return -1;
	*ret = rc ? db_i64(s, 0) : 0;
	db_reset(s);
	return 0;
}

int store_tunnel_name_get(struct db_tx *tx, const char *label, char ret_tenant[static TENANT_MAX_LEN + 1], int64_t *ret_until_us, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_NAME_GET);
	db_bind_text(s, 1, label);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	copy_text(ret_tenant, TENANT_MAX_LEN + 1, db_text(s, 0));
	*ret_until_us = db_i64(s, 1);
	db_reset(s);
	return 1;
}

int store_tunnel_name_put(struct db_tx *tx, const char *label, const char *tenant, int64_t until_us, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_NAME_PUT);
	db_bind_text(s, 1, label);
	db_bind_text(s, 2, tenant);
	db_bind_i64(s, 3, until_us);
	return db_run(s, NULL, err);
}

int store_tunnel_prune(struct db_tx *tx, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_TUNNEL_NAME_PRUNE);
	db_bind_i64(s, 1, now);
	if (db_run(s, NULL, err) != 0)
		return -1;
	return db_run(db_query(tx, Q_TUNNEL_PRUNE), NULL, err);
}
