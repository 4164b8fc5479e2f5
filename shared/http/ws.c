/* WebSocket frames to bytes and back: see ws.h. wslay takes the frames apart; order and meaning are judged here. */
#include "shared/http/ws.h"

#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <string.h>
#include <wslay/wslay.h>

enum { CONTROL_MAX = 125, NORMAL = 1000, PROTOCOL = 1002, UNSUPPORTED = 1003 };

struct ws {
	bool client;
	wslay_frame_context_ptr frames;
	/* during ws_feed and the senders */
	const uint8_t *in;
	size_t in_n;
	struct buf *wire;
	/* of the frame being read */
	uint64_t got;
	bool in_message; /* a binary message whose last frame has not come */
	uint8_t control[CONTROL_MAX];
	bool ended, close_sent;
};

static ssize_t take(uint8_t *to, size_t n, int flags, void *ctx)
{
	struct ws *w = ctx;
	(void)flags;
	if (w->in_n == 0)
		return -1;
	if (n > w->in_n)
		n = w->in_n;
	memcpy(to, w->in, n);
	w->in += n;
	w->in_n -= n;
	return (ssize_t)n;
}

static ssize_t put(const uint8_t *p, size_t n, int flags, void *ctx)
{
	struct ws *w = ctx;
	(void)flags;
	buf_add(w->wire, p, n);
	return (ssize_t)n;
}

static int mask(uint8_t *to, size_t n, void *ctx)
{
	(void)ctx;
	random_bytes(to, n);
	return 0;
}

struct ws *ws_new(bool client)
{
	static const struct wslay_frame_callbacks calls = { put, take, mask };
	struct ws *w = xcalloc(1, sizeof(*w));
	w->client = client;
	if (wslay_frame_context_init(&w->frames, &calls, w) != 0)
		out_of_memory();
	return w;
}

void ws_free(struct ws *w)
{
	if (!w)
		return;
	wslay_frame_context_free(w->frames);
	free(w);
}

bool ws_ended(const struct ws *w)
{
	return w->ended;
}

/* The sink takes everything, so a frame always goes out whole. */
static void frame(struct ws *w, uint8_t opcode, const void *p, size_t n, struct buf *wire)
{
	struct wslay_frame_iocb f = { .fin = 1, .opcode = opcode, .payload_length = n, .mask = w->client, .data = p, .data_length = n };
	w->wire = wire;
	do {
		ssize_t sent = wslay_frame_send(w->frames, &f);
		if (sent < 0)
			abort();
		f.data += sent;
		f.data_length -= (size_t)sent;
	} while (f.data_length > 0);
	w->wire = NULL;
}

void ws_send(struct ws *w, const void *p, size_t n, struct buf *wire)
{
	if (!w->close_sent && n > 0)
		frame(w, WSLAY_BINARY_FRAME, p, n, wire);
}

void ws_ping(struct ws *w, struct buf *wire)
{
	if (!w->close_sent)
		frame(w, WSLAY_PING, "", 0, wire);
}

void ws_close(struct ws *w, unsigned code, struct buf *wire)
{
	uint8_t body[2] = { (uint8_t)(code >> 8), (uint8_t)code };
	if (w->close_sent)
		return;
	frame(w, WSLAY_CONNECTION_CLOSE, body, sizeof(body), wire);
	w->close_sent = true;
}

static int refuse(struct ws *w, unsigned code, struct buf *wire, const char *text, struct error *err)
{
	ws_close(w, code, wire);
	w->ended = true;
	return error_set(err, ERR_PROTOCOL, "WebSocket: %s", text);
}

/* The first look at a frame. NULL: fine. */
static const char *judge(const struct ws *w, const struct wslay_frame_iocb *f, unsigned *ret_code)
{
	*ret_code = PROTOCOL;
	if (f->rsv)
		return "a frame of an extension that was not agreed";
	if (!w->client != (bool)f->mask)
		return w->client ? "a masked frame from a server" : "an unmasked frame from a client";
	if (f->opcode > WSLAY_PONG || (f->opcode > WSLAY_BINARY_FRAME && f->opcode < WSLAY_CONNECTION_CLOSE))
		return "a frame of a kind that does not exist";
	if (f->opcode == WSLAY_TEXT_FRAME) {
		*ret_code = UNSUPPORTED;
		return "a text message; only binary ones carry bytes";
	}
	if (f->opcode == WSLAY_CONTINUATION_FRAME && !w->in_message)
		return "a continuation of nothing";
	if (f->opcode == WSLAY_BINARY_FRAME && w->in_message)
		return "a new message inside another";
	return NULL;
}

static void control_frame(struct ws *w, const struct wslay_frame_iocb *f, struct buf *wire)
{
	size_t n = (size_t)f->payload_length;
	if (f->opcode == WSLAY_PING && !w->close_sent)
		frame(w, WSLAY_PONG, w->control, n, wire);
	if (f->opcode != WSLAY_CONNECTION_CLOSE)
		return;
	ws_close(w, n >= 2 ? (unsigned)w->control[0] << 8 | w->control[1] : NORMAL, wire);
	w->ended = true;
}

static void payload(struct ws *w, const struct wslay_frame_iocb *f, struct buf *data, struct buf *wire)
{
	bool control = wslay_is_ctrl_frame(f->opcode);
	if (!control)
		buf_add(data, f->data, f->data_length);
	else if (f->data_length > 0)
		memcpy(w->control + w->got, f->data, f->data_length);
	w->got += f->data_length;
	if (w->got < f->payload_length)
		return;
	w->got = 0;
	if (control)
		control_frame(w, f, wire);
	else
		w->in_message = !f->fin;
}

int ws_feed(struct ws *w, const void *p, size_t n, struct buf *data, struct buf *wire, struct error *err)
{
	w->in = p;
	w->in_n = n;
	while (!w->ended) {
		struct wslay_frame_iocb f;
		unsigned code;
		ssize_t got = wslay_frame_recv(w->frames, &f);
		if (got == WSLAY_ERR_WANT_READ)
			break;
		if (got < 0)
			return refuse(w, PROTOCOL, wire, "a frame that is none", err);
		const char *why = w->got ? NULL : judge(w, &f, &code);
		if (why)
			return refuse(w, code, wire, why, err);
		payload(w, &f, data, wire);
	}
	return 0;
}
