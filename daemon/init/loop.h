/*
 * The event loop of sandbox-init: epoll, timers, and memory that is freed only when no event can name it any more.
 * One thread. Every descriptor watched here is non-blocking.
 */
#ifndef SANDBOX_INIT_LOOP_H
#define SANDBOX_INIT_LOOP_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Embedded in its owner. fd is -1 when idle; `ready` may close its own and any other watch. */
struct watch {
	int fd;
	uint32_t events;
	void (*ready)(struct watch *w, uint32_t events);
};

struct timer {
	struct timer *next;
	struct timer **at; /* NULL: not armed */
	int64_t due_ms;
	void (*fired)(struct timer *t);
};

struct loop {
	int epfd;
	struct timer *timers;
	struct grave *graves;
};

int loop_init(struct loop *l, struct error *err);
/* Waits for events or the next timer, runs their callbacks, then frees what was given to loop_free_later. Never fails. */
void loop_turn(struct loop *l);
void loop_free_later(struct loop *l, void *take_p);

/* Takes fd. -1: fd is closed (only when the kernel is out of memory or watches). */
int watch_open(struct loop *l, struct watch *w, int take_fd, uint32_t events);
void watch_set(struct loop *l, struct watch *w, uint32_t events);
/* Stops watching and closes. The registration is removed first: a forked process may still hold the same open file. */
void watch_close(struct loop *l, struct watch *w);
/* Stops watching and hands the descriptor out. */
int watch_release(struct loop *l, struct watch *w);

void timer_arm(struct loop *l, struct timer *t, int64_t in_ms); /* moves it when armed */
void timer_stop(struct timer *t);
static inline bool timer_armed(const struct timer *t)
{
	return t->at != NULL;
}

#endif
