/* One exchange of file records: see files.h. */
#include "cli/mcp/files.h"

#include "cli/ending.h"
#include "cli/muxconn.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { EXCHANGE_MS = 20 * 1000, WINDOW = 256 * 1024 };

struct exchange {
	struct muxconn conn; /* first: the handler's ctx */
	const struct files_exchange *x;
	uint32_t id;
	struct record_reader reader;
	size_t sent;
	bool accepted, eof_sent, finished, failed;
	struct error err;
};

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	struct exchange *e = ctx;
	char shown[400];
	if (e->finished)
		return 0;
	if (r->type == RECORD_FAIL)
		return error_set(err, ending_code((enum mux_error)r->code), "%s", text_escape(r->text, strlen(r->text), shown, sizeof(shown)));
	int rc = e->x->on_record(e->x->ctx, r, err);
	e->finished = rc > 0 || r->type == RECORD_DONE;
	return rc < 0 ? -1 : 0;
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct exchange *e = ctx;
	(void)m;
	(void)stream;
	(void)fields;
	e->accepted = true;
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct exchange *e = ctx;
	if (!e->finished && !e->failed && record_feed(&e->reader, p, n, &e->err) != 0)
		e->failed = true;
	mux_consumed(m, stream, channel, offset + n);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct exchange *e = ctx;
	auto_free char *message = NULL;
	(void)m;
	(void)stream;
	e->id = 0;
	if (e->finished || e->failed)
		return;
	e->failed = true;
	tlv_str(fields, MUX_F_MESSAGE, 900, &message, NULL);
	error_set(&e->err, ending_code((enum mux_error)(tlv_u64(fields, MUX_F_ERROR, MUX_ERR_LOST) & 0xff)), "%s",
		  message && *message ? message : "the transfer ended early");
}

static const struct mux_handler handler = { .accepted = on_accepted, .data = on_data, .closed = on_closed };

static void push(struct exchange *e)
{
	const struct buf *b = e->x->send;
	if (!e->accepted || !e->id || e->eof_sent)
		return;
	for (size_t n; b && e->sent < b->len; e->sent += n) {
		n = mux_send(e->conn.mux, e->id, MUX_STDIN, b->data + e->sent, b->len - e->sent);
		if (n == 0)
			return;
	}
	mux_eof(e->conn.mux, e->id, MUX_STDIN);
	e->eof_sent = true;
}

static int turn(struct tool_call *c, struct exchange *e, int64_t until, struct error *err)
{
	struct pollfd fds[2] = { [1] = { .fd = c->cli.interrupt, .events = POLLIN } };
	push(e);
	muxconn_poll(&e->conn, &fds[0]);
	int64_t left = until - clock_mono_ms();
	if (left <= 0 || poll(fds, 2, (int)left) == 0)
		return error_set(err, ERR_TIMEOUT, "the transfer took longer than %d s", EXCHANGE_MS / 1000);
	if (fds[1].revents)
		return error_set(err, ERR_TIMEOUT, "the call was cancelled");
	enum muxconn_state state = muxconn_ready(&e->conn, fds[0].revents, err);
	if (state == MUXCONN_BROKEN)
		return -1;
	if (state == MUXCONN_GONE && !e->finished && !e->failed)
		return error_set(err, ERR_UNAVAILABLE, "the connection to the server ended");
	return 0;
}

static int run(struct tool_call *c, struct exchange *e, struct error *err)
{
	struct dialler d = session_dialler(&c->cli);
	int64_t until = clock_mono_ms() + EXCHANGE_MS;
	e->id = mux_open(e->conn.mux, e->x->open, WINDOW, err);
	if (!e->id || muxconn_dial(&e->conn, &d, false, 0, err) != 0)
		return -1;
	while (!e->finished && !e->failed)
		if (turn(c, e, until, err) != 0)
			return -1;
	if (!e->failed)
		return 0;
	*err = e->err;
	return -1;
}

int files_exchange(struct tool_call *c, const struct files_exchange *x, struct error *err)
{
	struct exchange e = { .conn = MUXCONN_INIT, .x = x, .err = ERROR_INIT };
	record_reader_init(&e.reader, on_record, &e);
	muxconn_start(&e.conn, &handler);
	int rc = run(c, &e, err);
	muxconn_stop(&e.conn);
	record_reader_done(&e.reader);
	return rc;
}
