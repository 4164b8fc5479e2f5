/*
 * The way in. Complete payloads are used where they lie; only a control payload that arrives in pieces is gathered.
 * DATA is handed on piece by piece. Everything is checked against the stream's state before it has any effect.
 */
#include "shared/mux/internal.h"

static bool has_fields(uint8_t type)
{
	return type == MUX_HELLO || type == MUX_OPEN || type == MUX_ACCEPT || type == MUX_CONTROL || type == MUX_CLOSE;
}

static bool on_connection(uint8_t type)
{
	return type == MUX_HELLO || type == MUX_PING || type == MUX_PONG;
}

static bool has_channel(uint8_t type)
{
	return type == MUX_DATA || type == MUX_EOF || type == MUX_WINDOW;
}

static int bad(const struct mux *m, struct error *err, const char *what)
{
	const struct frame *f = &m->in;
	return error_set(err, ERR_PROTOCOL, "mux: %s (type %u, channel %u, flags %u, stream %u, length %u)", what, f->type, f->channel,
			 f->flags, (unsigned)f->stream, (unsigned)f->length);
}

static int check_length(const struct mux *m, struct error *err)
{
	const struct frame *f = &m->in;
	bool ok = true;
	if (f->length > LIMIT_MUX_FRAME_MAX)
		return bad(m, err, "the frame is over the limit");
	if (f->type == MUX_DATA)
		ok = f->length > 0;
	else if (f->type == MUX_WINDOW)
		ok = f->length == 8;
	else if (!has_fields(f->type))
		ok = f->length == 0;
	if (!ok)
		return bad(m, err, "the frame has the wrong size for its type");
	if (m->more && m->fields.len + f->length > LIMIT_MUX_FIELDS_MAX)
		return bad(m, err, "the fields are over the limit");
	return 0;
}

/* What can be judged from the header alone. */
static int check_header(const struct mux *m, const struct frame *before, struct error *err)
{
	const struct frame *f = &m->in;
	if (f->type < MUX_HELLO || f->type > MUX_PONG)
		return bad(m, err, "unknown frame type");
	if (!m->greeted && f->type != MUX_HELLO)
		return bad(m, err, "the first frame is not HELLO");
	if (m->greeted && f->type == MUX_HELLO)
		return bad(m, err, "a second HELLO");
	if (m->more && (f->type != before->type || f->stream != before->stream))
		return bad(m, err, "a field sequence was interrupted");
	if (f->flags & ~MUX_FLAG_MORE || (f->flags && (!has_fields(f->type) || f->type == MUX_HELLO)))
		return bad(m, err, "a flag that may not be here");
	if (on_connection(f->type) ? f->stream != 0 : f->stream == 0)
		return bad(m, err, "a stream id that may not be here");
	if (f->channel >= MUX_CHANNELS || (f->channel && !has_channel(f->type)))
		return bad(m, err, "a channel that may not be here");
	return check_length(m, err);
}

/* DATA is checked for its whole length before its first byte is handed on. */
static int check_data(const struct mux *m, const struct stream *s, struct error *err)
{
	const struct receiving *r = &s->rx[m->in.channel];
	if (s->state != STREAM_OPEN)
		return bad(m, err, "DATA before ACCEPT");
	if (r->eof)
		return bad(m, err, "DATA after EOF");
	if (r->got + m->in.length > r->announced + s->window)
		return bad(m, err, "DATA beyond the window");
	return 0;
}

/* Finds the stream of the frame at hand. NULL with 0: it is gone, drop the frame. */
static int check_stream(const struct mux *m, struct stream **ret, struct error *err)
{
	const struct frame *f = &m->in;
	struct stream *s = *ret = stream_find(m, f->stream);
	if (f->type == MUX_OPEN) {
		if (stream_is_mine(m, f->stream))
			return bad(m, err, "OPEN with an id of this side");
		if (f->stream <= m->last_peer)
			return bad(m, err, "OPEN with an id that was used");
		return 0;
	}
	if (!s)
		return stream_was(m, f->stream) ? 0 : bad(m, err, "a frame for a stream that never was");
	if (f->type == MUX_DATA)
		return check_data(m, s, err);
	if (f->type == MUX_ACCEPT && s->state != STREAM_OPENING)
		return bad(m, err, "an ACCEPT nobody waits for");
	if (f->type == MUX_EOF && s->rx[f->channel].eof)
		return bad(m, err, "EOF twice");
	return 0;
}

