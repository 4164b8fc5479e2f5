/* Byte pipes to ports inside: see dial.h. */
#include "cli/dial.h"

#include "cli/ending.h"
#include "cli/muxconn.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

struct dial {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	uint32_t id;
	int in, out;
	uint16_t port;
	bool accepted, in_ended, closed;
	char *held;          /* read and not yet taken by the mux */
	size_t held_at, held_n;
	struct error failure;
};

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct dial *d = ctx;
	(void)m, (void)fields;
	d->accepted = d->accepted || stream == d->id;
}

/* Blocking: who reads the other end does so whatever we do, and what is not written here is not asked for there. */
static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct dial *d = ctx;
	if (stream != d->id || channel != MUX_STDIN)
		return;
	if (d->out >= 0 && io_write_full(d->out, p, n) != 0 && d->failure.code == ERR_NONE)
		error_errno(&d->failure, "writing what the port says");
	mux_consumed(m, stream, channel, offset + n);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct dial *d = ctx;
	(void)m, (void)channel;
	if (stream == d->id && d->out >= 0) {
		close(d->out);
		d->out = -1;
	}
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct dial *d = ctx;
	auto_free char *text = NULL;
	(void)m;
	if (stream != d->id)
		return;
	d->closed = true;
	uint64_t code = tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	if (code == MUX_ERR_NONE || d->failure.code != ERR_NONE)
		return;
	tlv_str(fields, MUX_F_MESSAGE, ERROR_TEXT_MAX - 1, &text, NULL);
	if (code == MUX_ERR_CONNECT)
		error_set(&d->failure, ERR_UNREACHABLE, "nothing listens on port %u inside the sandbox", d->port);
	else
		error_set(&d->failure, ending_code((enum mux_error)code), "%s", text && *text ? text : "the sandbox ended the connection");
}

static void push(struct dial *d)
{
	while (d->held_at < d->held_n) {
		size_t n = mux_send(d->conn.mux, d->id, MUX_STDIN, d->held + d->held_at, d->held_n - d->held_at);
		if (n == 0)
			return;
		d->held_at += n;
	}
	if (d->in_ended)
		mux_eof(d->conn.mux, d->id, MUX_STDIN);
}

static bool wants_input(const struct dial *d)
{
	return d->accepted && !d->in_ended && d->held_at == d->held_n && mux_sendable(d->conn.mux, d->id, MUX_STDIN) > 0;
}

static void read_input(struct dial *d)
{
	ssize_t n = read(d->in, d->held, CHUNK);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	d->held_at = 0;
	d->held_n = n > 0 ? (size_t)n : 0;
	d->in_ended = n <= 0;
	push(d);
}

static int turn(struct dial *d, struct error *err)
{
	struct pollfd p[2] = { { .fd = -1 }, { .fd = wants_input(d) ? d->in : -1, .events = POLLIN } };
	muxconn_poll(&d->conn, &p[0]);
	if (poll(p, 2, -1) < 0 && errno != EINTR)
		return error_errno(err, "waiting");
	if (p[1].revents)
		read_input(d);
	enum muxconn_state state = p[0].revents ? muxconn_ready(&d->conn, p[0].revents, err) : MUXCONN_ALIVE;
	if (state == MUXCONN_BROKEN)
		return -1;
	if (state == MUXCONN_GONE && !d->closed)
		return error_set(err, ERR_UNREACHABLE, "the connection to the server was lost");
	push(d);
	muxconn_flush(&d->conn);
	return 0;
}

int dial_pipe(struct cli *cli, const char *sandbox, uint16_t port, int in, int out, struct error *err)
{
	static const struct mux_handler handler = { .accepted = on_accepted, .data = on_data, .eof = on_eof, .closed = on_closed };
	struct dialler dialler = session_dialler(cli);
	struct dial d = { .in = in, .out = out, .port = port, .held = xmalloc(CHUNK), .failure = ERROR_INIT };
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_str(&open, MUX_F_SANDBOX, sandbox);
	tlv_add_u64(&open, MUX_F_PORT, port);
	muxconn_start(&d.conn, &handler);
	d.id = mux_open(d.conn.mux, &open, LIMIT_MUX_WINDOW, err);
	int rc = d.id && muxconn_dial(&d.conn, &dialler, false, 0, err) == 0 ? 0 : -1;
	while (rc == 0 && !d.closed && d.failure.code == ERR_NONE)
		rc = turn(&d, err);
	muxconn_stop(&d.conn);
	free(d.held);
	if (rc == 0 && d.failure.code != ERR_NONE)
		rc = error_set(err, d.failure.code, "%s", d.failure.message);
	return rc;
}
