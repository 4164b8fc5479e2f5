/* The user's directories: see home.h. */
#include "cli/home.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_TIMEOUT_MS = 10 * 1000, LOCK_POLL_MS = 10 };

static char *xdg(const char *variable, const char *below_home)
{
	const char *own = getenv(variable), *home = getenv("HOME");
	if (own && own[0] == '/')
		return xasprintf("%s/sandbox", own);
	return home && home[0] == '/' ? xasprintf("%s/%s/sandbox", home, below_home) : NULL;
}

char *home_config_dir(void)
{
	return xdg("XDG_CONFIG_HOME", ".config");
}

char *home_data_dir(void)
{
	return xdg("XDG_DATA_HOME", ".local/share");
}

char *home_state_dir(void)
{
	return xdg("XDG_STATE_HOME", ".local/state");
}

int home_lock(const char *dir, struct error *err)
{
	auto_free char *path = xasprintf("%s/lock", dir);
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, "opening %s", path);
	int64_t deadline = clock_mono_ms() + LOCK_TIMEOUT_MS;
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(err, "locking %s", path);
		if (clock_mono_ms() > deadline)
			return error_set(err, ERR_CONFLICT, "another process has held %s for %d s", path, LOCK_TIMEOUT_MS / 1000);
		poll(NULL, 0, LOCK_POLL_MS);
	}
	return steal_fd(&fd);
}

int home_write(const char *dir, const char *name, const void *p, size_t n, struct error *err)
{
	struct stat st;
	auto_free char *path = xasprintf("%s/%s", dir, name);
	if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
		return io_write_file_atomic(path, p, n, 0600, true, err);
	auto_free char *target = realpath(path, NULL);
	if (!target)
		return error_errno(err, "%s is a link to nowhere", path);
	return io_write_file_atomic(target, p, n, 0600, true, err);
}
