/* The carrying thread: see carrier.h. */
#include "daemon/api/carrier.h"

#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdbool.h>

struct carrier {
	struct event_base *base;
	pthread_t thread;
	bool running;
	char *scratch;
};

static void *thread(void *arg)
{
	event_base_loop(arg, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

int carrier_start(struct carrier **ret, struct error *err)
{
	if (evthread_use_pthreads() != 0)
		return error_set(err, ERR_INTERNAL, "the event library has no threads");
	struct carrier *c = xcalloc(1, sizeof(*c));
	c->scratch = xmalloc(CARRIER_PIECE);
	c->base = event_base_new();
	int rc = c->base ? pthread_create(&c->thread, NULL, thread, c->base) : ENOMEM;
	if (rc != 0) {
		carrier_free(c);
		errno = rc;
		return error_errno(err, "starting the carrying thread");
	}
	c->running = true;
	*ret = c;
	return 0;
}

struct event_base *carrier_base(const struct carrier *c)
{
	return c->base;
}

char *carrier_scratch(const struct carrier *c)
{
	return c->scratch;
}

void carrier_stop(struct carrier *c)
{
	if (!c || !c->running)
		return;
	/* Not loopbreak, which a thread that has yet to enter the loop forgets. */
	event_base_loopexit(c->base, NULL);
	pthread_join(c->thread, NULL);
	c->running = false;
}

void carrier_free(struct carrier *c)
{
	if (!c)
		return;
	carrier_stop(c);
	if (c->base)
		event_base_free(c->base);
	free(c->scratch);
	free(c);
}
