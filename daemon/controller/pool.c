/*
 * Warm pools: what they are made of, and claims. A sandbox that waits in a pool is a live row of the tenant "" with its reservation; a
 * claim makes it, in the transaction of the create, the sandbox that was asked for, to be made ready by its worker like any other. What
 * keeps a pool at its size is in pool_keep.c.
 */
#include "daemon/controller/pool.h"

#include "daemon/config.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/json/model_json.h"

enum { USABLE_US = 5 * 1000 * 1000, CLAIM_TRIES = 8 };

struct pools *pools_new(void)
{
	struct pools *p = xcalloc(1, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	return p;
}

static void free_items(struct pool *items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		spec_done(&items[i].spec);
	free(items);
}

void pools_free(struct pools *p)
{
	if (!p)
		return;
	free_items(p->items, p->n);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static struct pool *find(struct pools *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->items[i].name, name) == 0)
			return &p->items[i];
	return NULL;
}

/* The configuration was checked. What was counted stays with the name. */
void pools_set(struct controller *c, const struct daemon_config *config)
{
	struct pool *items = config->n_pools ? xcalloc(config->n_pools, sizeof(*items)) : NULL;
	struct error err = ERROR_INIT;
	size_t n = 0;
	pthread_mutex_lock(&c->pools->lock);
	for (size_t i = 0; i < config->n_pools; i++) {
		const struct pool_config *from = &config->pools[i];
		const struct pool *old = find(c->pools, from->name);
		struct pool *to = &items[n];
		*to = (struct pool){ .size = (size_t)from->size, .max_age_ms = from->max_age_ms };
		spec_init(&to->spec);
		snprintf(to->name, sizeof(to->name), "%s", from->name);
		if (old) {
			to->claims = old->claims;
			to->misses = old->misses;
		}
		if (pool_config_spec(from, &to->spec, &err) == 0)
			n++;
		else
			log_error("pool", "%s", err.message);
	}
	free_items(c->pools->items, c->pools->n);
	c->pools->items = items;
	c->pools->n = n;
	c->pools->dirty = true;
	pthread_mutex_unlock(&c->pools->lock);
}

char *pool_key(const struct spec *asked, enum tier tier)
{
	struct spec s, plain;
	spec_init(&s);
	spec_init(&plain);
	spec_copy(&s, asked);
	free(s.tenant);
	s.tenant = xstrdup("");
	free(s.name);
	free(s.agent);
	free(s.placement.preferred_region);
	s.name = s.agent = s.placement.preferred_region = NULL;
	strv_done(&s.command);
	map_done(&s.env);
	map_done(&s.labels);
	map_done(&s.placement.required_labels);
	s.isolation = plain.isolation;
	s.min_tier = plain.min_tier;
	s.sensitivity = plain.sensitivity;
	s.signals = plain.signals;
	s.ttl_ms = plain.ttl_ms;
	cJSON *j = spec_to_json(&s);
	auto_free char *text = json_print(j);
	cJSON_Delete(j);
	spec_done(&s);
	return xasprintf("%s %s", tier_text(tier), text);
}

enum tier pool_tier(struct controller *c, const struct spec *s)
{
	struct settings settings = controller_settings(c);
	struct decision d;
	decision_init(&d);
	aegis_assess(s, &settings.policy, &d);
	enum tier required = d.required;
	decision_done(&d);
	return required;
}

/* The name of the pool whose sandboxes equal what is asked; false: there is none. */
static bool match(struct controller *c, const char *key, char ret_name[static POOL_NAME_SIZE])
{
	bool found = false;
	pthread_mutex_lock(&c->pools->lock);
	for (size_t i = 0; i < c->pools->n && !found; i++) {
		const struct pool *p = &c->pools->items[i];
		auto_free char *own = pool_key(&p->spec, pool_tier(c, &p->spec));
		found = strcmp(own, key) == 0;
		if (found)
			memcpy(ret_name, p->name, POOL_NAME_SIZE);
	}
	pthread_mutex_unlock(&c->pools->lock);
	return found;
}

static void count(struct controller *c, const char *name, bool claimed)
{
	pthread_mutex_lock(&c->pools->lock);
	struct pool *p = find(c->pools, name);
	if (p && claimed)
		p->claims++;
	else if (p)
		p->misses++;
	c->pools->claimed_ms = clock_mono_ms();
	pthread_mutex_unlock(&c->pools->lock);
}

/* One on a node where the request could be placed, had this one not been there. */
static int pick(struct change *ch, const struct spec *s, const char *key, const char *pool, struct id *ret, struct decision *d, struct error *err)
{
	struct id node;
	*ret = (struct id){ .text = "" };
	for (int i = 0; i < CLAIM_TRIES; i++) {
		int rc = store_warm_next(ch->tx, key, ch->now + USABLE_US, ret, ret, &node, err);
		if (rc <= 0)
			return rc;
		if (pool_may_claim(ch->c, s, &node, pool, d))
			return 1;
	}
	return 0;
}

bool pools_any(struct controller *c)
{
	pthread_mutex_lock(&c->pools->lock);
	bool any = c->pools->n > 0;
	pthread_mutex_unlock(&c->pools->lock);
	return any;
}

