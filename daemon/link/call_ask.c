/*
 * Asking: see call.h. What one call needs is shared by its caller and the event loop, and freed by whoever is done last. The
 * stream is the loop's alone; under the lock are the bytes on their way and how it ended.
 */
#include "daemon/link/call.h"

#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 * 1024, AHEAD_MAX = 1024 * 1024, CODE_MAX = 32 };

struct caller_link {
	struct mailbox *mail;
	struct mux *m;    /* loop thread, and what follows */
	const char *node;
};

struct asking {
	struct stream stream;
	struct caller_link *link;
	char *method, *argument;
	call_answered fn; /* of a call without a waiting thread */
	void *ctx;
	bool eof_sent;
	bool handed_on;  /* the answer goes to somebody as it comes: credit is given back when he has taken it */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct buf out, in;
	bool out_end, ended, unwanted;
	int64_t moved_ms; /* when bytes last moved */
	struct error err;
	uint64_t got, taken; /* offsets of the answer, when it is handed on */
	unsigned refs;
};

struct caller_link *caller_link_new(struct mailbox *mail)
{
	struct caller_link *l = xcalloc(1, sizeof(*l));
	l->mail = mail;
	return l;
}

void caller_link_free(struct caller_link *l)
{
	free(l);
}

void caller_link_set(struct caller_link *l, struct mux *m)
{
	l->m = m;
}

void caller_link_for(struct caller_link *l, const char *node)
{
	l->node = node;
}

static struct asking *asking_new(struct caller_link *l, const char *method, unsigned refs)
{
	struct asking *a = xcalloc(1, sizeof(*a));
	pthread_condattr_t attr;
	a->link = l;
	a->method = xstrdup(method);
	a->refs = refs;
	a->moved_ms = clock_mono_ms();
	a->in.max = LIMIT_LINK_BODY_MAX;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
	return a;
}

/* Requests may hold secrets, and answers some that nobody took. */
static void wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

static void unref(struct asking *a)
{
	pthread_mutex_lock(&a->lock);
	bool last = --a->refs == 0;
	pthread_mutex_unlock(&a->lock);
	if (!last)
		return;
	wipe(&a->out);
	wipe(&a->in);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a->method);
	free(a->argument);
	free(a);
}

/* Loop thread, once: the loop's share goes. */
static void end(struct asking *a, const struct error *err)
{
	pthread_mutex_lock(&a->lock);
	a->ended = true;
	if (err)
		a->err = *err;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (a->fn)
		a->fn(a->ctx, err ? NULL : &a->in, err);
	unref(a);
}

static void end_text(struct asking *a, enum error_code code, const char *text)
{
	struct error err = ERROR_INIT;
	error_set(&err, code, "%s", text);
	end(a, &err);
}

/* --- the stream --- */

static struct asking *of(struct stream *s)
{
	return container_of(s, struct asking, stream);
}

static void pump(struct asking *a)
{
	if (!a->stream.m)
		return;
	pthread_mutex_lock(&a->lock);
	size_t n = a->out.len > 0 ? mux_send(a->stream.m, a->stream.id, 0, a->out.data, a->out.len) : 0;
	if (n > 0) {
		buf_consume(&a->out, n);
		a->moved_ms = clock_mono_ms();
		pthread_cond_broadcast(&a->changed);
	}
	bool whole = a->out_end && a->out.len == 0 && !a->eof_sent;
	a->eof_sent |= whole;
	pthread_mutex_unlock(&a->lock);
	if (whole)
		mux_eof(a->stream.m, a->stream.id, 0);
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct asking *a = of(s);
	pthread_mutex_lock(&a->lock);
	buf_add(&a->in, p, n);
	bool over = a->in.overflow, unwanted = a->unwanted;
	a->moved_ms = clock_mono_ms();
	a->got = offset + n;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (!a->handed_on)
		mux_consumed(s->m, s->id, channel, offset + n);
	if (!over && !unwanted)
		return;
	stream_close(s, NULL);
	end_text(a, over ? ERR_TOO_LARGE : ERR_CONFLICT, over ? "the answer is over the limit LINK_BODY_MAX" : "stopped");
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	struct error err = ERROR_INIT;
	char code[CODE_MAX] = "", text[ERROR_TEXT_MAX] = "";
	size_t n = 0;
	const char *p = tlv_bytes(fields, MUX_F_CODE, &n);
	if (!p && !tlv_has(fields, MUX_F_ERROR)) {
		end(of(s), NULL);
		return;
	}
	if (p)
		text_escape(p, n, code, sizeof(code));
	p = tlv_bytes(fields, MUX_F_MESSAGE, &n);
	if (p)
		text_escape(p, n, text, sizeof(text));
	error_set(&err, *code ? error_from_wire(code) : ERR_PROTOCOL, "%s", *text ? text : "refused without a reason");
	end(of(s), &err);
}

static void on_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	end_text(of(s), ERR_UNAVAILABLE, "the link between controller and worker broke");
}

static void on_moved(struct stream *s, unsigned channel, uint64_t consumed)
{
	(void)channel;
	(void)consumed;
	pump(of(s));
}

static void on_writable(struct stream *s)
{
	pump(of(s));
}

static void on_accepted(struct stream *s, const struct tlv *fields)
{
	(void)fields;
	pump(of(s));
}

static const struct stream_ops ops = {
	.accepted = on_accepted,
	.data = on_data,
	.window = on_moved,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_writable,
};

/* --- on the loop --- */

