/* Streams: opening, accepting, sending, closing. out.c is the way out, feed.c the way in. */
#include "shared/mux/internal.h"

#include "shared/base/mem.h"

struct mux *mux_new(const struct mux_options *o)
{
	static const struct mux_handler none = { .hello = NULL };
	struct mux *m = xcalloc(1, sizeof(*m));
	m->handler = o->handler ? o->handler : &none;
	m->ctx = o->ctx;
	m->sink = o->sink;
	m->max_streams = o->max_streams ? o->max_streams : LIMIT_MUX_STREAMS_MAX;
	m->next_id = o->dialled ? 1 : 2;
	m->peer_frame_max = MUX_FRAME_MIN;
	m->fields.max = LIMIT_MUX_FIELDS_MAX;
	return m;
}

void mux_free(struct mux *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < MUX_BUCKETS; i++)
		while (m->buckets[i])
			stream_remove(m, m->buckets[i]->id);
	outq_done(&m->q);
	buf_done(&m->body);
	buf_done(&m->fields);
	free(m);
}

/* Ids of one side differ by two, so the lowest bit says nothing. */
static size_t bucket(uint32_t id)
{
	return (id >> 1) % MUX_BUCKETS;
}

struct stream *stream_find(const struct mux *m, uint32_t id)
{
	struct stream *s = m->buckets[bucket(id)];
	while (s && s->id != id)
		s = s->next;
	return s;
}

struct stream *stream_add(struct mux *m, uint32_t id, enum stream_state state)
{
	struct stream *s = xcalloc(1, sizeof(*s));
	s->id = id;
	s->state = state;
	s->next = m->buckets[bucket(id)];
	m->buckets[bucket(id)] = s;
	m->count[stream_is_mine(m, id)]++;
	return s;
}

void stream_remove(struct mux *m, uint32_t id)
{
	struct stream **at = &m->buckets[bucket(id)];
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	if (!*at)
		return;
	struct stream *s = *at;
	*at = s->next;
	m->count[stream_is_mine(m, id)]--;
	free(s);
}

bool stream_is_mine(const struct mux *m, uint32_t id)
{
	return (id & 1) == (m->next_id & 1);
}

bool stream_was(const struct mux *m, uint32_t id)
{
	return stream_is_mine(m, id) ? id < m->next_id : id <= m->last_peer;
}

void mux_hello(struct mux *m, const struct tlv *fields)
{
	auto_tlv extra = TLV_INIT;
	if (m->said_hello)
		return;
	m->said_hello = true;
	tlv_add_u64(&extra, MUX_F_VERSION, MUX_VERSION);
	tlv_add_u64(&extra, MUX_F_VERSION_MIN, MUX_VERSION_MIN);
	tlv_add_u64(&extra, MUX_F_FRAME_MAX, LIMIT_MUX_FRAME_MAX);
	out_fields(m, MUX_HELLO, 0, fields, &extra);
}

bool mux_greeted(const struct mux *m)
{
	return m->greeted;
}

uint32_t mux_open(struct mux *m, const struct tlv *fields, uint32_t window, struct error *err)
{
	auto_tlv extra = TLV_INIT;
	size_t n;
	tlv_raw(fields, &n);
	tlv_add_u64(&extra, MUX_F_WINDOW, window);
	if (!m->said_hello || m->dead)
		return error_set(err, ERR_UNAVAILABLE, "the connection is not open"), 0;
	if (fields->own.overflow || n + extra.own.len > LIMIT_MUX_FIELDS_MAX)
		return error_set(err, ERR_TOO_LARGE, "the request is longer than %d bytes", LIMIT_MUX_FIELDS_MAX), 0;
	if (m->count[1] >= m->max_streams)
		return error_set(err, ERR_UNAVAILABLE, "%zu streams are open on this connection, the limit", m->count[1]), 0;
	if (m->next_id > UINT32_MAX - 2 || m->q.len + n > LIMIT_MUX_QUEUE_MAX)
		return error_set(err, ERR_UNAVAILABLE, "the peer does not read, or the connection is used up"), 0;
	struct stream *s = stream_add(m, m->next_id, STREAM_OPENING);
	uint32_t id = s->id;
	m->next_id += 2;
	s->window = window;
	out_fields(m, MUX_OPEN, id, fields, &extra);
	return id;
}

static void send_wanted_eofs(struct mux *m, struct stream *s)
{
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		if (s->tx[c].eof_wanted && !s->tx[c].eof)
			out_eof(m, s, c);
}

int mux_accept(struct mux *m, uint32_t stream, const struct tlv *fields, uint32_t window)
{
	auto_tlv extra = TLV_INIT;
	struct stream *s = stream_find(m, stream);
	if (!s || s->state != STREAM_ASKED)
		return -1;
	s->state = STREAM_OPEN;
	s->window = window;
	tlv_add_u64(&extra, MUX_F_WINDOW, window);
	out_fields(m, MUX_ACCEPT, stream, fields, &extra);
	send_wanted_eofs(m, s);
	return 0;
}

