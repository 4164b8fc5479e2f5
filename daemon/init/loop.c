/* epoll, timers, deferred frees: see loop.h. */
#include "daemon/init/loop.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_PER_TURN = 64 };

struct grave {
	struct grave *next;
	void *p;
};

int loop_init(struct loop *l, struct error *err)
{
	*l = (struct loop){ .epfd = epoll_create1(EPOLL_CLOEXEC) };
	return l->epfd < 0 ? error_errno(err, "epoll_create1") : 0;
}

void loop_free_later(struct loop *l, void *take_p)
{
	struct grave *g = xmalloc(sizeof(*g));
	*g = (struct grave){ l->graves, take_p };
	l->graves = g;
}

static void bury(struct loop *l)
{
	while (l->graves) {
		struct grave *g = l->graves;
		l->graves = g->next;
		free(g->p);
		free(g);
	}
}

static int until_next_timer(const struct loop *l)
{
	int64_t first = INT64_MAX;
	for (const struct timer *t = l->timers; t; t = t->next)
		first = t->due_ms < first ? t->due_ms : first;
	if (first == INT64_MAX)
		return -1;
	int64_t left = first - clock_mono_ms();
	return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static void run_timers(struct loop *l)
{
	/* A callback may arm or stop any timer, so the walk starts again after each. What it arms for now waits a turn. */
	int64_t now = clock_mono_ms();
	for (int ran = 0; ran < EVENTS_PER_TURN; ran++) {
		struct timer *t = l->timers;
		while (t && t->due_ms > now)
			t = t->next;
		if (!t)
			return;
		timer_stop(t);
		t->fired(t);
	}
}

void loop_turn(struct loop *l)
{
	struct epoll_event ev[EVENTS_PER_TURN];
	int n = epoll_wait(l->epfd, ev, EVENTS_PER_TURN, until_next_timer(l));
	if (n < 0 && errno != EINTR)
		nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;
		if (w->fd >= 0)
			w->ready(w, ev[i].events);
	}
	if (l->timers)
		run_timers(l);
	bury(l);
}

int watch_open(struct loop *l, struct watch *w, int take_fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };
	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, take_fd, &ev) < 0) {
		close(take_fd);
		return -1;
	}
	w->fd = take_fd;
	w->events = events;
	return 0;
}

void watch_set(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };
	if (w->fd < 0 || w->events == events)
		return;
	w->events = events;
	epoll_ctl(l->epfd, EPOLL_CTL_MOD, w->fd, &ev);
}

int watch_release(struct loop *l, struct watch *w)
{
	int fd = w->fd;
	if (fd >= 0)
		epoll_ctl(l->epfd, EPOLL_CTL_DEL, fd, NULL);
	w->fd = -1;
	return fd;
}

void watch_close(struct loop *l, struct watch *w)
{
	int fd = watch_release(l, w);
	if (fd >= 0)
		close(fd);
}

void timer_stop(struct timer *t)
{
	if (!t->at)
		return;
	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	t->at = NULL;
	t->next = NULL;
}

void timer_arm(struct loop *l, struct timer *t, int64_t in_ms)
{
	timer_stop(t);
	t->due_ms = clock_mono_ms() + in_ms;
	t->next = l->timers;
	t->at = &l->timers;
	if (t->next)
		t->next->at = &t->next;
	l->timers = t;
}
