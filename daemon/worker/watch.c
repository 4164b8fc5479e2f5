/* Process watch: an epoll of pidfds, one entry per sandbox. */
#include "daemon/worker/watch.h"

#include "daemon/worker/idmap.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

struct entry {
	struct id sandbox;
	int pidfd;
	struct entry *next; /* among the dead */
};

struct watch {
	void (*fn)(void *ctx, const struct id *sandbox);
	void *ctx;
	int epoll_fd, stop_fd;
	pthread_t thread;
	pthread_mutex_t lock; /* entries, dead, and every epoll_ctl */
	struct idmap entries;
	struct entry *gone;   /* pids that had ended when they were added */
	struct entry *dead;   /* taken out; freed by the thread, which may hold an event of theirs */
};

static void entry_free(struct entry *e)
{
	close_fdp(&e->pidfd);
	free(e);
}

static void list_free(struct entry *e)
{
	while (e) {
		struct entry *next = e->next;

		entry_free(e);
		e = next;
	}
}

/* With the lock. The memory stays until no event can point to it. */
static void bury(struct watch *w, struct entry *e)
{
	if (e->pidfd >= 0)
		epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, e->pidfd, NULL);
	e->next = w->dead;
	w->dead = e;
}

/* With the lock. True: this entry was live, its end is to be told. */
static bool take_if_live(struct watch *w, struct entry *e, struct id *ret)
{
	if (idmap_get(&w->entries, &e->sandbox) != e)
		return false;
	idmap_remove(&w->entries, &e->sandbox);
	*ret = e->sandbox;
	return true;
}

static void on_event(struct watch *w, struct entry *e)
{
	struct id sandbox;
	bool live;

	pthread_mutex_lock(&w->lock);
	live = take_if_live(w, e, &sandbox);
	if (live) {
		bury(w, e);
		w->fn(w->ctx, &sandbox); /* under the lock: watch_remove then means what it says */
	}
	pthread_mutex_unlock(&w->lock);
}

static void tell_gone(struct watch *w)
{
	struct entry *list, *e;
	struct id sandbox;

	pthread_mutex_lock(&w->lock);
	list = w->gone;
	w->gone = NULL;
	for (e = list; e; e = e->next)
		if (take_if_live(w, e, &sandbox))
			w->fn(w->ctx, &sandbox);
	pthread_mutex_unlock(&w->lock);
	list_free(list);
}

static void free_dead(struct watch *w)
{
	struct entry *dead;

	pthread_mutex_lock(&w->lock);
	dead = w->dead;
	w->dead = NULL;
	pthread_mutex_unlock(&w->lock);
	list_free(dead);
}

static void *run(void *arg)
{
	struct watch *w = arg;
	struct epoll_event events[32];
	bool stop = false;

	while (!stop) {
		int n = epoll_wait(w->epoll_fd, events, (int)ARRAY_LEN(events), -1);
		uint64_t count;

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				on_event(w, events[i].data.ptr);
			else if (read(w->stop_fd, &count, sizeof(count)) == sizeof(count) && count >= 1ULL << 32)
				stop = true;
		}
		tell_gone(w);
		free_dead(w);
	}
	return NULL;
}

/* Small counts wake the thread, a large one ends it. */
static void poke(struct watch *w, uint64_t count)
{
	if (write(w->stop_fd, &count, sizeof(count)) < 0)
		return; /* the counter is full: it is awake */
}

int watch_new(void (*fn)(void *ctx, const struct id *sandbox), void *ctx, struct watch **ret, struct error *err)
{
	struct watch *w = xcalloc(1, sizeof(*w));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };

	w->fn = fn;
	w->ctx = ctx;
	pthread_mutex_init(&w->lock, NULL);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll_fd >= 0 && w->stop_fd >= 0 && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->stop_fd, &ev) == 0 &&
	    (errno = pthread_create(&w->thread, NULL, run, w)) == 0) {
		*ret = w;
		return 0;
	}
	error_errno(err, "starting the process watch");
	close_fdp(&w->epoll_fd);
	close_fdp(&w->stop_fd);
	free(w);
	return -1;
}

void watch_free(struct watch *w)
{
	void **live;

	if (!w)
		return;
	poke(w, 1ULL << 32);
	pthread_join(w->thread, NULL);
	live = idmap_values(&w->entries);
	for (size_t i = 0; i < w->entries.len; i++)
		entry_free(live[i]);
	free(live);
	idmap_done(&w->entries);
	list_free(w->dead);
	close_fdp(&w->epoll_fd);
	close_fdp(&w->stop_fd);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int watch_add(struct watch *w, const struct id *sandbox, pid_t pid, struct error *err)
{
	struct entry *e = xcalloc(1, sizeof(*e)), *old;
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = e };
	int rc = 0;

	e->sandbox = *sandbox;
	e->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (e->pidfd < 0 && errno != ESRCH) {
		free(e);
		return error_errno(err, "watching process %d", (int)pid);
	}
	pthread_mutex_lock(&w->lock);
	old = idmap_remove(&w->entries, sandbox);
	if (old && old->pidfd >= 0)
		bury(w, old);
	idmap_put(&w->entries, sandbox, e);
	if (e->pidfd < 0) {
		e->next = w->gone;
		w->gone = e;
	} else if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, e->pidfd, &ev) != 0) {
		rc = error_errno(err, "watching process %d", (int)pid);
		idmap_remove(&w->entries, sandbox);
		entry_free(e);
	}
	pthread_mutex_unlock(&w->lock);
	poke(w, 1);
	return rc;
}

int watch_take(struct watch *w, const struct id *sandbox)
{
	struct entry *e;
	int fd = -1;

	pthread_mutex_lock(&w->lock);
	e = idmap_remove(&w->entries, sandbox);
	if (e && e->pidfd >= 0) {
		fd = fcntl(e->pidfd, F_DUPFD_CLOEXEC, 0);
		bury(w, e);
	}
	pthread_mutex_unlock(&w->lock);
	poke(w, 1);
	return fd;
}

void watch_remove(struct watch *w, const struct id *sandbox)
{
	auto_close int fd = watch_take(w, sandbox);

	(void)fd;
}

bool watch_has(struct watch *w, const struct id *sandbox)
{
	bool has;

	pthread_mutex_lock(&w->lock);
	has = idmap_get(&w->entries, sandbox) != NULL;
	pthread_mutex_unlock(&w->lock);
	return has;
}
