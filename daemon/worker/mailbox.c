/* A locked list and an eventfd; the loop takes the whole list at once. */
#include "daemon/worker/mailbox.h"

#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct letter {
	struct letter *next;
	mailbox_fn fn;
	void *arg;
};

struct mailbox {
	pthread_mutex_t lock;
	struct letter *first, **last;
	bool owned; /* loop is known: the thread that drained first */
	pthread_t loop;
	int wake_fd;
	struct event *wake;
};

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
	uint64_t n;

	(void)what;
	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_error("loop", "reading the wake-up counter: %s", strerror(errno));
	mailbox_drain(ctx);
}

struct mailbox *mailbox_new(struct event_base *base)
{
	struct mailbox *m = xcalloc(1, sizeof(*m));

	pthread_mutex_init(&m->lock, NULL);
	m->last = &m->first;
	m->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (m->wake_fd < 0)
		log_error("loop", "no eventfd: %s; only what comes over sockets is served", strerror(errno));
	else
		m->wake = event_new(base, m->wake_fd, EV_READ | EV_PERSIST, on_wake, m);
	if (m->wake)
		event_add(m->wake, NULL);
	return m;
}

void mailbox_free(struct mailbox *m)
{
	if (!m)
		return;
	mailbox_drain(m);
	if (m->wake)
		event_free(m->wake);
	close_fdp(&m->wake_fd);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

void mailbox_post(struct mailbox *m, mailbox_fn fn, void *arg)
{
	struct letter *l = xcalloc(1, sizeof(*l));
	uint64_t one = 1;
	bool was_empty;

	l->fn = fn;
	l->arg = arg;
	pthread_mutex_lock(&m->lock);
	was_empty = m->first == NULL;
	*m->last = l;
	m->last = &l->next;
	pthread_mutex_unlock(&m->lock);
	if (was_empty && write(m->wake_fd, &one, sizeof(one)) < 0)
		log_error("loop", "waking the event loop: %s", strerror(errno));
}

void mailbox_drain(struct mailbox *m)
{
	struct letter *l;

	pthread_mutex_lock(&m->lock);
	m->owned = true;
	m->loop = pthread_self();
	l = m->first;
	m->first = NULL;
	m->last = &m->first;
	pthread_mutex_unlock(&m->lock);
	while (l) {
		struct letter *next = l->next;

		l->fn(l->arg);
		free(l);
		l = next;
	}
}

enum call_state { CALL_WAITING, CALL_RUNNING, CALL_DONE, CALL_ABANDONED };

/* Shared by caller and loop; whoever comes last frees it. */
struct call {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum call_state state;
	mailbox_fn fn;
	void *arg;
};

static void call_free(struct call *c)
{
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void run_call(void *arg)
{
	struct call *c = arg;
	bool abandoned;

	pthread_mutex_lock(&c->lock);
	abandoned = c->state == CALL_ABANDONED;
	if (!abandoned)
		c->state = CALL_RUNNING;
	pthread_mutex_unlock(&c->lock);
	if (abandoned) {
		call_free(c);
		return;
	}
	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->state = CALL_DONE;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

static struct call *call_new(mailbox_fn fn, void *arg)
{
	struct call *c = xcalloc(1, sizeof(*c));
	pthread_condattr_t attr;

	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	c->fn = fn;
	c->arg = arg;
	return c;
}

/* True when fn returned; false: abandoned before it began, and c belongs to the loop. */
static bool call_wait(struct call *c, int64_t timeout_ms)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&c->lock);
	while (c->state == CALL_WAITING) {
		if (pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT && c->state == CALL_WAITING)
			c->state = CALL_ABANDONED;
	}
	while (c->state == CALL_RUNNING)
		pthread_cond_wait(&c->changed, &c->lock);
	done = c->state == CALL_DONE;
	pthread_mutex_unlock(&c->lock);
	return done;
}

int mailbox_call(struct mailbox *m, mailbox_fn fn, void *arg, int64_t timeout_ms, struct error *err)
{
	struct call *c;
	bool here;

	pthread_mutex_lock(&m->lock);
	here = m->owned && pthread_equal(m->loop, pthread_self());
	pthread_mutex_unlock(&m->lock);
	if (here) {
		fn(arg);
		return 0;
	}
	c = call_new(fn, arg);
	mailbox_post(m, run_call, c);
	if (!call_wait(c, timeout_ms))
		return error_set(err, ERR_TIMEOUT, "the daemon's event loop did not answer in time");
	call_free(c);
	return 0;
}
