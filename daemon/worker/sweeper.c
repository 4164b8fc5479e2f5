/* Runs spool_sweep now and then on a thread of its own: walking a directory blocks. */
#include "daemon/worker/exec_priv.h"

#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FIRST_SECONDS = 60, EVERY_SECONDS = 300 };

struct sweeper {
	struct event *timer;
	char *dir;
	_Atomic int64_t retention_ms;
	_Atomic bool busy;
	bool started; /* thread is to be joined */
	pthread_t thread;
};

static void *sweep(void *arg)
{
	struct sweeper *s = arg;
	size_t gone = spool_sweep(s->dir, atomic_load(&s->retention_ms), LIMIT_SPOOL_DISK_MAX);

	if (gone > 0)
		log_info("exec", "removed the kept output of %zu ended commands", gone);
	atomic_store(&s->busy, false);
	return NULL;
}

static void again(struct sweeper *s, int seconds)
{
	struct timeval tv = { .tv_sec = seconds };

	evtimer_add(s->timer, &tv);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	struct sweeper *s = ctx;

	(void)fd;
	(void)what;
	again(s, EVERY_SECONDS);
	if (atomic_load(&s->busy))
		return;
	if (s->started)
		pthread_join(s->thread, NULL);
	atomic_store(&s->busy, true);
	s->started = pthread_create(&s->thread, NULL, sweep, s) == 0;
	if (!s->started)
		atomic_store(&s->busy, false);
}

struct sweeper *sweeper_new(struct event_base *base, const char *dir)
{
	struct sweeper *s = xcalloc(1, sizeof(*s));

	s->dir = xstrdup(dir);
	atomic_store(&s->retention_ms, 24 * 3600 * 1000LL);
	s->timer = evtimer_new(base, on_time, s);
	if (!s->timer)
		abort();
	again(s, FIRST_SECONDS);
	return s;
}

void sweeper_free(struct sweeper *s)
{
	if (!s)
		return;
	if (s->started)
		pthread_join(s->thread, NULL);
	event_free(s->timer);
	free(s->dir);
	free(s);
}

void sweeper_set(struct sweeper *s, int64_t retention_ms)
{
	atomic_store(&s->retention_ms, retention_ms);
}
