/*
 * Creates that wait for capacity: tried in the order of their coming, each as soon as it fits, before any that comes now.
 * In memory, since a client holds each of them. The lock is taken before any transaction, and held while one is tried.
 */
#include "daemon/controller/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/json/model_json.h"

#include <stdatomic.h>

enum {
	LOOK_US = 1000 * 1000,  /* they are tried at least this often: not all that frees capacity is noticed */
	PLACE_KEPT_MS = 5 * 1000, /* for a client that asks again */
	SHAPES = 64,            /* different requests that one pass remembers as refused */
};

struct create_wait {
	struct create_wait *next;
	struct create_waiter hooks; /* hooks.ctx NULL: nobody waits now, the place is kept */
	struct caller who;
	struct spec spec;
	char *key;
	uint64_t shape;         /* equal for requests that one node takes or refuses alike */
	int64_t kept_until_ms;  /* without a client */
	bool tried;
	bool ended;             /* rc, result and err are the answer; else the last refusal */
	int rc;
	struct create_result result;
	struct error err;
};

struct queue {
	pthread_mutex_t lock;
	struct create_wait *first;
	atomic_uint len;
};

struct queue *queue_new(void)
{
	struct queue *q = xcalloc(1, sizeof(*q));
	pthread_mutex_init(&q->lock, NULL);
	return q;
}

static void wait_free(struct create_wait *w)
{
	spec_done(&w->spec);
	create_result_done(&w->result);
	free(w->key);
	free(w);
}

void queue_free(struct queue *q)
{
	while (q && q->first) {
		struct create_wait *w = q->first;
		q->first = w->next;
		wait_free(w);
	}
	if (q)
		pthread_mutex_destroy(&q->lock);
	free(q);
}

unsigned queue_len(struct controller *c)
{
	return atomic_load(&c->queue->len);
}

static bool queue_busy(struct controller *c)
{
	return queue_len(c) > 0;
}

static void unlink_wait(struct queue *q, struct create_wait *w)
{
	struct create_wait **at = &q->first;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	atomic_fetch_sub(&q->len, 1);
}

/* What placement and quota look at: not how it is called or what runs in it. */
static uint64_t shape_of(const struct spec *s)
{
	struct spec bare;
	spec_init(&bare);
	spec_copy(&bare, s);
	free(bare.name);
	bare.name = NULL;
	map_done(&bare.labels);
	map_done(&bare.env);
	strv_done(&bare.command);
	uint64_t hash = spec_hash(&bare);
	spec_done(&bare);
	return hash;
}

/* --- trying --- */

struct tried {
	uint64_t refused[SHAPES];
	size_t n;
};

static bool refused_already(const struct tried *t, uint64_t shape)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->refused[i] == shape)
			return true;
	return false;
}

static void try_one(struct controller *c, struct create_wait *w, struct tried *t)
{
	struct create_result fresh;
	struct error err = ERROR_INIT;
	create_result_init(&fresh);
	int rc = create_now(c, &w->who, &w->spec, w->key, &fresh, &err);
	create_result_done(&w->result);
	w->result = fresh;
	w->err = err;
	w->rc = rc;
	w->tried = true;
	w->ended = rc == 0 || err.code != ERR_NO_CAPACITY;
	if (w->ended)
		w->hooks.done(w->hooks.ctx);
	else if (t->n < SHAPES)
		t->refused[t->n++] = w->shape;
}

/* A client that left gets nothing, and its place is free. */
static void end_left(struct create_wait *w)
{
	w->rc = -1;
	w->ended = true;
	error_set(&w->err, ERR_UNAVAILABLE, "the client left while it waited for capacity");
	w->hooks.done(w->hooks.ctx);
}