/* The key under which a create looks in pools, and the pool's name. Caller frees; NULL: it looks in none. */
static char *asked_key(struct controller *c, const struct spec *s, enum tier required, char ret_name[static POOL_NAME_SIZE])
{
	/* Only a container's name can be changed from outside. */
	if (!pools_any(c) || (s->name && required != TIER_CONTAINER))
		return NULL;
	auto_free char *key = pool_key(s, required);
	return match(c, key, ret_name) ? steal(&key) : NULL;
}

int pools_claim(struct change *ch, const struct spec *s, struct id *ret, struct decision *d, struct error *err)
{
	char name[POOL_NAME_SIZE];
	auto_free char *key = asked_key(ch->c, s, d->required, name);
	if (!key || nodes_follow(ch->c, ch->tx, err) != 0)
		return 0;
	int rc = pick(ch, s, key, name, ret, d, err);
	if (rc >= 0)
		count(ch->c, name, rc == 1);
	if (rc >= 0)
		change_wake(ch, ch->now + POOL_QUIET_US);
	return rc;
}

/* --- what is shown --- */

struct ready {
	const char *key;
	struct id nodes[CLAIM_TRIES];
	size_t n;
};

static void note_ready(void *ctx, const struct warm_row *w)
{
	struct ready *r = ctx;
	if (w->state == SANDBOX_RUNNING && r->n < CLAIM_TRIES && strcmp(w->key, r->key) == 0)
		r->nodes[r->n++] = w->node;
}

/* The node's verdict becomes that of the claim: there is room, since it is taken already. */
static void show_ready(struct decision *d, const struct decision *claim)
{
	for (size_t i = 0; i < d->n_nodes; i++)
		if (id_eq(&d->nodes[i].id, &claim->node))
			d->nodes[i] = claim->nodes[0];
	d->placed = true;
	d->node = claim->node;
	memcpy(d->node_name, claim->node_name, sizeof(d->node_name));
	d->refusal[0] = '\0';
}

int pools_explain(struct controller *c, struct db_tx *tx, const struct spec *s, struct decision *d, struct error *err)
{
	char name[POOL_NAME_SIZE];
	auto_free char *key = asked_key(c, s, d->required, name);
	struct ready r = { .key = key };
	struct decision claim;
	if (!key)
		return 0;
	if (store_warm_each(tx, note_ready, &r, err) < 0)
		return -1;
	decision_init(&claim);
	claim.required = d->required;
	for (size_t i = 0; i < r.n && !claim.placed; i++)
		pool_may_claim(c, s, &r.nodes[i], name, &claim);
	if (claim.placed)
		show_ready(d, &claim);
	decision_done(&claim);
	return 0;
}

static void add_counter(struct controller *c, struct buf *out, const char *metric, const char *help, bool claims)
{
	buf_addf(out, "# HELP %s %s\n# TYPE %s counter\n", metric, help, metric);
	for (size_t i = 0; i < c->pools->n; i++)
		buf_addf(out, "%s{pool=\"%s\"} %llu\n", metric, c->pools->items[i].name,
			 (unsigned long long)(claims ? c->pools->items[i].claims : c->pools->items[i].misses));
}

void pools_metrics(struct controller *c, struct buf *out)
{
	pthread_mutex_lock(&c->pools->lock);
	if (c->pools->n) {
		add_counter(c, out, "sandbox_pool_claims_total", "Creates served from the pool, by this daemon.", true);
		add_counter(c, out, "sandbox_pool_misses_total", "Creates that would have fitted the pool when nothing was ready in it.", false);
	}
	pthread_mutex_unlock(&c->pools->lock);
}

static void count_row(void *ctx, const struct warm_row *w)
{
	struct pool_view *v = ctx;
	if (strcmp(w->pool, v->name) != 0)
		return;
	if (w->state == SANDBOX_RUNNING)
		v->ready++;
	else if (w->state != SANDBOX_STOPPING)
		v->starting++;
}

bool pool_copy(struct controller *c, size_t i, struct pool *ret)
{
	pthread_mutex_lock(&c->pools->lock);
	bool there = i < c->pools->n;
	if (there) {
		*ret = c->pools->items[i];
		spec_init(&ret->spec);
		spec_copy(&ret->spec, &c->pools->items[i].spec);
	}
	pthread_mutex_unlock(&c->pools->lock);
	return there;
}

static int view(struct controller *c, const struct pool *p, pool_view_fn fn, void *ctx, struct error *err)
{
	auto_tx *tx = NULL;
	struct warm_failure last = { .why = NULL };
	struct pool_view v = { .name = p->name, .spec = &p->spec, .size = p->size, .max_age_ms = p->max_age_ms, .claims = p->claims,
			       .misses = p->misses, .tier = pool_tier(c, &p->spec) };
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_warm_each(tx, count_row, &v, err) < 0 ||
	    store_warm_failed(tx, p->name, store_now(c->store) - POOL_FAILED_LATELY_US, &last, err) < 0)
		return -1;
	if (v.ready + v.starting < p->size)
		v.why = p->why[0] ? p->why : last.why;
	fn(ctx, &v);
	free(last.why);
	return 0;
}

int controller_pools(struct controller *c, pool_view_fn fn, void *ctx, struct error *err)
{
	struct pool p;
	int rc = 0;
	for (size_t i = 0; rc == 0 && pool_copy(c, i, &p); i++) {
		rc = view(c, &p, fn, ctx, err);
		spec_done(&p.spec);
	}
	return rc;
}
