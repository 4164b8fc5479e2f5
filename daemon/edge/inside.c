/*
 * The server inside, through its stream: requests out, answers in. Every answer is read as strictly as a request: what follows its
 * announced end is not somebody else's answer.
 */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

enum { STARTING_MS = 20 * 1000, STARTING_WAIT_MS = 5 * 1000 };

static struct origin *of(struct stream *s)
{
	return container_of(s, struct origin, stream);
}

/* --- the request --- */

void origin_push(struct visitor *v)
{
	struct origin *o = v->origin;
	if (!o || !o->stream.m || !o->accepted || v->request_sent == v->request.len)
		return;
	v->request_sent += mux_send(o->stream.m, o->stream.id, MUX_STDIN, v->request.data + v->request_sent, v->request.len - v->request_sent);
}

/* The visitor took what is not in its queue any more. */
void origin_consumed(struct visitor *v)
{
	struct origin *o = v->origin;
	uint64_t waiting = v->out.len - v->out_head;
	if (o && o->stream.m)
		mux_consumed(o->stream.m, o->stream.id, MUX_STDIN, o->received > waiting ? o->received - waiting : 0);
}

/* --- the answer --- */

static void bad_answer(struct visitor *v, const char *why)
{
	atomic_fetch_add(&v->e->failed, 1);
	if (v->answering)
		visitor_abort(v);
	else
		visitor_page(v, 502, "%s", why);
}

static void write_run(void *ctx, const char *p, size_t n)
{
	visitor_write(ctx, p, n);
}

/* Content of the answer; returns what was taken, -1: the visitor or the answer is over. */
static ssize_t take_body(struct visitor *v, const char *p, size_t n)
{
	ssize_t took = (ssize_t)n;
	switch (v->answer_body.kind) {
	case BODY_NONE:
		return 0;
	case BODY_LENGTH:
		took = v->answer_body.length < n ? (ssize_t)v->answer_body.length : (ssize_t)n;
		v->answer_body.length -= (uint64_t)took;
		break;
	case BODY_CHUNKED:
		took = chunked_feed(&v->answer_chunks, p, n, v->unchunk ? write_run : NULL, v);
		if (took < 0) {
			bad_answer(v, "the server's answer breaks the chunked coding");
			return -1;
		}
		break;
	case BODY_TO_END:
		break;
	}
	if (!v->unchunk)
		visitor_write(v, p, (size_t)took);
	return took;
}

static bool body_done(const struct visitor *v)
{
	switch (v->answer_body.kind) {
	case BODY_NONE:
		return true;
	case BODY_LENGTH:
		return v->answer_body.length == 0;
	case BODY_CHUNKED:
		return chunked_done(&v->answer_chunks);
	case BODY_TO_END:
		break;
	}
	return false;
}

static void begin_answer(struct visitor *v, const struct head *h)
{
	auto_buf out = BUF_INIT;
	bool framed = v->answer_body.kind != BODY_TO_END;
	v->unchunk = v->answer_body.kind == BODY_CHUNKED && v->client_old;
	v->answer_chunks = (struct chunked){ .state = 0 };
	v->answer_keep = framed && (h->minor == 1 ? !head_lists(h, "Connection", "close") : head_lists(h, "Connection", "keep-alive"));
	v->keep = v->keep && framed && !v->unchunk && v->state == V_WAIT;
	v->answering = v->in_body = true;
	rewrite_answer(v, h, v->keep, &out);
	visitor_write(v, out.data, out.len);
}

static void interim(struct visitor *v, const struct head *h)
{
	auto_buf out = BUF_INIT;
	if (v->client_old)
		return;
	rewrite_answer(v, h, true, &out);
	visitor_write(v, out.data, out.len);
}

static void switched(struct visitor *v, const struct head *h)
{
	auto_buf out = BUF_INIT;
	v->answering = true;
	v->state = V_RAW;
	rewrite_answer(v, h, true, &out);
	visitor_write(v, out.data, out.len);
}

/* A whole head. -1: the request is over. */
static int take_head(struct visitor *v, const char *p, size_t n)
{
	struct head h;
	const char *why = NULL;
	if (response_parse(p, n, &h, &why) != 0 || response_body(&h, v->head_only, &v->answer_body, &why) != 0) {
		bad_answer(v, why);
		return -1;
	}
	if (v->request_sent < v->request.len) {
		bad_answer(v, "the server answered before it had read the request");
		return -1;
	}
	buf_done(&v->request);
	v->request_sent = 0;
	v->repeatable = false;
	if (h.status == 101 && (!v->upgrade || v->state != V_WAIT)) {
		bad_answer(v, "the server switched protocols without being asked");
		return -1;
	}
	if (h.status == 101)
		switched(v, &h);
	else if (h.status < 200)
		interim(v, &h);
	else
		begin_answer(v, &h);
	return 0;
}

/* Collects a head. Returns what was taken of p, -1: over. */
static ssize_t collect_head(struct visitor *v, const char *p, size_t n)
{
	size_t before = v->answer.len, whole;
	if (before == 0 && (whole = head_length(p, n, 0)) > 0)
		return take_head(v, p, whole) == 0 ? (ssize_t)whole : -1;
	buf_add(&v->answer, p, n);
	whole = head_length(v->answer.data, v->answer.len, before);
	if (whole == 0 && v->answer.len > LIMIT_EDGE_HEAD_MAX) {
		bad_answer(v, "the server's headers are too long");
		return -1;
	}
	if (whole == 0)
		return (ssize_t)n;
	struct buf head = v->answer;
	v->answer = (struct buf)BUF_INIT;
	int rc = take_head(v, head.data, whole);
	buf_done(&head);
	return rc == 0 ? (ssize_t)(whole - before) : -1;
}