static int on_hello(struct mux *m, const struct tlv *t, struct error *err)
{
	uint64_t version = tlv_u64(t, MUX_F_VERSION, 0), oldest = tlv_u64(t, MUX_F_VERSION_MIN, version);
	uint64_t frame_max = tlv_u64(t, MUX_F_FRAME_MAX, 0);
	if (version < MUX_VERSION_MIN || oldest > MUX_VERSION || oldest > version)
		return error_set(err, ERR_PROTOCOL, "mux: the peer speaks versions %llu to %llu, this side %d to %d: update the older one",
				 (unsigned long long)oldest, (unsigned long long)version, MUX_VERSION_MIN, MUX_VERSION);
	if (frame_max < MUX_FRAME_MIN)
		return error_set(err, ERR_PROTOCOL, "mux: the peer takes frames of %llu bytes, the least is %d",
				 (unsigned long long)frame_max, MUX_FRAME_MIN);
	m->peer_frame_max = frame_max < LIMIT_MUX_FRAME_MAX ? (uint32_t)frame_max : LIMIT_MUX_FRAME_MAX;
	m->greeted = true;
	if (m->handler->hello)
		m->handler->hello(m->ctx, m, t);
	return 0;
}

static uint32_t window_of(const struct tlv *t)
{
	uint64_t w = tlv_u64(t, MUX_F_WINDOW, 0);
	return w > INT32_MAX ? INT32_MAX : (uint32_t)w;
}

static void on_open(struct mux *m, const struct tlv *t)
{
	uint32_t id = m->in.stream;
	m->last_peer = id;
	if (m->count[0] >= m->max_streams || !m->handler->opened) {
		auto_tlv why = TLV_INIT;
		tlv_add_u64(&why, MUX_F_ERROR, MUX_ERR_RESOURCES);
		tlv_add_str(&why, MUX_F_MESSAGE, "too many streams are open on this connection");
		out_fields(m, MUX_CLOSE, id, &why, NULL);
		return;
	}
	stream_add(m, id, STREAM_ASKED)->peer_window = window_of(t);
	m->handler->opened(m->ctx, m, id, t);
}

static void on_accept(struct mux *m, struct stream *s, const struct tlv *t)
{
	uint32_t id = s->id;
	s->state = STREAM_OPEN;
	s->peer_window = window_of(t);
	if (m->handler->accepted)
		m->handler->accepted(m->ctx, m, id, t);
	s = stream_find(m, id);
	for (unsigned c = 0; s && c < MUX_CHANNELS; c++)
		if (s->tx[c].eof_wanted && !s->tx[c].eof)
			out_eof(m, s, c);
}

static void on_close(struct mux *m, const struct tlv *t)
{
	if (m->handler->closed)
		m->handler->closed(m->ctx, m, m->in.stream, t);
	stream_remove(m, m->in.stream);
}

static int on_fields(struct mux *m, const void *p, size_t n, struct error *err)
{
	struct tlv t;
	struct stream *s = NULL;
	if (tlv_parse(&t, p, n, err) < 0)
		return error_wrap(err, "mux: frame type %u on stream %u", m->in.type, (unsigned)m->in.stream);
	if (m->in.type == MUX_HELLO)
		return on_hello(m, &t, err);
	if (check_stream(m, &s, err) < 0)
		return -1;
	if (m->in.type == MUX_OPEN)
		on_open(m, &t);
	else if (s && m->in.type == MUX_ACCEPT)
		on_accept(m, s, &t);
	else if (s && m->in.type == MUX_CONTROL && m->handler->control)
		m->handler->control(m->ctx, m, s->id, &t);
	else if (s && m->in.type == MUX_CLOSE)
		on_close(m, &t);
	return 0;
}

/* Puts together what was cut over frames. */
static int gather_fields(struct mux *m, const void *p, size_t n, struct error *err)
{
	bool more = m->in.flags & MUX_FLAG_MORE;
	if (!more && !m->more)
		return on_fields(m, p, n, err);
	buf_add(&m->fields, p, n);
	m->more = more;
	if (more)
		return 0;
	struct buf whole = m->fields;
	m->fields = (struct buf)BUF_INIT_MAX(LIMIT_MUX_FIELDS_MAX);
	int r = on_fields(m, buf_str(&whole), whole.len, err);
	buf_done(&whole);
	return r;
}

static int on_window(struct mux *m, struct stream *s, const uint8_t *p, struct error *err)
{
	struct sending *t = &s->tx[m->in.channel];
	uint64_t consumed = 0;
	for (int i = 0; i < 8; i++)
		consumed = consumed << 8 | p[i];
	if (consumed > t->sent || consumed < t->acked)
		return bad(m, err, "WINDOW goes back or past what was sent");
	t->acked = consumed;
	if (m->handler->window)
		m->handler->window(m->ctx, m, s->id, m->in.channel, consumed);
	return 0;
}

