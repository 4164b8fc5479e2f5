/* Going on in the background: see background.h. The statics belong to the process that was forked for it: it has no other state. */
#include "cli/background.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HINT_MAX = 512, REPORT_FD = 3 };

/* What goes through the pipe, in front of the state. Both ends are the same program. */
struct report {
	bool ready;
	struct error err;
	char hint[HINT_MAX];
};

static const void *shared_state;
static size_t shared_n;

static int send_report(const struct report *r, struct error *err)
{
	int rc = io_write_full(REPORT_FD, r, sizeof(*r)) != 0 || io_write_full(REPORT_FD, shared_state, shared_n) != 0 ? -1 : 0;
	int saved = errno;
	close(REPORT_FD);
	errno = saved;
	return rc == 0 ? 0 : error_errno(err, "telling that the background process is ready");
}

int background_ready(struct error *err)
{
	struct report r = { .ready = true };
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(null_fd, 2) < 0)
		return error_errno(err, "opening /dev/null");
	close(null_fd);
	return send_report(&r, err);
}

static _Noreturn void child(struct cli *cli, int (*run)(void *ctx, struct error *err), void *ctx, int report_fd)
{
	struct report r = { .ready = false, .err = ERROR_INIT };
	setsid();
	/* What a shell or a supervisor has open for us would stay open with us: pipes whose readers wait for their end. */
	if (report_fd != REPORT_FD && dup2(report_fd, REPORT_FD) < 0)
		_exit(1);
	fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
	if (syscall(SYS_close_range, REPORT_FD + 1, ~0U, 0) != 0)
		for (int fd = REPORT_FD + 1; fd < 1024; fd++)
			close(fd);
	int rc = run(ctx, &r.err);
	if (rc != 0 && cli->hint)
		snprintf(r.hint, sizeof(r.hint), "%s", cli->hint);
	/* Nobody hears it after background_ready. */
	if (rc != 0)
		send_report(&r, NULL);
	_exit(rc == 0 ? 0 : 1);
}

int background_run(struct cli *cli, int (*run)(void *ctx, struct error *err), void *ctx, void *state, size_t n, int *ret_pid,
		   struct error *err)
{
	struct report r;
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) != 0)
		return error_errno(err, "making a pipe");
	auto_close int from = fds[0], to = fds[1];
	fflush(NULL);
	shared_state = state;
	shared_n = n;
	pid_t pid = fork();
	if (pid < 0)
		return error_errno(err, "starting a process");
	if (pid == 0)
		child(cli, run, ctx, to);
	close_fdp(&to);
	if (io_read_full(from, &r, sizeof(r)) != (ssize_t)sizeof(r) || io_read_full(from, state, n) != (ssize_t)n)
		return error_set(err, ERR_INTERNAL, "the background process ended while it started");
	if (!r.ready) {
		waitpid(pid, NULL, 0);
		if (r.hint[0])
			cli_hint(cli, "%s", r.hint);
		return error_set(err, r.err.code, "%s", r.err.message);
	}
	*ret_pid = pid;
	return 0;
}
