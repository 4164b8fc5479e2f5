/*
 * Creates whose node went away before it answered for them. Where nothing of the user's can have run there, the create is placed
 * anew; should the old node come back, it is told that the sandbox is not its own and removes what it made. Else it waits for its node.
 */
#include "daemon/controller/internal.h"

#include "daemon/controller/decision_json.h"
#include "shared/base/log.h"

enum { LOOK_AWAY_US = 1000 * 1000 };

/* Commands come to a sandbox that runs; only the one it begins with may have been started by the create itself. */
bool strand_may_have_begun(const struct sandbox *s, uint32_t attempt)
{
	return attempt > 0 && s->spec.command.len > 0;
}

/* Gives back what it holds and takes a place elsewhere. 1; 0: there is none; -1. */
static int take_place(struct change *ch, struct sandbox *s, struct reservation *r, struct decision *d, struct error *err)
{
	struct error e = ERROR_INIT;
	struct settings settings = controller_settings(ch->c);
	if (change_release(ch, &s->id, err) != 0)
		return -1;
	aegis_assess(&s->spec, &settings.policy, d);
	if (d->required < s->tier)
		d->required = s->tier;
	r->sandbox = s->id;
	r->resources = s->spec.resources;
	strv_copy(&r->anti_affinity, &s->spec.placement.anti_affinity_keys);
	if (create_reserve(ch, &s->spec, d, r, &e) == 0)
		return 1;
	return e.code == ERR_NO_CAPACITY ? 0 : error_set(err, e.code, "%s", e.message);
}

static int write_place(struct change *ch, struct op_head *op, const struct sandbox_head *h, const struct sandbox *s, const struct decision *d,
		       struct error *err)
{
	cJSON *tree = decision_to_json(d);
	auto_free char *decision = json_print(tree);
	auto_free char *detail = xasprintf("node %s is away; placed on %s", s->node_name, d->node_name);
	struct sandbox_place place = { .sandbox = &s->id, .node = &d->node, .node_name = d->node_name, .tier = d->required, .decision = decision };
	cJSON_Delete(tree);
	if (store_sandbox_replace(ch->tx, &place, &op->id, ch->now, err) != 0)
		return -1;
	if (op->state == OP_RUNNING && store_op_move(ch->tx, op, &(struct op_change){ .to = OP_PENDING, .attempt = op->attempt }, ch->now, err) != 0)
		return -1;
	change_event(ch, h, "sandbox.rescheduled", detail, NULL);
	change_work(ch, &d->node);
	return 0;
}

static bool still_stranded(struct controller *c, const struct op_head *op)
{
	char name[NAME_MAX_LEN + 1];
	return op->kind == OPK_CREATE && !op_ended(op->state) && nodes_away(c, &op->node, name);
}

static int replace_in(struct change *ch, const struct id *id, struct reservation *r, struct decision *d, struct error *err)
{
	struct op_head op;
	struct sandbox_head h;
	auto_sandbox s;
	sandbox_init(&s);
	int rc = change_op(ch, id, &op, err);
	if (rc <= 0 || !still_stranded(ch->c, &op))
		return rc < 0 ? -1 : 0;
	rc = store_sandbox_head(ch->tx, &op.sandbox, &h, err);
	if (rc <= 0 || (h.state != SANDBOX_SCHEDULED && h.state != SANDBOX_CREATING))
		return rc < 0 ? -1 : 0;
	if (store_sandbox_get(ch->tx, &h.id, &s, err) < 0)
		return -1;
	if (strand_may_have_begun(&s, op.attempt))
		return 0;
	rc = take_place(ch, &s, r, d, err);
	if (rc <= 0)
		return rc;
	if (write_place(ch, &op, &h, &s, d, err) != 0 || change_commit(ch, err) != 0)
		return -1;
	log_info("controller", "placed anew sandbox=%s from=%s to=%s", s.id.text, s.node_name, d->node_name);
	return 0;
}

static int replace(struct controller *c, const struct id *op, struct error *err)
{
	struct reservation r = { .anti_affinity = STRV_INIT };
	struct decision d;
	decision_init(&d);
	int rc;
	{
		auto_change ch = CHANGE_INIT; /* ends before r does: it may give r back */
		rc = change_begin(c, DB_WRITE, &ch, err);
		if (rc == 0)
			rc = replace_in(&ch, op, &r, &d, err);
	}
	reservation_done(&r);
	decision_done(&d);
	return rc;
}

int strand_look(struct controller *c, int64_t *next_us, struct error *err)
{
	struct op_list open = { .len = 0 };
	char name[NAME_MAX_LEN + 1];
	if (!nodes_several(c))
		return 0;
	{
		auto_tx *tx = NULL;
		if (store_begin(c->store, DB_READ, &tx, err) != 0 || (store_shared(c->store) && nodes_follow(c, tx, err) != 0) ||
		    store_op_open(tx, &(struct op_filter){ .creates = true }, &open, err) != 0)
			return -1;
	}
	int rc = 0;
	bool any_away = open.len > 0 && nodes_any_away(c), stranded = false;
	for (size_t i = 0; any_away && rc == 0 && i < open.len; i++) {
		if (!nodes_away(c, &open.items[i].node, name))
			continue;
		stranded = true;
		rc = replace(c, &open.items[i].id, err);
	}
	int64_t at = store_now(c->store) + (stranded ? LOOK_AWAY_US : STRAND_LOOK_US);
	if (open.len > 0 && (*next_us == 0 || at < *next_us))
		*next_us = at;
	op_list_done(&open);
	return rc;
}
