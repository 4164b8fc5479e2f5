/* Level-triggered, one read of at most a frame per turn: a peer that floods tiny frames gets its share and no more. */
#include "daemon/worker/muxconn.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>

enum { READ_MAX = LIMIT_MUX_FRAME_MAX + MUX_HEADER_LEN, WHY_MAX = 256, SEND_BUFFER = 1024 * 1024 };

struct muxloop {
	struct event_base *base;
	uint8_t *buffer; /* READ_MAX: fed to a mux before anybody else reads */
};

struct muxconn {
	struct muxloop *loop;
	int fd;
	struct mux *m;
	struct event *ev_read, *ev_write, *ev_end;
	const struct muxconn_ops *ops;
	void *ctx;
	bool ending;
	enum mux_error reason;
	char why[WHY_MAX];
};

struct muxloop *muxloop_new(struct event_base *base)
{
	struct muxloop *l = xcalloc(1, sizeof(*l));

	l->base = base;
	l->buffer = xmalloc(READ_MAX);
	return l;
}

void muxloop_free(struct muxloop *l)
{
	if (!l)
		return;
	free(l->buffer);
	free(l);
}

struct event_base *muxloop_base(const struct muxloop *l)
{
	return l->base;
}

void *muxloop_buffer(struct muxloop *l, size_t *ret_size)
{
	*ret_size = LIMIT_MUX_FRAME_MAX;
	return l->buffer;
}

void stream_bind(struct stream *s, const struct stream_ops *ops, struct mux *m, uint32_t id)
{
	s->ops = ops;
	s->m = m;
	s->id = id;
	mux_set_user(m, id, s);
}

void stream_close(struct stream *s, const struct tlv *fields)
{
	struct mux *m = s->m;

	if (!m)
		return;
	s->m = NULL;
	mux_set_user(m, s->id, NULL);
	mux_close(m, s->id, fields);
}

/* --- mux events to their owners --- */

static void on_hello(void *ctx, struct mux *m, const struct tlv *fields)
{
	struct muxconn *c = ctx;

	(void)m;
	if (c->ops->hello && !c->ending)
		c->ops->hello(c->ctx, c, fields);
}

static void on_opened(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct muxconn *c = ctx;

	if (c->ops->opened && !c->ending) {
		c->ops->opened(c->ctx, c, stream, fields);
		return;
	}
	auto_tlv refusal = TLV_INIT;

	tlv_add_u64(&refusal, MUX_F_ERROR, MUX_ERR_REFUSED);
	tlv_add_str(&refusal, MUX_F_MESSAGE, "this side opens the streams");
	mux_close(m, stream, &refusal);
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (s && s->ops->accepted)
		s->ops->accepted(s, fields);
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (s && s->ops->data)
		s->ops->data(s, channel, offset, p, n);
	else
		mux_consumed(m, stream, channel, offset + n);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (s && s->ops->eof)
		s->ops->eof(s, channel);
}

static void on_window(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t consumed)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (s && s->ops->window)
		s->ops->window(s, channel, consumed);
}

static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (s && s->ops->control)
		s->ops->control(s, fields);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = mux_user(m, stream);

	(void)ctx;
	if (!s)
		return;
	s->m = NULL;
	mux_set_user(m, stream, NULL);
	if (s->ops->closed)
		s->ops->closed(s, fields);
}

static void on_lost(void *ctx, struct mux *m, uint32_t stream)
{
	struct muxconn *c = ctx;
	struct stream *s = mux_user(m, stream);

	if (!s)
		return;
	s->m = NULL;
	if (s->ops->lost)
		s->ops->lost(s, c->reason);
}

static void stream_writable(void *ctx, struct mux *m, uint32_t stream, void *user)
{
	struct stream *s = user;

	(void)ctx;
	(void)m;
	(void)stream;
	if (s && s->ops->writable)
		s->ops->writable(s);
}

static void on_writable(void *ctx, struct mux *m)
{
	(void)ctx;
	mux_each(m, stream_writable, NULL);
}

