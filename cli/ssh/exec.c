/*
 * One command: both streams are read all the time, whatever is being sent; every call that says EAGAIN is repeated with the same
 * arguments; the end is the channel's, and only a status that was sent is a status.
 */
#include "cli/ssh/internal.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 32 * 1024 };

struct running {
	struct ssh *s;
	const struct ssh_command *c;
	struct ssh_result *r;
	LIBSSH2_CHANNEL *channel;
	size_t sent;             /* of c->in */
	char piece[PIECE];       /* of c->in_fd: stays as it is until all of it was taken */
	size_t piece_n, piece_sent;
	bool gone;               /* go was seen */
	bool file_ended, eof_sent;
	bool moved;              /* something happened in this turn */
};

static void keep(const struct running *x, struct buf *to, const char *p, size_t n)
{
	size_t room = to->len < x->c->out_max ? x->c->out_max - to->len : 0;
	buf_add(to, p, n < room ? n : room);
}

static int read_stream(struct running *x, int stream, struct buf *to, struct error *err)
{
	char p[PIECE];
	ssize_t n;
	while ((n = libssh2_channel_read_ex(x->channel, stream, p, sizeof(p))) > 0) {
		keep(x, to, p, (size_t)n);
		x->moved = true;
	}
	return n == 0 || n == LIBSSH2_ERROR_EAGAIN ? 0 : ssh_fail(x->s, "reading a command's output", err);
}

/* A command that ended reads nothing more: what is left unsent does not matter then. */
static int write_some(struct running *x, const char *p, size_t n, size_t *sent, struct error *err)
{
	while (*sent < n && !ssh_backlog(x->s) && !libssh2_channel_eof(x->channel)) {
		ssize_t got = libssh2_channel_write_ex(x->channel, 0, p + *sent, n - *sent);
		if (got == LIBSSH2_ERROR_EAGAIN || got == 0)
			return 0;
		if (got == LIBSSH2_ERROR_CHANNEL_CLOSED || got == LIBSSH2_ERROR_CHANNEL_EOF_SENT) {
			*sent = n;
			return 0;
		}
		if (got < 0)
			return ssh_fail(x->s, "sending a command's input", err);
		*sent += (size_t)got;
		x->moved = true;
	}
	return 0;
}

static int send_file(struct running *x, struct error *err)
{
	if (x->piece_sent == x->piece_n) {
		ssize_t n = read(x->c->in_fd, x->piece, sizeof(x->piece));
		if (n < 0)
			return error_errno(err, "reading what is to be sent");
		x->file_ended = n == 0;
		x->piece_n = (size_t)n;
		x->piece_sent = 0;
	}
	return write_some(x, x->piece, x->piece_n, &x->piece_sent, err);
}

static bool may_send_file(struct running *x)
{
	if (!x->gone && x->c->go)
		x->gone = x->r->out.len && strstr(buf_str(&x->r->out), x->c->go) != NULL;
	return x->gone || !x->c->go;
}

static int send_input(struct running *x, struct error *err)
{
	if (x->eof_sent)
		return 0;
	if (x->sent < x->c->in_n && write_some(x, x->c->in, x->c->in_n, &x->sent, err) != 0)
		return -1;
	if (x->sent < x->c->in_n)
		return 0;
	if (x->c->in_fd >= 0 && !x->file_ended) {
		if (may_send_file(x) && send_file(x, err) != 0)
			return -1;
		/* Its end is told at once: nothing that could wake us may come before the other side has seen it. */
		if (!x->file_ended)
			return 0;
	}
	int rc = libssh2_channel_send_eof(x->channel);
	if (rc == LIBSSH2_ERROR_EAGAIN)
		return 0;
	x->eof_sent = true;
	return 0;
}

/* libssh2 says EOF of a channel only when both its streams were read to the end. */
static int transfer(struct running *x, struct error *err)
{
	for (;;) {
		x->moved = false;
		if (read_stream(x, 0, &x->r->out, err) != 0 || read_stream(x, SSH_EXTENDED_DATA_STDERR, &x->r->err, err) != 0)
			return -1;
		if (libssh2_channel_eof(x->channel))
			return 0;
		if (send_input(x, err) != 0)
			return -1;
		if (!x->moved && ssh_wait(x->s, "waiting for a command", err) != 0)
			return -1;
	}
}

static int take_status(struct running *x, struct error *err)
{
	int rc;
	char *sig = NULL;
	SSH_RETRY(x->s, rc, libssh2_channel_close(x->channel), "waiting for a command's end", err);
	SSH_RETRY(x->s, rc, libssh2_channel_wait_closed(x->channel), "waiting for a command's end", err);
	if (rc != 0)
		return ssh_fail(x->s, "waiting for a command's end", err);
	libssh2_channel_get_exit_signal(x->channel, &sig, NULL, NULL, NULL, NULL, NULL);
	x->r->status = sig ? -1 : libssh2_channel_get_exit_status(x->channel);
	if (sig)
		libssh2_free(x->s->session, sig);
	return 0;
}

static int start(struct running *x, struct error *err)
{
	int rc;
	while (!(x->channel = libssh2_channel_open_session(x->s->session))) {
		if (libssh2_session_last_errno(x->s->session) != LIBSSH2_ERROR_EAGAIN)
			return ssh_fail(x->s, "opening a channel", err);
		if (ssh_wait(x->s, "opening a channel", err) != 0)
			return -1;
	}
	SSH_RETRY(x->s, rc, libssh2_channel_process_startup(x->channel, "exec", 4, x->c->line, (unsigned)strlen(x->c->line)), "starting a command", err);
	return rc == 0 ? 0 : ssh_fail(x->s, "starting a command", err);
}

int ssh_run(struct ssh *s, const struct ssh_command *c, struct ssh_result *ret, struct error *err)
{
	auto_free struct running *x = xcalloc(1, sizeof(*x));
	*x = (struct running){ .s = s, .c = c, .r = ret };
	for (struct ssh *v = s; v; v = v->via)
		v->deadline_ms = clock_mono_ms() + c->timeout_ms;
	int rc = start(x, err);
	if (rc == 0)
		rc = transfer(x, err);
	if (rc == 0)
		rc = take_status(x, err);
	if (x->channel) {
		s->deadline_ms = clock_mono_ms() + 1000;
		while (libssh2_channel_free(x->channel) == LIBSSH2_ERROR_EAGAIN)
			if (ssh_wait(s, "closing a channel", NULL) != 0)
				break;
	}
	if (x->piece_n)
		explicit_bzero(x->piece, sizeof(x->piece));
	return rc;
}
