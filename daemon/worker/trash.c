/* The trash: a directory and a thread. Names in it are numbers of no meaning. */
#include "daemon/worker/trash.h"

#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct trash {
	char *dir;
	pthread_t thread;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	bool full, stop, running;
};

/* Deletes what is there; true when it was something. */
static bool empty_once(const char *path)
{
	DIR *dir = opendir(path);
	bool any = false;

	if (!dir)
		return false;
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		if (e->d_name[0] == '.')
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0) == 0)
			any = true;
		else
			log_warn("worker", "deleting %s/%s failed errno=%d", path, e->d_name, errno);
	}
	closedir(dir);
	return any;
}

static void *run(void *arg)
{
	struct trash *t = arg;

	pthread_mutex_lock(&t->lock);
	while (t->full || !t->stop) {
		if (!t->full) {
			pthread_cond_wait(&t->changed, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		bool more = empty_once(t->dir);
		pthread_mutex_lock(&t->lock);
		if (!more) {
			t->full = false;
			pthread_cond_broadcast(&t->changed);
		}
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

struct trash *trash_new(const char *dir)
{
	struct trash *t = xcalloc(1, sizeof(*t));
	pthread_condattr_t attr;

	t->dir = xstrdup(dir);
	t->full = access(dir, F_OK) == 0;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &attr);
	pthread_condattr_destroy(&attr);
	t->running = pthread_create(&t->thread, NULL, run, t) == 0;
	return t;
}

void trash_free(struct trash *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	if (t->running)
		pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t->dir);
	free(t);
}

int trash_take(struct trash *t, const char *path, struct error *err)
{
	auto_free char *to = xasprintf("%s/%s", t->dir, id_new().text);

	if (!t->running || rename(path, to) != 0) {
		/* The usual first time; and without a thread, or over file systems, the plain way. */
		if (access(path, F_OK) != 0)
			return 0;
		if (!t->running || io_mkdirs(t->dir, 0700, NULL) != 0 || rename(path, to) != 0) {
			if (unlink(path) != 0 && errno != ENOENT)
				return error_errno(err, "deleting %s", path);
			return 0;
		}
	}
	pthread_mutex_lock(&t->lock);
	t->full = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	return 0;
}

bool trash_drain(struct trash *t, int64_t timeout_ms)
{
	struct timespec until;
	bool empty, late = false;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&t->lock);
	while (!(empty = !t->full) && !late)
		late = pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT;
	pthread_mutex_unlock(&t->lock);
	return empty;
}
