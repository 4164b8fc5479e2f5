/*
 * Long polls: see wait.h. The operation's watch, the timer and the stopping daemon race to wake a request; whoever is
 * first does, once. The request's own thread then takes the others down before it answers.
 */
#include "daemon/api/wait.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <stdatomic.h>

struct poll_wait {
	struct request *request;
	atomic_bool woken;
	bool watching;
	uint64_t watch;
	struct event *timer;
	int (*then)(struct request *r, struct answer *a, struct error *err);
	struct poll_wait *prev, *next; /* under the server's lock */
};

static void wake(struct poll_wait *w)
{
	if (!atomic_exchange(&w->woken, true))
		request_resume(w->request);
}

static void on_ended(void *ctx, const struct id *operation)
{
	(void)operation;
	wake(ctx);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	wake(ctx);
}

static void link_wait(struct api *a, struct poll_wait *w)
{
	pthread_mutex_lock(&a->lock);
	w->next = a->polls;
	if (w->next)
		w->next->prev = w;
	a->polls = w;
	bool stopping = a->stopping;
	pthread_mutex_unlock(&a->lock);
	if (stopping)
		wake(w);
}

static void unlink_wait(struct api *a, struct poll_wait *w)
{
	pthread_mutex_lock(&a->lock);
	if (w->prev)
		w->prev->next = w->next;
	else
		a->polls = w->next;
	if (w->next)
		w->next->prev = w->prev;
	pthread_mutex_unlock(&a->lock);
}

static void wait_done(void *state)
{
	struct poll_wait *w = state;
	struct api *a = w->request->api;
	unlink_wait(a, w);
	if (w->watching)
		controller_unwatch(a->o.controller, w->watch);
	event_free(w->timer); /* waits for a timer call under way in the loop's thread */
	free(w);
}

static int woken(struct request *r, struct answer *a, struct error *err)
{
	struct poll_wait *w = r->state;
	int (*then)(struct request *, struct answer *, struct error *) = w->then;
	r->state = NULL;
	r->state_free = NULL;
	wait_done(w);
	return then(r, a, err);
}

int wait_operation(struct request *r, const struct id *operation, int64_t timeout_ms,
                   int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err)
{
	struct poll_wait *w = xcalloc(1, sizeof(*w));
	w->request = r;
	w->then = then;
	atomic_init(&w->woken, false);
	w->timer = evtimer_new(r->api->o.base, on_time, w);
	if (!w->timer) {
		free(w);
		return error_set(err, ERR_INTERNAL, "no timer for a long poll");
	}
	r->state = w;
	r->state_free = wait_done;
	/* From here another thread may wake it, so it must be suspended first. */
	request_suspend(r, woken);
	link_wait(r->api, w);
	struct timeval tv = { .tv_sec = timeout_ms / 1000, .tv_usec = (timeout_ms % 1000) * 1000 };
	evtimer_add(w->timer, &tv);
	if (controller_watch(r->api->o.controller, operation, on_ended, w, &w->watch, NULL) == 0)
		w->watching = true;
	else
		wake(w); /* unknown by now: `then` finds out and says so */
	return 0;
}

void wait_wake_all(struct api *a)
{
	pthread_mutex_lock(&a->lock);
	for (struct poll_wait *w = a->polls; w; w = w->next)
		wake(w);
	pthread_mutex_unlock(&a->lock);
}
