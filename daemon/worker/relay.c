/*
 * Streams that are only passed on: files, dialling, process lists. OPEN, ACCEPT and CLOSE end here and are issued
 * again with checked fields; DATA, EOF and WINDOW go through with end-to-end credit: a side is told that its bytes are
 * consumed when the other side says so, so what waits here never outgrows one window per channel.
 */
#include "daemon/worker/exec_priv.h"
#include "daemon/worker/ring.h"
#include "daemon/worker/splice.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <event2/event.h>

enum { TEXT_MAX = LIMIT_MUX_FRAME_MAX };

struct flow {
	struct ring ring;
	uint64_t sent, received;
	bool eof, eof_sent;
};

/* One side: its stream, and what goes out to it. */
struct side {
	struct stream stream;
	struct relay *relay;
	struct flow out[MUX_CHANNELS];
	bool closing; /* the other side closed: this one is, once it was given everything */
	struct tlv close_fields;
};

struct relay {
	struct relay_owner owner;
	struct relay *next;
	struct side client, init;
	struct event *waiting; /* for a link to init, then not NULL; it fires when that takes too long */
	struct tlv open;       /* fields for init, while waiting */
};

static struct side *side_of(struct stream *s)
{
	return container_of(s, struct side, stream);
}

static struct side *other(struct side *s)
{
	return s == &s->relay->client ? &s->relay->init : &s->relay->client;
}

static void side_done(struct side *s)
{
	stream_close(&s->stream, NULL);
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		ring_done(&s->out[c].ring);
	tlv_done(&s->close_fields);
}

static void waiting_done(struct relay *r)
{
	if (r->waiting)
		event_free(r->waiting);
	r->waiting = NULL;
	tlv_done(&r->open);
}

static void relay_free(struct relay *r)
{
	struct relay **at = r->owner.list;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	waiting_done(r);
	side_done(&r->client);
	side_done(&r->init);
	if (r->owner.freed)
		r->owner.freed(r->owner.a, r->owner.b);
	free(r);
}

/* --- bytes --- */

static bool flow_pump(struct side *to, unsigned channel)
{
	struct flow *f = &to->out[channel];
	const void *p;
	size_t n;

	while (f->sent < f->received) {
		n = ring_get(&f->ring, f->sent, f->received, &p);
		n = mux_send(to->stream.m, to->stream.id, channel, p, n);
		if (n == 0)
			return false;
		f->sent += n;
	}
	if (f->eof && !f->eof_sent) {
		f->eof_sent = true;
		mux_eof(to->stream.m, to->stream.id, channel);
	}
	return true;
}

/* Also ends the relay when the last byte before a CLOSE went out. */
static void side_pump(struct side *to)
{
	bool all = true;

	if (!to->stream.m)
		return;
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		all &= flow_pump(to, c);
	if (all && to->closing) {
		stream_close(&to->stream, &to->close_fields);
		relay_free(to->relay);
	}
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct side *to = other(side_of(s));
	struct flow *f = &to->out[channel];
	size_t k = 0;

	if (!to->stream.m) { /* the other side has closed: this one hears of it soon */
		mux_consumed(s->m, s->id, channel, offset + n);
		return;
	}
	if (f->sent == f->received) {
		k = mux_send(to->stream.m, to->stream.id, channel, p, n);
		f->sent += k;
		f->received += k;
	}
	if (k < n)
		ring_put(&f->ring, f->received, (const uint8_t *)p + k, n - k);
	f->received += n - k;
}

static void on_eof(struct stream *s, unsigned channel)
{
	struct side *to = other(side_of(s));

	to->out[channel].eof = true;
	side_pump(to);
}

static void on_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	struct side *from = other(side_of(s));

	if (from->stream.m)
		mux_consumed(from->stream.m, from->stream.id, channel, consumed);
	side_pump(side_of(s));
}

static void on_writable(struct stream *s)
{
	side_pump(side_of(s));
}

/* --- beginning and end --- */

static void checked_close(const struct tlv *fields, struct tlv *out)
{
	uint64_t why = tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	char text[ERROR_TEXT_MAX];
	size_t n = 0;
	const char *p = tlv_bytes(fields, MUX_F_MESSAGE, &n);

	if (why != MUX_ERR_NONE)
		tlv_add_u64(out, MUX_F_ERROR, why <= MUX_ERR_IO ? why : MUX_ERR_REFUSED);
	if (p && n > 0)
		tlv_add_str(out, MUX_F_MESSAGE, text_escape(p, n, text, sizeof(text)));
}

/* A client gives up: what it sent before is of no use. */
static void client_closed(struct stream *s, const struct tlv *fields)
{
	struct relay *r = side_of(s)->relay;
	auto_tlv out = TLV_INIT;

	checked_close(fields, &out);
	stream_close(&r->init.stream, &out);
	relay_free(r);
}

/* Init is done: the client gets all that came before. */
static void init_closed(struct stream *s, const struct tlv *fields)
{
	struct side *client = other(side_of(s));

	client->closing = true;
	checked_close(fields, &client->close_fields);
	side_pump(client);
}

