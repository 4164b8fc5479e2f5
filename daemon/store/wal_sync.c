/*
 * SQLite can sync its log within a commit only, and then everybody waits for the disk. So commits write, and those who need more wait
 * here: one of them syncs for all that had been written by then.
 */
#include "daemon/store/wal_sync.h"

#include "daemon/store/db_driver.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

struct wal_sync {
	char *path;
	int fd;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool syncing;
	uint64_t written, safe; /* commits */
};

struct wal_sync *wal_sync_new(const char *path)
{
	struct wal_sync *w = xcalloc(1, sizeof(*w));
	w->path = xstrdup(path);
	w->fd = -1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	return w;
}

void wal_sync_free(struct wal_sync *w)
{
	if (!w)
		return;
	close_fdp(&w->fd);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w->path);
	free(w);
}

void wal_sync_wrote(struct wal_sync *w)
{
	pthread_mutex_lock(&w->lock);
	w->written++;
	pthread_mutex_unlock(&w->lock);
}

/* Alone, without the lock. */
static int sync_file(struct wal_sync *w, struct error *err)
{
	if (w->fd < 0)
		w->fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (w->fd >= 0 && fdatasync(w->fd) == 0)
		return 0;
	error_set(err, ERR_UNAVAILABLE, "%s could not be written to the disk: %s", w->path, strerror(errno));
	if (err)
		err->sys = DB_IN_DOUBT;
	return -1;
}

int wal_sync_wait(struct wal_sync *w, struct error *err)
{
	int rc = 0;
	pthread_mutex_lock(&w->lock);
	uint64_t mine = w->written;
	while (rc == 0 && w->safe < mine) {
		if (w->syncing) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		uint64_t all = w->written;
		w->syncing = true;
		pthread_mutex_unlock(&w->lock);
		rc = sync_file(w, err);
		pthread_mutex_lock(&w->lock);
		w->syncing = false;
		if (rc == 0)
			w->safe = all;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}
