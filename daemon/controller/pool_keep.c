/*
 * Keeping pools at their size, on the reaper's thread: starts what is missing, a few at a time and never while somebody waits for a
 * create; ends what is too many or of another shape than configured. Age is a deadline like any other: the reaper ends it.
 */
#include "daemon/controller/pool.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"

enum {
	STARTING_MAX = 3,                     /* at a time, of all pools */
	AGAIN_US = POOL_QUIET_US,             /* when somebody waits */
	REFUSED_US = 5 * 1000 * 1000,         /* after a start that no node took */
	FAILED_US = 1000 * 1000,              /* after one that failed; twice that after each more … */
	FAILED_STEPS = 5,                     /* … and at most 32 times */
};

struct member {
	struct id id, node;
	enum sandbox_state state;
	char pool[POOL_NAME_SIZE];
	char *key;
};

struct members {
	struct member *items;
	size_t n;
};

static void add_member(void *ctx, const struct warm_row *w)
{
	struct members *all = ctx;
	if (w->state == SANDBOX_STOPPING)
		return;
	all->items = xrealloc(all->items, all->n + 1, sizeof(*all->items));
	struct member *m = &all->items[all->n++];
	*m = (struct member){ .id = w->id, .node = w->node, .state = w->state, .key = xstrdup(w->key) };
	snprintf(m->pool, sizeof(m->pool), "%s", w->pool);
}

static void members_done(struct members *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->items[i].key);
	free(all->items);
}

/* --- ending --- */

int pool_end_member(struct controller *c, const struct id *id, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0 || store_lock_sandbox(ch.tx, id, err) != 0)
		return -1;
	int rc = store_sandbox_head(ch.tx, id, &h, err);
	if (rc < 0)
		return -1;
	if (rc == 0 || h.tenant[0] || !sandbox_live(h.state) || h.delete_op.text[0])
		return 0;
	return delete_begin(&ch, &h, OUTCOME_DELETED, NULL, err) == 0 ? change_commit(&ch, err) : -1;
}

/* --- starting --- */

static int insert_member(struct change *ch, const struct pool *p, const char *key, struct sandbox *s, struct error *err)
{
	struct sandbox_head h = { .id = s->id, .node = s->node_id, .state = s->state, .expires_us = s->expires_us };
	struct op_new op = { .id = id_new(), .sandbox = &h, .kind = OPK_CREATE, .state = OP_PENDING };
	if (store_sandbox_insert(ch->tx, s, err) != 0 || store_warm_mark(ch->tx, &s->id, p->name, key, err) != 0 ||
	    store_op_insert(ch->tx, &op, ch->now, err) != 0)
		return -1;
	change_work(ch, &s->node_id);
	change_wake(ch, s->expires_us);
	return change_commit(ch, err);
}

static int reserve_and_insert(struct change *ch, const struct pool *p, const char *key, struct reservation *r, struct decision *d, struct error *err)
{
	auto_sandbox s;
	sandbox_init(&s);
	s.id = r->sandbox;
	if (create_reserve(ch, &p->spec, d, r, err) != 0)
		return -1;
	spec_copy(&s.spec, &p->spec);
	s.node_id = d->node;
	s.tier = d->required;
	snprintf(s.node_name, sizeof(s.node_name), "%s", d->node_name);
	s.created_us = s.updated_us = ch->now;
	s.expires_us = ch->now + p->max_age_ms * 1000;
	return insert_member(ch, p, key, &s, err);
}

static int start_member(struct controller *c, const struct pool *p, const char *key, struct error *err)
{
	struct reservation r = { .sandbox = id_new(), .resources = p->spec.resources, .anti_affinity = STRV_INIT };
	struct settings settings = controller_settings(c);
	struct decision d;
	int rc;
	decision_init(&d);
	aegis_assess(&p->spec, &settings.policy, &d);
	{
		auto_change ch = CHANGE_INIT; /* ends before r does: it may give r back */
		rc = change_begin(c, DB_WRITE, &ch, err);
		if (rc == 0)
			rc = reserve_and_insert(&ch, p, key, &r, &d, err);
	}
	reservation_done(&r);
	decision_done(&d);
	return rc;
}

static void note_why(struct controller *c, const char *name, const char *why)
{
	pthread_mutex_lock(&c->pools->lock);
	for (size_t i = 0; i < c->pools->n; i++)
		if (strcmp(c->pools->items[i].name, name) == 0)
			snprintf(c->pools->items[i].why, WHY_SIZE, "%s", why);
	pthread_mutex_unlock(&c->pools->lock);
}

/* --- the pass --- */

struct pass {
	struct controller *c;
	struct members members;
	struct id *draining; /* nodes */
	size_t n_draining;
	size_t starting;
	bool busy;       /* somebody waits for a create, or did just now */
	int64_t now, next;
};

static void again(struct pass *ps, int64_t after_us)
{
	if (ps->next == 0 || ps->now + after_us < ps->next)
		ps->next = ps->now + after_us;
}

static bool is_busy(struct controller *c, int64_t creates)
{
	pthread_mutex_lock(&c->pools->lock);
	int64_t since_ms = c->pools->claimed_ms ? clock_mono_ms() - c->pools->claimed_ms : INT64_MAX;
	pthread_mutex_unlock(&c->pools->lock);
	return creates > 0 || queue_len(c) > 0 || since_ms < POOL_QUIET_US / 1000;
}

