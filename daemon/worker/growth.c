/* Writable roots: what may grow and how far, and the look at them. */
#include "daemon/worker/worker_priv.h"

#include "shared/base/mem.h"

struct growth {
	struct id sandbox;
	int64_t limit; /* bytes */
};

void growth_watch(struct worker *w, const struct sandbox *s)
{
	struct growth *g, *old;

	if (!s->spec.writable_root)
		return;
	g = xcalloc(1, sizeof(*g));
	g->sandbox = s->id;
	g->limit = (int64_t)s->spec.resources.disk_mib * 1024 * 1024;
	pthread_mutex_lock(&w->lock);
	old = idmap_put(&w->writable, &s->id, g);
	if (w->pause_ms > WORKER_GROWTH_MS)
		w->pause_ms = WORKER_GROWTH_MS;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	free(old);
}

/* With the lock. */
static void forget_all(struct worker *w)
{
	auto_free void **all = idmap_values(&w->writable);
	size_t n = w->writable.len;

	for (size_t i = 0; i < n; i++) {
		struct growth *g = all[i];

		idmap_remove(&w->writable, &g->sandbox);
		free(g);
	}
}

void growth_forget(struct worker *w, const struct id *sandbox)
{
	pthread_mutex_lock(&w->lock);
	if (sandbox)
		free(idmap_remove(&w->writable, sandbox));
	else
		forget_all(w);
	pthread_mutex_unlock(&w->lock);
}

static struct growth *copy_all(struct worker *w, size_t *ret_n)
{
	struct growth *copy;
	auto_free void **all = NULL;

	pthread_mutex_lock(&w->lock);
	all = idmap_values(&w->writable);
	*ret_n = w->writable.len;
	copy = xcalloc(*ret_n + 1, sizeof(*copy));
	for (size_t i = 0; i < *ret_n; i++)
		copy[i] = *(struct growth *)all[i];
	pthread_mutex_unlock(&w->lock);
	return copy;
}

void growth_check(struct worker *w)
{
	size_t n;
	auto_free struct growth *all = copy_all(w, &n);

	for (size_t i = 0; i < n && !worker_stopping(w); i++) {
		int64_t bytes;
		struct task *t;

		if (w->o.runtime->ops->root_bytes(w->o.runtime, &all[i].sandbox, &bytes, NULL) != 0 || bytes <= all[i].limit)
			continue;
		t = xcalloc(1, sizeof(*t));
		t->kind = TASK_OVERGROWN;
		t->sandbox = all[i].sandbox;
		growth_forget(w, &t->sandbox);
		worker_post(w, t);
	}
}
