/*
 * WebSocket to plain bytes and back: see wsbridge.h. Carrier's thread, but for bridge_open. Either direction is read only while
 * nothing of it waits, so a slow side stops the other one and memory stays at a piece per direction.
 */
#include "daemon/api/wsbridge.h"

#include "daemon/api/carrier.h"
#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/http/ws.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert((int)CARRIER_PIECE <= (int)WS_PAYLOAD_MAX, "a piece fits a message");

enum { CLOSE_GOING_AWAY = 1001, CLOSE_SECONDS = 5 };

struct bridges {
	struct carrier *carrier;
	pthread_mutex_t lock;   /* of fresh */
	struct bridge *fresh;   /* opened, not yet taken by the thread */
	struct bridge *list;
	struct event *ev_fresh;
};

struct bridge {
	struct bridges *all;
	struct bridge *prev, *next;
	int wire, plain; /* plain -1: its end has gone */
	struct ws *ws;
	struct event *ev_wire, *ev_wire_out, *ev_plain, *ev_plain_out, *ev_time;
	struct buf to_wire, to_plain;
	int64_t close_by_ms; /* 0: not closing */
	bool wire_end;
	bool dead;
};

static void bridge_free(struct bridge *b)
{
	if (b->prev)
		b->prev->next = b->next;
	else if (b->all->list == b)
		b->all->list = b->next;
	if (b->next)
		b->next->prev = b->prev;
	struct event *events[] = { b->ev_wire, b->ev_wire_out, b->ev_plain, b->ev_plain_out, b->ev_time };
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	ws_free(b->ws);
	close_fdp(&b->wire);
	close_fdp(&b->plain);
	buf_done(&b->to_wire);
	buf_done(&b->to_plain);
	free(b);
}

/* --- moving bytes --------------------------------------------------------------------------------------------------- */

