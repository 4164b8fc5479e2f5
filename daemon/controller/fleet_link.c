/* What workers do: joining, credentials, links. See fleet.h. */
#include "daemon/controller/fleet.h"

#include "daemon/controller/identity.h"
#include "daemon/controller/internal.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/parse.h"

/* --- joining --- */

static int check_token(const struct join_token *t, const struct join_request *q, int64_t now, struct error *err)
{
	if (t->used_us)
		return error_set(err, ERR_UNAUTHORIZED, "the join token was used already: make another one, sandbox node token %s", t->name);
	if (now >= t->expires_us)
		return error_set(err, ERR_UNAUTHORIZED, "the join token has expired: make another one, sandbox node token %s", t->name);
	if (strcmp(t->name, q->name) != 0)
		return error_set(err, ERR_FORBIDDEN, "the join token is for the node '%s', not '%.80s': set worker.name", t->name, q->name);
	if (*t->pin && (!q->pin || strcmp(t->pin, q->pin) != 0))
		return error_set(err, ERR_FORBIDDEN, "the join token is bound to another key of the controller than the worker saw");
	return 0;
}

/* The name is free, or this very node's. One that an own worker of a controller has is not for others. */
static int check_name(struct db_tx *tx, const struct join_request *q, struct error *err)
{
	struct node_identity n;
	int rc = store_node_identity(tx, q->name, &n, err);
	if (rc == 1 && !id_eq(&n.id, &q->node))
		return error_set(err, ERR_CONFLICT, "another node is called '%s': choose another name, or remove that one (sandbox node remove %s)",
				 q->name, q->name);
	return rc < 0 ? -1 : 0;
}

int controller_node_join(struct controller *c, const struct join_request *q, char secret[static NODE_SECRET_LEN + 1], struct error *err)
{
	auto_tx *tx = NULL;
	struct join_token t;
	struct node_identity n = { .id = q->node };
	char hash[TOKEN_HASH_LEN + 1];
	int64_t now = store_now(c->store);
	if (strncmp(q->token, JOIN_SECRET_PREFIX, strlen(JOIN_SECRET_PREFIX)) != 0 || strlen(q->token) != NODE_SECRET_LEN)
		return error_set(err, ERR_UNAUTHORIZED, "the join token is not valid here");
	token_hash(q->token, hash);
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0)
		return -1;
	int rc = store_join_token_by_hash(tx, hash, &t, err);
	if (rc < 0)
		return -1;
	if (rc == 0 || !token_hash_equal(hash, t.hash))
		return error_set(err, ERR_UNAUTHORIZED, "the join token is not valid here");
	if (check_token(&t, q, now, err) != 0 || check_name(tx, q, err) != 0)
		return -1;
	rc = store_join_token_use(tx, &t.id, now, err);
	if (rc <= 0)
		return rc < 0 ? -1 : error_set(err, ERR_UNAUTHORIZED, "the join token was used already");
	secret_new(NODE_SECRET_PREFIX, secret, n.credential);
	snprintf(n.name, sizeof(n.name), "%s", q->name);
	return store_node_join(tx, &n, now, err) == 0 ? db_commit(steal(&tx), err) : -1;
}

/* --- credentials --- */

static int promote(struct controller *c, const struct node_identity *n, const char *hash, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || store_node_credentials(tx, &n->id, hash, "", err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

int controller_node_caller(struct controller *c, const char *secret, struct caller *ret, struct error *err)
{
	struct node_identity n;
	char hash[TOKEN_HASH_LEN + 1];
	if (strlen(secret) != NODE_SECRET_LEN)
		return error_set(err, ERR_UNAUTHORIZED, "the node credential is not valid here");
	token_hash(secret, hash);
	{
		auto_tx *tx = NULL;
		if (store_begin(c->store, DB_READ, &tx, err) != 0)
			return -1;
		int rc = store_node_by_credential(tx, hash, &n, err);
		if (rc < 0)
			return -1;
		if (rc == 0 || (!token_hash_equal(hash, n.credential) && !token_hash_equal(hash, n.next_credential)))
			return error_set(err, ERR_UNAUTHORIZED, "the node credential is not valid here: the node was removed, or joined again elsewhere");
	}
	if (!token_hash_equal(hash, n.credential) && promote(c, &n, hash, err) != 0)
		return -1;
	ret->role = ROLE_VIEWER;
	ret->all_tenants = false;
	ret->node = n.id;
	ret->tenant[0] = '\0';
	snprintf(ret->who, sizeof(ret->who), "node %s", n.name);
	return 0;
}

int controller_node_rotate(struct controller *c, const struct id *node, char secret[static NODE_SECRET_LEN + 1], struct error *err)
{
	auto_tx *tx = NULL;
	struct node_identity n;
	char next[TOKEN_HASH_LEN + 1], text[NODE_SECRET_LEN + 1];
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0)
		return -1;
	int rc = store_node_identity(tx, node->text, &n, err);
	if (rc <= 0)
		return rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "the node was removed");
	secret_new(NODE_SECRET_PREFIX, text, next);
	if (store_node_credentials(tx, node, n.credential, next, err) != 0 || db_commit(steal(&tx), err) != 0)
		return -1;
	memcpy(secret, text, sizeof(text));
	explicit_bzero(text, sizeof(text));
	return 0;
}

