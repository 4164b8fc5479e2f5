/*
 * Bytes of a connection once it is connected. A slow reader stops only its own sender: what the sandbox sends waits in its window, what the
 * far side sends is not read while the sandbox's window is full.
 */
#include "daemon/egress/egress_priv.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	conn_touch(ctx);
	relay_pump(ctx);
}

int relay_begin(struct conn *c)
{
	struct event_base *base = c->box->owner->base;
	c->ev_read = event_new(base, c->fd, EV_READ, on_readable, c);
	c->ev_write = event_new(base, c->fd, EV_WRITE, on_readable, c);
	return c->ev_read && c->ev_write ? 0 : -1;
}

bool relay_flush_out(struct conn *c)
{
	struct mux *m = c->stream.m;
	if (!m)
		return false;
	if (c->out.len > 0)
		buf_consume(&c->out, mux_send(m, c->stream.id, MUX_STDIN, c->out.data, c->out.len));
	if (c->out.len > 0)
		return false;
	if (c->out_eof && !c->eof_sent) {
		c->eof_sent = true;
		mux_eof(m, c->stream.id, MUX_STDIN);
	}
	return true;
}

/* --- out of the sandbox --- */

/* Bytes taken by the far side; -1: it is gone. */
static ssize_t write_some(struct conn *c, const char *p, size_t n)
{
	ssize_t w;
	do {
		w = send(c->fd, p, n, MSG_NOSIGNAL);
	} while (w < 0 && errno == EINTR);
	if (w < 0 && errno == EAGAIN) {
		event_add(c->ev_write, NULL);
		return 0;
	}
	return w;
}

static void count(struct conn *c, size_t sent, size_t received)
{
	struct attempt *a = box_attempt(c->box, c->attempt);
	if (a) {
		a->sent += sent;
		a->received += received;
	}
}

/* Of a plain request only its own body goes on: another request could name another host. -1: malformed. */
static ssize_t own_bytes(struct conn *c)
{
	struct proxy_body ahead = c->request.body;
	return c->request.connect ? (ssize_t)c->in.len : proxy_body_take(&ahead, c->in.data, c->in.len);
}

/* False: c is gone. */
static bool send_prefix(struct conn *c)
{
	while (c->prefix.len > 0) {
		ssize_t w = write_some(c, c->prefix.data, c->prefix.len);
		if (w < 0) {
			conn_abort(c, "the far side closed the connection");
			return false;
		}
		if (w == 0)
			return true;
		count(c, (size_t)w, 0);
		buf_consume(&c->prefix, (size_t)w);
	}
	return true;
}

/* False: c is gone. */
static bool pump_out(struct conn *c)
{
	if (c->state == CONN_HELLO)
		return true;
	if (!send_prefix(c))
		return false;
	while (c->prefix.len == 0 && c->in.len > 0 && !c->shut) {
		ssize_t own = own_bytes(c), w = own > 0 ? write_some(c, c->in.data, (size_t)own) : own;
		if (w < 0) {
			conn_abort(c, own < 0 ? "the request's body is malformed" : "the far side closed the connection");
			return false;
		}
		if (own == 0) { /* more than this request */
			shutdown(c->fd, SHUT_WR);
			c->shut = true;
			break;
		}
		if (w == 0)
			break;
		if (!c->request.connect)
			proxy_body_take(&c->request.body, c->in.data, (size_t)w);
		count(c, (size_t)w, 0);
		conn_used(c, (size_t)w);
	}
	if (c->shut)
		conn_used(c, c->in.len);
	if (c->in_eof && c->in.len == 0 && c->prefix.len == 0 && !c->shut) {
		c->shut = true;
		shutdown(c->fd, SHUT_WR);
	}
	return true;
}

/* --- into the sandbox --- */

/* False: c is gone. */
static bool pump_in(struct conn *c)
{
	struct mux *m = c->stream.m;
	uint8_t *buffer = c->box->owner->buffer;
	if (!relay_flush_out(c) || c->out_eof || c->state == CONN_HELLO)
		return true;
	size_t room = mux_sendable(m, c->stream.id, MUX_STDIN);
	if (room == 0)
		return true; /* window or writable calls again */
	ssize_t n = recv(c->fd, buffer, room < RELAY_CHUNK ? room : RELAY_CHUNK, 0);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		conn_abort(c, strerror(errno));
		return false;
	}
	if (n == 0) {
		c->out_eof = true;
		relay_flush_out(c);
		return true;
	}
	if (n > 0) {
		count(c, 0, (size_t)n);
		mux_send(m, c->stream.id, MUX_STDIN, buffer, (size_t)n);
	}
	event_add(c->ev_read, NULL);
	return true;
}

void relay_pump(struct conn *c)
{
	if (c->fd < 0) {
		relay_flush_out(c);
		return;
	}
	if (pump_out(c))
		pump_in(c);
}
