/* See tool.h. Input and output are files in memory, so that neither side can wait for the other. */
#include "daemon/worker/tool.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOOL_MS = 10 * 1000, OUT_MAX = 256 * 1024, LINE_SHOWN = 200, EXIT_NO_EXEC = 127 };

static const char *const folders[] = { "/usr/sbin", "/sbin", "/usr/bin", "/bin" };

static int find_program(const char *name, char *out, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (snprintf(out, n, "%s/%s", folders[i], name) < (int)n && access(out, X_OK) == 0)
			return 0;
	return -1;
}

static int memory_file(const char *text)
{
	auto_close int fd = memfd_create("tool", MFD_CLOEXEC);

	if (fd < 0 || (text && (io_write_full(fd, text, strlen(text)) != 0 || lseek(fd, 0, SEEK_SET) != 0)))
		return -1;
	return steal_fd(&fd);
}

/* Between fork and exec only system calls: other threads may hold any lock. */
static _Noreturn void child(const char *path, const char *const argv[], const int fds[3], int netns)
{
	char path_words[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", language[] = "LANG=C";
	char *const environment[] = { path_words, language, NULL };
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			_exit(EXIT_NO_EXEC);
	if (netns >= 0 && setns(netns, CLONE_NEWNET) != 0)
		_exit(EXIT_NO_EXEC);
	execve(path, (char *const *)(uintptr_t)argv, environment);
	_exit(EXIT_NO_EXEC);
}

static int wait_end(pid_t pid, const char *name, int *ret_status, struct error *err)
{
	auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool late = pidfd >= 0 && poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, TOOL_MS) == 0;

	if (late)
		kill(pid, SIGKILL);
	while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
		continue;
	return late ? error_set(err, ERR_TIMEOUT, "%s did not end within %d s", name, TOOL_MS / 1000) : 0;
}

static void read_all(int fd, struct buf *out)
{
	char piece[4096];
	ssize_t n;

	lseek(fd, 0, SEEK_SET);
	while (out->len < OUT_MAX && (n = read(fd, piece, sizeof(piece))) > 0)
		buf_add(out, piece, (size_t)n);
}

static int failed(const char *name, int complaint, struct error *err)
{
	auto_buf text = BUF_INIT;

	read_all(complaint, &text);
	const char *said = buf_str(&text);
	size_t n = strcspn(said, "\n");
	return error_set(err, ERR_UNAVAILABLE, "%s failed: %.*s", name, (int)(n < LINE_SHOWN ? n : LINE_SHOWN), n ? said : "it did not say why");
}

int tool_run(const char *const argv[], const char *input, int netns, struct buf *ret_out, struct error *err)
{
	auto_close int in = memory_file(input ? input : ""), out = memory_file(NULL), complaint = memory_file(NULL);
	char path[64];
	int status = 0;

	if (find_program(argv[0], path, sizeof(path)) != 0)
		return error_set(err, ERR_NOT_FOUND, "the program %s is not installed", argv[0]);
	if (in < 0 || out < 0 || complaint < 0)
		return error_errno(err, "making files in memory for %s", argv[0]);
	pid_t pid = fork();
	if (pid < 0)
		return error_errno(err, "starting %s", argv[0]);
	if (pid == 0)
		child(path, argv, (const int[]){ in, out, complaint }, netns);
	if (wait_end(pid, argv[0], &status, err) != 0)
		return -1;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return failed(argv[0], complaint, err);
	if (ret_out)
		read_all(out, ret_out);
	return 0;
}
