/*
 * Connections to a sandbox's own loopback that this process makes in the sandbox's network namespace: 127.0.0.1, then ::1. A byte of a
 * forward or a tunnel so passes one process less than when sandbox-init connects, which it does where there is no such namespace (other
 * kernels than the host's) or no right to enter it. To the client both are the same, see daemon/init/{dial,pipe}.c.
 */
#include "daemon/worker/exec_priv.h"

#include "daemon/worker/initlink.h"
#include "daemon/worker/netns.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECT_S = 10 };

struct dial {
	struct stream stream; /* the client's */
	struct execs *e;
	struct box *box;
	struct dial *next; /* of its box */
	uint16_t port;
	int family;
	int fd;
	struct event *read, *write, *late;
	bool connected;
	struct ring ring; /* from the client, not written yet: [written, received) */
	uint64_t written, received;
	bool in_eof;    /* the client sends no more */
	bool in_dead;   /* nobody takes what it sends */
	bool was_reset; /* seen while writing; what came before is still read */
	bool out_eof;   /* the server gave all it had */
};

static struct dial *of(struct stream *s)
{
	return container_of(s, struct dial, stream);
}

/* --- the end --- */

static void drop_events(struct dial *d)
{
	struct event **all[] = { &d->read, &d->write, &d->late };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (*all[i])
			event_free(*all[i]);
		*all[i] = NULL;
	}
}

static void dial_free(struct dial *d)
{
	struct dial **at = &d->box->dials;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	drop_events(d);
	/* The client went without saying that it had sent everything: a server must not take what came for the whole. */
	if (d->fd >= 0 && d->connected && !d->in_eof && !d->out_eof)
		setsockopt(d->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	close_fdp(&d->fd);
	ring_done(&d->ring);
	stream_close(&d->stream, NULL);
	box_release(d->e, d->box);
	free(d);
}

static void dial_fail(struct dial *d, enum mux_error why, const char *text)
{
	auto_tlv fields = TLV_INIT;

	refusal_fields(&fields, why, text);
	stream_close(&d->stream, &fields);
	dial_free(d);
}

void dial_end_all(struct box *b, enum mux_error why, const char *text)
{
	struct dial *next;

	for (struct dial *d = b->dials; d; d = next) {
		next = d->next;
		dial_fail(d, why, text);
	}
}

/* --- to the server --- */

static void stop_input(struct dial *d)
{
	d->in_dead = true;
	d->written = d->received;
	ring_done(&d->ring);
}

static size_t put(struct dial *d, const char *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t w = send(d->fd, p + done, n - done, MSG_NOSIGNAL);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			break;
		if (w < 0) {
			d->was_reset = errno == ECONNRESET;
			stop_input(d);
			return n;
		}
		done += (size_t)w;
		d->written += (uint64_t)w;
	}
	return done;
}

static void report(struct dial *d)
{
	mux_consumed(d->stream.m, d->stream.id, MUX_STDIN, d->written);
}

static void half_close(struct dial *d)
{
	if (d->in_eof && d->written == d->received && !d->in_dead)
		shutdown(d->fd, SHUT_WR);
}

static void push(struct dial *d)
{
	const void *p;

	while (d->written < d->received) {
		size_t n = ring_get(&d->ring, d->written, d->received, &p);

		if (put(d, p, n) < n) {
			event_add(d->write, NULL);
			break;
		}
	}
	if (d->written == d->received) {
		ring_done(&d->ring);
		half_close(d);
	}
	report(d);
}

/* --- from the server --- */

/* One piece. False when there is no more now. */
static bool pull(struct dial *d, bool *ret_broken)
{
	size_t most, room = mux_sendable(d->stream.m, d->stream.id, MUX_STDIN);
	char *piece = muxloop_buffer(initlinks_muxloop(d->e->links), &most);

	most = most < room ? most : room;
	if (most == 0)
		return false;
	ssize_t n = recv(d->fd, piece, most, 0);
	if (n > 0) {
		mux_send(d->stream.m, d->stream.id, MUX_STDIN, piece, (size_t)n);
		return (size_t)n == most;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0 || d->was_reset) { /* an end in order is not what it was: who reads must be able to tell */
		*ret_broken = true;
		return false;
	}
	d->out_eof = true;
	mux_eof(d->stream.m, d->stream.id, MUX_STDIN);
	return false;
}

static bool wants_bytes(const struct dial *d)
{
	return !d->out_eof && mux_sendable(d->stream.m, d->stream.id, MUX_STDIN) > 0;
}

