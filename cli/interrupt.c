/* Signals that end a wait, as a flag and a pipe: see interrupt.h. The statics are the handler's: it has no other way to its state. */
#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static int pipe_fds[2] = { -1, -1 };
static volatile sig_atomic_t came;
static volatile sig_atomic_t count;
static bool int_ignored;

static void handler(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)context;
	/* The kernel sends a terminal's Ctrl-C; a shell that put us in the background means that to pass us by. */
	if (sig == SIGINT && int_ignored && info->si_code > 0)
		return;
	came = sig;
	if (++count > 2)
		_exit(128 + sig);
	ssize_t n = write(pipe_fds[1], "", 1);
	(void)n;
	errno = saved;
}

int interrupt_watch(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	if (pipe_fds[0] >= 0)
		return 0;
	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return -1;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction old, act = { .sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO };
		sigemptyset(&act.sa_mask);
		bool ignored = sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN;
		if (signals[i] == SIGINT)
			int_ignored = ignored;
		else if (ignored)
			continue;
		sigaction(signals[i], &act, NULL);
	}
	return 0;
}

bool interrupt_was_ignored(int sig)
{
	return sig == SIGINT && int_ignored;
}

int interrupt_fd(void)
{
	return pipe_fds[0];
}

int interrupt_signal(void)
{
	return came;
}

void interrupt_clear(void)
{
	char buf[16];
	came = 0;
	while (pipe_fds[0] >= 0 && read(pipe_fds[0], buf, sizeof(buf)) > 0)
		continue;
}
