/* The worker's side: leases fenced by the attempt number, completions, and what a node should have after a restart. */
#include "daemon/controller/internal.h"

enum {
	RETRY_FIRST_US = 1000 * 1000, /* a removal that failed is tried again after 1, 2, 4, … seconds */
	RETRY_STEPS = 6,              /* … and at most 64 */
	PAGE = 256,
};

void lease_done(struct lease *l)
{
	sandbox_done(&l->sandbox);
}

/* Whether there is something; without the writer's cost, since idle workers ask often. */
static int peek(struct controller *c, const struct id *node, struct op_head *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_op_next(tx, node, store_now(c->store), false, ret, err);
}

static int start(struct change *ch, struct op_head *op, struct sandbox_head *h, struct error *err)
{
	struct op_change to = { .to = OP_RUNNING, .attempt = op->attempt + 1 };
	if (store_op_move(ch->tx, op, &to, ch->now, err) != 0)
		return -1;
	ch->doubt = (struct doubt){ .op = op->id, .attempt = op->attempt };
	change_measure(ch, op, true, NULL);
	/* One that goes back after a restart is creating already. */
	if (op->kind != OPK_CREATE || h->state != SANDBOX_SCHEDULED)
		return 0;
	return change_move(ch, h, &(struct sandbox_change){ .to = SANDBOX_CREATING }, NULL, err);
}

/* Takes the next, or, when somebody is changing every one's sandbox, waits for the one that was seen. 1: ret is pending and its
 * sandbox locked; 0: it was taken meanwhile. */
static int take(struct change *ch, const struct id *node, struct op_head *op, struct error *err)
{
	struct id seen = op->id;
	int rc = store_op_next(ch->tx, node, ch->now, true, op, err);
	if (rc < 0 || !store_shared(ch->c->store))
		return rc;
	if (rc == 1)
		seen = op->id;
	rc = change_op(ch, &seen, op, err);
	return rc == 1 && op->state != OP_PENDING ? 0 : rc;
}

static int lease_seen(struct controller *c, const struct id *node, struct op_head op, struct lease *ret, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	auto_sandbox s;
	sandbox_init(&s);
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = take(&ch, node, &op, err);
	if (rc <= 0)
		return rc;
	rc = store_sandbox_head(ch.tx, &op.sandbox, &h, err);
	if (rc == 0)
		return error_set(err, ERR_INTERNAL, "operation %s names a sandbox that is not there", op.id.text);
	if (rc < 0 || start(&ch, &op, &h, err) != 0 || store_sandbox_get(ch.tx, &op.sandbox, &s, err) < 0 || change_commit(&ch, err) != 0)
		return -1;
	*ret = (struct lease){ .operation = op.id, .kind = op.kind, .attempt = op.attempt, .sandbox = s };
	sandbox_init(&s);
	return 1;
}

int controller_lease(struct controller *c, const struct id *node, struct lease *ret, struct error *err)
{
	struct op_head op;
	int rc;
	/* Taken by another between the look and the lock: there may be more. */
	while ((rc = peek(c, node, &op, err)) == 1)
		if ((rc = lease_seen(c, node, op, ret, err)) != 0)
			return rc;
	return rc;
}

/* --- completion --- */

static const char *or_text(const char *text, const char *otherwise)
{
	return text && text[0] ? text : otherwise;
}

/* A delete arrived while it was being created: whatever came of it, the sandbox is not for use, and the delete may go on. */
static int created_too_late(struct change *ch, struct op_head *op, const struct sandbox_head *h, struct error *err)
{
	bool expired = h->end_reason == OUTCOME_EXPIRED;
	change_work(ch, &h->node);
	return change_fail_op(ch, op, expired ? OUTCOME_EXPIRED : OUTCOME_DELETED, expired ? ERR_EXPIRED : ERR_CONFLICT,
			      expired ? "the sandbox expired while it was being created" : "the sandbox was deleted while it was being created", err);
}

