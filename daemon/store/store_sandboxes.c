/* Rows of sandboxes: see store.h. */
#include "daemon/store/internal.h"

#include "shared/base/mem.h"
#include "shared/json/model_json.h"

/* Above every character of an id ("0-9a-f-"): an upper bound for ranges of ids. */
#define ABOVE_IDS "g"

int store_sandbox_insert(struct db_tx *tx, const struct sandbox *x, struct error *err)
{
	cJSON *tree = spec_to_json(&x->spec);
	auto_free char *spec = json_print(tree);
	cJSON_Delete(tree);
	char rid[ID_TEXT_LEN + 1];
	store_reverse(x->id.text, rid, sizeof(rid));
	struct db_stmt *s = db_query(tx, Q_SANDBOX_INSERT);
	db_bind_text(s, 1, x->id.text);
	db_bind_text(s, 2, rid);
	db_bind_text(s, 3, x->spec.tenant);
	db_bind_text(s, 4, x->spec.name);
	db_bind_text(s, 5, sandbox_state_text(x->state));
	db_bind_text(s, 6, x->node_id.text);
	db_bind_text(s, 7, x->node_name);
	db_bind_text(s, 8, tier_text(x->tier));
	db_bind_i64(s, 9, x->risk_score);
	db_bind_i64(s, 10, x->spec.writable_root);
	db_bind_i64(s, 11, x->created_us);
	db_bind_i64(s, 12, x->expires_us);
	db_bind_text(s, 13, x->decision);
	db_bind_text(s, 14, spec);
	return db_run(s, NULL, err);
}

/* --- reading --- */

static int read_head(struct db_stmt *s, struct sandbox_head *h, struct error *err)
{
	*h = (struct sandbox_head){ .expires_us = db_i64(s, 5), .ended_us = db_i64(s, 6), .writable_root = db_i64(s, 8) != 0 };
	copy_id(&h->id, db_text(s, 0));
	copy_text(h->tenant, sizeof(h->tenant), db_text(s, 1));
	copy_text(h->name, sizeof(h->name), db_text(s, 2));
	copy_id(&h->node, db_text(s, 4));
	copy_id(&h->delete_op, db_text(s, 9));
	if (READ_ENUM(sandbox_state, s, 3, &h->state, err) != 0)
		return -1;
	return READ_ENUM(outcome, s, 7, &h->end_reason, err);
}

/* The whole row but its spec, whose text stays with the caller. x is initialised. */
static int read_row(struct db_stmt *s, struct sandbox *x, char **ret_spec, struct error *err)
{
	copy_id(&x->id, db_text(s, 0));
	copy_id(&x->node_id, db_text(s, 4));
	x->expires_us = db_i64(s, 5);
	x->ended_us = db_i64(s, 6);
	copy_text(x->node_name, sizeof(x->node_name), db_text(s, 10));
	x->risk_score = (uint16_t)db_i64(s, 12);
	x->created_us = db_i64(s, 13);
	x->updated_us = db_i64(s, 14);
	x->image_digest = xstrdup0(db_text(s, 15));
	x->failure = xstrdup0(db_text(s, 16));
	x->decision = xstrdup0(db_text(s, 17));
	if (READ_ENUM(sandbox_state, s, 3, &x->state, err) != 0 || READ_ENUM(outcome, s, 7, &x->end_reason, err) != 0 ||
	    READ_ENUM(tier, s, 11, &x->tier, err) != 0)
		return -1;
	*ret_spec = xstrdup(db_text(s, 18) ? db_text(s, 18) : "");
	return 0;
}

static int decode_spec(struct sandbox *x, const char *text, struct error *err)
{
	auto_json *tree = NULL;
	if (json_parse(text, strlen(text), &tree, err) != 0 || spec_from_json(tree, "spec", false, &x->spec, err) != 0)
		return error_wrap(err, "the stored spec of %s", x->id.text);
	return 0;
}

int store_sandbox_get(struct db_tx *tx, const struct id *id, struct sandbox *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_GET);
	db_bind_text(s, 1, id->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct sandbox x;
	auto_free char *spec = NULL;
	sandbox_init(&x);
	rc = read_row(s, &x, &spec, err);
	db_reset(s);
	if (rc != 0 || decode_spec(&x, spec, err) != 0) {
		sandbox_done(&x);
		return -1;
	}
	sandbox_done(ret);
	*ret = x;
	return 1;
}

