/*
 * The way out: frames go to the sink at once, header and payload in one call, and only what it does not take is
 * copied into the queue. Nothing overtakes: once something waits, everything after it waits too.
 */
#include "shared/mux/internal.h"

#include "shared/base/mem.h"

#include <string.h>

enum { OUTQ_KEEP = 64 * 1024 }; /* an empty queue larger than this gives its memory back */

void outq_done(struct outq *q)
{
	free(q->data);
	*q = (struct outq){ .data = NULL };
}

static void outq_grow(struct outq *q, size_t need)
{
	size_t cap = q->cap ? q->cap : 4096;
	while (cap < need)
		cap *= 2;
	uint8_t *data = xmalloc(cap);
	size_t first = q->cap - q->head < q->len ? q->cap - q->head : q->len;
	if (q->len) {
		memcpy(data, q->data + q->head, first);
		memcpy(data + first, q->data, q->len - first);
	}
	free(q->data);
	q->data = data;
	q->cap = cap;
	q->head = 0;
}

static void outq_add(struct outq *q, const void *p, size_t n)
{
	if (n == 0)
		return;
	if (q->len + n > q->cap)
		outq_grow(q, q->len + n);
	size_t tail = (q->head + q->len) % q->cap;
	size_t first = q->cap - tail < n ? q->cap - tail : n;
	memcpy(q->data + tail, p, first);
	memcpy(q->data, (const uint8_t *)p + first, n - first);
	q->len += n;
}

static void outq_take(struct outq *q, size_t n)
{
	q->len -= n;
	q->head = q->len ? (q->head + n) % q->cap : 0;
	if (q->len == 0 && q->cap > OUTQ_KEEP)
		outq_done(q);
}

static int outq_spans(const struct outq *q, struct iovec iov[2])
{
	if (q->len == 0)
		return 0;
	size_t first = q->cap - q->head < q->len ? q->cap - q->head : q->len;
	iov[0] = (struct iovec){ q->data + q->head, first };
	if (first == q->len)
		return 1;
	iov[1] = (struct iovec){ q->data, q->len - first };
	return 2;
}

size_t mux_room(const struct mux *m)
{
	size_t cap = m->blocked ? MUX_ROOM_BLOCKED : MUX_ROOM_OPEN;
	if (m->dead || m->q.len + MUX_ROOM_LEAST > cap)
		return 0;
	return cap - m->q.len;
}

static void note_full(struct mux *m)
{
	if (mux_room(m) == 0)
		m->full = true;
}

/* Queues the last parts of a frame, less the first `skip` bytes, which the sink has taken. */
static void queue_parts(struct mux *m, const struct iovec *iov, int n, size_t skip)
{
	for (int i = 0; i < n; i++) {
		size_t s = skip < iov[i].iov_len ? skip : iov[i].iov_len;
		outq_add(&m->q, (const uint8_t *)iov[i].iov_base + s, iov[i].iov_len - s);
		skip -= s;
	}
	note_full(m);
}

static void push(struct mux *m, const struct iovec *part, int n)
{
	struct iovec iov[5];
	size_t total = 0;
	for (int i = 0; i < n; i++)
		total += part[i].iov_len;
	bool wait = !m->sink || m->blocked || (m->corked && total < MUX_ROOM_LEAST && m->q.len < MUX_ROOM_BLOCKED);
	if (m->dead)
		return;
	if (wait) {
		queue_parts(m, part, n, 0);
		return;
	}
	int spans = outq_spans(&m->q, iov);
	size_t queued = m->q.len;
	memcpy(iov + spans, part, (size_t)n * sizeof(*part));
	ssize_t r = m->sink(m->ctx, iov, spans + n);
	if (r < 0) {
		m->dead = true;
		return;
	}
	size_t took = (size_t)r;
	m->blocked = took < queued + total;
	if (queued)
		outq_take(&m->q, took < queued ? took : queued);
	if (m->blocked)
		queue_parts(m, part, n, took > queued ? took - queued : 0);
}

