/*
 * One call of a driver. The child waits at a gate until it stands in its control group, so that nothing it starts can be
 * outside. Between fork and exec only system calls are made: other threads may hold any lock.
 */
#include "daemon/runtime/driver.h"

#include "daemon/runtime/cgroup.h"
#include "daemon/runtime/driver_answer.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	STDERR_KEPT = 1024,
	TICK_MS = 10,
	DRAIN_MS = 300, /* after its end, while something else may hold its output open */
	GROUP_PIDS = 8192,
};

static char *const environment[] = { (char[]){ "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" }, (char[]){ "LANG=C.UTF-8" },
	                             (char[]){ "HOME=/" }, NULL };

/* --- who may be run --- */

static int check_owner(const char *path, const struct stat *st, struct error *err)
{
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return error_set(err, ERR_FORBIDDEN, "%s belongs to user %u: a driver must be root's (or the daemon's user's)", path, (unsigned)st->st_uid);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return error_set(err, ERR_FORBIDDEN, "%s can be changed by others: chmod go-w it", path);
	return 0;
}

int driver_check_file(const char *path, struct error *err)
{
	struct stat st;
	char dir[PATH_MAX];

	if (path[0] != '/' || strlen(path) >= sizeof(dir))
		return error_set(err, ERR_INVALID, "a driver is named by its absolute path, not '%s'", path);
	if (stat(path, &st) != 0)
		return error_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_FORBIDDEN, "the driver %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || access(path, X_OK) != 0)
		return error_set(err, ERR_FORBIDDEN, "%s is no executable file", path);
	if (check_owner(path, &st, err) != 0)
		return -1;
	memcpy(dir, path, strlen(path) + 1);
	dir[strrchr(dir, '/') == dir ? 1 : strrchr(dir, '/') - dir] = '\0';
	if (stat(dir, &st) != 0)
		return error_errno(err, "looking at %s", dir);
	return check_owner(dir, &st, err);
}

/* --- the child --- */

struct child {
	pid_t pid;
	int in, out, err; /* our ends; -1: /dev/null there */
};

static void child_done(struct child *c)
{
	close_fdp(&c->in);
	close_fdp(&c->out);
	close_fdp(&c->err);
}

static _Noreturn void child_main(const char *const *argv, const int stdio[3], int gate)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;
	char go;
	int high[4];

	setsid();
	for (int s = 1; s < 65; s++)
		sigaction(s, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Above 3 first: one of them may be a low number. */
	for (int i = 0; i < 4; i++)
		high[i] = fcntl(i < 3 ? stdio[i] : gate, F_DUPFD, 4);
	for (int i = 0; i < 4; i++)
		if (dup2(high[i], i) < 0)
			_exit(127);
	if (syscall(SYS_close_range, 4U, ~0U, 0) != 0)
		for (int fd = 4; fd < 4096; fd++)
			close(fd);
	if (read(3, &go, 1) != 1 || chdir("/") != 0)
		_exit(127);
	close(3);
	umask(077);
	execve(argv[0], (char *const *)(uintptr_t)argv, environment);
	_exit(127);
}

static int make_pipe(int *ret_read, int *ret_write, struct error *err)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) != 0)
		return error_errno(err, "making a pipe");
	*ret_read = fd[0];
	*ret_write = fd[1];
	return 0;
}

static int enter_group(const struct id *node, const struct id *sandbox, pid_t pid, struct error *err)
{
	struct cgroup_limits l = { .pids_max = GROUP_PIDS };

	if (!node || geteuid() != 0)
		return 0; /* its session is ended instead */
	return cgroup_make(node, sandbox, &l, err) != 0 ? -1 : cgroup_enter(node, sandbox, pid, err);
}