/* The visitor may be gone after any step that writes: it is only ever freed later, on this turn's end (see visitor_free). */
static void take_answer(struct visitor *v, struct origin *o, const char *p, size_t n)
{
	while (n > 0 && v->origin == o) {
		if (v->state == V_RAW) {
			visitor_write(v, p, n);
			return;
		}
		ssize_t took = v->in_body ? take_body(v, p, n) : collect_head(v, p, n);
		if (took < 0 || v->origin != o)
			return;
		p += took;
		n -= (size_t)took;
		if (v->in_body && body_done(v)) {
			if (n > 0) /* more than was announced: this connection cannot be trusted with another request */
				v->answer_keep = false;
			visitor_answered(v);
			return;
		}
	}
}

/* --- events of the stream --- */

static void on_accepted(struct stream *s, const struct tlv *fields)
{
	struct origin *o = of(s);
	(void)fields;
	o->accepted = o->route->answered = true;
	if (o->v) {
		origin_push(o->v);
		visitor_process(o->v);
	}
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct origin *o = of(s);
	struct visitor *v = o->v;
	(void)offset;
	if (channel != MUX_STDIN)
		return;
	o->received += n;
	if (!v) { /* nobody asked for anything */
		origin_close(o);
		return;
	}
	take_answer(v, o, p, n);
	if (v->origin == o)
		origin_consumed(v);
	/* The next request, or what a visitor sent ahead of the upgrade's answer. */
	if (v->origin != o || v->state == V_RAW)
		visitor_process(v);
}

static void end_answer(struct visitor *v)
{
	visitor_answered(v);
	visitor_process(v);
}

/* No more comes: the end of an answer without a length, or of an answer that should have gone on. failed: not an end in order. */
static void over(struct origin *o, bool failed, const char *why)
{
	struct visitor *v = o->v;
	if (v->state == V_RAW && !failed)
		end_answer(v);
	else if (v->in_body && v->answer_body.kind == BODY_TO_END && !failed)
		end_answer(v);
	else if (!v->answering && o->used && v->repeatable && v->answer.len == 0)
		visitor_dial(v, true);
	else
		bad_answer(v, why);
}

static void on_eof(struct stream *s, unsigned channel)
{
	struct origin *o = of(s);
	if (channel != MUX_STDIN || o->ended)
		return;
	o->ended = true;
	if (o->v)
		over(o, false, "the server closed the connection without an answer");
	else
		origin_close(o);
}

static void dead(struct origin *o)
{
	if (o->link)
		o->link->streams--;
	o->link = NULL;
}

static void refused(struct visitor *v, enum mux_error why, unsigned port)
{
	atomic_fetch_add(&v->e->failed, 1);
	if (why == MUX_ERR_CONNECT)
		visitor_page(v, 502, "nothing answers on port %u", port);
	else if (why == MUX_ERR_UNAVAILABLE || why == MUX_ERR_RESOURCES || why == MUX_ERR_LOST)
		visitor_page(v, 503, "the sandbox does not answer now");
	else
		visitor_page(v, 404, "what this name led to is gone");
}

/* The start command of a new sandbox, or the server that a new tunnel is for, may be a moment from listening: who comes that early waits. */
static bool may_be_starting(const struct visitor *v)
{
	int64_t now = clock_mono_ms();
	return !v->route->answered && now - v->route->added_ms < STARTING_MS && now - v->since_ms < STARTING_WAIT_MS;
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	struct origin *o = of(s);
	enum mux_error why = (enum mux_error)tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	dead(o);
	if (!o->v)
		origin_close(o);
	else if (!o->accepted && why == MUX_ERR_CONNECT && may_be_starting(o->v))
		visitor_dial_later(o->v);
	else if (!o->accepted)
		refused(o->v, why, o->route->r.port);
	else if (!o->ended || why != MUX_ERR_NONE)
		over(o, why != MUX_ERR_NONE, "the connection to the server broke");
	else if (o->v->state == V_RAW) /* both directions have ended */
		end_answer(o->v);
}

static void on_lost(struct stream *s, enum mux_error why)
{
	struct origin *o = of(s);
	(void)why;
	dead(o);
	if (!o->v)
		origin_close(o);
	else if (!o->v->answering)
		refused(o->v, MUX_ERR_UNAVAILABLE, 0);
	else
		visitor_abort(o->v);
}

/* Room for more of the request. */
static void on_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	struct origin *o = of(s);
	(void)channel, (void)consumed;
	if (o->v && (o->v->state == V_SEND || o->v->state == V_RAW || o->v->request_sent < o->v->request.len)) {
		origin_push(o->v);
		visitor_process(o->v);
	}
}

static void on_writable(struct stream *s)
{
	on_window(s, 0, 0);
}

const struct stream_ops origin_ops = {
	.accepted = on_accepted, .data = on_data, .eof = on_eof, .closed = on_closed, .lost = on_lost, .window = on_window, .writable = on_writable,
};