static int complete_create(struct change *ch, struct op_head *op, struct sandbox_head *h, const struct completion *done, struct error *err)
{
	if (!h->tenant[0])
		change_wake(ch, ch->now); /* of a pool: the next one may be started */
	if (h->state != SANDBOX_CREATING)
		return created_too_late(ch, op, h, err);
	if (done->success) {
		struct sandbox_change to = { .to = SANDBOX_RUNNING, .image_digest = done->image_digest };
		if (change_move(ch, h, &to, NULL, err) != 0)
			return -1;
		return change_end_op(ch, op, &(struct op_change){ .to = OP_SUCCEEDED, .attempt = op->attempt }, err);
	}
	const char *why = or_text(done->error, "the worker gave no reason");
	struct sandbox_change to = { .to = SANDBOX_FAILED, .failure = why, .image_digest = done->image_digest };
	if (change_end_sandbox(ch, h, &to, OUTCOME_LOST, err) != 0)
		return -1;
	return change_fail_op(ch, op, OUTCOME_NONE, done->code != ERR_NONE ? done->code : ERR_INTERNAL, why, err);
}

/* Not done is not forgotten: the operation waits and is leased again. */
static int retry_later(struct change *ch, struct op_head *op, const struct completion *done, struct error *err)
{
	uint32_t step = op->attempt < RETRY_STEPS ? op->attempt : RETRY_STEPS;
	int64_t at = ch->now + ((int64_t)RETRY_FIRST_US << (step ? step - 1 : 0));
	struct op_change to = { .to = OP_PENDING, .attempt = op->attempt, .not_before_us = at, .code = done->code,
				.error = or_text(done->error, "the removal failed") };
	change_wake(ch, at);
	return store_op_move(ch->tx, op, &to, ch->now, err);
}

static int complete_delete(struct change *ch, struct op_head *op, struct sandbox_head *h, const struct completion *done, struct error *err)
{
	if (!done->success)
		return retry_later(ch, op, done, err);
	enum outcome why = h->end_reason == OUTCOME_EXPIRED ? OUTCOME_EXPIRED : OUTCOME_DELETED;
	struct sandbox_change to = { .to = SANDBOX_STOPPED, .end_reason = why };
	if (h->state != SANDBOX_STOPPED && change_end_sandbox(ch, h, &to, why, err) != 0)
		return -1;
	return change_end_op(ch, op, &(struct op_change){ .to = OP_SUCCEEDED, .attempt = op->attempt }, err);
}

int controller_complete(struct controller *c, const struct completion *done, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, &done->operation, &op, err);
	/* A stale attempt speaks of work that somebody else has in hands now. */
	if (rc == 0 || (rc == 1 && (op.state != OP_RUNNING || op.attempt != done->attempt)))
		return 0;
	if (rc < 0)
		return -1;
	rc = store_sandbox_head(ch.tx, &op.sandbox, &h, err);
	if (rc == 1)
		rc = op.kind == OPK_CREATE ? complete_create(&ch, &op, &h, done, err) : complete_delete(&ch, &op, &h, done, err);
	else if (rc == 0)
		rc = error_set(err, ERR_INTERNAL, "operation %s names a sandbox that is not there", op.id.text);
	return rc == 0 ? change_commit(&ch, err) : -1;
}

int controller_sandbox_gone(struct controller *c, const struct id *sandbox, const char *why, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = store_lock_sandbox(ch.tx, sandbox, err);
	if (rc == 0)
		rc = store_sandbox_head(ch.tx, sandbox, &h, err);
	/* One that is being created or deleted ends with that operation. */
	if (rc < 0 || rc == 0 || h.state != SANDBOX_RUNNING)
		return rc < 0 ? -1 : 0;
	if (h.expires_us <= ch.now) {
		/* Process 1 ends itself at the deadline; that is an expiry, and what is left is removed the usual way. */
		rc = delete_begin(&ch, &h, OUTCOME_EXPIRED, NULL, err);
	} else {
		struct sandbox_change to = { .to = SANDBOX_FAILED, .failure = or_text(why, "it ended by itself") };
		rc = change_end_sandbox(&ch, &h, &to, OUTCOME_LOST, err);
	}
	return rc == 0 ? change_commit(&ch, err) : -1;
}