/* theirs: the child's standard descriptors. */
static int launch(const char *const *argv, const int theirs[3], const struct id *node, const struct id *sandbox, pid_t *ret, struct error *err)
{
	auto_close int gate_in = -1;
	auto_close int gate_out = -1;
	pid_t pid;

	if (make_pipe(&gate_in, &gate_out, err) != 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return error_errno(err, "starting %s", argv[0]);
	if (pid == 0)
		child_main(argv, theirs, gate_in);
	if (enter_group(node, sandbox, pid, err) != 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -1;
	}
	if (write(gate_out, "x", 1) != 1)
		kill(pid, SIGKILL);
	*ret = pid;
	return 0;
}

int driver_spawn(const char *const *argv, const struct id *node, const struct id *sandbox, pid_t *ret, struct error *err)
{
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int theirs[3] = { null, null, null };

	if (null < 0)
		return error_errno(err, "opening /dev/null");
	return launch(argv, theirs, node, sandbox, ret, err);
}

static int start(const struct driver_call *c, struct child *ret, struct error *err)
{
	const char *const argv[] = { c->path, c->action, NULL };
	auto_close int in = -1;
	auto_close int out = -1;
	auto_close int errors = -1;
	struct child k = { .in = -1, .out = -1, .err = -1 };
	int rc = make_pipe(&in, &k.in, err);

	if (rc == 0)
		rc = make_pipe(&k.out, &out, err);
	if (rc == 0)
		rc = make_pipe(&k.err, &errors, err);
	if (rc == 0)
		rc = launch(argv, (const int[]){ in, out, errors }, c->node, c->sandbox, &k.pid, err);
	if (rc != 0) {
		child_done(&k);
		return -1;
	}
	io_set_nonblock(k.in, true);
	io_set_nonblock(k.out, true);
	io_set_nonblock(k.err, true);
	*ret = k;
	return 0;
}

/* --- talking to it --- */

struct talk {
	const char *request;
	size_t left;
	struct buf out, err;
	bool flooded;
	int status;
	bool ended;
};

/* Reads what is there. Over max, bytes are dropped and that is noted. */
static void read_some(int *fd, struct buf *b, size_t max, bool *ret_over)
{
	char chunk[16 * 1024];
	ssize_t n;

	while (*fd >= 0 && (n = read(*fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				close_fdp(fd);
			return;
		}
		if (b->len + (size_t)n > max) {
			*ret_over = true;
			return; /* the next turn goes on: a flood must not keep us here */
		}
		buf_add(b, chunk, (size_t)n);
	}
	close_fdp(fd);
}

/* A driver that does not read its request is none of our business: its answer tells. */
static void write_some(struct child *k, struct talk *t)
{
	while (t->left > 0) {
		ssize_t n = write(k->in, t->request, t->left);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno != EINTR)
			break;
		if (n > 0) {
			t->request += n;
			t->left -= (size_t)n;
		}
	}
	close_fdp(&k->in);
}

static void turn(struct child *k, struct talk *t)
{
	struct pollfd p[3] = { { .fd = k->in, .events = POLLOUT }, { .fd = k->out, .events = POLLIN }, { .fd = k->err, .events = POLLIN } };
	bool ignored;

	/* A short tick: the child's end makes no descriptor ready when something it started holds them. */
	poll(p, ARRAY_LEN(p), TICK_MS);
	if (k->in >= 0)
		write_some(k, t);
	read_some(&k->out, &t->out, DRIVER_ANSWER_MAX, &t->flooded);
	read_some(&k->err, &t->err, STDERR_KEPT, &ignored);
	if (!t->ended && waitpid(k->pid, &t->status, WNOHANG) == k->pid)
		t->ended = true;
}

/* Until it ended and its output with it, or until the deadline or a bound. */
static int converse(const struct driver_call *c, struct child *k, struct talk *t, struct error *err)
{
	int64_t until = clock_mono_ms() + c->timeout_ms, drain = 0;

	for (;;) {
		turn(k, t);
		if (t->flooded)
			return error_set(err, ERR_TOO_LARGE, "the driver's answer to %s is over %d bytes", c->action, DRIVER_ANSWER_MAX);
		if (t->ended && drain == 0)
			drain = clock_mono_ms() + DRAIN_MS;
		if (t->ended && (k->out < 0 || clock_mono_ms() > drain))
			return 0;
		if (clock_mono_ms() > until)
			return error_set(err, ERR_TIMEOUT, "the driver did not answer %s within %lld s", c->action, (long long)(c->timeout_ms / 1000));
	}
}

/* What the call left: ended, unless it is the sandbox's now. */
static void clean_up(const struct driver_call *c, struct child *k, const struct talk *t, bool failed)
{
	if (!t->ended) {
		kill(-k->pid, SIGKILL);
		kill(k->pid, SIGKILL);
		waitpid(k->pid, NULL, 0);
	} else if (!c->keeps_children || failed) {
		kill(-k->pid, SIGKILL);
	}
	child_done(k);
}

int driver_call(const struct driver_call *c, cJSON **ret_result, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	auto_free char *text = NULL;
	struct child k;
	struct talk t = { .out = BUF_INIT, .err = BUF_INIT };
	int rc;

	json_add_str(j, "protocol_version", DRIVER_PROTOCOL);
	json_add_str(j, "sandbox_id", c->sandbox->text);
	cJSON_AddItemToObject(j, "payload", c->payload ? c->payload : cJSON_CreateObject());
	text = json_print(j);
	t.request = text;
	t.left = strlen(text);
	if (start(c, &k, err) != 0)
		return -1;
	rc = converse(c, &k, &t, err);
	if (rc == 0)
		rc = driver_answer(&(struct driver_said){ .action = c->action, .status = t.status, .out = &t.out, .err = &t.err }, ret_result, err);
	clean_up(c, &k, &t, rc != 0);
	buf_done(&t.out);
	buf_done(&t.err);
	return rc;
}
