/* Joined streams: see splice.h. Offsets are the same on both sides, also of a command that is resumed. */
#include "daemon/link/splice.h"

#include "daemon/link/codec.h"
#include "daemon/link/refusal.h"
#include "daemon/worker/muxconn.h"
#include "daemon/worker/ring.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

enum { TEXT_MAX = LIMIT_MUX_FRAME_MAX, METHOD_MAX = 64 };

struct flow {
	struct ring ring;
	uint64_t sent, received;
	bool eof, eof_sent;
};

struct side {
	struct stream stream;
	struct splice *splice;
	struct flow out[MUX_CHANNELS]; /* on its way to this side */
	bool closing;                  /* the other side closed: this one is, once it was given everything */
	struct tlv close_fields;
};

struct splice {
	struct side client, link;
	struct muxconn *conn; /* the client's; NULL: none, or another controller's */
	bool via;             /* the link is another controller's connection */
	enum mux_kind kind;
	bool accepted;
	uint64_t from[2];
};

static struct side *side_of(struct stream *s)
{
	return container_of(s, struct side, stream);
}

static struct side *other(struct side *s)
{
	return s == &s->splice->client ? &s->splice->link : &s->splice->client;
}

static void side_done(struct side *s)
{
	stream_close(&s->stream, NULL);
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		ring_done(&s->out[c].ring);
	tlv_done(&s->close_fields);
}

static void splice_free(struct splice *x)
{
	side_done(&x->client);
	side_done(&x->link);
	free(x);
}

/* --- bytes --- */