/* --- after a restart --- */

static int read_live(struct db_tx *tx, const struct id *node, struct sandbox_list *l, struct error *err)
{
	struct id last;
	struct page_query q = { .node = node, .limit = PAGE };
	size_t n;
	do {
		struct sandbox_page p = { .len = 0 };
		if (store_sandbox_page(tx, &q, &p, err) != 0)
			return -1;
		int rc = store_page_decode(&p, err);
		n = p.len;
		l->items = xrealloc(l->items, l->len + n, sizeof(*l->items));
		for (size_t i = 0; rc == 0 && i < n; i++) {
			last = p.items[i].id;
			l->items[l->len++] = p.items[i];
			sandbox_init(&p.items[i]);
		}
		store_page_done(&p);
		if (rc != 0)
			return -1;
		q.before = last.text;
	} while (n == PAGE);
	return 0;
}

int controller_desired(struct controller *c, const struct id *node, struct sandbox_list *ret_sandboxes, struct operation_list *ret_execs,
		       struct error *err)
{
	auto_tx *tx = NULL;
	struct sandbox_list l = { .len = 0 };
	struct operation_list ops = { .len = 0 };
	/* One transaction: both lists speak of one moment. */
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (read_live(tx, node, &l, err) != 0 || (ret_execs && store_op_open_execs(tx, node, &ops.items, &ops.len, err) != 0)) {
		sandbox_list_done(&l);
		return -1;
	}
	*ret_sandboxes = l;
	if (ret_execs)
		*ret_execs = ops;
	return 0;
}

/* A create whose sandbox is to be deleted is not begun again. */
int requeue_one(struct change *ch, struct op_head *op, struct error *err)
{
	struct sandbox_head h;
	if (op->kind == OPK_EXEC || op->state != OP_RUNNING)
		return 0;
	int rc = store_sandbox_head(ch->tx, &op->sandbox, &h, err);
	if (rc < 0)
		return -1;
	if (rc == 1 && op->kind == OPK_CREATE && h.state != SANDBOX_CREATING)
		return created_too_late(ch, op, &h, err);
	change_work(ch, &op->node);
	return store_op_move(ch->tx, op, &(struct op_change){ .to = OP_PENDING, .attempt = op->attempt }, ch->now, err);
}

static int requeue(struct controller *c, const struct id *op_id, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, op_id, &op, err);
	if (rc == 1)
		rc = requeue_one(&ch, &op, err);
	return rc == 0 ? change_commit(&ch, err) : -1;
}

int requeue_all(struct controller *c, const struct id *node, const char *boot_id, const struct strv *held, struct error *err)
{
	struct op_list open = { .len = 0 };
	{
		auto_tx *tx = NULL;
		if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_op_open(tx, &(struct op_filter){ .node = node }, &open, err) != 0)
			return -1;
	}
	/* One transaction each: no two sandboxes are locked in an order that another daemon does not keep. */
	int rc = end_lost_execs(c, node, boot_id, err);
	for (size_t i = 0; rc == 0 && i < open.len; i++)
		if (open.items[i].kind != OPK_EXEC && open.items[i].state == OP_RUNNING && !strv_has(held, open.items[i].id.text))
			rc = requeue(c, &open.items[i].id, err);
	op_list_done(&open);
	return rc;
}

int controller_requeue(struct controller *c, const struct id *node, struct error *err)
{
	static const struct strv nothing = STRV_INIT;
	return requeue_all(c, node, store_boot_id(c->store), &nothing, err);
}
