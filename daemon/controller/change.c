/* One transaction and what follows from it once it is committed: see internal.h. */
#include "daemon/controller/internal.h"

int change_begin(struct controller *c, enum db_mode mode, struct change *ret, struct error *err)
{
	struct db_tx *tx;
	if (store_begin(c->store, mode, &tx, err) != 0)
		return -1;
	*ret = (struct change){ .c = c, .tx = tx, .now = store_now(c->store) };
	return 0;
}

/* A copy: what the event speaks of may be gone when it is written. */
struct change_event {
	char type[64];
	char tenant[TENANT_MAX_LEN + 1];
	struct id sandbox, operation; /* operation "": none */
	char *detail, *actor;
};

static void free_lists(struct change *ch)
{
	for (size_t i = 0; i < ch->n_events; i++) {
		free(ch->events[i].detail);
		free(ch->events[i].actor);
	}
	free(ch->events);
	free(ch->measures);
	for (size_t i = 0; i < ch->n_given; i++)
		reservation_done(&ch->given[i]);
	free(ch->given);
	free(ch->ended);
	free(ch->work);
	*ch = (struct change)CHANGE_INIT;
}

void change_done(struct change *ch)
{
	if (ch->tx)
		db_rollback(ch->tx);
	if (ch->taken)
		nodes_give(ch->c, ch->taken);
	free_lists(ch);
}

static int write_events(struct change *ch, struct error *err)
{
	if (ch->n_events && store_event_lock(ch->tx, err) != 0)
		return -1;
	for (size_t i = 0; i < ch->n_events; i++) {
		const struct change_event *p = &ch->events[i];
		struct event e = { .type = p->type, .tenant = p->tenant, .sandbox = &p->sandbox, .detail = p->detail, .actor = p->actor,
				   .operation = p->operation.text[0] ? &p->operation : NULL };
		if (store_event_add(ch->tx, &e, ch->now, err) != 0)
			return -1;
	}
	return 0;
}

/* The daemons that share the store. Those on other machines wait for the same operations and nodes. */
static void tell_others(struct change *ch)
{
	struct store *s = ch->c->store;
	for (size_t i = 0; i < ch->n_ended; i++)
		store_tell(s, NEWS_OPERATION, &ch->ended[i]);
	for (size_t i = 0; i < ch->n_work; i++)
		store_tell(s, NEWS_WORK, &ch->work[i]);
	if (ch->wake_us && !store_leads(s))
		store_tell(s, NEWS_DEADLINE, NULL);
	if (ch->n_events)
		store_tell(s, NEWS_EVENT, NULL);
	if (ch->routes)
		store_tell(s, NEWS_ROUTES, NULL);
}

static int commit(struct change *ch, struct error *err)
{
	struct error local = ERROR_INIT;
	if (db_commit(steal(&ch->tx), &local) == 0)
		return 0;
	if (db_doubtful(&local) && ch->doubt.op.text[0])
		doubts_add(ch->c, &ch->doubt);
	if (err)
		*err = local;
	return -1;
}

int change_commit(struct change *ch, struct error *err)
{
	if (write_events(ch, err) != 0 || commit(ch, err) != 0)
		return -1;
	ch->taken = NULL;
	for (size_t i = 0; i < ch->n_measures; i++)
		metrics_add(ch->c->metrics, &ch->measures[i]);
	tell_others(ch);
	if (ch->n_events)
		hooks_event(ch->c->hooks);
	if (ch->routes)
		hooks_routes(ch->c->hooks);
	for (size_t i = 0; i < ch->n_given; i++)
		nodes_give(ch->c, &ch->given[i]);
	for (size_t i = 0; i < ch->n_ended; i++) {
		hooks_progress(ch->c->hooks, &ch->ended[i], NULL);
		watches_fire(ch->c->watches, &ch->ended[i]);
	}
	for (size_t i = 0; i < ch->n_work; i++)
		hooks_work(ch->c->hooks, &ch->work[i]);
	if (ch->n_given && queue_len(ch->c) > 0)
		change_wake(ch, ch->now);
	if (ch->wake_us)
		hooks_wake(ch->c->hooks, ch->now, ch->wake_us - ch->now);
	free_lists(ch);
	return 0;
}

static void add_id(struct id **list, size_t *n, const struct id *id)
{
	for (size_t i = 0; i < *n; i++)
		if (id_eq(&(*list)[i], id))
			return;
	*list = xrealloc(*list, *n + 1, sizeof(**list));
	(*list)[(*n)++] = *id;
}

void change_work(struct change *ch, const struct id *node)
{
	add_id(&ch->work, &ch->n_work, node);
}

void change_wake(struct change *ch, int64_t at_us)
{
	if (ch->wake_us == 0 || at_us < ch->wake_us)
		ch->wake_us = at_us;
}

/* What waits in a pool has no events: nobody could know what they are about. */
static void add_event(struct change *ch, const struct event *from)
{
	if (!from->tenant[0])
		return;
	ch->events = xrealloc(ch->events, ch->n_events + 1, sizeof(*ch->events));
	struct change_event *e = &ch->events[ch->n_events++];
	*e = (struct change_event){ .sandbox = *from->sandbox, .detail = xstrdup0(from->detail), .actor = xstrdup0(from->actor) };
	snprintf(e->type, sizeof(e->type), "%s", from->type);
	snprintf(e->tenant, sizeof(e->tenant), "%s", from->tenant);
	if (from->operation)
		e->operation = *from->operation;
}

