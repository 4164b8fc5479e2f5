/* Finding what a caller means: references to sandboxes, lists, operations. What they may not see is not found. */
#include "daemon/controller/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/parse.h"

#include <ctype.h>

enum {
	REF_DIGITS_MIN = 4,
	CANDIDATES = 5,     /* named in a message about an ambiguous reference */
	PAGE = 256,         /* rows read under the store's lock at a time */
};

const char *lookup_label(const struct sandbox_head *h, char out[static LABEL_MAX])
{
	if (h->name[0])
		snprintf(out, LABEL_MAX, "%s (%s)", h->name, id_short(&h->id));
	else
		snprintf(out, LABEL_MAX, "%s", h->id.text);
	return out;
}

/* --- references --- */

struct matches {
	struct sandbox_head items[2 * (CANDIDATES + 1)];
	size_t len;
};

static int ambiguous(const char *ref, const struct matches *m, struct error *err)
{
	auto_buf list = BUF_INIT;
	for (size_t i = 0; i < m->len && i < CANDIDATES; i++) {
		const struct sandbox_head *h = &m->items[i];
		buf_addf(&list, "%s%s%s%s (%s)", i ? ", " : "", h->name, h->name[0] ? " " : "", h->id.text, sandbox_state_text(h->state));
	}
	return error_set(err, ERR_CONFLICT, "'%s' matches more than one sandbox: %s%s; give more digits", ref, buf_str(&list),
			 m->len > CANDIDATES ? ", …" : "");
}

static int add_matches(struct db_tx *tx, enum match_by by, const char *text, bool live, const char *tenant, struct matches *m,
		       struct error *err)
{
	struct sandbox_head found[CANDIDATES + 1];
	int n = store_sandbox_match(tx, by, text, live, tenant, found, ARRAY_LEN(found), err);
	for (int i = 0; i < n; i++) {
		bool known = false;
		for (size_t k = 0; k < m->len; k++)
			known = known || id_eq(&m->items[k].id, &found[i].id);
		if (!known)
			m->items[m->len++] = found[i];
	}
	return n < 0 ? -1 : 0;
}

/* A name is unique among a tenant's live sandboxes. Who sees several tenants means their own first; of ended ones the latest. */
static void prefer_own(const struct caller *who, bool live, struct matches *m)
{
	for (size_t i = 0; i < m->len; i++) {
		if (strcmp(m->items[i].tenant, who->tenant) == 0) {
			m->items[0] = m->items[i];
			m->len = 1;
			return;
		}
	}
	if (!live && m->len > 1)
		m->len = 1;
}

/* Hex digits and dashes with enough digits to be part of an id; lower-cased into out. */
static bool is_id_part(const char *ref, char *out, size_t n)
{
	size_t i, digits = 0;
	for (i = 0; ref[i] && i < n - 1; i++) {
		if (!isxdigit((unsigned char)ref[i]) && ref[i] != '-')
			return false;
		digits += ref[i] != '-';
		out[i] = (char)tolower((unsigned char)ref[i]);
	}
	out[i] = '\0';
	return !ref[i] && digits >= REF_DIGITS_MIN;
}

static int find_matches(struct db_tx *tx, const struct caller *who, const char *ref, bool live, struct matches *m, struct error *err)
{
	char part[ID_TEXT_LEN + 2];
	const char *tenant = access_filter(who);
	m->len = 0;
	if (name_valid(ref)) {
		if (add_matches(tx, MATCH_NAME, ref, live, tenant, m, err) != 0)
			return -1;
		prefer_own(who, live, m);
		return 0;
	}
	if (!is_id_part(ref, part, sizeof(part)))
		return 0;
	if (add_matches(tx, MATCH_SUFFIX, part, live, tenant, m, err) != 0)
		return -1;
	return add_matches(tx, MATCH_PREFIX, part, live, tenant, m, err);
}

static int not_found(const char *ref, struct error *err)
{
	char shown[256];
	text_escape(ref, strlen(ref), shown, sizeof(shown));
	if (ref[0] && strspn(ref, "0123456789abcdefABCDEF-") == strlen(ref) && strlen(ref) < REF_DIGITS_MIN)
		return error_set(err, ERR_NOT_FOUND, "'%s' is too short for an id: give a name, an id, or at least %d digits of one", shown,
				 REF_DIGITS_MIN);
	return error_set(err, ERR_NOT_FOUND, "no sandbox matches '%s'", shown);
}

