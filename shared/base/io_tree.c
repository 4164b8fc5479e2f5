/*
 * Removing a tree whose content may be hostile: everything by descriptor, no link followed, no mount entered,
 * and a nesting deeper than DEPTH_MAX is moved up instead of recursed into, so that neither stack nor descriptors run out.
 */
#include "shared/base/io.h"

#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 48, OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

struct removal {
	int top;
	dev_t dev;
	bool moved; /* something was moved into top: read it again */
};

/* EXDEV when name is a mount point. Kernels before 5.6 know no openat2: there the device number has to do. */
static int open_child(int dir, const char *name, dev_t dev)
{
	struct open_how how = { .flags = OPEN_DIR, .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(dir, name, OPEN_DIR);
	struct stat st;
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev != dev) {
		close(fd);
		errno = EXDEV;
		return -1;
	}
	return fd;
}

/* A directory its owner made unreadable is still the owner's to remove. */
static int open_child_forced(int dir, const char *name, dev_t dev)
{
	int fd = open_child(dir, name, dev);
	if (fd >= 0 || errno != EACCES || fchmodat(dir, name, 0700, 0) != 0)
		return fd;
	return open_child(dir, name, dev);
}

static int move_up(struct removal *r, int dir, const char *name)
{
	uint64_t random;
	char to[40];
	random_bytes(&random, sizeof(random));
	snprintf(to, sizeof(to), ".removing-%016llx", (unsigned long long)random);
	r->moved = true;
	return renameat(dir, name, r->top, to);
}

static int remove_children(struct removal *r, int take_fd, int depth);

static int remove_dir(struct removal *r, int dir, const char *name, int depth)
{
	if (depth >= DEPTH_MAX)
		return move_up(r, dir, name);
	int fd = open_child_forced(dir, name, r->dev);
	if (fd < 0)
		return -1;
	struct stat st;
	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	if (remove_children(r, fd, depth + 1) != 0)
		return -1;
	return unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_entry(struct removal *r, int dir, const char *name, int depth)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	int saved = errno;
	struct stat st;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : -1;
	if (!S_ISDIR(st.st_mode)) {
		errno = saved;
		return -1;
	}
	return remove_dir(r, dir, name, depth) == 0 || errno == ENOENT ? 0 : -1;
}

static int remove_children(struct removal *r, int take_fd, int depth)
{
	auto_dir DIR *d = fdopendir(take_fd);
	if (!d) {
		close(take_fd);
		return -1;
	}
	for (;;) {
		errno = 0;
		struct dirent *e = readdir(d);
		if (!e)
			return errno ? -1 : 0;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (remove_entry(r, dirfd(d), e->d_name, depth) != 0)
			return -1;
	}
}

int io_remove_tree_at(int dir, const char *name, struct error *err)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	int first = errno;
	auto_close int top = openat(dir, name, OPEN_DIR);
	struct stat st;
	if (top < 0 || fstat(top, &st) != 0) {
		if (errno == ENOTDIR || errno == ELOOP)
			errno = first;
		return error_errno(err, "removing %s", name);
	}
	struct removal r = { .top = top, .dev = st.st_dev };
	do {
		r.moved = false;
		int again = openat(top, ".", OPEN_DIR);
		if (again < 0 || remove_children(&r, again, 1) != 0)
			return errno == EXDEV ? error_set(err, ERR_CONFLICT, "removing %s: a file system is still mounted inside", name) :
						error_errno(err, "removing the content of %s", name);
	} while (r.moved);
	if (unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		return error_errno(err, "removing %s", name);
	return 0;
}

int io_remove_tree(const char *path, struct error *err)
{
	return io_remove_tree_at(AT_FDCWD, path, err);
}

/* --- opening below a directory --------------------------------------------------------------------------------------------- */

/* For kernels and filters without openat2: one component at a time, never through a link. */
static int walk_beneath(int dir, const char *path, int flags)
{
	auto_free char *copy = xstrdup(path);
	auto_close int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	char *name = copy;
	for (char *end; at >= 0 && (end = strchr(name, '/')) != NULL; name = end + 1) {
		*end = '\0';
		int next = strcmp(name, "..") == 0 ? -1 : openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(at);
		at = next;
	}
	return at < 0 || strcmp(name, "..") == 0 ? -1 : openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);
}

int io_open_beneath(int dir, const char *path, int flags)
{
	if (!*path)
		path = ".";
	struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		return walk_beneath(dir, path, flags);
	return fd;
}
