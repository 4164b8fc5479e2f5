/* What people do with nodes: see fleet.h. */
#include "daemon/controller/fleet.h"

#include "daemon/controller/internal.h"
#include "shared/base/parse.h"

static int may_look(const struct caller *who, struct error *err)
{
	return who->all_tenants ? 0 : error_set(err, ERR_FORBIDDEN, "nodes are shown to admins; %s is %s", who->who, role_text(who->role));
}

static int may_change(const struct caller *who, struct error *err)
{
	if (who->role == ROLE_ADMIN && who->all_tenants)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "only an admin may do this; %s is %s", who->who, role_text(who->role));
}

static int find(struct db_tx *tx, const char *ref, struct node_identity *ret, struct error *err)
{
	int rc = store_node_identity(tx, ref, ret, err);
	return rc == 0 ? error_set(err, ERR_NOT_FOUND, "no node is called '%.80s'; sandbox node list shows all", ref) : rc == 1 ? 0 : -1;
}

/* --- looking --- */

void node_info_list_done(struct node_info_list *l)
{
	for (size_t i = 0; i < l->len; i++)
		map_done(&l->items[i].labels);
	free(l->items);
	*l = (struct node_info_list){ .len = 0 };
}

struct collecting {
	const char *ref;
	struct node_info_list list;
};

static void collect(void *ctx, const struct node_row *row)
{
	struct collecting *x = ctx;
	if (x->ref && strcmp(row->id.text, x->ref) != 0 && strcmp(row->name, x->ref) != 0)
		return;
	struct node_info n = { .total = row->total, .used = row->used, .max_sandboxes = row->max_sandboxes, .seen_us = row->seen_us };
	n.identity.id = row->id;
	snprintf(n.region, sizeof(n.region), "%s", row->region);
	x->list.items = xrealloc(x->list.items, x->list.len + 1, sizeof(n));
	x->list.items[x->list.len++] = n;
}

static int complete(struct controller *c, struct db_tx *tx, struct node_info_list *l, struct error *err)
{
	for (size_t i = 0; i < l->len; i++) {
		struct id id = l->items[i].identity.id;
		if (store_node_identity(tx, id.text, &l->items[i].identity, err) < 0)
			return -1;
		nodes_describe(c, &id, &l->items[i]);
	}
	return 0;
}

int controller_nodes(struct controller *c, const struct caller *who, const char *ref, struct node_info_list *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct collecting x = { .ref = ref };
	if (may_look(who, err) != 0 || store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_node_each(tx, collect, &x, err);
	if (rc == 0)
		rc = complete(c, tx, &x.list, err);
	if (rc == 0 && ref && x.list.len == 0)
		rc = error_set(err, ERR_NOT_FOUND, "no node is called '%.80s'; sandbox node list shows all", ref);
	if (rc == 0)
		*ret = x.list;
	else
		node_info_list_done(&x.list);
	return rc;
}

/* --- draining and removing --- */

int controller_node_drain(struct controller *c, const struct caller *who, const char *ref, bool draining, struct id *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_identity n;
	if (may_change(who, err) != 0 || store_begin(c->store, DB_SYNCED, &tx, err) != 0 || find(tx, ref, &n, err) != 0 ||
	    store_node_drain(tx, &n.id, draining, err) != 0 || db_commit(steal(&tx), err) != 0)
		return -1;
	nodes_set_draining(c, &n.id, draining);
	*ret = n.id;
	return 0;
}

static int fail_sandbox(struct controller *c, const struct id *sandbox, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = store_lock_sandbox(ch.tx, sandbox, err);
	if (rc == 0)
		rc = store_sandbox_head(ch.tx, sandbox, &h, err);
	if (rc < 0 || rc == 0 || !sandbox_live(h.state))
		return rc < 0 ? -1 : 0;
	struct sandbox_change to = { .to = SANDBOX_FAILED, .failure = "its node was removed" };
	return change_end_sandbox(&ch, &h, &to, OUTCOME_LOST, err) == 0 ? change_commit(&ch, err) : -1;
}

/* Creates and deletes that were on their way end with it. */
static int fail_operation(struct controller *c, const struct id *op_id, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, op_id, &op, err);
	if (rc == 1 && !op_ended(op.state))
		rc = change_fail_op(&ch, &op, OUTCOME_LOST, ERR_UNAVAILABLE, "its node was removed", err);
	return rc < 0 ? -1 : change_commit(&ch, err);
}

