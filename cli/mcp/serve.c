/*
 * The loop of the bridge's first thread: reads lines, writes messages, ends with its client. Standard output is never waited for
 * longer than it takes bytes, and descriptors that are shared with others are left in the mode they came in.
 */
#include "cli/mcp/bridge.h"

#include "cli/interrupt.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	GRACE_MS = 250,  /* after the client's last word a quick call may still end by itself */
	CANCEL_MS = 600, /* then calls are cancelled and have this long */
	READ_BYTES = 64 * 1024,
};

/* --- output ---------------------------------------------------------------------------------------------------------- */

static size_t unsent(const struct bridge *b)
{
	return b->output.len - b->output_at;
}

void bridge_send(struct bridge *b, const char *text, size_t n)
{
	if (b->reader_gone)
		return;
	buf_add(&b->output, text, n);
	buf_addc(&b->output, '\n');
}

void bridge_answer(struct bridge *b, struct batch *batch, const char *text, size_t n)
{
	if (!batch) {
		bridge_send(b, text, n);
		return;
	}
	buf_addc(&batch->out, batch->out.len ? ',' : '[');
	buf_add(&batch->out, text, n);
}

void batch_finish(struct bridge *b, struct batch *take_batch)
{
	if (take_batch->out.len) {
		buf_addc(&take_batch->out, ']');
		bridge_send(b, buf_str(&take_batch->out), take_batch->out.len);
	}
	buf_done(&take_batch->out);
	free(take_batch);
}

/* A pipe that polls as writable has room for PIPE_BUF bytes: a write of no more does not block, whatever the descriptor's mode. */
static ssize_t put(const struct bridge *b, const char *p, size_t n)
{
	if (b->out_socket)
		return send(b->out, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	return write(b->out, p, n < PIPE_BUF ? n : PIPE_BUF);
}

static bool writable(const struct bridge *b)
{
	struct pollfd p = { .fd = b->out, .events = POLLOUT };
	return poll(&p, 1, 0) == 1 && (p.revents & (POLLOUT | POLLERR | POLLHUP));
}

static void flush(struct bridge *b)
{
	while (!b->reader_gone && unsent(b) > 0 && writable(b)) {
		ssize_t n = put(b, b->output.data + b->output_at, unsent(b));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			b->reader_gone = true;
		else
			b->output_at += (size_t)n;
	}
	if (unsent(b) > 0 && !b->reader_gone)
		return;
	b->output_at = 0;
	if (b->output.cap > READ_BYTES)
		buf_done(&b->output);
	else
		buf_reset(&b->output);
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

enum { FD_IN, FD_OUT, FD_WAKE, FD_SIGNAL, FD_COUNT };

static void fill(const struct bridge *b, bool reading, struct pollfd fds[static FD_COUNT])
{
	bool congested = unsent(b) > OUT_HIGH;
	fds[FD_IN] = (struct pollfd){ .fd = reading ? b->in : -1, .events = congested ? 0 : POLLIN };
	/* Without events too: that is how a reader that went away shows. */
	fds[FD_OUT] = (struct pollfd){ .fd = b->reader_gone ? -1 : b->out, .events = unsent(b) ? POLLOUT : 0 };
	fds[FD_WAKE] = (struct pollfd){ .fd = b->wake_fd, .events = POLLIN };
	fds[FD_SIGNAL] = (struct pollfd){ .fd = reading ? interrupt_fd() : -1, .events = POLLIN };
}

/* False at the end of input. */
static bool read_some(struct bridge *b)
{
	char p[READ_BYTES];
	ssize_t n = read(b->in, p, sizeof(p));
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	/* A last line without its end still counts. */
	intake(b, n > 0 ? p : "\n", n > 0 ? (size_t)n : 1);
	return n > 0;
}

/* One turn; false when the client is gone. */
static bool turn(struct bridge *b, bool reading, int wait_ms)
{
	struct pollfd fds[FD_COUNT];
	bool alive = true;
	fill(b, reading, fds);
	if (poll(fds, FD_COUNT, wait_ms) < 0 && errno != EINTR)
		return false;
	if (fds[FD_WAKE].revents & POLLIN)
		calls_collect(b);
	if (fds[FD_IN].revents)
		alive = fds[FD_IN].events && read_some(b);
	if (fds[FD_OUT].revents & (POLLERR | POLLHUP | POLLNVAL))
		b->reader_gone = true;
	flush(b);
	return alive && !b->reader_gone && !fds[FD_SIGNAL].revents;
}

static bool work_left(const struct bridge *b)
{
	return b->calls || (unsent(b) && !b->reader_gone);
}

static void turn_until(struct bridge *b, int64_t deadline_ms)
{
	while (work_left(b)) {
		int64_t left = deadline_ms - clock_mono_ms();
		if (left <= 0)
			return;
		turn(b, false, (int)left);
	}
}

/* The client has gone, and its work ends: first what is about to end by itself, then everything. */
static void end_work(struct bridge *b)
{
	int64_t now = clock_mono_ms();
	if (!b->reader_gone)
		turn_until(b, now + GRACE_MS);
	calls_cancel_all(b);
	calls_end_left(b, clock_mono_ms() + CANCEL_MS / 2);
	turn_until(b, now + GRACE_MS + CANCEL_MS);
}

static void bridge_done(struct bridge *b)
{
	for (size_t i = 0; i < b->idle_count; i++)
		session_close(&b->idle[i]);
	close_fdp(&b->wake_fd);
	buf_done(&b->line);
	buf_done(&b->output);
	strv_done(&b->left);
	pthread_mutex_destroy(&b->lock);
}

static bool is_socket(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

int mcp_serve(const struct serve *how)
{
	struct bridge b = {
		.settings = how->settings, .wait_ms = how->wait_ms, .in = how->in, .out = how->out, .out_socket = is_socket(how->out),
		.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .line = BUF_INIT_MAX(LINE_MAX_BYTES + 1), .lock = PTHREAD_MUTEX_INITIALIZER,
	};
	b.posted_end = &b.posted;
	if (b.wake_fd < 0)
		return 1;
	signal(SIGPIPE, SIG_IGN);
	while (turn(&b, true, -1))
		continue;
	end_work(&b);
	/* A thread that is still busy would use what bridge_done frees. */
	if (b.calls)
		_exit(0);
	bridge_done(&b);
	return 0;
}

int mcp_serve_process(const struct cli *settings, int64_t wait_ms)
{
	auto_close int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || interrupt_watch() != 0) {
		fprintf(stderr, "sandbox-mcp: cannot set up standard output: %s\n", strerror(errno));
		return 1;
	}
	struct serve how = { .settings = settings, .wait_ms = wait_ms, .in = STDIN_FILENO, .out = out };
	return mcp_serve(&how);
}
