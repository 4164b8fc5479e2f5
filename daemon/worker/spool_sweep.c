/* Retention of spools: by age, then by the disk they take. A spool in use is locked and left alone. */
#include "daemon/worker/spool.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct kept {
	char name[64];
	bool pinned; /* the output of a start command whose sandbox lives */
	int64_t changed_us;
	int64_t bytes;
};

struct kept_list {
	struct kept *items;
	size_t len, cap;
};

static bool spool_name(int dir_fd, const char *name, struct kept *ret)
{
	size_t prefix = strlen(SPOOL_MAIN_PREFIX);
	bool main = strncmp(name, SPOOL_MAIN_PREFIX, prefix) == 0;
	char home[64];
	struct id id;

	if (id_parse(main ? name + prefix : name, &id) != 0)
		return false;
	snprintf(home, sizeof(home), "../sandboxes/%s", id.text);
	ret->pinned = main && faccessat(dir_fd, home, F_OK, 0) == 0;
	snprintf(ret->name, sizeof(ret->name), "%s%s", main ? SPOOL_MAIN_PREFIX : "", id.text);
	return true;
}

static void list_dir(DIR *d, struct kept_list *l)
{
	const struct dirent *e;
	struct stat st;

	while ((e = readdir(d))) {
		struct kept k;

		if (!spool_name(dirfd(d), e->d_name, &k) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		/* Pages written through a mapping move mtime late or, on some file systems, never: ctime follows the blocks. */
		k.changed_us = (int64_t)st.st_mtim.tv_sec * 1000000;
		if ((int64_t)st.st_ctim.tv_sec * 1000000 > k.changed_us)
			k.changed_us = (int64_t)st.st_ctim.tv_sec * 1000000;
		k.bytes = (int64_t)st.st_blocks * 512;
		if (l->len == l->cap) {
			l->cap = l->cap ? l->cap * 2 : 64;
			l->items = xrealloc(l->items, l->cap, sizeof(*l->items));
		}
		l->items[l->len++] = k;
	}
}

static int by_age(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return x->changed_us < y->changed_us ? -1 : x->changed_us > y->changed_us;
}

/* False when somebody has it open (or it is gone). */
static bool remove_unused(int dir_fd, const char *name)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(dir_fd, name, 0) == 0;
}

size_t spool_sweep(const char *dir, int64_t retention_ms, int64_t disk_max)
{
	DIR *d = opendir(dir);
	struct kept_list l = { .items = NULL };
	int64_t old = clock_wall_us() - retention_ms * 1000, bytes = 0;
	size_t gone = 0;

	if (!d)
		return 0;
	list_dir(d, &l);
	if (l.len > 1)
		qsort(l.items, l.len, sizeof(*l.items), by_age);
	for (size_t i = 0; i < l.len; i++)
		bytes += l.items[i].bytes;
	for (size_t i = 0; i < l.len && (l.items[i].changed_us < old || bytes > disk_max); i++) {
		if (!l.items[i].pinned && remove_unused(dirfd(d), l.items[i].name)) {
			bytes -= l.items[i].bytes;
			gone++;
		}
	}
	free(l.items);
	closedir(d);
	return gone;
}