int store_sandbox_head(struct db_tx *tx, const struct id *id, struct sandbox_head *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_HEAD);
	db_bind_text(s, 1, id->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	rc = read_head(s, ret, err) == 0 ? 1 : -1;
	db_reset(s);
	return rc;
}

int store_lock_sandbox(struct db_tx *tx, const struct id *id, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_LOCK);
	db_bind_text(s, 1, id->text);
	int rc = db_step(s, err);
	db_reset(s);
	return rc < 0 ? -1 : 0;
}

static int read_heads(struct db_stmt *s, struct sandbox_head *ret, size_t max, struct error *err)
{
	size_t n = 0;
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		if (n < max && read_head(s, &ret[n++], err) != 0) {
			db_reset(s);
			return -1;
		}
	}
	return rc < 0 ? -1 : (int)n;
}

int store_sandbox_match(struct db_tx *tx, enum match_by by, const char *text, bool live, const char *tenant,
			struct sandbox_head *ret, size_t max, struct error *err)
{
	static const enum query queries[] = {
		[MATCH_NAME] = Q_SANDBOX_BY_NAME, [MATCH_PREFIX] = Q_SANDBOX_BY_PREFIX, [MATCH_SUFFIX] = Q_SANDBOX_BY_SUFFIX,
	};
	char low[ID_TEXT_LEN + NAME_MAX_LEN + 2], high[sizeof(low) + 1];
	int n = 1;
	if (by == MATCH_SUFFIX)
		store_reverse(text, low, sizeof(low));
	else
		copy_text(low, sizeof(low), text);
	snprintf(high, sizeof(high), "%s" ABOVE_IDS, low);
	struct db_stmt *s = db_query(tx, queries[by]);
	db_bind_text(s, n++, low);
	if (by != MATCH_NAME)
		db_bind_text(s, n++, high);
	db_bind_i64(s, n++, live);
	db_bind_text(s, n++, tenant ? tenant : "");
	db_bind_i64(s, n, (int64_t)max);
	return read_heads(s, ret, max, err);
}

int store_sandbox_due(struct db_tx *tx, int64_t now, struct sandbox_head *ret, size_t max, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_DUE);
	db_bind_i64(s, 1, now);
	db_bind_i64(s, 2, (int64_t)max);
	return read_heads(s, ret, max, err);
}

int store_sandbox_next_due(struct db_tx *tx, int64_t *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_NEXT_DUE);
	int rc = db_step(s, err);
	if (rc < 0)
		return -1;
	*ret = rc ? db_i64(s, 0) : 0;
	db_reset(s);
	return 0;
}

int store_sandbox_counts(struct db_tx *tx, count_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_COUNTS);
	int rc;
	while ((rc = db_step(s, err)) == 1)
		fn(ctx, db_text(s, 0), db_i64(s, 1));
	return rc;
}

/* --- changes --- */

int store_sandbox_move(struct db_tx *tx, struct sandbox_head *h, const struct sandbox_change *change, int64_t now, struct error *err)
{
	if (!sandbox_may_move(h->state, change->to))
		return error_set(err, ERR_INTERNAL, "sandbox %s may not go from %s to %s", h->id.text, sandbox_state_text(h->state),
				 sandbox_state_text(change->to));
	bool live = sandbox_live(change->to);
	enum outcome why = change->end_reason != OUTCOME_NONE ? change->end_reason : h->end_reason;
	int64_t ended = live ? 0 : h->ended_us ? h->ended_us : now, changed = 0;
	struct db_stmt *s = db_query(tx, Q_SANDBOX_MOVE);
	db_bind_text(s, 1, h->id.text);
	db_bind_text(s, 2, sandbox_state_text(h->state));
	db_bind_text(s, 3, sandbox_state_text(change->to));
	db_bind_i64(s, 4, live);
	db_bind_i64(s, 5, now);
	db_bind_i64(s, 6, ended);
	db_bind_text(s, 7, outcome_text(why));
	db_bind_text(s, 8, change->failure);
	db_bind_text(s, 9, change->image_digest);
	if (db_run(s, &changed, err) != 0)
		return -1;
	if (changed != 1)
		return error_set(err, ERR_INTERNAL, "sandbox %s was not %s any more", h->id.text, sandbox_state_text(h->state));
	h->state = change->to;
	h->end_reason = why;
	h->ended_us = ended;
	return 0;
}

