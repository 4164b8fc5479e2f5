/* Nodes' identities, links, join tokens: see fleet.h. */
#include "daemon/store/fleet.h"

#include "daemon/store/internal.h"
#include "shared/base/mem.h"

static int one_identity(struct db_stmt *s, struct node_identity *ret, struct error *err)
{
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct node_identity n = { .draining = db_i64(s, 4), .joined_us = db_i64(s, 5), .linked_us = db_i64(s, 6), .link_epoch = db_i64(s, 7),
				   .sandboxes = (uint32_t)db_i64(s, 12) };
	copy_id(&n.id, db_text(s, 0));
	copy_text(n.name, sizeof(n.name), db_text(s, 1));
	copy_text(n.credential, sizeof(n.credential), db_text(s, 2));
	copy_text(n.next_credential, sizeof(n.next_credential), db_text(s, 3));
	copy_text(n.link_controller, sizeof(n.link_controller), db_text(s, 8));
	copy_text(n.session, sizeof(n.session), db_text(s, 9));
	copy_text(n.boot_id, sizeof(n.boot_id), db_text(s, 10));
	copy_text(n.version, sizeof(n.version), db_text(s, 11));
	db_reset(s);
	*ret = n;
	return 1;
}

int store_node_identity(struct db_tx *tx, const char *ref, struct node_identity *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_IDENTITY);
	db_bind_text(s, 1, ref);
	return one_identity(s, ret, err);
}

int store_node_by_credential(struct db_tx *tx, const char *hash, struct node_identity *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_BY_CREDENTIAL);
	db_bind_text(s, 1, hash);
	return one_identity(s, ret, err);
}

int store_node_join(struct db_tx *tx, const struct node_identity *n, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_JOIN);
	db_bind_text(s, 1, n->id.text);
	db_bind_text(s, 2, n->name);
	db_bind_text(s, 3, n->credential);
	db_bind_i64(s, 4, now);
	return db_run(s, NULL, err);
}

int store_node_credentials(struct db_tx *tx, const struct id *node, const char *credential, const char *next, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_CREDENTIALS);
	db_bind_text(s, 1, node->text);
	db_bind_text(s, 2, credential);
	db_bind_text(s, 3, next);
	return db_run(s, NULL, err);
}

int store_node_link(struct db_tx *tx, const struct node_identity *n, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_LINK);
	db_bind_text(s, 1, n->id.text);
	db_bind_text(s, 2, n->session);
	db_bind_text(s, 3, n->boot_id);
	db_bind_text(s, 4, n->version);
	db_bind_text(s, 5, n->link_controller);
	db_bind_i64(s, 6, now);
	return db_run(s, NULL, err);
}

int store_node_unlink(struct db_tx *tx, const struct id *node, int64_t epoch, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_UNLINK);
	db_bind_text(s, 1, node->text);
	db_bind_i64(s, 2, epoch);
	return db_run(s, NULL, err);
}

int store_node_places(struct db_tx *tx, struct node_place_list *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_PLACES);
	struct node_place_list l = { .len = 0 };
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		if (l.len % 64 == 0)
			l.items = xrealloc(l.items, l.len + 64, sizeof(*l.items));
		struct node_place *p = &l.items[l.len++];
		copy_text(p->id.text, sizeof(p->id.text), db_text(s, 0));
		copy_text(p->name, sizeof(p->name), db_text(s, 1));
		copy_text(p->controller, sizeof(p->controller), db_text(s, 2));
	}
	if (rc < 0)
		free(l.items);
	else
		*ret = l;
	return rc;
}

int store_node_drain(struct db_tx *tx, const struct id *node, bool draining, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_DRAIN);
	db_bind_text(s, 1, node->text);
	db_bind_i64(s, 2, draining);
	return db_run(s, NULL, err);
}

int store_node_remove(struct db_tx *tx, const struct id *node, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_REMOVE);
	db_bind_text(s, 1, node->text);
	return db_run(s, NULL, err);
}

/* --- join tokens --- */

int store_join_token_add(struct db_tx *tx, const struct join_token *t, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_JOIN_TOKEN_ADD);
	db_bind_text(s, 1, t->id.text);
	db_bind_text(s, 2, t->name);
	db_bind_text(s, 3, t->hash);
	db_bind_text(s, 4, t->pin);
	db_bind_i64(s, 5, t->created_us);
	db_bind_text(s, 6, t->created_by);
	db_bind_i64(s, 7, t->expires_us);
	return db_run(s, NULL, err);
}

int store_join_token_by_hash(struct db_tx *tx, const char *hash, struct join_token *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_JOIN_TOKEN_GET);
	db_bind_text(s, 1, hash);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct join_token t = { .created_us = db_i64(s, 4), .expires_us = db_i64(s, 6), .used_us = db_i64(s, 7) };
	copy_id(&t.id, db_text(s, 0));
	copy_text(t.name, sizeof(t.name), db_text(s, 1));
	copy_text(t.hash, sizeof(t.hash), db_text(s, 2));
	copy_text(t.pin, sizeof(t.pin), db_text(s, 3));
	copy_text(t.created_by, sizeof(t.created_by), db_text(s, 5));
	db_reset(s);
	*ret = t;
	return 1;
}

int store_join_token_use(struct db_tx *tx, const struct id *id, int64_t now, struct error *err)
{
	int64_t changed = 0;
	struct db_stmt *s = db_query(tx, Q_JOIN_TOKEN_USE);
	db_bind_text(s, 1, id->text);
	db_bind_i64(s, 2, now);
	return db_run(s, &changed, err) == 0 ? changed > 0 : -1;
}

int store_join_token_prune(struct db_tx *tx, int64_t before, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_JOIN_TOKEN_PRUNE);
	db_bind_i64(s, 1, before);
	return db_run(s, NULL, err);
}
