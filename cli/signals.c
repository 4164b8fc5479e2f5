/* Recording signal handlers: see signals.h. The state is file-level because a handler can reach nothing else. */
#include "cli/signals.h"

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In the order they are taken. */
static const int handled[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH };

static struct {
	bool active;
	bool was_ignored[ARRAY_LEN(handled)];
	struct sigaction old[ARRAY_LEN(handled)];
	struct sigaction old_pipe;
	sigset_t old_mask;
} saved;

static atomic_uint pending;
static atomic_bool abort_now;

static unsigned index_of(int sig)
{
	unsigned i = 0;
	while (i < ARRAY_LEN(handled) - 1 && handled[i] != sig)
		i++;
	return i;
}

static bool ends_us(int sig)
{
	return sig == SIGHUP || sig == SIGINT || sig == SIGQUIT || sig == SIGTERM;
}

static void record(int sig, siginfo_t *info, void *context)
{
	(void)context;
	int keep = errno;
	unsigned i = index_of(sig);
	/* The kernel sends a terminal's signals; a shell that put us in the background means those to pass us by. */
	if (saved.was_ignored[i] && info->si_code > 0)
		return;
	if (atomic_load(&abort_now) && ends_us(sig)) {
		terminal_restore();
		_exit(128 + sig);
	}
	atomic_fetch_or(&pending, 1u << i);
	errno = keep;
}

/* HUP ignored is nohup, TSTP ignored a shell without job control: both mean it. INT and QUIT see signals.h. */
static bool stays_ignored(int sig)
{
	return sig != SIGINT && sig != SIGQUIT;
}

void signals_begin(void)
{
	if (saved.active)
		return;
	sigset_t block;
	sigemptyset(&block);
	for (size_t i = 0; i < ARRAY_LEN(handled); i++)
		sigaddset(&block, handled[i]);
	sigprocmask(SIG_BLOCK, &block, &saved.old_mask);
	/* A parent may leave these blocked; we would then be deaf. */
	for (size_t i = 0; i < ARRAY_LEN(handled); i++)
		sigdelset(&saved.old_mask, handled[i]);
	atomic_store(&pending, 0);
	struct sigaction act = { .sa_sigaction = record, .sa_flags = SA_SIGINFO };
	act.sa_mask = block;
	for (size_t i = 0; i < ARRAY_LEN(handled); i++) {
		sigaction(handled[i], &act, &saved.old[i]);
		saved.was_ignored[i] = saved.old[i].sa_handler == SIG_IGN || interrupt_was_ignored(handled[i]);
		if (saved.was_ignored[i] && stays_ignored(handled[i]))
			sigaction(handled[i], &saved.old[i], NULL);
	}
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigaction(SIGPIPE, &ignore, &saved.old_pipe);
	saved.active = true;
	/* One that came before the handlers stood here is this wait's too, or nobody's. */
	if (interrupt_signal())
		atomic_fetch_or(&pending, 1u << index_of(interrupt_signal()));
}

void signals_end(void)
{
	if (!saved.active)
		return;
	signals_abort(false);
	for (size_t i = 0; i < ARRAY_LEN(handled); i++)
		sigaction(handled[i], &saved.old[i], NULL);
	sigaction(SIGPIPE, &saved.old_pipe, NULL);
	for (int sig; (sig = signals_take()) != 0;) {
		if (ends_us(sig))
			raise(sig);
	}
	saved.active = false;
	sigprocmask(SIG_SETMASK, &saved.old_mask, NULL);
}

int signals_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct timespec ts = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };
	return ppoll(fds, n, timeout_ms < 0 ? NULL : &ts, saved.active ? &saved.old_mask : NULL);
}

int signals_take(void)
{
	unsigned bits = atomic_load(&pending);
	if (!bits)
		return 0;
	unsigned i = (unsigned)__builtin_ctz(bits);
	atomic_fetch_and(&pending, ~(1u << i));
	return handled[i];
}

void signals_abort(bool on)
{
	atomic_store(&abort_now, on);
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(handled); i++) {
		if (ends_us(handled[i]))
			sigaddset(&set, handled[i]);
	}
	sigprocmask(on ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
	/* One recorded just before counts as one that came now. */
	if (on && (atomic_load(&pending) & ((1u << index_of(SIGUSR1)) - 1))) {
		int sig = signals_take();
		terminal_restore();
		_exit(128 + sig);
	}
}

void signals_suspend(bool group)
{
	struct sigaction stop = { .sa_handler = SIG_DFL }, old;
	sigset_t set, mask;
	sigaction(SIGTSTP, &stop, &old);
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	kill(group ? 0 : getpid(), SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, &mask);
	/* Stopped here until SIGCONT. */
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGTSTP, &old, NULL);
}
