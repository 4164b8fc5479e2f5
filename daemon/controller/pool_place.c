/* Placement for pools: whether one that waits may be handed out where it is, and which would have to end for another request. */
#include "daemon/controller/pool.h"

static uint32_t less_one(uint32_t n)
{
	return n > 0 ? n - 1 : 0;
}

/* As if a sandbox of this size were not there. */
static void without_one(struct node_view *v, const struct resources *r)
{
	v->free.cpu_millis += r->cpu_millis;
	v->free.memory_mib += r->memory_mib;
	v->free.disk_mib += r->disk_mib;
	v->free.pids += r->pids;
	v->sandboxes = less_one(v->sandboxes);
}

/* --- handing out --- */

struct claim {
	const struct spec *spec;
	const struct policy *policy;
	const struct id *node;
	struct decision *d;
	bool fits;
};

static void claim_here(void *ctx, const struct node_view *v)
{
	struct claim *k = ctx;
	const char *region = k->spec->placement.preferred_region;
	if (!id_eq(&v->id, k->node) || (region && strcmp(region, v->region) != 0))
		return;
	struct node_view without = *v;
	without_one(&without, &k->spec->resources);
	aegis_place(k->spec, k->policy, &without, 1, k->d);
	k->fits = k->d->placed;
}

bool pool_may_claim(struct controller *c, const struct spec *spec, const struct id *node, const char *pool, struct decision *d)
{
	struct settings settings = controller_settings(c);
	struct claim k = { .spec = spec, .policy = &settings.policy, .node = node, .d = d };
	nodes_each(c, claim_here, &k);
	if (k.fits)
		snprintf(d->nodes[0].reason, sizeof(d->nodes[0].reason), "a sandbox of pool %s was ready", pool);
	return k.fits;
}

/* --- giving way --- */

struct yield {
	const struct spec *spec;
	const struct policy *policy;
	enum tier required;
	const struct pool_member *members;
	size_t n;
	struct id node; /* the best so far … */
	size_t least;   /* … and how many must end there; 0: none yet */
};

/* How many of the node's must end, in their order; 0: not even all of them help. */
static size_t must_end(const struct yield *y, struct node_view v)
{
	struct decision d;
	size_t taken = 0;
	decision_init(&d);
	d.required = y->required;
	for (size_t i = 0; i < y->n && !d.placed; i++) {
		if (!id_eq(&y->members[i].node, &v.id))
			continue;
		taken++;
		without_one(&v, &y->members[i].resources);
		aegis_place(y->spec, y->policy, &v, 1, &d);
	}
	if (!d.placed)
		taken = 0;
	decision_done(&d);
	return taken;
}

static void yield_here(void *ctx, const struct node_view *v)
{
	struct yield *y = ctx;
	size_t n = must_end(y, *v);
	if (n && (y->least == 0 || n < y->least)) {
		y->node = v->id;
		y->least = n;
	}
}

size_t pool_must_yield(struct controller *c, const struct spec *spec, enum tier required, struct pool_member *members, size_t n)
{
	struct settings settings = controller_settings(c);
	struct yield y = { .spec = spec, .policy = &settings.policy, .required = required, .members = members, .n = n };
	size_t at = 0;
	nodes_each(c, yield_here, &y);
	for (size_t i = 0; i < n && at < y.least; i++) {
		if (!id_eq(&members[i].node, &y.node))
			continue;
		struct pool_member m = members[i];
		members[i] = members[at];
		members[at++] = m;
	}
	return at;
}
