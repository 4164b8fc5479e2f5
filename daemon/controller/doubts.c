/*
 * Doubts: a begin whose commit nobody knows the end of (the store's connection was lost just then). The caller was told that
 * it failed, so if the row is there nobody works on it: a command is ended as not started, a lease goes back.
 */
#include "daemon/controller/internal.h"

#include "shared/base/log.h"

void doubts_add(struct controller *c, const struct doubt *d)
{
	pthread_mutex_lock(&c->doubts_lock);
	c->doubts = xrealloc(c->doubts, c->n_doubts + 1, sizeof(*c->doubts));
	c->doubts[c->n_doubts++] = *d;
	pthread_mutex_unlock(&c->doubts_lock);
	hooks_wake(c->hooks, store_now(c->store), 0);
}

static int settle(struct controller *c, const struct doubt *d, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, &d->op, &op, err);
	if (rc <= 0 || op.state != OP_RUNNING || op.attempt != d->attempt)
		return rc < 0 ? -1 : 0;
	rc = op.kind == OPK_EXEC ? change_fail_op(&ch, &op, OUTCOME_NOT_STARTED, ERR_UNAVAILABLE,
						  "the store went away while the command was being begun", err)
				 : requeue_one(&ch, &op, err);
	return rc == 0 ? change_commit(&ch, err) : -1;
}

static bool next_doubt(struct controller *c, struct doubt *ret)
{
	pthread_mutex_lock(&c->doubts_lock);
	bool found = c->n_doubts > 0;
	if (found)
		*ret = c->doubts[--c->n_doubts];
	pthread_mutex_unlock(&c->doubts_lock);
	return found;
}

int doubts_settle(struct controller *c, struct error *err)
{
	struct doubt d;
	while (next_doubt(c, &d)) {
		if (settle(c, &d, err) != 0) {
			pthread_mutex_lock(&c->doubts_lock);
			c->doubts = xrealloc(c->doubts, c->n_doubts + 1, sizeof(*c->doubts));
			c->doubts[c->n_doubts++] = d;
			pthread_mutex_unlock(&c->doubts_lock);
			return -1;
		}
		log_info("store", "settled what a lost commit left operation=%s", d.op.text);
	}
	return 0;
}