static void serve(struct controller *c)
{
	struct queue *q = c->queue;
	struct tried t = { .n = 0 };
	struct create_wait *next;
	for (struct create_wait *w = q->first; w; w = next) {
		next = w->next;
		if (!w->hooks.ctx && clock_mono_ms() > w->kept_until_ms) {
			unlink_wait(q, w);
			wait_free(w);
		} else if (w->hooks.ctx && !w->ended && !w->hooks.alive(w->hooks.ctx)) {
			end_left(w);
		} else if (w->hooks.ctx && !w->ended && !(w->tried && refused_already(&t, w->shape))) {
			try_one(c, w, &t);
		}
	}
}

void queue_serve(struct controller *c, int64_t *next_us)
{
	if (!queue_busy(c))
		return;
	pthread_mutex_lock(&c->queue->lock);
	serve(c);
	pthread_mutex_unlock(&c->queue->lock);
	int64_t at = store_now(c->store) + LOOK_US;
	if (queue_busy(c) && (*next_us == 0 || at < *next_us))
		*next_us = at;
}

int queue_create(struct controller *c, const struct caller *who, const struct spec *spec, const char *key, struct create_result *ret,
		 struct error *err)
{
	if (!queue_busy(c))
		return create_now(c, who, spec, key, ret, err);
	pthread_mutex_lock(&c->queue->lock);
	serve(c);
	int rc = create_now(c, who, spec, key, ret, err);
	pthread_mutex_unlock(&c->queue->lock);
	return rc;
}

/* --- joining and leaving --- */

/* The place of a client that asks again by its key. */
static struct create_wait *find_kept(struct queue *q, const struct create_waiter *w, uint64_t shape)
{
	for (struct create_wait *x = q->first; w->key && x; x = x->next)
		if (!x->hooks.ctx && x->key && x->shape == shape && strcmp(x->key, w->key) == 0 && strcmp(x->who.tenant, w->who->tenant) == 0)
			return x;
	return NULL;
}

static struct create_wait *add_wait(struct queue *q, const struct create_waiter *from, uint64_t shape)
{
	struct create_wait *w = xcalloc(1, sizeof(*w)), **at = &q->first;
	w->shape = shape;
	w->key = xstrdup0(from->key);
	spec_init(&w->spec);
	create_result_init(&w->result);
	while (*at)
		at = &(*at)->next;
	*at = w;
	atomic_fetch_add(&q->len, 1);
	return w;
}

int controller_create_wait(struct controller *c, const struct create_waiter *from, struct create_wait **ret, struct error *err)
{
	struct queue *q = c->queue;
	uint64_t shape = shape_of(from->spec);
	pthread_mutex_lock(&q->lock);
	struct create_wait *w = find_kept(q, from, shape);
	if (!w && atomic_load(&q->len) >= LIMIT_CAPACITY_WAITERS) {
		pthread_mutex_unlock(&q->lock);
		return error_set(err, ERR_RATE_LIMITED, "%d creates wait for capacity already: try again later", LIMIT_CAPACITY_WAITERS);
	}
	if (!w)
		w = add_wait(q, from, shape);
	w->who = *from->who;
	w->hooks = *from;
	spec_copy(&w->spec, from->spec);
	*ret = w;
	/* Those before it first; then it is told like any other. */
	serve(c);
	pthread_mutex_unlock(&q->lock);
	hooks_wake(c->hooks, store_now(c->store), LOOK_US);
	return 0;
}

int controller_create_end(struct controller *c, struct create_wait *take_w, struct create_result *ret, struct error *err)
{
	struct queue *q = c->queue;
	struct create_wait *w = take_w;
	if (!w)
		return 0;
	pthread_mutex_lock(&q->lock);
	int rc = w->ended ? w->rc : -1;
	bool keep = !w->ended && ret && w->key;
	w->hooks.ctx = NULL;
	w->kept_until_ms = clock_mono_ms() + PLACE_KEPT_MS;
	if (!keep)
		unlink_wait(q, w);
	if (rc != 0 && err)
		*err = w->err;
	if (ret) {
		*ret = w->result;
		create_result_init(&w->result);
	}
	if (!keep)
		wait_free(w);
	pthread_mutex_unlock(&q->lock);
	return rc;
}