static size_t window_left(const struct stream *s, unsigned channel)
{
	const struct sending *t = &s->tx[channel];
	if (s->state != STREAM_OPEN || t->eof)
		return 0;
	return (size_t)(t->acked + s->peer_window - t->sent);
}

size_t mux_sendable(const struct mux *m, uint32_t stream, unsigned channel)
{
	const struct stream *s = stream_find(m, stream);
	if (!s || channel >= MUX_CHANNELS)
		return 0;
	size_t window = window_left(s, channel), room = mux_room(m);
	return window < room ? window : room;
}

/* Sends n bytes, which fit, as frames of the size the peer takes. */
static void send_burst(struct mux *m, struct stream *s, unsigned channel, const uint8_t *p, size_t n)
{
	struct frame f = { .type = MUX_DATA, .channel = (uint8_t)channel, .stream = s->id };
	s->tx[channel].sent += n;
	while (n) {
		size_t chunk = n < m->peer_frame_max ? n : m->peer_frame_max;
		out_frame(m, &f, p, chunk, NULL, 0);
		p += chunk;
		n -= chunk;
	}
}

size_t mux_send(struct mux *m, uint32_t stream, unsigned channel, const void *p, size_t n)
{
	struct stream *s = stream_find(m, stream);
	if (!s || channel >= MUX_CHANNELS)
		return 0;
	size_t left = window_left(s, channel), taken = 0, room;
	bool was_blocked = m->blocked;
	if (n > left)
		n = left;
	while (taken < n && (room = mux_room(m)) > 0) {
		size_t burst = n - taken < room ? n - taken : room;
		send_burst(m, s, channel, (const uint8_t *)p + taken, burst);
		taken += burst;
		if (m->blocked && !was_blocked)
			break; /* what is not sent yet stays with the caller instead of being copied here */
	}
	if (taken < n)
		m->full = true;
	return taken;
}

void mux_eof(struct mux *m, uint32_t stream, unsigned channel)
{
	struct stream *s = stream_find(m, stream);
	if (!s || channel >= MUX_CHANNELS || s->tx[channel].eof)
		return;
	s->tx[channel].eof_wanted = true;
	if (s->state == STREAM_OPEN)
		send_wanted_eofs(m, s);
}

void mux_consumed(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset)
{
	struct stream *s = stream_find(m, stream);
	if (!s || channel >= MUX_CHANNELS || s->state != STREAM_OPEN)
		return;
	struct receiving *r = &s->rx[channel];
	if (offset > r->got)
		offset = r->got;
	if (offset <= r->consumed)
		return;
	r->consumed = offset;
	if (offset - r->announced >= s->window / 4 || (r->eof && offset == r->got))
		out_window(m, s, channel);
}

void mux_control(struct mux *m, uint32_t stream, const struct tlv *fields)
{
	if (stream_find(m, stream))
		out_fields(m, MUX_CONTROL, stream, fields, NULL);
}

void mux_close(struct mux *m, uint32_t stream, const struct tlv *fields)
{
	if (!stream_find(m, stream))
		return;
	out_fields(m, MUX_CLOSE, stream, fields, NULL);
	stream_remove(m, stream);
}

void mux_ping(struct mux *m)
{
	struct frame f = { .type = MUX_PING };
	out_frame(m, &f, NULL, 0, NULL, 0);
}

void mux_rebase_send(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset)
{
	struct stream *s = stream_find(m, stream);
	if (s && channel < MUX_CHANNELS)
		s->tx[channel].sent = s->tx[channel].acked = offset;
}

void mux_rebase_recv(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset)
{
	struct stream *s = stream_find(m, stream);
	if (s && channel < MUX_CHANNELS)
		s->rx[channel].got = s->rx[channel].consumed = s->rx[channel].announced = offset;
}

void mux_set_user(struct mux *m, uint32_t stream, void *user)
{
	struct stream *s = stream_find(m, stream);
	if (s)
		s->user = user;
}

void *mux_user(const struct mux *m, uint32_t stream)
{
	const struct stream *s = stream_find(m, stream);
	return s ? s->user : NULL;
}

size_t mux_stream_count(const struct mux *m)
{
	return m->count[0] + m->count[1];
}

void mux_each(struct mux *m, void (*fn)(void *ctx, struct mux *m, uint32_t stream, void *user), void *ctx)
{
	/* fn may close and open streams, so the ids are taken first. */
	size_t n = 0, count = mux_stream_count(m);
	auto_free uint32_t *ids = xcalloc(count, sizeof(*ids));
	for (size_t i = 0; i < MUX_BUCKETS; i++)
		for (const struct stream *s = m->buckets[i]; s && n < count; s = s->next)
			ids[n++] = s->id;
	for (size_t i = 0; i < n; i++) {
		struct stream *s = stream_find(m, ids[i]);
		if (s)
			fn(ctx, m, ids[i], s->user);
	}
}

static void lose_one(void *ctx, struct mux *m, uint32_t stream, void *user)
{
	(void)ctx;
	(void)user;
	if (m->handler->lost)
		m->handler->lost(m->ctx, m, stream);
	stream_remove(m, stream);
}

void mux_lost(struct mux *m)
{
	m->dead = true;
	mux_each(m, lose_one, NULL);
}
