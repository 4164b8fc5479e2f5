/* A visitor's connection: bytes in and out, time, and its end; what is in the bytes is requests.c's. */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

enum {
	HEAD_MS = 15 * 1000,           /* first byte to last of a head; also the first byte of a new connection */
	KEEP_MS = 75 * 1000,           /* idle between requests */
	STALL_MS = 30 * 1000,          /* a body of which nothing comes */
	READER_MS = 5 * 60 * 1000,     /* a visitor who takes nothing */
	HALF_CLOSED_MS = 5 * 60 * 1000,
	LINGER_MS = 2 * 1000,
	KEEPALIVE_PROBES = 3,
	AGAIN_MS = 100,
};

void visitor_reading(struct visitor *v, bool on)
{
	if (v->reading == on || v->in_eof)
		return;
	v->reading = on;
	if (on)
		event_add(v->read, NULL);
	else
		event_del(v->read);
}

void visitor_busy(struct visitor *v, bool busy)
{
	if (v->waiting == !busy)
		return;
	TAILQ_REMOVE(v->waiting ? &v->e->waiting : &v->e->busy, v, link);
	v->waiting = !busy;
	TAILQ_INSERT_TAIL(v->waiting ? &v->e->waiting : &v->e->busy, v, link);
}

/* --- the end --- */

static void drop_request(struct visitor *v)
{
	if (v->again)
		event_del(v->again);
	origin_close(steal(&v->origin));
	if (v->route)
		route_release(v->e, steal(&v->route));
	buf_done(&v->request);
	buf_done(&v->answer);
	v->request_sent = 0;
	v->answering = v->in_body = false;
}

/* Not in the middle of a callback: whoever is above on the stack may still look at it. */
static void free_later(evutil_socket_t fd, short what, void *ctx)
{
	struct visitor *v = ctx;
	(void)fd, (void)what;
	event_free(v->read);
	event_free(v->write);
	if (v->again)
		event_free(v->again);
	buf_done(&v->in);
	buf_done(&v->out);
	free(v);
}

void visitor_free(struct visitor *v)
{
	if (v->fd < 0)
		return;
	drop_request(v);
	v->e->queued -= v->out.len - v->out_head;
	v->out_head = v->out.len;
	event_del(v->read);
	event_del(v->write);
	close_fdp(&v->fd);
	TAILQ_REMOVE(v->waiting ? &v->e->waiting : &v->e->busy, v, link);
	v->e->n_visitors--;
	atomic_store(&v->e->connections, v->e->n_visitors);
	if (event_base_once(v->e->base, -1, EV_TIMEOUT, free_later, v, &(struct timeval){ 0 }) != 0)
		abort();
}

void visitor_abort(struct visitor *v)
{
	if (v->fd >= 0)
		setsockopt(v->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	visitor_free(v);
}

void visitor_enter(struct visitor *v, enum visitor_state state)
{
	v->state = state;
	v->since_ms = v->moved_ms = clock_mono_ms();
}

/* What was written is out: this side is done. */
static void flushed(struct visitor *v)
{
	if (v->in_eof) {
		visitor_free(v);
		return;
	}
	/* Closed with bytes unread, the answer would be lost to a reset. */
	shutdown(v->fd, SHUT_WR);
	visitor_enter(v, V_LINGER);
	visitor_reading(v, true);
}

void visitor_end(struct visitor *v)
{
	drop_request(v);
	buf_done(&v->in);
	visitor_busy(v, false); /* it may make room for others */
	visitor_enter(v, V_FLUSH);
	if (v->out.len == v->out_head)
		flushed(v);
}

/* --- writing --- */

static size_t put(struct visitor *v, const char *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t w = send(v->fd, p + done, n - done, MSG_NOSIGNAL);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			break;
		if (w < 0) {
			visitor_abort(v);
			return n;
		}
		done += (size_t)w;
	}
	if (done > 0)
		v->moved_ms = clock_mono_ms();
	return done;
}

