/* The table of nodes: see nodes_priv.h. Positions are found by a hash over the ids, since reports and rows of thousands come all the time. */
#include "daemon/controller/nodes_priv.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"

enum { SLOTS_MIN = 16 };

/* Where an id is, or the free slot where it would be. A slot holds a position plus one. */
static size_t slot_of(const struct nodes *n, const struct id *id)
{
	size_t i = (size_t)hash_text(HASH_INIT, id->text) & (n->n_slots - 1);
	while (n->slots[i] && !id_eq(&n->views[n->slots[i] - 1].id, id))
		i = (i + 1) & (n->n_slots - 1);
	return i;
}

static void rehash(struct nodes *n, size_t n_slots)
{
	free(n->slots);
	n->slots = xcalloc(n_slots, sizeof(*n->slots));
	n->n_slots = n_slots;
	for (size_t i = 0; i < n->len; i++)
		n->slots[slot_of(n, &n->views[i].id)] = (uint32_t)i + 1;
}

struct node_extra *node_find(const struct nodes *n, const struct id *id, struct node_view **ret_view)
{
	uint32_t at = n->n_slots ? n->slots[slot_of(n, id)] : 0;
	if (!at)
		return NULL;
	*ret_view = &n->views[at - 1];
	return n->extra[at - 1];
}

struct node_extra *node_find_or_add(struct nodes *n, const struct id *id, struct node_view **ret_view)
{
	struct node_extra *x = node_find(n, id, ret_view);
	if (x)
		return x;
	if (n->len == n->cap) {
		n->cap = n->cap ? n->cap * 2 : 8;
		n->views = xrealloc(n->views, n->cap, sizeof(*n->views));
		n->extra = xrealloc(n->extra, n->cap, sizeof(*n->extra));
	}
	if (2 * (n->len + 1) > n->n_slots)
		rehash(n, n->n_slots ? 2 * n->n_slots : SLOTS_MIN);
	x = xcalloc(1, sizeof(*x));
	n->slots[slot_of(n, id)] = (uint32_t)n->len + 1;
	n->extra[n->len] = x;
	*ret_view = &n->views[n->len++];
	**ret_view = (struct node_view){ .id = *id, .stale = true, .tunnels = n->tunnels, .labels = &x->labels, .anti_affinity = &x->keys,
					 .reasons = &x->reasons };
	return x;
}

static void extra_free(struct node_extra *x)
{
	map_done(&x->labels);
	strv_done(&x->keys);
	free(x->stored);
	free(x->row_offers);
	free(x);
}

void nodes_forget(struct controller *c, const struct id *node)
{
	struct nodes *n = &c->nodes;
	struct node_view *v = NULL;
	pthread_mutex_lock(&n->lock);
	struct node_extra *x = node_find(n, node, &v);
	if (x) {
		size_t at = (size_t)(v - n->views);
		extra_free(x);
		n->len--;
		/* views point into their own extra alone, so the last may move. */
		n->views[at] = n->views[n->len];
		n->extra[at] = n->extra[n->len];
		rehash(n, n->n_slots);
	}
	pthread_mutex_unlock(&n->lock);
}

void nodes_done(struct controller *c)
{
	struct nodes *n = &c->nodes;
	for (size_t i = 0; i < n->len; i++)
		extra_free(n->extra[i]);
	free(n->views);
	free(n->extra);
	free(n->slots);
	pthread_mutex_destroy(&n->lock);
}

/* --- age --- */

/* When it becomes stale if nothing more is heard. */
static int64_t stale_at(const struct node_extra *x)
{
	int64_t silent = x->seen_ms + LIMIT_NODE_STALE_MS, closed = x->closed_ms + LIMIT_NODE_AWAY_MS;
	return x->closed_ms && closed < silent ? closed : silent;
}

bool node_is_stale(const struct node_extra *x, int64_t now_ms)
{
	return x->seen_ms == 0 || now_ms > stale_at(x);
}

/* Once past, somebody looks at all of them. */
static void look_by(struct nodes *n, int64_t at_ms)
{
	if (at_ms < n->look_ms)
		n->look_ms = at_ms;
}

void node_seen(struct nodes *n, struct node_view *v, struct node_extra *x, int64_t seen_ms)
{
	x->seen_ms = seen_ms;
	x->closed_ms = 0;
	v->stale = false;
	look_by(n, stale_at(x));
}

void node_closed(struct nodes *n, struct node_extra *x, int64_t now_ms)
{
	x->closed_ms = now_ms;
	look_by(n, stale_at(x));
}

void nodes_age(struct nodes *n, int64_t now_ms)
{
	if (now_ms <= n->look_ms)
		return;
	n->look_ms = INT64_MAX;
	for (size_t i = 0; i < n->len; i++) {
		n->views[i].stale = node_is_stale(n->extra[i], now_ms);
		if (!n->views[i].stale)
			look_by(n, stale_at(n->extra[i]));
	}
}

void nodes_offer_tunnels(struct nodes *n, bool offered)
{
	if (offered == n->tunnels)
		return;
	n->tunnels = offered;
	for (size_t i = 0; i < n->len; i++)
		n->views[i].tunnels = offered;
}