/* What fd takes of the buffer. False: it is gone. */
static bool flush(int fd, struct buf *b)
{
	if (b->len == 0)
		return true;
	ssize_t n = send(fd, b->data, b->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if ((size_t)n < b->len)
		buf_consume(b, (size_t)n);
	else if (b->cap > CARRIER_PIECE)
		buf_done(b);
	else
		buf_reset(b);
	return true;
}

static void start_closing(struct bridge *b, unsigned code)
{
	if (b->close_by_ms)
		return;
	ws_close(b->ws, code, &b->to_wire);
	b->close_by_ms = clock_mono_ms() + CLOSE_SECONDS * 1000;
	evtimer_add(b->ev_time, &(struct timeval){ .tv_sec = CLOSE_SECONDS });
}

static void from_wire(struct bridge *b, const void *p, size_t n)
{
	struct error err = ERROR_INIT;
	if (ws_feed(b->ws, p, n, &b->to_plain, &b->to_wire, &err) != 0)
		log_debug("ws", "connection ended: %s", err.message);
	if (ws_ended(b->ws))
		b->wire_end = true;
}

static void read_wire(struct bridge *b)
{
	char *piece = carrier_scratch(b->all->carrier);
	ssize_t n = recv(b->wire, piece, CARRIER_PIECE, MSG_DONTWAIT);
	if (n > 0)
		from_wire(b, piece, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		b->wire_end = true;
}

static void read_plain(struct bridge *b)
{
	char *piece = carrier_scratch(b->all->carrier);
	ssize_t n = recv(b->plain, piece, CARRIER_PIECE, MSG_DONTWAIT);
	if (n > 0) {
		ws_send(b->ws, piece, (size_t)n, &b->to_wire);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close_fdp(&b->plain);
		buf_reset(&b->to_plain);
		start_closing(b, CLOSE_GOING_AWAY);
	}
}

static void want(struct event *e, bool on)
{
	if (on)
		event_add(e, NULL);
	else
		event_del(e);
}

/* Sends what can be sent, ends what has ended, and waits for the rest. */
static void settle(struct bridge *b)
{
	if (!flush(b->wire, &b->to_wire))
		b->dead = true;
	if (b->plain >= 0 && !flush(b->plain, &b->to_plain))
		buf_reset(&b->to_plain);
	bool delivered = b->plain < 0 || b->to_plain.len == 0;
	if (b->dead || (b->wire_end && delivered && b->to_wire.len == 0)) {
		bridge_free(b);
		return;
	}
	want(b->ev_wire, !b->wire_end && b->to_plain.len == 0 && b->to_wire.len < 2 * CARRIER_PIECE);
	want(b->ev_wire_out, b->to_wire.len > 0);
	if (b->plain >= 0) {
		want(b->ev_plain, b->to_wire.len == 0 && !b->wire_end);
		want(b->ev_plain_out, b->to_plain.len > 0);
	}
}

static void on_wire(evutil_socket_t fd, short what, void *ctx)
{
	struct bridge *b = ctx;
	(void)fd;
	if (what & EV_READ)
		read_wire(b);
	settle(b);
}

static void on_plain(evutil_socket_t fd, short what, void *ctx)
{
	struct bridge *b = ctx;
	(void)fd;
	if (what & EV_READ && b->plain >= 0) {
		read_plain(b);
		if (b->plain < 0) {
			event_del(b->ev_plain);
			event_del(b->ev_plain_out);
		}
	}
	settle(b);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	struct bridge *b = ctx;
	(void)fd;
	(void)what;
	if (b->close_by_ms && clock_mono_ms() >= b->close_by_ms) {
		bridge_free(b);
		return;
	}
	/* A ping behind bytes that do not leave would only add to them. */
	if (b->to_wire.len == 0)
		ws_ping(b->ws, &b->to_wire);
	evtimer_add(b->ev_time, &(struct timeval){ .tv_sec = b->close_by_ms ? CLOSE_SECONDS : WS_PING_SECONDS });
	settle(b);
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static void begin(struct bridge *b)
{
	struct bridges *all = b->all;
	struct event_base *base = carrier_base(all->carrier);
	b->prev = NULL;
	b->next = all->list;
	if (b->next)
		b->next->prev = b;
	all->list = b;
	b->ev_wire = event_new(base, b->wire, EV_READ, on_wire, b);
	b->ev_wire_out = event_new(base, b->wire, EV_WRITE, on_wire, b);
	b->ev_plain = event_new(base, b->plain, EV_READ, on_plain, b);
	b->ev_plain_out = event_new(base, b->plain, EV_WRITE, on_plain, b);
	b->ev_time = evtimer_new(base, on_time, b);
	if (!b->ev_wire || !b->ev_wire_out || !b->ev_plain || !b->ev_plain_out || !b->ev_time)
		abort();
	evtimer_add(b->ev_time, &(struct timeval){ .tv_sec = WS_PING_SECONDS });
	settle(b);
}

static void on_fresh(evutil_socket_t fd, short what, void *ctx)
{
	struct bridges *all = ctx;
	(void)fd;
	(void)what;
	pthread_mutex_lock(&all->lock);
	struct bridge *b = steal(&all->fresh);
	pthread_mutex_unlock(&all->lock);
	while (b) {
		struct bridge *next = b->next;
		begin(b);
		b = next;
	}
}

int bridge_open(struct bridges *all, int take_fd, const void *early, size_t n, struct error *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
		close(take_fd);
		return error_errno(err, "making a socket pair");
	}
	io_set_nonblock(take_fd, true);
	/* A client may be stopped for hours and answer no ping; whether its machine is there, the kernel finds out. */
	int one = 1;
	setsockopt(take_fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	struct bridge *b = xcalloc(1, sizeof(*b));
	b->all = all;
	b->wire = take_fd;
	b->plain = pair[0];
	b->ws = ws_new(false);
	if (n > 0)
		from_wire(b, early, n);
	pthread_mutex_lock(&all->lock);
	b->next = all->fresh;
	all->fresh = b;
	pthread_mutex_unlock(&all->lock);
	event_active(all->ev_fresh, EV_TIMEOUT, 0);
	return pair[1];
}

struct bridges *bridges_new(struct carrier *c)
{
	struct bridges *all = xcalloc(1, sizeof(*all));
	all->carrier = c;
	pthread_mutex_init(&all->lock, NULL);
	all->ev_fresh = event_new(carrier_base(c), -1, 0, on_fresh, all);
	if (!all->ev_fresh)
		abort();
	return all;
}

void bridges_free(struct bridges *all)
{
	if (!all)
		return;
	while (all->list)
		bridge_free(all->list);
	for (struct bridge *b = all->fresh, *next; b; b = next) {
		next = b->next;
		b->next = NULL;
		bridge_free(b);
	}
	event_free(all->ev_fresh);
	pthread_mutex_destroy(&all->lock);
	free(all);
}
