/* Starting and stopping the local daemon: see local.h. */
#include "cli/local.h"

#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	READY_TIMEOUT_MS = 30 * 1000,
	LOCK_TIMEOUT_MS = READY_TIMEOUT_MS + 5 * 1000,
	POLL_MS = 20,
	LOG_MAX = 8 * 1024 * 1024,
	TAIL_MAX = 64 * 1024,
	READY_FD = 3,
};

/* --- finding the program ---------------------------------------------------------------------------------------- */

static char *beside_us(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return NULL;
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return NULL;
	*slash = '\0';
	return xasprintf("%s/sandboxd", self);
}

static char *on_path(void)
{
	const char *path = getenv("PATH");
	while (path && *path) {
		size_t n = strcspn(path, ":");
		char *candidate = xasprintf("%.*s/sandboxd", (int)n, path);
		if (path[0] == '/' && access(candidate, X_OK) == 0)
			return candidate;
		free(candidate);
		path += n + (path[n] == ':');
	}
	return NULL;
}

int local_program(char **ret, struct error *err)
{
	auto_free char *own = beside_us();
	if (own && access(own, X_OK) == 0) {
		*ret = steal(&own);
		return 0;
	}
	*ret = on_path();
	return *ret ? 0 : error_set(err, ERR_NOT_FOUND, "the program sandboxd is neither beside this one nor on PATH; install it");
}

/* --- the log ---------------------------------------------------------------------------------------------------- */

int local_log_tail(const char *path, unsigned lines, off_t from, const char *prefix, FILE *out)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (end < 0)
		return -1;
	off_t start = end - TAIL_MAX > from ? end - TAIL_MAX : from;
	auto_buf text = BUF_INIT;
	char *to = buf_reserve(&text, TAIL_MAX);
	ssize_t n = start < end ? pread(fd, to, TAIL_MAX, start) : 0;
	if (n < 0)
		return -1;
	buf_commit(&text, (size_t)n);
	const char *p = text.data + n;
	for (unsigned seen = 0; p > text.data; p--)
		if (p[-1] == '\n' && p != text.data + n && ++seen == lines)
			break;
	while (*p) {
		size_t len = strcspn(p, "\n"), room = len * 4 + 1;
		auto_free char *safe = xmalloc(room);
		fprintf(out, "%s%s\n", prefix, text_escape(p, len, safe, room));
		p += len + (p[len] == '\n');
	}
	return 0;
}

static int open_log(const char *path, off_t *ret_size, struct error *err)
{
	struct stat st;
	if (stat(path, &st) == 0 && st.st_size > LOG_MAX) {
		auto_free char *old = xasprintf("%s.1", path);
		rename(path, old);
	}
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, "opening the daemon's log %s", path);
	*ret_size = lseek(fd, 0, SEEK_END);
	return fd;
}

/* --- starting --------------------------------------------------------------------------------------------------- */

static void reset_signals(void)
{
	sigset_t none;
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The child: nothing of the caller's stays open, no terminal, no token in the environment. */
static void become_daemon(const char *program, const char *socket, int log_fd, int ready_fd) __attribute__((noreturn));
static void become_daemon(const char *program, const char *socket, int log_fd, int ready_fd)
{
	char ready[16];
	auto_free char *set = xasprintf("daemon.socket=%s", socket);
	setsid();
	reset_signals();
	if (chdir("/") != 0)
		_exit(1);
	unsetenv("SANDBOX_TOKEN");
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	/* Above the targets first, so that no dup2 overwrites a source. */
	int log_high = fcntl(log_fd, F_DUPFD_CLOEXEC, 10), ready_high = fcntl(ready_fd, F_DUPFD_CLOEXEC, 10);
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_high, 1) < 0 || dup2(log_high, 2) < 0 || dup2(ready_high, READY_FD) < 0)
		_exit(1);
	if (syscall(SYS_close_range, READY_FD + 1, ~0U, 0) != 0)
		for (int fd = READY_FD + 1; fd < 1024; fd++)
			close(fd);
	snprintf(ready, sizeof(ready), "%d", READY_FD);
	char *const argv[] = { (char *)"sandboxd", (char *)"--ready-fd", ready, (char *)"--set", set, NULL };
	execv(program, argv);
	dprintf(2, "sandbox: cannot run %s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Reads the ready pipe to its first line. 0: ready. */
static int await_ready(int fd, struct error *err)
{
	char text[64];
	size_t n = 0;
	int64_t deadline = clock_mono_ms() + READY_TIMEOUT_MS;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = deadline - clock_mono_ms();
		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "the local daemon was started but is not ready after %d s", READY_TIMEOUT_MS / 1000);
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return error_set(err, ERR_UNREACHABLE, "the local daemon ended while starting");
		n += (size_t)got;
		text[n] = '\0';
		if (strncmp(text, "ready\n", n < 6 ? n : 6) != 0)
			return error_set(err, ERR_PROTOCOL, "the program sandboxd answered something else than ready");
		if (n >= 6)
			return 0;
	}
}

