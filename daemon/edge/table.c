/* The route table: read as a whole, replaced route by route, so that what stays keeps its idle streams. */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

static size_t bucket(const char *label)
{
	uint32_t h = 2166136261u;
	for (; *label; label++)
		h = (h ^ (unsigned char)*label) * 16777619u;
	return h % BUCKETS;
}

static struct route *lookup(const struct edge *e, const char *label)
{
	for (struct route *r = e->buckets[bucket(label)]; r; r = r->next)
		if (strcmp(r->r.label, label) == 0)
			return r;
	return NULL;
}

void route_release(struct edge *e, struct route *r)
{
	if (--r->users > 0 || !r->gone)
		return;
	struct route **at = &e->gone;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	free(r);
}

/* Out of the table: idle streams end, and so do the connections it has. */
static void retire(struct edge *e, struct route *r)
{
	struct visitor *v, *next;
	r->gone = true;
	r->users++;
	r->next = e->gone;
	e->gone = r;
	origin_reap_idle(r, 0);
	for (v = TAILQ_FIRST(&e->busy); v; v = next) {
		next = TAILQ_NEXT(v, link);
		if (v->route == r)
			visitor_abort(v);
	}
	route_release(e, r);
}

static bool same(const struct edge_route *a, const struct edge_route *b)
{
	return strcmp(a->tunnel.text, b->tunnel.text) == 0 && strcmp(a->target.text, b->target.text) == 0 && a->port == b->port &&
	       a->auth == b->auth && strcmp(a->hash, b->hash) == 0 && a->keep_host == b->keep_host;
}

static void unlink_route(struct edge *e, struct route *r)
{
	struct route **at = &e->buckets[bucket(r->r.label)];
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

static void add(void *ctx, const struct edge_route *given)
{
	struct edge *e = ctx;
	struct route *old = lookup(e, given->label);
	if (old && same(&old->r, given)) {
		old->seen = true;
		return;
	}
	if (old) {
		unlink_route(e, old);
		retire(e, old);
	}
	struct route *r = xcalloc(1, sizeof(*r));
	struct route **at = &e->buckets[bucket(given->label)];
	r->r = *given;
	r->seen = true;
	r->added_ms = clock_mono_ms();
	r->next = *at;
	*at = r;
}

static void each(struct edge *e, bool drop_unseen)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		struct route *next;
		for (struct route *r = e->buckets[i]; r; r = next) {
			next = r->next;
			if (drop_unseen && !r->seen) {
				unlink_route(e, r);
				retire(e, r);
			} else {
				r->seen = false;
			}
		}
	}
}

void edge_table_refresh(struct edge *e)
{
	struct error err = ERROR_INIT;
	/* Before the read: a change that comes during it is read next time. */
	if (!atomic_exchange(&e->stale, false))
		return;
	if (e->o.routes(e->o.ctx, add, e, &err) != 0) {
		log_warn("edge", "the route table could not be read, the old one stays: %s", err.message);
		atomic_store(&e->stale, true);
		each(e, false);
		return;
	}
	each(e, true);
}

struct route *edge_table_find(struct edge *e, const char *host)
{
	char label[EDGE_LABEL_MAX + 1];
	size_t n = strlen(host), d = strlen(e->domain);
	if (atomic_load(&e->stale))
		edge_table_refresh(e);
	if (n <= d + 1 || n - d - 1 > EDGE_LABEL_MAX || host[n - d - 1] != '.' || strcmp(host + n - d, e->domain) != 0)
		return NULL;
	snprintf(label, sizeof(label), "%.*s", (int)(n - d - 1), host);
	return strchr(label, '.') ? NULL : lookup(e, label);
}

void edge_table_free(struct edge *e)
{
	for (size_t i = 0; i < BUCKETS; i++)
		while (e->buckets[i]) {
			struct route *r = e->buckets[i];
			e->buckets[i] = r->next;
			retire(e, r);
		}
}
