/* Who is told when there is work or a nearer deadline, and what running creates say they are doing. In memory. */
#include "daemon/controller/internal.h"

struct work_hook {
	struct id node;
	void (*fn)(void *ctx);
	void *ctx;
};

struct progress {
	struct id operation;
	char *text;
};

struct hooks {
	pthread_mutex_t lock; /* held while a hook runs: one that was removed does not run any more */
	struct work_hook *work;
	size_t n_work;
	struct event_hook {
		void (*fn)(void *ctx);
		void *ctx;
	} *event;
	size_t n_event;
	void (*routes)(void *ctx);
	void *routes_ctx;
	void (*deadline)(void *ctx, int64_t after_us);
	void *deadline_ctx;
	int64_t wake_us;      /* what the timer waits for, 0: nothing */
	pthread_mutex_t progress_lock;
	struct progress *progress;
	size_t n_progress;
};

struct hooks *hooks_new(void)
{
	struct hooks *h = xcalloc(1, sizeof(*h));
	pthread_mutex_init(&h->lock, NULL);
	pthread_mutex_init(&h->progress_lock, NULL);
	return h;
}

void hooks_free(struct hooks *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n_progress; i++)
		free(h->progress[i].text);
	free(h->progress);
	free(h->work);
	free(h->event);
	pthread_mutex_destroy(&h->progress_lock);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

/* --- work --- */

static struct work_hook *find_work(struct hooks *h, const struct id *node)
{
	for (size_t i = 0; i < h->n_work; i++)
		if (id_eq(&h->work[i].node, node))
			return &h->work[i];
	return NULL;
}

void controller_on_work(struct controller *c, const struct id *node, void (*fn)(void *ctx), void *ctx)
{
	struct hooks *h = c->hooks;
	pthread_mutex_lock(&h->lock);
	struct work_hook *hook = find_work(h, node);
	if (!hook && fn) {
		h->work = xrealloc(h->work, h->n_work + 1, sizeof(*h->work));
		hook = &h->work[h->n_work++];
	}
	if (fn)
		*hook = (struct work_hook){ .node = *node, .fn = fn, .ctx = ctx };
	else if (hook)
		*hook = h->work[--h->n_work];
	pthread_mutex_unlock(&h->lock);
}

void hooks_work(struct hooks *h, const struct id *node)
{
	pthread_mutex_lock(&h->lock);
	struct work_hook *hook = find_work(h, node);
	if (hook)
		hook->fn(hook->ctx);
	pthread_mutex_unlock(&h->lock);
}

void hooks_all_work(struct hooks *h)
{
	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n_work; i++)
		h->work[i].fn(h->work[i].ctx);
	pthread_mutex_unlock(&h->lock);
}

/* --- events --- */

void controller_on_event(struct controller *c, void (*fn)(void *ctx), void *ctx)
{
	struct hooks *h = c->hooks;
	pthread_mutex_lock(&h->lock);
	h->event = xrealloc(h->event, h->n_event + 1, sizeof(*h->event));
	h->event[h->n_event++] = (struct event_hook){ .fn = fn, .ctx = ctx };
	pthread_mutex_unlock(&h->lock);
}

void controller_off_event(struct controller *c, void *ctx)
{
	struct hooks *h = c->hooks;
	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n_event; i++)
		if (h->event[i].ctx == ctx)
			h->event[i--] = h->event[--h->n_event];
	pthread_mutex_unlock(&h->lock);
}

void hooks_event(struct hooks *h)
{
	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n_event; i++)
		h->event[i].fn(h->event[i].ctx);
	pthread_mutex_unlock(&h->lock);
}

/* --- routes --- */

void controller_on_routes(struct controller *c, void (*fn)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&c->hooks->lock);
	c->hooks->routes = fn;
	c->hooks->routes_ctx = ctx;
	pthread_mutex_unlock(&c->hooks->lock);
}

void hooks_routes(struct hooks *h)
{
	pthread_mutex_lock(&h->lock);
	if (h->routes)
		h->routes(h->routes_ctx);
	pthread_mutex_unlock(&h->lock);
}

/* --- the timer --- */

void controller_on_deadline(struct controller *c, void (*fn)(void *ctx, int64_t after_us), void *ctx)
{
	pthread_mutex_lock(&c->hooks->lock);
	c->hooks->deadline = fn;
	c->hooks->deadline_ctx = ctx;
	pthread_mutex_unlock(&c->hooks->lock);
}

void hooks_wake(struct hooks *h, int64_t now_us, int64_t after_us)
{
	int64_t at_us = now_us + after_us;
	pthread_mutex_lock(&h->lock);
	if (h->wake_us == 0 || at_us < h->wake_us) {
		h->wake_us = at_us;
		if (h->deadline)
			h->deadline(h->deadline_ctx, after_us > 0 ? after_us : 0);
	}
	pthread_mutex_unlock(&h->lock);
}

void hooks_begin_wake(struct hooks *h)
{
	pthread_mutex_lock(&h->lock);
	h->wake_us = 0;
	pthread_mutex_unlock(&h->lock);
}

int64_t hooks_end_wake(struct hooks *h, int64_t at_us)
{
	pthread_mutex_lock(&h->lock);
	if (at_us && (h->wake_us == 0 || at_us < h->wake_us))
		h->wake_us = at_us;
	at_us = h->wake_us;
	pthread_mutex_unlock(&h->lock);
	return at_us;
}

/* --- progress --- */

static struct progress *find_progress(struct hooks *h, const struct id *operation)
{
	for (size_t i = 0; i < h->n_progress; i++)
		if (id_eq(&h->progress[i].operation, operation))
			return &h->progress[i];
	return NULL;
}

void hooks_progress(struct hooks *h, const struct id *operation, const char *text)
{
	pthread_mutex_lock(&h->progress_lock);
	struct progress *p = find_progress(h, operation);
	if (!p && text) {
		h->progress = xrealloc(h->progress, h->n_progress + 1, sizeof(*h->progress));
		p = &h->progress[h->n_progress++];
		*p = (struct progress){ .operation = *operation };
	}
	if (p) {
		free(p->text);
		p->text = xstrdup0(text);
		if (!text)
			*p = h->progress[--h->n_progress];
	}
	pthread_mutex_unlock(&h->progress_lock);
}

char *hooks_get_progress(struct hooks *h, const struct id *operation)
{
	pthread_mutex_lock(&h->progress_lock);
	struct progress *p = find_progress(h, operation);
	char *text = p ? xstrdup(p->text) : NULL;
	pthread_mutex_unlock(&h->progress_lock);
	return text;
}

void controller_progress(struct controller *c, const struct id *operation, const char *text)
{
	hooks_progress(c->hooks, operation, text);
}