static bool flow_pump(struct side *to, unsigned channel)
{
	struct flow *f = &to->out[channel];
	while (f->sent < f->received) {
		const void *p;
		size_t n = ring_get(&f->ring, f->sent, f->received, &p);
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

/* Also ends both when the last byte before a CLOSE went out. */
static void side_pump(struct side *to)
{
	bool all = true;
	if (!to->stream.m)
		return;
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		all &= flow_pump(to, c);
	if (all && to->closing) {
		stream_close(&to->stream, &to->close_fields);
		splice_free(to->splice);
	}
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct side *to = other(side_of(s));
	struct flow *f = &to->out[channel];
	size_t k = 0;
	if (!to->stream.m) {
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

/* --- beginning --- */

/* Both sides of a channel begin at an offset: bytes from the node, or to it. */
static void rebase(struct splice *x, unsigned channel, uint64_t offset, bool from_node)
{
	struct side *in = from_node ? &x->link : &x->client, *out = from_node ? &x->client : &x->link;
	if (offset == 0)
		return;
	mux_rebase_recv(in->stream.m, in->stream.id, channel, offset);
	if (out->stream.m)
		mux_rebase_send(out->stream.m, out->stream.id, channel, offset);
	out->out[channel].sent = out->out[channel].received = offset;
}

static void copy_u64(const struct tlv *from, enum mux_field f, struct tlv *to)
{
	if (tlv_has(from, f))
		tlv_add_u64(to, f, tlv_u64(from, f, 0));
}

static void copy_text(const struct tlv *from, enum mux_field f, struct tlv *to)
{
	size_t n = 0;
	char text[ERROR_TEXT_MAX];
	const char *p = tlv_bytes(from, f, &n);
	if (p && n > 0)
		tlv_add_str(to, f, text_escape(p, n, text, sizeof(text)));
}

static void start_offsets(struct splice *x, const struct tlv *fields)
{
	if (x->kind == MUX_KIND_RESUME) {
		for (unsigned i = 0; i < 2; i++)
			rebase(x, MUX_STDOUT + i, x->from[i], true);
		rebase(x, MUX_STDIN, tlv_u64(fields, MUX_F_OFFSET_IN, 0), false);
	} else if (x->kind == MUX_KIND_ATTACH) {
		rebase(x, MUX_STDOUT, tlv_u64(fields, MUX_F_GAP_OUT, 0), true);
		rebase(x, MUX_STDERR, tlv_u64(fields, MUX_F_GAP_ERR, 0), true);
	}
}

static void on_accepted(struct stream *s, const struct tlv *fields)
{
	static const enum mux_field numbers[] = { MUX_F_OFFSET_IN, MUX_F_GAP_OUT, MUX_F_GAP_ERR, MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR };
	struct splice *x = side_of(s)->splice;
	auto_tlv out = TLV_INIT;
	size_t n = 0;
	const void *text = tlv_bytes(fields, MUX_F_TEXT, &n);
	if (x->accepted || !x->client.stream.m) {
		side_pump(&x->link);
		return;
	}
	x->accepted = true;
	start_offsets(x, fields);
	copy_text(fields, MUX_F_OPERATION, &out);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		copy_u64(fields, numbers[i], &out);
	if (text)
		tlv_add_bytes(&out, MUX_F_TEXT, text, n < TEXT_MAX ? n : TEXT_MAX);
	mux_accept(x->client.stream.m, x->client.stream.id, &out, LIMIT_MUX_WINDOW);
	side_pump(&x->link);
}

/* --- control --- */

static bool drained(const struct side *s)
{
	for (unsigned c = 0; c < MUX_CHANNELS; c++)
		if (s->out[c].sent != s->out[c].received)
			return false;
	return true;
}

/* Frees the splice. The client comes back, and takes its streams up from the offsets it has. Another controller, or a visitor, is told. */
static void drop_client(struct splice *x, const char *why)
{
	auto_tlv lost = TLV_INIT;
	if (x->conn) {
		muxconn_close(x->conn, why);
		if (x->client.stream.m)
			mux_set_user(x->client.stream.m, x->client.stream.id, NULL);
		x->client.stream.m = NULL;
	}
	tlv_add_u64(&lost, MUX_F_ERROR, MUX_ERR_LOST);
	tlv_add_str(&lost, MUX_F_MESSAGE, why);
	if (x->kind == MUX_KIND_CALL)
		tlv_add_str(&lost, MUX_F_CODE, error_wire(ERR_UNAVAILABLE));
	stream_close(&x->client.stream, &lost);
	splice_free(x);
}

/* Gaps and times are told at their place among the bytes; when bytes wait here, the client is made to ask again. */
static void link_control(struct stream *s, const struct tlv *fields)
{
	static const enum mux_field known[] = { MUX_F_GAP_OUT, MUX_F_GAP_ERR, MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR, MUX_F_TIME_US };
	struct splice *x = side_of(s)->splice;
	auto_tlv out = TLV_INIT;
	if (!x->client.stream.m)
		return;
	if (!drained(&x->client)) {
		auto_tlv lost = TLV_INIT;
		tlv_add_u64(&lost, MUX_F_ERROR, MUX_ERR_LOST);
		stream_close(&x->link.stream, &lost);
		drop_client(x, "bytes wait before what is told of them");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		copy_u64(fields, known[i], &out);
	mux_control(x->client.stream.m, x->client.stream.id, &out);
}

static void client_control(struct stream *s, const struct tlv *fields)
{
	static const enum mux_field allowed[] = { MUX_F_ACTION, MUX_F_SIGNAL, MUX_F_ROWS, MUX_F_COLS };
	struct splice *x = side_of(s)->splice;
	auto_tlv out = TLV_INIT;
	if (!x->link.stream.m || tlv_only(fields, allowed, ARRAY_LEN(allowed), NULL) != 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
		copy_u64(fields, allowed[i], &out);
	mux_control(x->link.stream.m, x->link.stream.id, &out);
}

/* --- the end --- */

static void end_fields(const struct tlv *fields, struct tlv *out)
{
	static const enum mux_field numbers[] = { MUX_F_OUTCOME, MUX_F_EXIT_CODE, MUX_F_SIGNAL, MUX_F_OOM, MUX_F_OFFSET_OUT, MUX_F_OFFSET_ERR,
						  MUX_F_TRUNCATED };
	uint64_t why = tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		copy_u64(fields, numbers[i], out);
	if (why != MUX_ERR_NONE)
		tlv_add_u64(out, MUX_F_ERROR, why <= MUX_ERR_IO ? why : MUX_ERR_REFUSED);
	copy_text(fields, MUX_F_CODE, out); /* of calls alone */
	copy_text(fields, MUX_F_MESSAGE, out);
}

/* Another controller lost the node's link in the middle. */
static bool lost_there(const struct splice *x, const struct tlv *fields)
{
	bool resumable = x->kind == MUX_KIND_EXEC || x->kind == MUX_KIND_RESUME || x->kind == MUX_KIND_ATTACH;
	return x->via && resumable && tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE) == MUX_ERR_LOST && !tlv_has(fields, MUX_F_OUTCOME);
}

/* The node is done: the client gets all that came before. */
static void link_closed(struct stream *s, const struct tlv *fields)
{
	struct splice *x = side_of(s)->splice;
	if (lost_there(x, fields)) {
		drop_client(x, "the other controller lost its link to the worker");
		return;
	}
	if (!x->client.stream.m) {
		splice_free(x);
		return;
	}
	x->client.closing = true;
	end_fields(fields, &x->client.close_fields);
	side_pump(&x->client);
}

static void client_closed(struct stream *s, const struct tlv *fields)
{
	struct splice *x = side_of(s)->splice;
	auto_tlv out = TLV_INIT;
	end_fields(fields, &out);
	stream_close(&x->link.stream, &out);
	splice_free(x);
}

static void link_lost(struct stream *s, enum mux_error why)
{
	struct splice *x = side_of(s)->splice;
	(void)why;
	if (x->client.closing) /* it has its end already, and only takes what waits */
		return;
	drop_client(x, x->via ? "the connection to the other controller broke" : "the link to the worker broke");
}

/* A stream on a link that ends with LOST is taken as one whose connection broke: the command waits for its client. */
static void client_lost(struct stream *s, enum mux_error why)
{
	struct splice *x = side_of(s)->splice;
	auto_tlv out = TLV_INIT;
	(void)why;
	tlv_add_u64(&out, MUX_F_ERROR, MUX_ERR_LOST);
	stream_close(&x->link.stream, &out);
	splice_free(x);
}

static const struct stream_ops client_ops = {
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.control = client_control,
	.closed = client_closed,
	.lost = client_lost,
	.writable = on_writable,
};
static const struct stream_ops link_ops = {
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.control = link_control,
	.closed = link_closed,
	.lost = link_lost,
	.writable = on_writable,
};

/* A command that was granted has begun for its client: it knows the operation, and resumes should anything break from here on. */
static void accept_at_once(struct splice *x, const struct node_stream *what)
{
	auto_tlv out = TLV_INIT;
	x->accepted = true;
	tlv_add_str(&out, MUX_F_OPERATION, what->grant->operation.text);
	tlv_add_u64(&out, MUX_F_OFFSET_IN, 0);
	mux_accept(x->client.stream.m, x->client.stream.id, &out, LIMIT_MUX_WINDOW);
}

static struct splice *splice_new(enum mux_kind kind)
{
	struct splice *x = xcalloc(1, sizeof(*x));
	x->client.splice = x->link.splice = x;
	x->kind = kind;
	return x;
}

int splice_open(struct mux *link, struct mux *client, uint32_t stream, const struct node_stream *what, struct error *err)
{
	auto_tlv fields = TLV_INIT;
	node_stream_to_tlv(what, &fields);
	uint32_t id = mux_open(link, &fields, LIMIT_MUX_WINDOW, err);
	if (id == 0)
		return -1;
	struct splice *x = splice_new(what->kind);
	x->conn = what->conn;
	x->via = what->node != NULL;
	x->from[0] = what->from[0];
	x->from[1] = what->from[1];
	stream_bind(&x->link.stream, &link_ops, link, id);
	if (!client)
		return 0;
	stream_bind(&x->client.stream, &client_ops, client, stream);
	if (what->kind == MUX_KIND_EXEC && !what->detached)
		accept_at_once(x, what);
	return 0;
}

int splice_call(struct mux *link, struct mux *client, uint32_t stream, const struct tlv *fields, struct error *err)
{
	auto_tlv out = TLV_INIT;
	auto_free char *method = NULL, *argument = NULL;
	if (tlv_str(fields, MUX_F_METHOD, METHOD_MAX, &method, err) != 0 || tlv_str(fields, MUX_F_TEXT, LIMIT_PATH_BYTES_MAX, &argument, err) != 0)
		return -1;
	tlv_add_u64(&out, MUX_F_KIND, MUX_KIND_CALL);
	tlv_add_str(&out, MUX_F_METHOD, method);
	tlv_add_str(&out, MUX_F_TEXT, argument);
	uint32_t id = mux_open(link, &out, LIMIT_MUX_WINDOW, err);
	if (id == 0)
		return -1;
	struct splice *x = splice_new(MUX_KIND_CALL);
	stream_bind(&x->link.stream, &link_ops, link, id);
	stream_bind(&x->client.stream, &client_ops, client, stream);
	return 0;
}
