/*
 * Long polls: see wait.h. The operation's watch (or the queue for capacity), the timer and the stopping daemon race to wake a request; whoever is
 * first does, once. The request's own thread then takes the others down before it answers.
 */
#include "daemon/api/wait.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <microhttpd.h>
#include <poll.h>
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
	/* First, since it takes a create out of the queue, which may still look at w. */
	int rc = then(r, a, err);
	wait_done(w);
	return rc;
}

/* Suspends the request: from then on another thread may wake it. */
static struct poll_wait *wait_begin(struct request *r, int64_t timeout_ms,
				    int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err)
{
	struct poll_wait *w = xcalloc(1, sizeof(*w));
	w->request = r;
	w->then = then;
	atomic_init(&w->woken, false);
	w->timer = evtimer_new(r->api->o.base, on_time, w);
	if (!w->timer) {
		free(w);
		error_set(err, ERR_INTERNAL, "no timer for a long poll");
		return NULL;
	}
	r->state = w;
	r->state_free = wait_done;
	request_suspend(r, woken);
	link_wait(r->api, w);
	struct timeval tv = { .tv_sec = timeout_ms / 1000, .tv_usec = (timeout_ms % 1000) * 1000 };
	evtimer_add(w->timer, &tv);
	return w;
}

int wait_operation(struct request *r, const struct id *operation, int64_t timeout_ms,
                   int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err)
{
	struct poll_wait *w = wait_begin(r, timeout_ms, then, err);
	if (!w)
		return -1;
	if (controller_watch(r->api->o.controller, operation, on_ended, w, &w->watch, NULL) == 0)
		w->watching = true;
	else
		wake(w); /* unknown by now: `then` finds out and says so */
	return 0;
}

/* The library does not look at the connections of suspended requests. */
static bool client_there(void *ctx)
{
	struct poll_wait *w = ctx;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(w->request->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct pollfd p = { .fd = info ? info->connect_fd : -1, .events = POLLRDHUP };
	return poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void on_created(void *ctx)
{
	wake(ctx);
}

int wait_create(struct request *r, const struct spec *spec, const char *key, int64_t timeout_ms,
		int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err)
{
	struct poll_wait *w = wait_begin(r, timeout_ms, then, err);
	if (!w)
		return -1;
	struct create_waiter from = { .who = &r->caller, .spec = spec, .key = key, .alive = client_there, .done = on_created, .ctx = w };
	if (controller_create_wait(r->api->o.controller, &from, &r->create, &r->err) != 0)
		wake(w);
	return 0;
}

void wait_wake_all(struct api *a)
{
	pthread_mutex_lock(&a->lock);
	for (struct poll_wait *w = a->polls; w; w = w->next)
		wake(w);
	pthread_mutex_unlock(&a->lock);
}