static void note_draining(void *ctx, const struct node_view *v)
{
	struct pass *ps = ctx;
	if (!v->draining)
		return;
	ps->draining = xrealloc(ps->draining, ps->n_draining + 1, sizeof(*ps->draining));
	ps->draining[ps->n_draining++] = v->id;
}

static bool drains(const struct pass *ps, const struct id *node)
{
	for (size_t i = 0; i < ps->n_draining; i++)
		if (id_eq(&ps->draining[i], node))
			return true;
	return false;
}

static int read_all(struct pass *ps, struct error *err)
{
	auto_tx *tx = NULL;
	int64_t creates = 0;
	if (store_begin(ps->c->store, DB_READ, &tx, err) != 0 || store_warm_each(tx, add_member, &ps->members, err) < 0 ||
	    store_creates_open(tx, &creates, err) != 0)
		return -1;
	ps->busy = is_busy(ps->c, creates);
	nodes_each(ps->c, note_draining, ps);
	for (size_t i = 0; i < ps->members.n; i++)
		ps->starting += ps->members.items[i].state != SANDBOX_RUNNING;
	return 0;
}

/* How long it is left alone after those that failed lately; 0: it need not be. */
static int backs_off(struct pass *ps, const char *pool, int64_t *ret_us, struct error *err)
{
	auto_tx *tx = NULL;
	struct warm_failure last = { .why = NULL };
	if (store_begin(ps->c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_warm_failed(tx, pool, ps->now - POOL_FAILED_LATELY_US, &last, err);
	free(last.why);
	if (rc < 0)
		return -1;
	int steps = last.count > FAILED_STEPS ? FAILED_STEPS : (int)last.count - 1;
	int64_t until = rc == 1 ? last.at_us + ((int64_t)FAILED_US << steps) : 0;
	*ret_us = until > ps->now ? until - ps->now : 0;
	return 0;
}

static int fill(struct pass *ps, const struct pool *p, const char *key, size_t missing, struct error *err)
{
	int64_t pause_us = 0;
	if (missing == 0)
		return 0;
	if (ps->busy) {
		again(ps, AGAIN_US);
		return 0;
	}
	if (backs_off(ps, p->name, &pause_us, err) != 0)
		return -1;
	if (pause_us)
		again(ps, pause_us);
	for (; !pause_us && missing > 0 && ps->starting < STARTING_MAX; missing--, ps->starting++) {
		struct error e = ERROR_INIT;
		int rc = start_member(ps->c, p, key, &e);
		note_why(ps->c, p->name, rc == 0 ? "" : e.message);
		if (rc != 0 && e.code == ERR_NO_CAPACITY) {
			again(ps, REFUSED_US);
			return 0;
		}
		if (rc != 0) {
			*err = e;
			return -1;
		}
	}
	return 0;
}

/* Ends the surplus, the newest first, what has another key, and what keeps a node from being drained. */
static int trim(struct pass *ps, const struct pool *p, const char *key, size_t *ret_kept, struct error *err)
{
	size_t kept = 0;
	for (size_t i = 0; i < ps->members.n; i++) {
		struct member *m = &ps->members.items[i];
		if (strcmp(m->pool, p->name) != 0)
			continue;
		bool keep = kept < p->size && strcmp(m->key, key) == 0 && !drains(ps, &m->node);
		kept += keep;
		m->pool[0] = '\0'; /* seen */
		if (!keep && pool_end_member(ps->c, &m->id, err) != 0)
			return -1;
	}
	*ret_kept = kept;
	return 0;
}

static int keep_pool(struct pass *ps, const struct pool *p, struct error *err)
{
	size_t kept = 0;
	auto_free char *key = pool_key(&p->spec, pool_tier(ps->c, &p->spec));
	if (trim(ps, p, key, &kept, err) != 0)
		return -1;
	return fill(ps, p, key, p->size - kept, err);
}

/* Those of pools that are configured no more. */
static int end_strays(struct pass *ps, struct error *err)
{
	for (size_t i = 0; i < ps->members.n; i++)
		if (ps->members.items[i].pool[0] && pool_end_member(ps->c, &ps->members.items[i].id, err) != 0)
			return -1;
	return 0;
}

/* False: there is nothing to keep, and nothing is left from before. */
static bool wanted(struct controller *c)
{
	pthread_mutex_lock(&c->pools->lock);
	bool any = c->pools->n > 0 || c->pools->dirty;
	c->pools->dirty = false;
	pthread_mutex_unlock(&c->pools->lock);
	return any;
}

int pools_keep(struct controller *c, int64_t *next_us, struct error *err)
{
	struct pass ps = { .c = c, .now = store_now(c->store) };
	struct pool p;
	if (!wanted(c))
		return 0;
	int rc = read_all(&ps, err);
	for (size_t i = 0; rc == 0 && pool_copy(c, i, &p); i++) {
		rc = keep_pool(&ps, &p, err);
		spec_done(&p.spec);
	}
	if (rc == 0)
		rc = end_strays(&ps, err);
	members_done(&ps.members);
	free(ps.draining);
	if (ps.next && (*next_us == 0 || ps.next < *next_us))
		*next_us = ps.next;
	return rc;
}
