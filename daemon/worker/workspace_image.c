/*
 * Image files. A template costs one mkfs (17 ms for 10 GiB) and is kept; a workspace copies its few data extents and
 * reserves the rest. Reserving matters: on a full host a write into a sparse image succeeds and its data is lost.
 */
#include "daemon/worker/workspace_image.h"

#include "daemon/worker/loop.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MKFS_MS = 60 * 1000, POLL_US = 1000, TEMPLATES_MAX = 32, CHUNK = 256 * 1024, MIB = 1024 * 1024, MARGIN = 64 * MIB };

/* What ext4 calls the minimum; added to the size that was asked for. */
#define JOURNAL_MIB 4
#define STRING(x) STRING_OF(x)
#define STRING_OF(x) #x

extern char **environ;

static const char *mkfs_program(void)
{
	static const char *const places[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/local/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

static int wait_bounded(pid_t pid, struct error *err)
{
	int64_t deadline = clock_mono_ms() + MKFS_MS;
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ms() > deadline) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return error_set(err, ERR_TIMEOUT, "mkfs.ext4 took more than %d s", MKFS_MS / 1000);
		}
		usleep(POLL_US);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return error_set(err, ERR_UNAVAILABLE, "mkfs.ext4 failed (status %d)", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return 0;
}

/*
 * A journal, although nothing need outlive a crash of the host: without one ext4 looks at every inode that was deleted in the last minutes
 * before it gives out another, so that files made after many were removed (a clean build) cost a millisecond each. The smallest journal is
 * enough for that. No lazy work after the mount; the file is new, so the journal need not be overwritten with zeros.
 */
static int run_mkfs(const char *path, struct error *err)
{
	const char *program = mkfs_program();
	const char *argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^resize_inode", "-J", "size=" STRING(JOURNAL_MIB),
		               "-E", "lazy_itable_init=0,lazy_journal_init=1,root_owner=0:0", path, NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int rc;

	if (!program)
		return error_set(err, ERR_UNAVAILABLE, "mkfs.ext4 is not installed (package e2fsprogs)");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&pid, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0) {
		errno = rc;
		return error_errno(err, "running %s", program);
	}
	return wait_bounded(pid, err);
}

/* mkfs makes a directory that a fresh workspace should not show. Done once here: each mount saves milliseconds. What
 * fails is left to the mount. */
static void strip(const char *path)
{
	auto_free char *point = xasprintf("%s.mnt", path);
	auto_free char *lost = xasprintf("%s/lost+found", point);
	auto_close int fd = open(path, O_RDWR | O_CLOEXEC), loop = -1;
	char device[64];

	if (fd < 0 || loop_attach(fd, path, &loop, device, sizeof(device), NULL) != 0)
		return;
	if (mkdir(point, 0700) == 0 || errno == EEXIST) {
		if (mount(device, point, "ext4", MS_NOSUID | MS_NODEV, "nodiscard") == 0) {
			rmdir(lost);
			umount2(point, UMOUNT_NOFOLLOW);
		}
		rmdir(point);
	}
}

static int make_template(const char *path, uint32_t mib, struct error *err)
{
	auto_free char *temp = xasprintf("%s.new", path);
	auto_close int fd = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, "creating %s", temp);
	if (ftruncate(fd, ((off_t)mib + JOURNAL_MIB) * MIB) != 0) {
		error_errno(err, "sizing %s", temp);
	} else if (run_mkfs(temp, err) == 0) {
		strip(temp);
		if (rename(temp, path) == 0)
			return 0;
		error_errno(err, "renaming %s", temp);
	}
	unlink(temp);
	return -1;
}

/* Sizes are the users' choice: the oldest template goes when there are too many. */
static void prune(const char *templates)
{
	DIR *dir = opendir(templates);
	auto_free char *oldest = NULL;
	time_t oldest_at = 0;
	size_t count = 0;

	if (!dir)
		return;
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		count++;
		if (!oldest || st.st_mtime < oldest_at) {
			free(oldest);
			oldest = xstrdup(e->d_name);
			oldest_at = st.st_mtime;
		}
	}
	if (count > TEMPLATES_MAX)
		unlinkat(dirfd(dir), oldest, 0);
	closedir(dir);
}

int workspace_template(const char *templates, uint32_t mib, char **ret_path, struct error *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	auto_free char *path = xasprintf("%s/ext4-2-%u.img", templates, mib);
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (access(path, F_OK) != 0) {
		rc = io_mkdirs(templates, 0700, err);
		if (rc == 0)
			rc = make_template(path, mib, err);
		if (rc == 0)
			prune(templates);
	}
	pthread_mutex_unlock(&lock);
	if (rc == 0)
		*ret_path = steal(&path);
	return rc;
}

static int copy_extent(int from, int to, off_t at, off_t end, struct error *err)
{
	auto_free char *chunk = xmalloc(CHUNK);

	while (at < end) {
		size_t want = end - at > CHUNK ? CHUNK : (size_t)(end - at);
		ssize_t n = pread(from, chunk, want, at);

		if (n <= 0)
			return error_errno(err, "reading the workspace template");
		if (pwrite(to, chunk, (size_t)n, at) != n)
			return error_errno(err, "writing the workspace image");
		at += n;
	}
	return 0;
}

static int copy_data(int from, int to, off_t size, struct error *err)
{
	for (off_t at = 0; at < size;) {
		off_t data = lseek(from, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return 0;
		if (data < 0 || (hole = lseek(from, data, SEEK_HOLE)) < 0)
			return error_errno(err, "reading the workspace template");
		if (copy_extent(from, to, data, hole, err) != 0)
			return -1;
		at = hole;
	}
	return 0;
}

static int reserve(int fd, const char *path, off_t size, struct error *err)
{
	long long asked = (long long)(size / MIB - JOURNAL_MIB);
	struct statvfs fs;

	if (fstatvfs(fd, &fs) != 0)
		return error_errno(err, "looking at the file system of %s", path);
	if ((uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)size + MARGIN)
		return error_set(err, ERR_NO_CAPACITY, "the host's disk has %llu MiB free for workspaces, and this one asks for %lld MiB",
		                 (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize / MIB), asked);
	if (fallocate(fd, 0, 0, size) == 0)
		return 0;
	if (errno == ENOSPC)
		return error_set(err, ERR_NO_CAPACITY, "the host's disk is too full for a workspace of %lld MiB", asked);
	if (errno == EOPNOTSUPP)
		return error_set(err, ERR_UNAVAILABLE, "the file system of %s cannot reserve space (put state_dir on ext4 or xfs)", path);
	return error_errno(err, "reserving %lld MiB for %s", asked, path);
}

int workspace_image(const char *template_path, const char *path, int *ret_fd, struct error *err)
{
	auto_close int from = open(template_path, O_RDONLY | O_CLOEXEC);
	auto_close int to = -1;
	struct stat st;

	if (from < 0 || fstat(from, &st) != 0)
		return error_errno(err, "opening %s", template_path);
	to = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (to < 0)
		return error_errno(err, "creating %s", path);
	if (ftruncate(to, st.st_size) != 0)
		error_errno(err, "sizing %s", path);
	else if (reserve(to, path, st.st_size, err) == 0 && copy_data(from, to, st.st_size, err) == 0) {
		*ret_fd = steal_fd(&to);
		return 0;
	}
	unlink(path);
	return -1;
}