int lookup_head(struct db_tx *tx, const struct caller *who, const char *ref, struct sandbox_head *ret, struct error *err)
{
	struct id id;
	if (id_parse(ref, &id) == 0) {
		struct sandbox_head h;
		int rc = store_sandbox_head(tx, &id, &h, err);
		if (rc < 0)
			return -1;
		if (rc == 0 || !access_visible(who, h.tenant))
			return not_found(ref, err);
		*ret = h;
		return 0;
	}
	struct matches m;
	if (find_matches(tx, who, ref, true, &m, err) != 0 || (m.len == 0 && find_matches(tx, who, ref, false, &m, err) != 0))
		return -1;
	if (m.len == 0)
		return not_found(ref, err);
	if (m.len > 1)
		return ambiguous(ref, &m, err);
	*ret = m.items[0];
	return 0;
}

int lookup_ended(struct db_tx *tx, const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX], when[RFC3339_MAX];
	lookup_label(h, label);
	time_rfc3339(h->end_reason == OUTCOME_EXPIRED ? h->expires_us : h->ended_us, when);
	if (h->end_reason == OUTCOME_EXPIRED)
		return error_set(err, ERR_EXPIRED, "sandbox %s expired at %s", label, when);
	if (h->end_reason == OUTCOME_DELETED && h->state == SANDBOX_STOPPED)
		return error_set(err, ERR_NOT_FOUND, "sandbox %s was deleted at %s", label, when);
	auto_sandbox s;
	sandbox_init(&s);
	if (store_sandbox_get(tx, &h->id, &s, err) < 0)
		return -1;
	return error_set(err, ERR_CONFLICT, "sandbox %s failed at %s: %s", label, when, s.failure ? s.failure : "no reason was recorded");
}

/* --- one sandbox, many sandboxes --- */

static void add_live_view(struct controller *c, struct sandbox *s)
{
	s->unreachable = sandbox_live(s->state) && !nodes_reachable(c, &s->node_id);
}

int lookup_load(struct controller *c, struct db_tx *tx, const struct id *id, struct sandbox *ret, struct error *err)
{
	int rc = store_sandbox_get(tx, id, ret, err);
	if (rc == 0)
		return not_found(id->text, err);
	if (rc < 0 || tunnels_of(c, tx, id, &ret->tunnels, &ret->n_tunnels, err) != 0)
		return -1;
	add_live_view(c, ret);
	return 0;
}

int controller_resolve(struct controller *c, const struct caller *who, const char *ref, struct sandbox *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || lookup_head(tx, who, ref, &h, err) != 0)
		return -1;
	return lookup_load(c, tx, &h.id, ret, err);
}

void sandbox_list_done(struct sandbox_list *l)
{
	for (size_t i = 0; i < l->len; i++)
		sandbox_done(&l->items[i]);
	free(l->items);
	*l = (struct sandbox_list){ .len = 0 };
}

static bool labels_match(const struct map *have, const struct map *want)
{
	for (size_t i = 0; want && i < want->len; i++) {
		const char *value = map_get(have, want->items[i].key);
		if (!value || strcmp(value, want->items[i].value) != 0)
			return false;
	}
	return true;
}

/* Moves what matches from the page into the list; stops when limit (0: none) is reached. */
static void take_page(struct controller *c, struct sandbox_page *p, const struct list_query *q, struct sandbox_list *l)
{
	l->items = xrealloc(l->items, l->len + p->len, sizeof(*l->items));
	for (size_t i = 0; i < p->len && (q->limit == 0 || l->len < q->limit); i++) {
		if (!labels_match(&p->items[i].spec.labels, q->labels))
			continue;
		add_live_view(c, &p->items[i]);
		l->items[l->len++] = p->items[i];
		sandbox_init(&p->items[i]);
	}
}

static int read_page(struct controller *c, const struct page_query *q, struct sandbox_page *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_sandbox_page(tx, q, ret, err);
}