void out_frame(struct mux *m, const struct frame *f, const void *a, size_t an, const void *b, size_t bn)
{
	size_t n = an + bn;
	uint8_t head[MUX_HEADER_LEN] = {
		f->type, f->channel, (uint8_t)(f->flags >> 8), (uint8_t)f->flags,
		(uint8_t)(f->stream >> 24), (uint8_t)(f->stream >> 16), (uint8_t)(f->stream >> 8), (uint8_t)f->stream,
		(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n,
	};
	struct iovec part[3] = { { head, sizeof(head) } };
	int parts = 1;
	if (an)
		part[parts++] = (struct iovec){ (void *)(uintptr_t)a, an };
	if (bn)
		part[parts++] = (struct iovec){ (void *)(uintptr_t)b, bn };
	push(m, part, parts);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

void out_fields(struct mux *m, enum mux_type type, uint32_t stream, const struct tlv *t, const struct tlv *extra)
{
	size_t an = 0, bn = 0;
	const uint8_t *a = t ? tlv_raw(t, &an) : NULL;
	const uint8_t *b = extra ? tlv_raw(extra, &bn) : NULL;
	do {
		size_t x = least(an, m->peer_frame_max);
		size_t y = least(bn, m->peer_frame_max - x);
		struct frame f = { .type = (uint8_t)type, .stream = stream, .flags = x < an || y < bn ? MUX_FLAG_MORE : 0 };
		out_frame(m, &f, a, x, b, y);
		a = x ? a + x : a;
		b = y ? b + y : b;
		an -= x;
		bn -= y;
	} while (an + bn);
}

void out_eof(struct mux *m, struct stream *s, unsigned channel)
{
	struct frame f = { .type = MUX_EOF, .channel = (uint8_t)channel, .stream = s->id };
	s->tx[channel].eof = true;
	out_frame(m, &f, NULL, 0, NULL, 0);
}

void out_window(struct mux *m, struct stream *s, unsigned channel)
{
	uint64_t v = s->rx[channel].consumed;
	uint8_t be[8] = { (uint8_t)(v >> 56), (uint8_t)(v >> 48), (uint8_t)(v >> 40), (uint8_t)(v >> 32),
			  (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };
	struct frame f = { .type = MUX_WINDOW, .channel = (uint8_t)channel, .stream = s->id };
	s->rx[channel].announced = v;
	out_frame(m, &f, be, sizeof(be), NULL, 0);
}

/* Tells the owner, once, that what had stopped may go on. */
static void became_writable(struct mux *m)
{
	if (!m->full && !m->blocked)
		return;
	m->full = m->blocked = false;
	if (m->handler->writable)
		m->handler->writable(m->ctx, m);
}

int mux_flush(struct mux *m)
{
	struct iovec iov[2];
	int n;
	while (!m->dead && m->sink && (n = outq_spans(&m->q, iov)) > 0) {
		size_t want = m->q.len;
		ssize_t r = m->sink(m->ctx, iov, n);
		if (r < 0) {
			m->dead = true;
			break;
		}
		outq_take(&m->q, (size_t)r);
		if ((size_t)r < want) {
			m->blocked = true;
			return 0;
		}
	}
	if (m->dead)
		return -1;
	if (m->sink)
		became_writable(m);
	return 0;
}

bool mux_want_write(const struct mux *m)
{
	return m->q.len > 0 || m->dead;
}

size_t mux_queued(struct mux *m, const void **ret)
{
	struct iovec iov[2];
	if (outq_spans(&m->q, iov) == 0)
		return 0;
	*ret = iov[0].iov_base;
	return iov[0].iov_len;
}

void mux_taken(struct mux *m, size_t n)
{
	outq_take(&m->q, least(n, m->q.len));
	if (m->q.len <= MUX_ROOM_OPEN / 2)
		became_writable(m);
}

void mux_cork(struct mux *m)
{
	m->corked++;
}

void mux_uncork(struct mux *m)
{
	if (m->corked && --m->corked == 0 && m->q.len && !m->blocked)
		mux_flush(m);
}