static int launch(struct cli *cli, const struct local_paths *p, const char *program, struct error *err)
{
	off_t log_from = 0;
	auto_close int log_fd = open_log(p->log, &log_from, err);
	int pipe_fds[2];
	if (log_fd < 0)
		return -1;
	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return error_errno(err, "making a pipe");
	auto_close int ready_read = pipe_fds[0];
	auto_close int ready_write = pipe_fds[1];
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return error_errno(err, "starting a process");
	if (pid == 0)
		become_daemon(program, p->socket, log_fd, ready_write);
	close_fdp(&ready_write);
	if (await_ready(ready_read, err) == 0)
		return 0;
	local_log_tail(p->log, 8, log_from, "  | ", stderr);
	cli_hint(cli, "the daemon's log is %s", p->log);
	waitpid(pid, NULL, WNOHANG);
	return -1;
}

static int take_lock(const char *path, struct error *err)
{
	auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, "opening %s", path);
	int64_t deadline = clock_mono_ms() + LOCK_TIMEOUT_MS;
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(err, "locking %s", path);
		if (clock_mono_ms() > deadline)
			return error_set(err, ERR_TIMEOUT, "another process has been starting the local daemon for %d s", LOCK_TIMEOUT_MS / 1000);
		poll(NULL, 0, POLL_MS);
	}
	return steal_fd(&fd);
}

/* The service that is the daemon of this socket, where systemd is to run one: a daemon of ours would hold the records against it. */
static const char *service_of(const char *socket)
{
	static const char *const units[] = { "sandboxd", "sandboxd-controller" };
	if (strcmp(socket, SYSTEM_SOCKET) != 0 || access("/run/systemd/system", F_OK) != 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		auto_free char *enabled = xasprintf("/etc/systemd/system/multi-user.target.wants/%s.service", units[i]);
		if (faccessat(AT_FDCWD, enabled, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return units[i];
	}
	return NULL;
}

int local_start(struct cli *cli, const struct local_paths *p, bool *ret_started, struct error *err)
{
	const char *unit = service_of(p->socket);
	auto_free char *program = NULL;
	*ret_started = false;
	if (local_program(&program, err) != 0 || io_mkdirs(p->state, 0700, err) != 0)
		return -1;
	auto_close int lock = take_lock(p->lock, err);
	if (lock < 0)
		return -1;
	int fd = io_connect_unix(p->socket, NULL);
	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (unit)
		return error_set(err, ERR_UNREACHABLE, "it is systemd's to start here: systemctl start %s (journalctl -u %s says why it does not run)", unit, unit);
	out_note(cli, "starting the local daemon (log: %s)", p->log);
	if (launch(cli, p, program, err) != 0)
		return -1;
	*ret_started = true;
	return 0;
}

/* --- stopping --------------------------------------------------------------------------------------------------- */

int local_pid(const char *socket, pid_t *ret, struct error *err)
{
	struct peer peer;
	auto_close int fd = io_connect_unix(socket, err);
	if (fd < 0 || io_peer(fd, &peer, err) != 0)
		return -1;
	if (peer.pid <= 1)
		return error_set(err, ERR_FORBIDDEN, "the daemon at %s runs in another process namespace", socket);
	*ret = peer.pid;
	return 0;
}

int local_stop(pid_t pid, int64_t timeout_ms, struct error *err)
{
	auto_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 && errno == ESRCH)
		return 0;
	if (fd < 0)
		return error_errno(err, "opening process %d", (int)pid);
	if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) != 0 && errno != ESRCH)
		return error_errno(err, "stopping process %d", (int)pid);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t deadline = clock_mono_ms() + timeout_ms;
	for (;;) {
		int64_t left = deadline - clock_mono_ms();
		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "the daemon (process %d) has not ended within %.3g s", (int)pid,
					 (double)timeout_ms / 1000.0);
		if (poll(&p, 1, (int)left) > 0)
			return 0;
	}
}