/* Page by page: a long list must not hold the store for long. */
static int collect(struct controller *c, struct page_query *page, const struct list_query *q, struct sandbox_list *l, struct error *err)
{
	struct id last;
	for (;;) {
		struct sandbox_page p = { .len = 0 };
		if (read_page(c, page, &p, err) != 0)
			return -1;
		int rc = store_page_decode(&p, err);
		size_t n = p.len;
		if (n)
			last = p.items[n - 1].id;
		if (rc == 0)
			take_page(c, &p, q, l);
		store_page_done(&p);
		if (rc != 0 || n < page->limit || (q->limit && l->len >= q->limit))
			return rc;
		page->before = last.text;
	}
}

/* There are few tunnels beside many sandboxes. */
static int add_tunnels(struct controller *c, const struct caller *who, struct sandbox_list *l, struct error *err)
{
	struct tunnel_list t = { .len = 0 };
	if (controller_tunnels(c, who, NULL, &t, err) != 0)
		return -1;
	for (size_t i = 0; i < t.len; i++)
		for (size_t k = 0; k < l->len; k++) {
			struct sandbox *s = &l->items[k];
			if (!id_eq(&s->id, &t.items[i].sandbox))
				continue;
			s->tunnels = xrealloc(s->tunnels, s->n_tunnels + 1, sizeof(*s->tunnels));
			s->tunnels[s->n_tunnels++] = t.items[i];
		}
	tunnel_list_done(&t);
	return 0;
}