static const struct mux_handler handler = {
	.hello = on_hello,
	.opened = on_opened,
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.control = on_control,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_writable,
};

/* --- the socket --- */

static ssize_t sink(void *ctx, const struct iovec *iov, int n)
{
	struct muxconn *c = ctx;
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	size_t want = 0;
	ssize_t sent;

	if (c->ending)
		return -1;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	do {
		sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN) {
		muxconn_close(c, strerror(errno));
		return -1;
	}
	if (sent < 0)
		sent = 0;
	if ((size_t)sent < want)
		event_add(c->ev_write, NULL);
	return sent;
}

static void feed(struct muxconn *c, const void *p, size_t n)
{
	struct error err = ERROR_INIT;

	if (mux_feed(c->m, p, n, &err) != 0)
		muxconn_close(c, err.message);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct muxconn *c = ctx;
	ssize_t n;

	(void)what;
	if (c->ending)
		return;
	n = recv(fd, c->loop->buffer, READ_MAX, MSG_DONTWAIT);
	if (n > 0)
		feed(c, c->loop->buffer, (size_t)n);
	else if (n == 0)
		muxconn_close(c, "the peer closed the connection");
	else if (errno != EAGAIN && errno != EINTR)
		muxconn_close(c, strerror(errno));
}

static void on_can_write(evutil_socket_t fd, short what, void *ctx)
{
	struct muxconn *c = ctx;

	(void)fd;
	(void)what;
	if (!c->ending && mux_flush(c->m) == 0 && mux_want_write(c->m))
		event_add(c->ev_write, NULL);
}

static void on_end(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	muxconn_drop(ctx, NULL);
}

/* Room for a few large frames: fewer wake-ups on either side. Beyond net.core.wmem_max only with CAP_NET_ADMIN. */
static void widen(int fd)
{
	int bytes = SEND_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

struct muxconn *muxconn_new(struct muxloop *l, int take_fd, const struct muxconn_ops *ops, void *ctx, bool dialled)
{
	struct muxconn *c = xcalloc(1, sizeof(*c));

	c->loop = l;
	c->fd = take_fd;
	c->ops = ops;
	c->ctx = ctx;
	c->reason = MUX_ERR_LOST;
	io_set_nonblock(take_fd, true);
	widen(take_fd);
	c->m = mux_new(&(struct mux_options){ .handler = &handler, .ctx = c, .sink = sink, .dialled = dialled });
	c->ev_read = event_new(l->base, take_fd, EV_READ | EV_PERSIST, on_readable, c);
	c->ev_write = event_new(l->base, take_fd, EV_WRITE, on_can_write, c);
	c->ev_end = evtimer_new(l->base, on_end, c);
	if (!c->ev_read || !c->ev_write || !c->ev_end)
		abort();
	event_add(c->ev_read, NULL);
	return c;
}

struct mux *muxconn_mux(const struct muxconn *c)
{
	return c->m;
}

int muxconn_fd(const struct muxconn *c)
{
	return c->fd;
}

void *muxconn_ctx(const struct muxconn *c)
{
	return c->ctx;
}

void muxconn_early(struct muxconn *c, const void *p, size_t n)
{
	if (n > 0 && !c->ending)
		feed(c, p, n);
}

void muxconn_set_reason(struct muxconn *c, enum mux_error why)
{
	c->reason = why;
}

void muxconn_close(struct muxconn *c, const char *why)
{
	if (c->ending)
		return;
	c->ending = true;
	snprintf(c->why, sizeof(c->why), "%s", why ? why : "");
	event_del(c->ev_read);
	event_del(c->ev_write);
	event_active(c->ev_end, EV_TIMEOUT, 0);
}

void muxconn_drop(struct muxconn *c, const char *why)
{
	if (!c->ending)
		muxconn_close(c, why);
	mux_lost(c->m);
	event_free(c->ev_read);
	event_free(c->ev_write);
	event_free(c->ev_end);
	close_fdp(&c->fd);
	if (c->ops->gone)
		c->ops->gone(c->ctx, c, c->why);
	mux_free(c->m);
	free(c);
}