/* --- links --- */

static int note_link(struct controller *c, const struct link_opening *o, struct node_identity *ret_before, int64_t *ret_epoch, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_identity n, before;
	if (store_begin(c->store, DB_WRITE, &tx, err) != 0)
		return -1;
	int rc = store_node_identity(tx, o->node.text, &before, err);
	if (rc <= 0)
		return rc < 0 ? -1 : error_set(err, ERR_UNAUTHORIZED, "the node was removed");
	n = before;
	snprintf(n.session, sizeof(n.session), "%s", o->session);
	snprintf(n.boot_id, sizeof(n.boot_id), "%s", o->boot_id);
	snprintf(n.version, sizeof(n.version), "%s", o->version);
	snprintf(n.link_controller, sizeof(n.link_controller), "%s", o->controller);
	if (store_node_link(tx, &n, store_now(c->store), err) != 0 || store_node_identity(tx, o->node.text, &n, err) < 0 ||
	    db_commit(steal(&tx), err) != 0)
		return -1;
	*ret_before = before;
	*ret_epoch = n.link_epoch;
	return 0;
}

int controller_link_open(struct controller *c, const struct link_opening *o, int64_t *ret_epoch, struct error *err)
{
	struct node_identity before;
	static const struct strv nothing = STRV_INIT;
	if (note_link(c, o, &before, ret_epoch, err) != 0)
		return -1;
	nodes_set_boot(c, &o->node, o->boot_id);
	bool same = strcmp(before.session, o->session) == 0;
	return requeue_all(c, &o->node, o->boot_id, same ? o->held : &nothing, err);
}

int controller_link_check(struct controller *c, const struct id *node, int64_t epoch, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_identity n;
	int rc = store_begin(c->store, DB_READ, &tx, err) == 0 ? store_node_identity(tx, node->text, &n, err) : -1;
	if (rc < 0)
		return -1;
	if (rc == 0)
		return error_set(err, ERR_CONFLICT, "the node was removed");
	if (n.link_epoch != epoch)
		return error_set(err, ERR_CONFLICT, "this link is stale: another one of the node came up (epoch %lld, this is %lld)",
				 (long long)n.link_epoch, (long long)epoch);
	return 0;
}

static int note_closed(struct controller *c, const struct id *node, int64_t epoch, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_WRITE, &tx, err) != 0 || store_node_unlink(tx, node, epoch, err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

enum { SETTLE_US = 100 * 1000 }; /* past the moment from which it counts as away */

/* Other controllers look here for the way to a node. */
void controller_link_closed(struct controller *c, const struct id *node, int64_t epoch)
{
	struct error err = ERROR_INIT;
	nodes_let_go(c, node);
	hooks_wake(c->hooks, store_now(c->store), LIMIT_NODE_AWAY_MS * INT64_C(1000) + SETTLE_US);
	if (store_shared(c->store) && note_closed(c, node, epoch, &err) != 0)
		log_debug("link", "that the link of node=%s is gone is not noted: %s", node->text, err.message);
}

int controller_link_places(struct controller *c, link_place_fn fn, void *ctx, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_place_list l = { .len = 0 };
	int rc = store_begin(c->store, DB_READ, &tx, err) == 0 ? store_node_places(tx, &l, err) : -1;
	for (size_t i = 0; rc == 0 && i < l.len; i++)
		fn(ctx, &l.items[i].id, l.items[i].name, l.items[i].controller);
	free(l.items);
	return rc;
}
