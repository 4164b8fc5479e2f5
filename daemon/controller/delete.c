/* Delete: accepted in every state, wins over create, asked twice it is one operation. Expiry is a delete with another reason. */
#include "daemon/controller/internal.h"

#include "shared/base/clock.h"

static int insert_delete(struct change *ch, struct sandbox_head *h, enum op_state state, enum outcome why, const char *actor, struct error *err)
{
	struct op_new op = { .id = id_new(), .sandbox = h, .kind = OPK_DELETE, .state = state, .actor = actor };
	if (store_op_insert(ch->tx, &op, ch->now, err) != 0)
		return -1;
	return store_sandbox_set_delete(ch->tx, h, &op.id, why, ch->now, err);
}

/* A create that nobody has begun is over at once, and with it the sandbox: no node knows of it. */
static int cancel_unborn(struct change *ch, struct sandbox_head *h, enum outcome why, const char *actor, struct error *err)
{
	if (insert_delete(ch, h, OP_SUCCEEDED, why, actor, err) != 0)
		return -1;
	change_event(ch, h, why == OUTCOME_EXPIRED ? "sandbox.expired" : "sandbox.deleted", "before it was created", actor);
	struct sandbox_change to = { .to = SANDBOX_STOPPED, .end_reason = why };
	return change_end_sandbox(ch, h, &to, why, err);
}

/* Ends the create that is still waiting; ret_unborn: no worker ever had it in hands. One that is running asks and stops by itself. */
static int cancel_create(struct change *ch, struct sandbox_head *h, enum outcome why, bool *ret_unborn, struct error *err)
{
	struct op_head create;
	int rc = lookup_create(ch->tx, h, &create, err);
	*ret_unborn = false;
	if (rc <= 0 || create.state != OP_PENDING)
		return rc < 0 ? -1 : 0;
	*ret_unborn = create.attempt == 0;
	return change_fail_op(ch, &create, why, why == OUTCOME_EXPIRED ? ERR_EXPIRED : ERR_CONFLICT,
			      why == OUTCOME_EXPIRED ? "the sandbox expired before it was created" : "the sandbox was deleted before it was created", err);
}

int delete_begin(struct change *ch, struct sandbox_head *h, enum outcome why, const char *actor, struct error *err)
{
	bool unborn;
	if (cancel_create(ch, h, why, &unborn, err) != 0)
		return -1;
	if (unborn)
		return cancel_unborn(ch, h, why, actor, err);
	struct sandbox_change to = { .to = SANDBOX_STOPPING, .end_reason = why };
	if (insert_delete(ch, h, OP_PENDING, why, actor, err) != 0 || change_move(ch, h, &to, actor, err) != 0)
		return -1;
	change_work(ch, &h->node);
	return 0;
}

/* One that failed holds nothing any more, but its node may have leftovers: the worker is asked, the state stays. */
static int delete_failed(struct change *ch, struct sandbox_head *h, const char *actor, struct error *err)
{
	if (insert_delete(ch, h, OP_PENDING, OUTCOME_DELETED, actor, err) != 0)
		return -1;
	change_event(ch, h, "sandbox.stopping", NULL, actor);
	change_work(ch, &h->node);
	return 0;
}

static int want_delete(struct change *ch, struct sandbox_head *h, const char *actor, struct error *err)
{
	if (h->delete_op.text[0])
		return 0;
	if (h->state == SANDBOX_FAILED)
		return delete_failed(ch, h, actor, err);
	return delete_begin(ch, h, OUTCOME_DELETED, actor, err);
}

int controller_delete(struct controller *c, const struct caller *who, const char *ref, struct operation *ret, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (access_may_mutate(who, err) != 0 || change_begin(c, DB_SYNCED, &ch, err) != 0 || change_lookup(&ch, who, ref, &h, err) != 0 ||
	    want_delete(&ch, &h, who->who, err) != 0)
		return -1;
	int rc = store_op_get(ch.tx, &h.delete_op, ret, err);
	if (rc == 0)
		return lookup_ended(ch.tx, &h, err); /* the operation is past its retention */
	return rc < 0 ? -1 : change_commit(&ch, err);
}

bool controller_wants_delete(struct controller *c, const struct id *sandbox)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	if (store_begin(c->store, DB_READ, &tx, NULL) != 0)
		return false;
	int rc = store_sandbox_head(tx, sandbox, &h, NULL);
	return rc == 0 || (rc == 1 && (h.state == SANDBOX_STOPPING || !sandbox_live(h.state)));
}

int64_t controller_deadline(struct controller *c, const struct id *sandbox)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	if (store_begin(c->store, DB_READ, &tx, NULL) != 0 || store_sandbox_head(tx, sandbox, &h, NULL) != 1 || !sandbox_live(h.state))
		return 0;
	return store_wall(c->store, h.expires_us);
}