int controller_list(struct controller *c, const struct caller *who, const struct list_query *q, struct sandbox_list *ret, struct error *err)
{
	const char *tenant = access_filter(who);
	if (q->tenant && q->tenant[0] && !access_visible(who, q->tenant))
		return error_set(err, ERR_FORBIDDEN, "tenant: you act in tenant '%s', not in '%.80s'", who->tenant, q->tenant);
	if (q->after && !id_valid(q->after))
		return error_set(err, ERR_INVALID, "after: '%.80s' is not a sandbox id", q->after);
	struct page_query page = { .tenant = q->tenant && q->tenant[0] ? q->tenant : tenant, .all = q->all, .before = q->after, .limit = PAGE };
	if (q->limit && q->limit < PAGE && !q->labels)
		page.limit = q->limit;
	struct sandbox_list l = { .len = 0 };
	if (collect(c, &page, q, &l, err) != 0 || add_tunnels(c, who, &l, err) != 0) {
		sandbox_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

/* --- operations --- */

int lookup_operation(struct db_tx *tx, const struct id *id, struct operation *ret, struct error *err)
{
	int rc = store_op_get(tx, id, ret, err);
	return rc == 1 ? 0 : rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "no operation has the id '%s'", id->text);
}

int lookup_create(struct db_tx *tx, const struct sandbox_head *h, struct op_head *ret, struct error *err)
{
	struct op_list open = { .len = 0 };
	if (store_op_open(tx, &(struct op_filter){ .node = &h->node, .sandbox = &h->id }, &open, err) != 0)
		return -1;
	int found = 0;
	for (size_t i = 0; i < open.len && !found; i++) {
		if (open.items[i].kind == OPK_CREATE) {
			*ret = open.items[i];
			found = 1;
		}
	}
	op_list_done(&open);
	return found;
}

/* By the last digits that lists show. */
static int find_operation(struct db_tx *tx, const struct caller *who, const char *ref, struct operation *ret, struct error *err)
{
	char part[ID_TEXT_LEN + 2], shown[256];
	struct operation found[2];
	operation_init(&found[0]);
	operation_init(&found[1]);
	int n = is_id_part(ref, part, sizeof(part)) ? store_op_match(tx, part, access_filter(who), found, ARRAY_LEN(found), err) : 0;
	text_escape(ref, strlen(ref), shown, sizeof(shown));
	int rc = -1;
	if (n == 0)
		error_set(err, ERR_NOT_FOUND, "no operation has the id '%s'", shown);
	else if (n > 1)
		error_set(err, ERR_CONFLICT, "'%s' matches more than one operation: %s, %s; give more digits", shown, found[0].id.text,
			  found[1].id.text);
	else if (n == 1)
		rc = store_op_get(tx, &found[0].id, ret, err) == 1 ? 0 : -1;
	operation_done(&found[0]);
	operation_done(&found[1]);
	return rc;
}

static void add_progress(struct controller *c, struct operation *o)
{
	if (!op_ended(o->state) && !o->progress)
		o->progress = hooks_get_progress(c->hooks, &o->id);
}

static const char *waits_for(const struct operation *o, const struct sandbox *s)
{
	if (o->kind == OPK_EXEC)
		return "how the command ended is known when it is back";
	if (o->kind == OPK_DELETE)
		return "this is done when it is back";
	if (strand_may_have_begun(s, o->attempt))
		return "its command may have begun there, so no other node takes it; it goes on when the node is back";
	return "it is created by another as soon as one has room, or there when it is back";
}

/* Creates and deletes wait for a node that is away. */
static int add_node_view(struct controller *c, struct db_tx *tx, struct operation *o, struct error *err)
{
	struct op_head head;
	char node[NAME_MAX_LEN + 1];
	if (op_ended(o->state))
		return 0;
	if (store_op_head(tx, &o->id, &head, err) < 0)
		return -1;
	auto_sandbox s;
	sandbox_init(&s);
	o->unreachable = nodes_away(c, &head.node, node);
	/* What a create said last was said before its node went. */
	if (!o->unreachable || (o->progress && o->kind != OPK_CREATE))
		return 0;
	if (store_sandbox_get(tx, &o->sandbox_id, &s, err) < 0)
		return -1;
	free(o->progress);
	o->progress = xasprintf("node %s is away: %s", node, waits_for(o, &s));
	return 0;
}

int controller_operation(struct controller *c, const struct caller *who, const char *ref, struct operation *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct id id;
	auto_operation o;
	operation_init(&o);
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (id_parse(ref, &id) != 0 ? find_operation(tx, who, ref, &o, err) != 0 : lookup_operation(tx, &id, &o, err) != 0)
		return -1;
	if (!access_visible(who, o.tenant))
		return error_set(err, ERR_NOT_FOUND, "no operation has the id '%s'", o.id.text);
	add_progress(c, &o);
	if (add_node_view(c, tx, &o, err) != 0)
		return -1;
	operation_done(ret);
	*ret = o;
	operation_init(&o);
	return 0;
}

int controller_operation_node(struct controller *c, const struct id *operation, struct id *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct op_head op;
	int rc = store_begin(c->store, DB_READ, &tx, err) == 0 ? store_op_head(tx, operation, &op, err) : -1;
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "no operation has the id '%s'", operation->text);
	if (rc == 1)
		*ret = op.node;
	return rc == 1 ? 0 : -1;
}

int controller_sandbox_node(struct controller *c, const struct id *sandbox, struct id *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	int rc = store_begin(c->store, DB_READ, &tx, err) == 0 ? store_sandbox_head(tx, sandbox, &h, err) : -1;
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "no sandbox has the id '%s'", sandbox->text);
	if (rc == 1)
		*ret = h.node;
	return rc == 1 ? 0 : -1;
}

void operation_list_done(struct operation_list *l)
{
	for (size_t i = 0; i < l->len; i++)
		operation_done(&l->items[i]);
	free(l->items);
	*l = (struct operation_list){ .len = 0 };
}

int controller_operations(struct controller *c, const struct caller *who, const char *sandbox_ref, size_t limit, struct operation_list *ret,
			  struct error *err)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || (sandbox_ref && lookup_head(tx, who, sandbox_ref, &h, err) != 0))
		return -1;
	struct operation_list l = { .len = 0 };
	if (limit == 0 || limit > LIMIT_LIST_PAGE_MAX)
		limit = LIMIT_LIST_PAGE_MAX;
	if (store_op_page(tx, sandbox_ref ? &h.id : NULL, access_filter(who), limit, &l.items, &l.len, err) != 0)
		return -1;
	for (size_t i = 0; i < l.len; i++)
		add_progress(c, &l.items[i]);
	*ret = l;
	return 0;
}