void change_event(struct change *ch, const struct sandbox_head *h, const char *type, const char *detail, const char *actor)
{
	add_event(ch, &(struct event){ .type = type, .tenant = h->tenant, .sandbox = &h->id, .detail = detail, .actor = actor });
}

int change_lookup(struct change *ch, const struct caller *who, const char *ref, struct sandbox_head *ret, struct error *err)
{
	if (lookup_head(ch->tx, who, ref, ret, err) != 0)
		return -1;
	if (!store_shared(ch->c->store))
		return 0;
	struct id id = ret->id;
	if (store_lock_sandbox(ch->tx, &id, err) != 0)
		return -1;
	int rc = store_sandbox_head(ch->tx, &id, ret, err);
	return rc == 0 ? error_set(err, ERR_NOT_FOUND, "sandbox %s is gone", id.text) : rc < 0 ? -1 : 0;
}

int change_op(struct change *ch, const struct id *op, struct op_head *ret, struct error *err)
{
	int rc = store_op_head(ch->tx, op, ret, err);
	if (rc <= 0 || !store_shared(ch->c->store))
		return rc;
	struct id sandbox = ret->sandbox;
	return store_lock_sandbox(ch->tx, &sandbox, err) == 0 ? store_op_head(ch->tx, op, ret, err) : -1;
}

int change_end_op(struct change *ch, struct op_head *op, const struct op_change *to, struct error *err)
{
	if (store_op_move(ch->tx, op, to, ch->now, err) != 0)
		return -1;
	struct event e = { .type = to->to == OP_SUCCEEDED ? "operation.succeeded" : "operation.failed", .tenant = op->tenant,
			   .sandbox = &op->sandbox, .operation = &op->id,
			   .detail = to->result ? outcome_text(to->result->outcome) : op_kind_text(op->kind) };
	add_event(ch, &e);
	change_measure(ch, op, false, to);
	add_id(&ch->ended, &ch->n_ended, &op->id);
	/* Its retention begins: the timer must know of the first one. */
	change_wake(ch, ch->now + controller_settings(ch->c).retention_ms * 1000);
	return 0;
}

int change_fail_op(struct change *ch, struct op_head *op, enum outcome outcome, enum error_code code, const char *text, struct error *err)
{
	struct result r;
	result_init(&r);
	r.outcome = outcome;
	struct op_change to = { .to = OP_FAILED, .attempt = op->attempt, .result = &r, .code = code, .error = text };
	return change_end_op(ch, op, &to, err);
}

int change_move(struct change *ch, struct sandbox_head *h, const struct sandbox_change *to, const char *actor, struct error *err)
{
	char type[64];
	if (store_sandbox_move(ch->tx, h, to, ch->now, err) != 0 || tunnels_follow(ch, h, to->to, err) != 0)
		return -1;
	snprintf(type, sizeof(type), "sandbox.%s", sandbox_state_text(to->to));
	change_event(ch, h, type, to->failure, actor);
	return 0;
}

static const char *exec_end_text(enum outcome why)
{
	return why == OUTCOME_EXPIRED   ? "the sandbox expired while the command ran"
	       : why == OUTCOME_DELETED ? "the sandbox was deleted while the command ran"
					: "the sandbox ended while the command ran";
}

static int end_execs(struct change *ch, const struct sandbox_head *h, enum outcome why, struct error *err)
{
	struct op_list open = { .len = 0 };
	int rc = store_op_open(ch->tx, &(struct op_filter){ .node = &h->node, .sandbox = &h->id }, &open, err);
	for (size_t i = 0; rc == 0 && i < open.len; i++)
		if (open.items[i].kind == OPK_EXEC)
			rc = change_fail_op(ch, &open.items[i], why, why == OUTCOME_EXPIRED ? ERR_EXPIRED : ERR_CONFLICT,
					    exec_end_text(why), err);
	op_list_done(&open);
	return rc;
}

int change_release(struct change *ch, const struct id *sandbox, struct error *err)
{
	struct reservation r;
	int rc = store_release(ch->tx, sandbox, &r, err);
	if (rc == 1) {
		ch->given = xrealloc(ch->given, ch->n_given + 1, sizeof(*ch->given));
		ch->given[ch->n_given++] = r;
	}
	return rc < 0 ? -1 : 0;
}

int change_end_sandbox(struct change *ch, struct sandbox_head *h, const struct sandbox_change *to, enum outcome execs, struct error *err)
{
	if (end_execs(ch, h, execs, err) != 0 || change_move(ch, h, to, NULL, err) != 0)
		return -1;
	int rc = change_release(ch, &h->id, err);
	/* One of a pool is to be replaced now; its retention begins. */
	change_wake(ch, h->tenant[0] ? ch->now + controller_settings(ch->c).retention_ms * 1000 : ch->now);
	return rc;
}