/* Goes on, or ends when both directions have. d may be gone afterwards. */
static void settle(struct dial *d)
{
	if (d->out_eof && (d->in_dead || (d->in_eof && d->written == d->received))) {
		dial_free(d);
		return;
	}
	if (wants_bytes(d))
		event_add(d->read, NULL);
	else
		event_del(d->read);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	enum { PIECES_PER_EVENT = 2 };
	struct dial *d = ctx;
	bool broken = false;

	(void)fd, (void)what;
	for (int i = 0; i < PIECES_PER_EVENT && wants_bytes(d) && pull(d, &broken); i++)
		continue;
	if (broken)
		dial_fail(d, MUX_ERR_IO, "the connection was reset inside the sandbox");
	else
		settle(d);
}

static void on_can_write(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;

	(void)fd, (void)what;
	push(d);
	settle(d);
}

/* --- the client's stream --- */

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct dial *d = of(s);
	size_t done = 0;

	(void)offset;
	if (channel != MUX_STDIN || !d->connected)
		return;
	if (!d->in_dead && d->written == d->received)
		done = put(d, p, n);
	if (!d->in_dead && done < n) {
		ring_put(&d->ring, d->received + done, (const char *)p + done, n - done);
		event_add(d->write, NULL);
	}
	d->received += n;
	if (d->in_dead)
		d->written = d->received;
	report(d);
	settle(d);
}

static void on_eof(struct stream *s, unsigned channel)
{
	struct dial *d = of(s);

	if (channel != MUX_STDIN)
		return;
	d->in_eof = true;
	if (!d->connected)
		return;
	half_close(d);
	settle(d);
}

static void on_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	(void)channel, (void)consumed;
	if (of(s)->connected)
		settle(of(s));
}

static void on_writable(struct stream *s)
{
	on_window(s, 0, 0);
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	(void)fields;
	dial_free(of(s));
}

static void on_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	dial_free(of(s));
}

static const struct stream_ops client_ops = {
	.data = on_data, .eof = on_eof, .window = on_window, .writable = on_writable, .closed = on_closed, .lost = on_lost,
};

/* --- connecting --- */

static void attempt(struct dial *d, int fd);

static void unreachable(struct dial *d, int why)
{
	char text[160];

	snprintf(text, sizeof(text), "nothing answers on port %u inside the sandbox: %s", d->port, strerror(why));
	dial_fail(d, MUX_ERR_CONNECT, text);
}

/* The other family, or the end. */
static void failed(struct dial *d, int why)
{
	int netns = initlink_netns(d->e->links, &d->box->sandbox);

	drop_events(d);
	close_fdp(&d->fd);
	if (d->family == AF_INET6 || netns < 0) {
		unreachable(d, why);
		return;
	}
	d->family = AF_INET6;
	int fd = netns_socket(netns, AF_INET6, SOCK_STREAM);
	if (fd < 0)
		unreachable(d, why);
	else
		attempt(d, fd);
}

static void established(struct dial *d)
{
	struct event_base *base = d->e->base;

	drop_events(d);
	d->connected = true;
	d->read = event_new(base, d->fd, EV_READ | EV_PERSIST, on_readable, d);
	d->write = event_new(base, d->fd, EV_WRITE, on_can_write, d);
	if (!d->read || !d->write) {
		dial_fail(d, MUX_ERR_RESOURCES, "no memory for events");
		return;
	}
	mux_accept(d->stream.m, d->stream.id, NULL, LIMIT_MUX_WINDOW);
	half_close(d);
	settle(d);
}

static void on_connected(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;
	socklen_t n = sizeof(int);
	int why = 0;

	if (what & EV_TIMEOUT) {
		d->family = AF_INET6;
		failed(d, ETIMEDOUT);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0 || why != 0)
		failed(d, why ? why : errno);
	else
		established(d);
}

/* Takes fd, a socket of d's family. */
static void attempt(struct dial *d, int fd)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(d->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *at = d->family == AF_INET ? (const void *)&v4 : (const void *)&v6;

	d->fd = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	if (connect(fd, at, d->family == AF_INET ? sizeof(v4) : sizeof(v6)) == 0) {
		established(d);
		return;
	}
	if (errno != EINPROGRESS) {
		failed(d, errno);
		return;
	}
	d->late = event_new(d->e->base, fd, EV_WRITE, on_connected, d);
	if (!d->late || event_add(d->late, &(struct timeval){ .tv_sec = CONNECT_S }) != 0)
		failed(d, ENOMEM);
}

bool dial_open(struct execs *e, struct box *b, struct mux *client, uint32_t stream, uint16_t port)
{
	int netns = initlink_netns(e->links, &b->sandbox), fd = netns < 0 ? -1 : netns_socket(netns, AF_INET, SOCK_STREAM);

	if (fd < 0)
		return false;
	struct dial *d = xcalloc(1, sizeof(*d));
	d->e = e;
	d->box = b;
	d->port = port;
	d->family = AF_INET;
	d->next = b->dials;
	b->dials = d;
	stream_bind(&d->stream, &client_ops, client, stream);
	attempt(d, fd);
	return true;
}