static void on_accepted(struct stream *s, const struct tlv *fields)
{
	struct side *client = other(side_of(s));
	auto_tlv out = TLV_INIT;
	size_t n = 0;
	const void *text = tlv_bytes(fields, MUX_F_TEXT, &n);

	if (text)
		tlv_add_bytes(&out, MUX_F_TEXT, text, n < TEXT_MAX ? n : TEXT_MAX);
	mux_accept(client->stream.m, client->stream.id, &out, LIMIT_MUX_WINDOW);
}

static void close_client(struct relay *r, enum mux_error why, const char *text)
{
	auto_tlv fields = TLV_INIT;

	tlv_add_u64(&fields, MUX_F_ERROR, why);
	tlv_add_str(&fields, MUX_F_MESSAGE, text);
	stream_close(&r->client.stream, &fields);
	relay_free(r);
}

static void init_lost(struct stream *s, enum mux_error why)
{
	struct relay *r = side_of(s)->relay;

	if (why == MUX_ERR_DELETED)
		close_client(r, why, "sandbox deleted");
	else if (why == MUX_ERR_EXPIRED)
		close_client(r, why, "sandbox expired");
	else
		close_client(r, MUX_ERR_LOST, "the connection to the sandbox broke");
}

static void client_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	relay_free(side_of(s)->relay);
}

static const struct stream_ops client_ops = {
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.closed = client_closed,
	.lost = client_lost,
	.writable = on_writable,
};
static const struct stream_ops init_ops = {
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.closed = init_closed,
	.lost = init_lost,
	.writable = on_writable,
};

static struct relay *relay_new(const struct relay_owner *o, struct mux *client, uint32_t stream)
{
	struct relay *r = xcalloc(1, sizeof(*r));

	r->owner = *o;
	r->client.relay = r->init.relay = r;
	r->next = *o->list;
	*o->list = r;
	stream_bind(&r->client.stream, &client_ops, client, stream);
	return r;
}

/* A relay without a second side: what a client sends on it is dropped. */
void relay_alone(const struct relay_owner *o, struct mux *client, uint32_t stream)
{
	relay_new(o, client, stream);
	mux_accept(client, stream, NULL, LIMIT_MUX_WINDOW);
}

/* The client may have ended its side already; before the ACCEPT it can have sent nothing else. */
static void join(struct relay *r, struct mux *far, const struct tlv *fields)
{
	struct error err = ERROR_INIT;
	uint32_t id = mux_open(far, fields, LIMIT_MUX_WINDOW, &err);

	if (id == 0) {
		close_client(r, MUX_ERR_RESOURCES, err.message);
		return;
	}
	stream_bind(&r->init.stream, &init_ops, far, id);
	waiting_done(r);
	side_pump(&r->init);
}

void relay_splice(const struct relay_owner *o, struct mux *client, uint32_t stream, struct mux *far, const struct tlv *fields)
{
	join(relay_new(o, client, stream), far, fields);
}

void relay_close_all(struct relay **list, enum mux_error why, const char *text)
{
	struct relay *next;

	for (struct relay *r = *list; r; r = next) {
		next = r->next;
		close_client(r, why, text);
	}
}

/* --- of a sandbox --- */

static void release(void *e, void *b)
{
	box_release(e, b);
}

static struct relay_owner box_owner(struct execs *e, struct box *b)
{
	return (struct relay_owner){ .list = &b->relays, .freed = release, .a = e, .b = b };
}

void relay_watch(struct execs *e, struct box *b, struct mux *client, uint32_t stream)
{
	struct relay_owner o = box_owner(e, b);

	relay_alone(&o, client, stream);
}

static void on_link_too_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	close_client(ctx, MUX_ERR_UNAVAILABLE, "the sandbox does not answer: sandbox-init has not connected");
}

/* After the daemon's start init dials again within moments. */
static void wait_link(struct relay *r, struct event_base *base, const struct tlv *fields)
{
	static const struct timeval limit = { .tv_sec = LIMIT_LINK_WAIT_MS / 1000, .tv_usec = LIMIT_LINK_WAIT_MS % 1000 * 1000 };
	size_t n;
	const void *raw = tlv_raw(fields, &n);

	buf_add(&r->open.own, raw, n);
	r->waiting = evtimer_new(base, on_link_too_late, r);
	if (!r->waiting)
		abort();
	evtimer_add(r->waiting, &limit);
}

void relay_open(struct execs *e, struct box *b, struct mux *client, uint32_t stream, const struct tlv *init_fields)
{
	struct relay_owner o = box_owner(e, b);
	struct relay *r = relay_new(&o, client, stream);
	struct mux *far = initlink_mux(e->links, &b->sandbox);

	if (far)
		join(r, far, init_fields);
	else
		wait_link(r, e->base, init_fields);
}

void relay_link_up(struct box *b, struct mux *far)
{
	struct relay *next;

	for (struct relay *r = b->relays; r; r = next) {
		next = r->next;
		if (r->waiting)
			join(r, far, &r->open);
	}
}

void relay_end_all(struct box *b, enum mux_error why, const char *text)
{
	relay_close_all(&b->relays, why, text);
}
