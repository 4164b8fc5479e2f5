/*
 * The reaper: see reaper.h. Deadlines are wall-clock times, so it sleeps on a wall-clock timer that also wakes when
 * somebody sets the clock: no polling, and no sandbox lives on because the clock jumped.
 */
#include "daemon/reaper.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct reaper {
	struct controller *controller;
	pthread_t thread;
	int timer;
	int wakeup;             /* it is to stop */
	atomic_bool stop;
	pthread_mutex_t lock;
	int64_t armed_us;       /* what the timer is set to since the present pass began, 0: nothing */
};

static void wake(struct reaper *r)
{
	uint64_t one = 1;
	if (write(r->wakeup, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("reaper", "waking up failed: %m");
}

/* With the lock. 0: no deadline is known. */
static void arm(struct reaper *r, int64_t at_us)
{
	r->armed_us = at_us;
	struct itimerspec t = { .it_value = { .tv_sec = at_us / 1000000, .tv_nsec = (at_us % 1000000) * 1000 } };
	if (timerfd_settime(r->timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &t, NULL) != 0)
		log_error("reaper", "setting the timer failed: %m");
}

/* Sets the timer alone: a pass for a deadline that lies ahead would keep the store from those who brought it. */
static void on_deadline(void *ctx, int64_t after_us)
{
	struct reaper *r = ctx;
	int64_t at_us = clock_wall_us() + after_us;
	pthread_mutex_lock(&r->lock);
	if (r->armed_us == 0 || at_us < r->armed_us)
		arm(r, at_us);
	pthread_mutex_unlock(&r->lock);
}

/* What came up meanwhile, and is sooner, stays. */
static void pass(struct reaper *r)
{
	pthread_mutex_lock(&r->lock);
	r->armed_us = 0;
	pthread_mutex_unlock(&r->lock);
	int64_t next_us = controller_reap(r->controller);
	pthread_mutex_lock(&r->lock);
	if (r->armed_us == 0 || (next_us && next_us < r->armed_us))
		arm(r, next_us);
	pthread_mutex_unlock(&r->lock);
}

static void drain(int fd)
{
	uint64_t n;
	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN && errno != ECANCELED)
		log_error("reaper", "reading the timer failed: %m");
}

static void *reaper_thread(void *arg)
{
	struct reaper *r = arg;
	while (!atomic_load(&r->stop)) {
		pass(r);
		struct pollfd p[] = { { .fd = r->timer, .events = POLLIN }, { .fd = r->wakeup, .events = POLLIN } };
		poll(p, ARRAY_LEN(p), -1);
		drain(r->timer);
		drain(r->wakeup);
	}
	return NULL;
}

static void reaper_free(struct reaper *r)
{
	close_fdp(&r->timer);
	close_fdp(&r->wakeup);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

int reaper_start(struct controller *c, struct reaper **ret, struct error *err)
{
	struct reaper *r = xcalloc(1, sizeof(*r));
	r->controller = c;
	pthread_mutex_init(&r->lock, NULL);
	r->timer = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	r->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->timer < 0 || r->wakeup < 0) {
		error_errno(err, "creating a timer");
		reaper_free(r);
		return -1;
	}
	controller_on_deadline(c, on_deadline, r);
	int rc = pthread_create(&r->thread, NULL, reaper_thread, r);
	if (rc != 0) {
		errno = rc;
		error_errno(err, "starting the reaper");
		controller_on_deadline(c, NULL, NULL);
		reaper_free(r);
		return -1;
	}
	*ret = r;
	return 0;
}

void reaper_stop(struct reaper *r)
{
	if (!r)
		return;
	controller_on_deadline(r->controller, NULL, NULL);
	atomic_store(&r->stop, true);
	wake(r);
	pthread_join(r->thread, NULL);
	reaper_free(r);
}