static void on_eof(struct mux *m, struct stream *s)
{
	unsigned channel = m->in.channel;
	uint32_t id = s->id;
	s->rx[channel].eof = true;
	if (m->handler->eof)
		m->handler->eof(m->ctx, m, id, channel);
	s = stream_find(m, id);
	if (s && s->rx[channel].consumed == s->rx[channel].got && s->rx[channel].announced < s->rx[channel].got)
		out_window(m, s, channel);
}

/* A complete frame that is not DATA. */
static int on_frame(struct mux *m, const void *p, size_t n, struct error *err)
{
	struct stream *s = NULL;
	if (has_fields(m->in.type))
		return gather_fields(m, p, n, err);
	if (m->in.type == MUX_PING) {
		struct frame pong = { .type = MUX_PONG };
		out_frame(m, &pong, NULL, 0, NULL, 0);
		return 0;
	}
	if (m->in.type == MUX_PONG) {
		if (m->handler->pong)
			m->handler->pong(m->ctx, m);
		return 0;
	}
	if (check_stream(m, &s, err) < 0)
		return -1;
	if (s && m->in.type == MUX_WINDOW)
		return on_window(m, s, p, err);
	if (s && m->in.type == MUX_EOF)
		on_eof(m, s);
	return 0;
}

static void deliver(struct mux *m, const void *p, size_t n)
{
	struct stream *s = stream_find(m, m->in.stream);
	if (!s)
		return;
	uint64_t at = s->rx[m->in.channel].got;
	s->rx[m->in.channel].got += n;
	if (m->handler->data)
		m->handler->data(m->ctx, m, m->in.stream, m->in.channel, at, p, n);
}

static int start_frame(struct mux *m, struct error *err)
{
	const uint8_t *h = m->head;
	struct frame before = m->in;
	struct stream *s;
	m->in = (struct frame){
		.type = h[0],
		.channel = h[1],
		.flags = (uint16_t)(h[2] << 8 | h[3]),
		.stream = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7],
		.length = (uint32_t)h[8] << 24 | (uint32_t)h[9] << 16 | (uint32_t)h[10] << 8 | h[11],
	};
	m->left = m->in.length;
	if (check_header(m, &before, err) < 0)
		return -1;
	if (m->in.type == MUX_DATA)
		return check_stream(m, &s, err);
	return m->left ? 0 : on_frame(m, "", 0, err);
}

/* Takes payload bytes of the frame at hand; returns how many, or -1. */
static ssize_t feed_payload(struct mux *m, const uint8_t *p, size_t n, struct error *err)
{
	size_t take = n < m->left ? n : m->left;
	m->left -= take;
	if (m->in.type == MUX_DATA) {
		deliver(m, p, take);
		return (ssize_t)take;
	}
	if (m->left == 0 && m->body.len == 0)
		return on_frame(m, p, take, err) < 0 ? -1 : (ssize_t)take;
	buf_add(&m->body, p, take);
	if (m->left)
		return (ssize_t)take;
	struct buf whole = m->body;
	m->body = (struct buf)BUF_INIT;
	int r = on_frame(m, whole.data, whole.len, err);
	buf_done(&whole);
	return r < 0 ? -1 : (ssize_t)take;
}

static ssize_t feed_some(struct mux *m, const uint8_t *p, size_t n, struct error *err)
{
	if (m->left)
		return feed_payload(m, p, n, err);
	size_t take = MUX_HEADER_LEN - m->head_len;
	take = take < n ? take : n;
	for (size_t i = 0; i < take; i++)
		m->head[m->head_len++] = p[i];
	if (m->head_len < MUX_HEADER_LEN)
		return (ssize_t)take;
	m->head_len = 0;
	if (m->q.len > LIMIT_MUX_QUEUE_MAX)
		return error_set(err, ERR_PROTOCOL, "mux: the peer sends and does not read; %zu bytes wait for it", m->q.len);
	return start_frame(m, err) < 0 ? -1 : (ssize_t)take;
}

int mux_feed(struct mux *m, const void *p, size_t n, struct error *err)
{
	const uint8_t *at = p;
	ssize_t took = 0;
	if (m->dead)
		return error_set(err, ERR_UNREACHABLE, "the connection has ended");
	mux_cork(m);
	while (n > 0 && (took = feed_some(m, at, n, err)) >= 0) {
		at += took;
		n -= (size_t)took;
	}
	if (took < 0)
		m->dead = true;
	mux_uncork(m);
	return took < 0 ? -1 : 0;
}