static void do_start(void *arg)
{
	struct asking *a = arg;
	struct error err = ERROR_INIT;
	auto_tlv fields = TLV_INIT;
	if (!a->link->m) {
		end_text(a, ERR_UNAVAILABLE, "the link between controller and worker is down");
		return;
	}
	tlv_add_u64(&fields, MUX_F_KIND, MUX_KIND_CALL);
	tlv_add_str(&fields, MUX_F_METHOD, a->method);
	tlv_add_str(&fields, MUX_F_TEXT, a->argument);
	tlv_add_str(&fields, MUX_F_NODE, a->link->node);
	uint32_t id = mux_open(a->link->m, &fields, LIMIT_MUX_WINDOW, &err);
	if (id == 0) {
		end(a, &err);
		return;
	}
	stream_bind(&a->stream, &ops, a->link->m, id);
	pump(a);
}

static void do_pump(void *arg)
{
	pump(arg);
	unref(arg);
}

static void do_abandon(void *arg)
{
	struct asking *a = arg;
	if (a->stream.m) {
		stream_close(&a->stream, NULL);
		end_text(a, ERR_TIMEOUT, "abandoned");
	}
	unref(a);
}

void call_post(struct caller_link *l, const char *method, const void *body, size_t n, call_answered fn, void *ctx)
{
	struct asking *a = asking_new(l, method, 1);
	a->fn = fn;
	a->ctx = ctx;
	buf_add(&a->out, body, n);
	a->out_end = true;
	do_start(a);
}

/* --- the waiting caller --- */

static void post(struct asking *a, mailbox_fn fn)
{
	pthread_mutex_lock(&a->lock);
	a->refs++;
	pthread_mutex_unlock(&a->lock);
	mailbox_post(a->link->mail, fn, a);
}

/* With the lock. False: it was silent for too long. */
static bool wait_change(struct asking *a, int64_t timeout_ms)
{
	struct timespec until;
	int64_t at = a->moved_ms + (timeout_ms ? timeout_ms : 1000), now = clock_mono_ms();
	if (at <= now && timeout_ms)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &until);
	int64_t left_ns = (at > now ? at - now : 1) * 1000000 + until.tv_nsec;
	until.tv_sec += left_ns / 1000000000;
	until.tv_nsec = left_ns % 1000000000;
	pthread_cond_timedwait(&a->changed, &a->lock, &until);
	return true;
}

/* One piece of the body: 1, 0 at its end, -1. */
static int feed(struct asking *a, const struct call_out *q, struct error *err)
{
	auto_free char *piece = xmalloc(PIECE);
	ssize_t n = read(q->body_fd, piece, PIECE);
	if (n < 0 && errno == EINTR)
		return 1;
	if (n < 0)
		return error_errno(err, "reading what to send");
	pthread_mutex_lock(&a->lock);
	buf_add(&a->out, piece, (size_t)n);
	a->out_end = n == 0;
	a->moved_ms = clock_mono_ms();
	while (!a->ended && a->out.len > AHEAD_MAX && wait_change(a, q->timeout_ms))
		;
	bool over = a->ended;
	pthread_mutex_unlock(&a->lock);
	post(a, do_pump);
	return n > 0 && !over;
}

static void do_taken(void *arg)
{
	struct asking *a = arg;
	pthread_mutex_lock(&a->lock);
	uint64_t taken = a->taken;
	pthread_mutex_unlock(&a->lock);
	if (a->stream.m)
		mux_consumed(a->stream.m, a->stream.id, 0, taken);
	unref(a);
}

static void hand_on(struct asking *a, const struct call_out *q)
{
	uint64_t upto = a->got;
	struct buf piece = a->in;
	a->in = (struct buf)BUF_INIT_MAX(LIMIT_LINK_BODY_MAX);
	pthread_mutex_unlock(&a->lock);
	bool wanted = q->on_data(q->ctx, piece.data, piece.len);
	buf_done(&piece);
	pthread_mutex_lock(&a->lock);
	a->taken = upto;
	a->refs++;
	a->unwanted |= !wanted;
	mailbox_post(a->link->mail, do_taken, a);
}

/* 0, or -1 when it was silent for too long. */
static int wait_end(struct asking *a, const struct call_out *q, struct error *err)
{
	bool heard = true;
	pthread_mutex_lock(&a->lock);
	while (heard) {
		if (q->on_data && a->in.len > 0)
			hand_on(a, q);
		else if (a->ended)
			break;
		else
			heard = wait_change(a, q->timeout_ms);
	}
	pthread_mutex_unlock(&a->lock);
	if (!heard)
		return error_set(err, ERR_TIMEOUT, "%s: no answer over the link within %lld ms", a->method, (long long)q->timeout_ms);
	return 0;
}

int call_ask(struct caller_link *l, const struct call_out *q, struct buf *ret, struct error *err)
{
	struct asking *a = asking_new(l, q->method, 2);
	a->argument = xstrdup0(q->argument);
	a->handed_on = q->on_data != NULL;
	int rc = 1;
	if (!q->from_fd) {
		buf_add(&a->out, q->body, q->n);
		a->out_end = true;
		rc = 0;
	}
	mailbox_post(l->mail, do_start, a);
	while (rc == 1)
		rc = feed(a, q, err);
	if (rc == 0)
		rc = wait_end(a, q, err);
	if (rc != 0) {
		post(a, do_abandon);
	} else if (a->err.code != ERR_NONE) {
		rc = error_set(err, a->err.code, "%s", a->err.message);
	} else if (ret) {
		*ret = a->in;
		a->in = (struct buf)BUF_INIT;
	}
	unref(a);
	return rc;
}
