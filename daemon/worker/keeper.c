/*
 * Disk work of the spools, on a thread of its own because it blocks: archiving finished ones and, now and then, the
 * sweep. The thread lives while there is work.
 */
#include "daemon/worker/exec_priv.h"

#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FIRST_SECONDS = 60, EVERY_SECONDS = 300 };

struct task {
	struct task *next;
	char *from, *to; /* NULL: sweep */
};

struct keeper {
	struct event *timer;
	char *live_dir, *dir;
	_Atomic int64_t retention_ms;
	pthread_mutex_t lock; /* guards what follows */
	struct task *first, **last;
	bool running;
	bool joinable;
	pthread_t thread;
};

static void sweep(struct keeper *k)
{
	int64_t retention = atomic_load(&k->retention_ms);
	size_t gone = spool_sweep(k->dir, retention, LIMIT_SPOOL_DISK_MAX);

	if (strcmp(k->dir, k->live_dir) != 0)
		gone += spool_sweep(k->live_dir, retention, LIMIT_SPOOL_DISK_MAX);
	if (gone > 0)
		log_info("exec", "removed the kept output of %zu ended commands", gone);
}

static void run_task(struct keeper *k, const struct task *t)
{
	struct error err = ERROR_INIT;

	if (!t->from)
		sweep(k);
	else if (spool_archive(t->from, t->to, &err) != 0)
		log_warn("exec", "output beyond the record is kept in memory: %s", err.message);
}

static void *work(void *arg)
{
	struct keeper *k = arg;
	struct task *t;

	for (;;) {
		pthread_mutex_lock(&k->lock);
		t = k->first;
		if (t) {
			k->first = t->next;
			if (!k->first)
				k->last = &k->first;
		}
		k->running = t != NULL;
		pthread_mutex_unlock(&k->lock);
		if (!t)
			return NULL;
		run_task(k, t);
		free(t->from);
		free(t->to);
		free(t);
	}
}

static void add_task(struct keeper *k, char *take_from, char *take_to)
{
	struct task *t = xcalloc(1, sizeof(*t));
	bool start;

	t->from = take_from;
	t->to = take_to;
	pthread_mutex_lock(&k->lock);
	*k->last = t;
	k->last = &t->next;
	start = !k->running;
	k->running = true;
	pthread_mutex_unlock(&k->lock);
	if (!start)
		return;
	if (k->joinable)
		pthread_join(k->thread, NULL);
	k->joinable = pthread_create(&k->thread, NULL, work, k) == 0;
	if (!k->joinable)
		work(k);
}

void keeper_archive(struct keeper *k, const char *from, const char *to)
{
	add_task(k, xstrdup(from), xstrdup(to));
}

static void again(struct keeper *k, int seconds)
{
	struct timeval tv = { .tv_sec = seconds };

	evtimer_add(k->timer, &tv);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	again(ctx, EVERY_SECONDS);
	add_task(ctx, NULL, NULL);
}

struct keeper *keeper_new(struct event_base *base, const char *live_dir, const char *dir)
{
	struct keeper *k = xcalloc(1, sizeof(*k));

	k->live_dir = xstrdup(live_dir);
	k->dir = xstrdup(dir);
	k->last = &k->first;
	pthread_mutex_init(&k->lock, NULL);
	atomic_store(&k->retention_ms, 24 * 3600 * 1000LL);
	k->timer = evtimer_new(base, on_time, k);
	if (!k->timer)
		abort();
	again(k, FIRST_SECONDS);
	return k;
}

void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	if (k->joinable)
		pthread_join(k->thread, NULL);
	event_free(k->timer);
	pthread_mutex_destroy(&k->lock);
	free(k->live_dir);
	free(k->dir);
	free(k);
}

void keeper_set_retention(struct keeper *k, int64_t retention_ms)
{
	atomic_store(&k->retention_ms, retention_ms);
}