void visitor_write(struct visitor *v, const void *p, size_t n)
{
	size_t done = 0;
	if (v->fd < 0 || n == 0)
		return;
	if (v->out.len == v->out_head)
		done = put(v, p, n);
	if (v->fd < 0 || done == n)
		return;
	if (v->out_head > EDGE_WINDOW) {
		buf_consume(&v->out, v->out_head);
		v->out_head = 0;
	}
	if (v->e->queued + n - done > (size_t)LIMIT_EDGE_QUEUED_MIB << 20) {
		log_warn("edge", "visitors who do not read hold all the memory there is for them: one is cut off");
		visitor_abort(v);
		return;
	}
	v->e->queued += n - done;
	buf_add(&v->out, (const char *)p + done, n - done);
	event_add(v->write, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct visitor *v = ctx;
	(void)fd, (void)what;
	size_t done = put(v, v->out.data + v->out_head, v->out.len - v->out_head);
	if (v->fd < 0)
		return;
	v->out_head += done;
	v->e->queued -= done;
	if (v->out_head < v->out.len) {
		event_add(v->write, NULL);
		origin_consumed(v);
		return;
	}
	buf_done(&v->out);
	v->out_head = 0;
	origin_consumed(v);
	if (v->state == V_FLUSH)
		flushed(v);
	else if (v->state == V_RAW && v->origin && v->origin->ended)
		shutdown(v->fd, SHUT_WR);
}

/* --- answers --- */

void visitor_page(struct visitor *v, int status, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	size_t n = strlen(text);
	snprintf(text + n, sizeof(text) - n, "\n");
	page_write(v, status, "text/plain; charset=utf-8", "", text);
}

/* What waits of the next request is for visitor_process: its caller goes on there. */
void visitor_next(struct visitor *v, bool keep)
{
	drop_request(v);
	if (!keep || (v->in_eof && v->in.len == 0)) {
		visitor_end(v);
		return;
	}
	v->looked = 0;
	visitor_enter(v, V_HEAD);
	visitor_busy(v, false);
}

void visitor_answered(struct visitor *v)
{
	struct origin *o = v->origin;
	if (v->state == V_RAW) {
		if (v->out.len == v->out_head)
			shutdown(v->fd, SHUT_WR);
		if (v->in_eof || !o->stream.m)
			visitor_end(v);
		return;
	}
	bool whole = v->state == V_WAIT;
	if (whole && v->answer_keep && !o->ended && o->stream.m) {
		v->origin = NULL;
		origin_give_idle(o);
	}
	visitor_next(v, whole && v->keep);
}

/* --- reading --- */

static void ended(struct visitor *v)
{
	visitor_reading(v, false);
	v->in_eof = true;
	switch (v->state) {
	case V_SEND: /* half a request: the server must not take it for a whole one */
		visitor_abort(v);
		return;
	case V_HEAD:
	case V_FORM:
		if (v->in.len > 0 || v->out.len == v->out_head)
			visitor_free(v);
		else
			visitor_end(v);
		return;
	case V_RAW:
		visitor_process(v);
		return;
	case V_WAIT: /* it may have only ended its own side: the answer still goes out */
		v->keep = false;
		v->moved_ms = clock_mono_ms();
		return;
	case V_FLUSH:
		return;
	case V_LINGER:
		visitor_free(v);
		return;
	}
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct visitor *v = ctx;
	(void)what;
	ssize_t n = recv(fd, v->e->piece, PIECE, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		visitor_abort(v);
		return;
	}
	if (n == 0) {
		ended(v);
		return;
	}
	if (v->state == V_LINGER)
		return;
	v->moved_ms = clock_mono_ms();
	if (v->state == V_HEAD && v->in.len == 0)
		v->since_ms = v->moved_ms;
	buf_add(&v->in, v->e->piece, (size_t)n);
	visitor_process(v);
}

/* A quiet WebSocket may stay for days; a peer that is gone without a word is noticed. */
static void keep_alive(int fd, unsigned every_s)
{
	int seconds = (int)every_s;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){ KEEPALIVE_PROBES }, sizeof(int));
}

void visitor_new(struct edge *e, int take_fd, const char *peer, bool trusted)
{
	struct visitor *v = xcalloc(1, sizeof(*v));
	v->e = e;
	v->fd = take_fd;
	v->trusted = trusted;
	v->waiting = true;
	snprintf(v->peer, sizeof(v->peer), "%s", peer);
	setsockopt(take_fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	keep_alive(take_fd, e->o.keepalive_s);
	v->read = event_new(e->base, take_fd, EV_READ | EV_PERSIST, on_readable, v);
	v->write = event_new(e->base, take_fd, EV_WRITE, on_writable, v);
	if (!v->read || !v->write)
		abort();
	TAILQ_INSERT_TAIL(&e->waiting, v, link);
	e->n_visitors++;
	atomic_store(&e->connections, e->n_visitors);
	visitor_enter(v, V_HEAD);
	visitor_reading(v, true);
}

/* --- time --- */

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what;
	visitor_dial(ctx, true);
}

void visitor_dial_later(struct visitor *v)
{
	origin_close(steal(&v->origin));
	if (!v->again)
		v->again = event_new(v->e->base, -1, 0, on_again, v);
	if (!v->again || event_add(v->again, &(struct timeval){ .tv_usec = AGAIN_MS * 1000 }) != 0)
		abort();
}

void visitor_tick(struct visitor *v, int64_t now)
{
	int64_t since = now - v->since_ms, still = now - v->moved_ms;
	bool unread = v->out.len > v->out_head;
	switch (v->state) {
	case V_HEAD:
		if (v->in.len > 0 && since > HEAD_MS)
			visitor_refuse(v, 408, "the request's headers did not come in time");
		else if (v->in.len == 0 && since > (v->seen_request ? KEEP_MS : HEAD_MS))
			visitor_free(v);
		return;
	case V_FORM:
	case V_SEND:
		if (v->reading && still > STALL_MS)
			visitor_abort(v);
		return;
	case V_WAIT:
	case V_RAW:
		if ((unread && still > READER_MS) || (v->in_eof && still > HALF_CLOSED_MS))
			visitor_abort(v);
		return;
	case V_FLUSH:
		if (still > STALL_MS)
			visitor_abort(v);
		return;
	case V_LINGER:
		if (since > LINGER_MS)
			visitor_free(v);
		return;
	}
}
