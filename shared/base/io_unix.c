/* Unix stream sockets for paths of any length: see io.h. */
#include "shared/base/io.h"

#include "shared/base/buf.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* An address; `dir` keeps the directory open while a /proc/self/fd path through it is in use. */
struct address {
	struct sockaddr_un un;
	int dir;
};

/* sun_path holds 107 bytes: a longer path goes through a descriptor of its directory. */
static int address_make(const char *path, struct address *ret, struct error *err)
{
	*ret = (struct address){ .un = { .sun_family = AF_UNIX }, .dir = -1 };
	size_t n = strlen(path);
	if (n == 0)
		return error_set(err, ERR_INVALID, "an empty path names no socket");
	if (n < sizeof(ret->un.sun_path)) {
		memcpy(ret->un.sun_path, path, n + 1);
		return 0;
	}
	const char *slash = strrchr(path, '/');
	if (!slash)
		return error_set(err, ERR_INVALID, "socket name too long: %s", path);
	auto_free char *dir = xstrndup(path, (size_t)(slash - path) + 1);
	auto_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, "opening %s", dir);
	int w = snprintf(ret->un.sun_path, sizeof(ret->un.sun_path), "/proc/self/fd/%d/%s", fd, slash + 1);
	if (w < 0 || (size_t)w >= sizeof(ret->un.sun_path))
		return error_set(err, ERR_INVALID, "socket name too long: %s", slash + 1);
	ret->dir = steal_fd(&fd);
	return 0;
}

static void address_done(struct address *a)
{
	close_fdp(&a->dir);
}

#define auto_address __attribute__((cleanup(address_done))) struct address

static int bind_address(int fd, const struct address *a)
{
	return bind(fd, (const struct sockaddr *)&a->un, sizeof(a->un));
}

/* True when the socket file is left over from a process that is gone: nobody accepts there, not even with a full queue. */
static bool is_stale(const struct address *a)
{
	struct stat st;
	if (lstat(a->un.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd >= 0 && connect(fd, (const struct sockaddr *)&a->un, sizeof(a->un)) != 0 && errno == ECONNREFUSED;
}

int io_listen_unix(const char *path, mode_t mode, int backlog, struct error *err)
{
	auto_address a;
	if (address_make(path, &a, err) != 0)
		return -1;
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(err, "creating a socket");
	/* Linux creates the file with the mode of the socket less the umask: never wider than asked, not for an instant. */
	if (fchmod(fd, mode) != 0)
		return error_errno(err, "setting the mode of a socket");
	int bound = bind_address(fd, &a);
	if (bound != 0 && errno == EADDRINUSE) {
		if (!is_stale(&a))
			return error_set(err, ERR_CONFLICT, "%s is in use by another process, or is no socket", path);
		unlink(a.un.sun_path);
		bound = bind_address(fd, &a);
	}
	if (bound != 0)
		return error_errno(err, "binding %s", path);
	if (chmod(a.un.sun_path, mode) != 0 || listen(fd, backlog) != 0) {
		error_errno(err, "listening on %s", path);
		unlink(a.un.sun_path);
		return -1;
	}
	return steal_fd(&fd);
}

int io_connect_unix(const char *path, struct error *err)
{
	auto_address a;
	if (address_make(path, &a, err) != 0)
		return -1;
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(err, "creating a socket");
	int r;
	do
		r = connect(fd, (const struct sockaddr *)&a.un, sizeof(a.un));
	while (r != 0 && errno == EINTR);
	if (r == 0)
		return steal_fd(&fd);
	error_errno(err, "connecting to %s", path);
	if (err && (errno == ENOENT || errno == ECONNREFUSED))
		err->code = ERR_UNREACHABLE;
	else if (err && errno == EACCES)
		err->code = ERR_FORBIDDEN;
	return -1;
}

int io_peer(int fd, struct peer *ret, struct error *err)
{
	int domain = 0;
	struct ucred cred;
	socklen_t domain_len = sizeof(domain), cred_len = sizeof(cred);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) != 0)
		return error_errno(err, "asking for the family of a socket");
	if (domain != AF_UNIX)
		return error_set(err, ERR_INVALID, "the peer of a socket that is not a unix socket cannot be identified");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len) != 0)
		return error_errno(err, "asking for the peer of a socket");
	*ret = (struct peer){ .pid = cred.pid, .uid = cred.uid, .gid = cred.gid };
	return 0;
}

/* One number of /proc/PID/status, in hexadecimal; 0 when there is none. */
static unsigned long long status_mask(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

bool io_process_ending(pid_t pid)
{
	enum { EXITING = 0x4 }; /* PF_EXITING of the kernel */
	const unsigned long long killed = 1ULL << (SIGKILL - 1);
	char path[64];
	auto_buf stat = BUF_INIT, status = BUF_INIT;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(path, 4096, &stat, NULL) != 0)
		return kill(pid, 0) != 0 && errno == ESRCH;
	const char *name_end = strrchr(buf_str(&stat), ')');
	char state = 'R';
	unsigned flags = 0;
	if (name_end && sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
	    (state == 'Z' || state == 'X' || flags & EXITING))
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return io_read_file(path, 16384, &status, NULL) == 0 &&
	       ((status_mask(buf_str(&status), "SigPnd:") | status_mask(buf_str(&status), "ShdPnd:")) & killed);
}