int store_sandbox_set_delete(struct db_tx *tx, struct sandbox_head *h, const struct id *op, enum outcome why, int64_t now,
			     struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_SET_DELETE);
	db_bind_text(s, 1, h->id.text);
	db_bind_text(s, 2, op->text);
	db_bind_text(s, 3, outcome_text(why));
	db_bind_i64(s, 4, now);
	if (db_run(s, NULL, err) != 0)
		return -1;
	h->delete_op = *op;
	h->end_reason = why;
	return 0;
}

int store_sandbox_set_expiry(struct db_tx *tx, struct sandbox_head *h, int64_t expires_us, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_SET_EXPIRY);
	db_bind_text(s, 1, h->id.text);
	db_bind_i64(s, 2, expires_us);
	db_bind_i64(s, 3, now);
	if (db_run(s, NULL, err) != 0)
		return -1;
	h->expires_us = expires_us;
	return 0;
}

int store_sandbox_replace(struct db_tx *tx, const struct sandbox_place *p, const struct id *operation, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_SANDBOX_SET_NODE);
	db_bind_text(s, 1, p->sandbox->text);
	db_bind_text(s, 2, p->node->text);
	db_bind_text(s, 3, p->node_name);
	db_bind_text(s, 4, tier_text(p->tier));
	db_bind_text(s, 5, p->decision);
	db_bind_i64(s, 6, now);
	if (db_run(s, NULL, err) != 0)
		return -1;
	s = db_query(tx, Q_OP_SET_NODE);
	db_bind_text(s, 1, operation->text);
	db_bind_text(s, 2, p->node->text);
	return db_run(s, NULL, err);
}

/* --- pages --- */

/* Chooses the query whose index serves exactly this question. */
static struct db_stmt *page_statement(struct db_tx *tx, const struct page_query *q)
{
	const char *key = q->node ? q->node->text : q->tenant;
	enum query query = q->node     ? Q_SANDBOX_PAGE_LIVE_NODE
			   : q->tenant ? (q->all ? Q_SANDBOX_PAGE_TENANT : Q_SANDBOX_PAGE_LIVE_TENANT)
				       : (q->all ? Q_SANDBOX_PAGE : Q_SANDBOX_PAGE_LIVE);
	int n = 1;
	struct db_stmt *s = db_query(tx, query);
	if (key)
		db_bind_text(s, n++, key);
	db_bind_text(s, n++, q->before ? q->before : ABOVE_IDS);
	db_bind_i64(s, n, (int64_t)q->limit);
	return s;
}

int store_sandbox_page(struct db_tx *tx, const struct page_query *q, struct sandbox_page *ret, struct error *err)
{
	struct sandbox_page p = { .len = 0 };
	struct db_stmt *s = page_statement(tx, q);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		if (p.len % 64 == 0) {
			p.items = xrealloc(p.items, p.len + 64, sizeof(*p.items));
			p.specs = xrealloc(p.specs, p.len + 64, sizeof(*p.specs));
		}
		sandbox_init(&p.items[p.len]);
		p.specs[p.len] = NULL;
		p.len++;
		if (read_row(s, &p.items[p.len - 1], &p.specs[p.len - 1], err) != 0) {
			rc = -1;
			break;
		}
	}
	db_reset(s);
	if (rc < 0) {
		store_page_done(&p);
		return -1;
	}
	*ret = p;
	return 0;
}

int store_page_decode(struct sandbox_page *p, struct error *err)
{
	for (size_t i = 0; i < p->len; i++)
		if (decode_spec(&p->items[i], p->specs[i], err) != 0)
			return -1;
	return 0;
}

void store_page_done(struct sandbox_page *p)
{
	for (size_t i = 0; i < p->len; i++) {
		sandbox_done(&p->items[i]);
		free(p->specs[i]);
	}
	free(p->items);
	free(p->specs);
	*p = (struct sandbox_page){ .len = 0 };
}
