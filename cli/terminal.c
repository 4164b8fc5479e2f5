/* Raw mode and its undoing. The saved settings are file-level: signal handlers must reach them. */
#include "cli/terminal.h"

#include "shared/base/mem.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios cooked;
static int raw_fd = -1;
static atomic_bool raw;
/* The settings could not be put back; what stands now may be our raw mode, not the user's. */
static atomic_bool stale;

bool terminal_foreground(int fd)
{
	pid_t owner = tcgetpgrp(fd);
	return owner < 0 || owner == getpgrp();
}

static void crashed(int sig)
{
	terminal_restore();
	/* SA_RESETHAND put the default action back. */
	raise(sig);
}

static void catch_crashes(void)
{
	static const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
	struct sigaction act = { .sa_handler = crashed, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };
	struct sigaction old;
	for (size_t i = 0; i < ARRAY_LEN(fatal); i++) {
		if (sigaction(fatal[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(fatal[i], &act, NULL);
	}
}

int terminal_raw(int fd, struct error *err)
{
	if (atomic_load(&raw))
		return 0;
	struct termios t;
	if (tcgetattr(fd, &t) != 0)
		return error_errno(err, "cannot read the terminal's settings");
	if (!stale)
		cooked = t;
	stale = false;
	raw_fd = fd;
	cfmakeraw(&t);
	catch_crashes();
	atomic_store(&raw, true);
	/* Not TCSADRAIN: with output stopped by ^S that would wait for ever. */
	if (tcsetattr(fd, TCSANOW, &t) != 0) {
		atomic_store(&raw, false);
		return error_errno(err, "cannot set the terminal to raw mode");
	}
	return 0;
}

void terminal_restore(void)
{
	if (!atomic_exchange(&raw, false))
		return;
	/* Taken away from the foreground meanwhile: its present owner set it up for itself. */
	if (!terminal_foreground(raw_fd) || tcsetattr(raw_fd, TCSANOW, &cooked) != 0)
		stale = true;
}

bool terminal_is_raw(void)
{
	return atomic_load(&raw);
}

void terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct winsize w = { 0 };
	if (fd < 0 || ioctl(fd, TIOCGWINSZ, &w) != 0)
		w = (struct winsize){ 0 };
	*ret_rows = w.ws_row;
	*ret_cols = w.ws_col;
}

enum { CTRL_Z = 'Z' & 0x1f };

static enum escape_event after_escape(unsigned char c)
{
	if (c == '.')
		return ESCAPE_LEAVE;
	return c == CTRL_Z ? ESCAPE_SUSPEND : ESCAPE_NONE;
}

size_t escape_filter(struct escape *e, const char *in, size_t n, char *out, size_t *ret_used, enum escape_event *ret_event)
{
	size_t len = 0, i = 0;
	*ret_event = ESCAPE_NONE;
	while (i < n && *ret_event == ESCAPE_NONE) {
		unsigned char c = (unsigned char)in[i++];
		if (e->state == ESCAPE_SEEN) {
			*ret_event = after_escape(c);
			e->state = ESCAPE_AT_START;
			if (*ret_event != ESCAPE_NONE)
				break;
			if (c != e->key)
				out[len++] = (char)e->key;
		} else if (e->key >= 0 && e->state == ESCAPE_AT_START && c == e->key) {
			e->state = ESCAPE_SEEN;
			continue;
		}
		out[len++] = (char)c;
		e->state = c == '\r' || c == '\n' ? ESCAPE_AT_START : ESCAPE_IN_LINE;
	}
	*ret_used = i;
	return len;
}
