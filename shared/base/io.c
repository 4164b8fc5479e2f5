/* Descriptors and whole files: see io.h. Removal of trees is in io_tree.c, unix sockets in io_unix.c. */
#include "shared/base/io.h"

#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

void close_fdp(int *fd)
{
	if (*fd < 0)
		return;
	int saved = errno;
	close(*fd);
	*fd = -1;
	errno = saved;
}

void close_dirp(DIR **dir)
{
	if (!*dir)
		return;
	int saved = errno;
	closedir(*dir);
	*dir = NULL;
	errno = saved;
}

ssize_t io_read_full(int fd, void *p, size_t n)
{
	size_t got = 0;
	while (got < n) {
		ssize_t r = read(fd, (char *)p + got, n - got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

int io_write_full(int fd, const void *p, size_t n)
{
	const char *from = p;
	while (n > 0) {
		ssize_t w = write(fd, from, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -1;
		if (w == 0) {
			errno = EIO; /* no progress and no reason: never spin on it */
			return -1;
		}
		from += w;
		n -= (size_t)w;
	}
	return 0;
}

int io_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return -1;
	int wanted = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return wanted == flags ? 0 : fcntl(fd, F_SETFL, wanted);
}

/* O_NONBLOCK: opening a FIFO somebody put there must not wait for its writer. */
static int open_regular(const char *path, struct error *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "%s does not exist", path);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0)
		return error_errno(err, "opening %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_INVALID, "%s is not a regular file", path);
	return steal_fd(&fd);
}

int io_read_file(const char *path, size_t max, struct buf *ret, struct error *err)
{
	auto_close int fd = open_regular(path, err);
	if (fd < 0)
		return -1;
	auto_buf content = BUF_INIT;
	for (;;) {
		char *to = buf_reserve(&content, CHUNK);
		ssize_t n = read(fd, to, CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, "reading %s", path);
		buf_commit(&content, (size_t)n);
		if (content.len > max)
			return error_set(err, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, max);
		if (n == 0)
			break;
	}
	buf_done(ret);
	content.max = ret->max;
	*ret = content;
	content = (struct buf)BUF_INIT;
	return 0;
}

/* The directory of path as a descriptor; *ret_base points at the last component inside path. */
static int open_parent(const char *path, const char **ret_base, struct error *err)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	if (*base == '\0' || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return error_set(err, ERR_INVALID, "'%s' does not name a file", path);
	auto_free char *dir = !slash ? xstrdup(".") : slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, "opening the directory %s", dir);
	*ret_base = base;
	return fd;
}

/* Content, mode and durability; close is checked too, since network file systems report a full disk there. */
static int fill_file(int take_fd, const void *p, size_t n, mode_t mode, bool sync)
{
	int bad = io_write_full(take_fd, p, n) != 0 || fchmod(take_fd, mode) != 0 || (sync && fsync(take_fd) != 0);
	int saved = errno;
	if (close(take_fd) != 0 && !bad)
		return -1;
	errno = saved;
	return bad ? -1 : 0;
}

int io_write_file_atomic(const char *path, const void *p, size_t n, mode_t mode, bool sync, struct error *err)
{
	const char *base = NULL;
	auto_close int dir = open_parent(path, &base, err);
	if (dir < 0)
		return -1;
	uint64_t random;
	char temp[32];
	random_bytes(&random, sizeof(random));
	snprintf(temp, sizeof(temp), ".tmp-%016llx", (unsigned long long)random);
	int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0600);
	if (fd < 0)
		return error_errno(err, "creating a temporary file beside %s", path);
	if (fill_file(fd, p, n, mode, sync) != 0 || renameat(dir, temp, dir, base) != 0) {
		error_errno(err, "writing %s", path);
		unlinkat(dir, temp, 0);
		return -1;
	}
	if (sync && fsync(dir) != 0)
		return error_errno(err, "syncing the directory of %s", path);
	return 0;
}

/* chmod after mkdir: the mode asked for, whatever the umask. */
static int make_dir(const char *path, mode_t mode, struct error *err)
{
	struct stat st;
	if (mkdir(path, mode) == 0)
		return chmod(path, mode) == 0 ? 0 : error_errno(err, "setting the mode of %s", path);
	int saved = errno;
	if (stat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? 0 : error_set(err, ERR_CONFLICT, "%s exists and is not a directory", path);
	errno = saved;
	return error_errno(err, "creating the directory %s", path);
}

int io_mkdirs(const char *path, mode_t mode, struct error *err)
{
	if (*path == '\0')
		return error_set(err, ERR_INVALID, "an empty path is no directory");
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	auto_free char *part = xstrdup(path);
	for (char *p = part + 1; *p; p++) {
		if (*p != '/' || p[-1] == '/')
			continue;
		*p = '\0';
		if (make_dir(part, mode, err) != 0)
			return -1;
		*p = '/';
	}
	return make_dir(part, mode, err);
}