static int fail_all(struct controller *c, const struct id *node, struct error *err)
{
	struct sandbox_list l = { .len = 0 };
	struct op_list open = { .len = 0 };
	if (controller_desired(c, node, &l, NULL, err) != 0)
		return -1;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < l.len; i++)
		rc = fail_sandbox(c, &l.items[i].id, err);
	sandbox_list_done(&l);
	if (rc == 0) {
		auto_tx *tx = NULL;
		rc = store_begin(c->store, DB_READ, &tx, err) != 0 ? -1 : store_op_open(tx, &(struct op_filter){ .node = node }, &open, err);
	}
	for (size_t i = 0; rc == 0 && i < open.len; i++)
		rc = fail_operation(c, &open.items[i].id, err);
	op_list_done(&open);
	return rc;
}

static int drop_row(struct controller *c, const struct id *node, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_identity n;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || find(tx, node->text, &n, err) != 0)
		return -1;
	if (n.sandboxes > 0)
		return error_set(err, ERR_CONFLICT, "node %s holds %u sandboxes: delete them (sandbox node drain %s keeps new ones away), or use --force",
				 n.name, n.sandboxes, n.name);
	return store_node_remove(tx, node, err) == 0 ? db_commit(steal(&tx), err) : -1;
}

int controller_node_remove(struct controller *c, const struct caller *who, const char *ref, bool force, struct id *ret, struct error *err)
{
	struct id node;
	/* Nothing new comes to it while what it has is ended. */
	if (may_change(who, err) != 0)
		return -1;
	if (force && (controller_node_drain(c, who, ref, true, &node, err) != 0 || fail_all(c, &node, err) != 0))
		return -1;
	if (!force) {
		auto_tx *tx = NULL;
		struct node_identity n;
		if (store_begin(c->store, DB_READ, &tx, err) != 0 || find(tx, ref, &n, err) != 0)
			return -1;
		node = n.id;
	}
	if (drop_row(c, &node, err) != 0)
		return -1;
	nodes_forget(c, &node);
	*ret = node;
	return 0;
}

/* --- join tokens --- */

int controller_join_token(struct controller *c, const struct caller *who, const char *name, const char *pin, int64_t lifetime_ms,
			  struct join_token *ret, char secret[static NODE_SECRET_LEN + 1], struct error *err)
{
	auto_tx *tx = NULL;
	struct join_token t = { .id = id_new(), .created_us = store_now(c->store) };
	if (may_change(who, err) != 0)
		return -1;
	if (!name_valid(name))
		return error_set(err, ERR_INVALID, "name: '%.80s' is not [a-z][a-z0-9-]{0,62} with a letter beyond f", name);
	if (lifetime_ms <= 0 || lifetime_ms > JOIN_LIFETIME_MS)
		return error_set(err, ERR_INVALID, "a join token lives at most an hour");
	if (pin && strlen(pin) > LINK_TEXT_MAX)
		return error_set(err, ERR_INVALID, "pin: want sha256//BASE64");
	secret_new(JOIN_SECRET_PREFIX, secret, t.hash);
	snprintf(t.name, sizeof(t.name), "%s", name);
	snprintf(t.pin, sizeof(t.pin), "%s", pin ? pin : "");
	snprintf(t.created_by, sizeof(t.created_by), "%s", who->who);
	t.expires_us = t.created_us + lifetime_ms * 1000;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || store_join_token_prune(tx, t.created_us, err) != 0 ||
	    store_join_token_add(tx, &t, err) != 0 || db_commit(steal(&tx), err) != 0)
		return -1;
	*ret = t;
	return 0;
}
