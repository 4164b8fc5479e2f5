/* What waits in pools gives way: a request that fits nowhere because of it gets its room. */
#include "daemon/controller/pool.h"

#include "shared/base/log.h"

struct candidates {
	struct pool_member *items;
	size_t n;
	const char *pool;                   /* being looked at … */
	const struct resources *resources;  /* … and what each of its sandboxes holds */
};

static void add_candidate(void *ctx, const struct warm_row *w)
{
	struct candidates *all = ctx;
	if (w->state != SANDBOX_RUNNING || strcmp(w->pool, all->pool) != 0)
		return;
	all->items = xrealloc(all->items, all->n + 1, sizeof(*all->items));
	all->items[all->n++] = (struct pool_member){ .id = w->id, .node = w->node, .resources = *all->resources };
}

static int find_candidates(struct controller *c, struct candidates *all, struct error *err)
{
	struct pool p;
	auto_tx *tx = NULL;
	int rc = store_begin(c->store, DB_READ, &tx, err);
	for (size_t i = 0; rc == 0 && pool_copy(c, i, &p); i++) {
		all->pool = p.name;
		all->resources = &p.spec.resources;
		rc = store_warm_each(tx, add_candidate, all, err) < 0 ? -1 : 0;
		spec_done(&p.spec);
	}
	return rc;
}

bool pools_yield(struct controller *c, const struct spec *s, const struct decision *d)
{
	struct candidates all = { .n = 0 };
	struct error err = ERROR_INIT;
	size_t n = 0;
	if (!pools_any(c))
		return false;
	int rc = find_candidates(c, &all, &err);
	if (rc == 0)
		n = pool_must_yield(c, s, d->required, all.items, all.n);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = pool_end_member(c, &all.items[i].id, &err);
	free(all.items);
	if (rc != 0)
		log_warn("pool", "making room: %s", err.message);
	else if (n)
		log_info("pool", "%zu that waited give way to a request", n);
	return rc == 0 && n > 0;
}
