/* The transport under a mux: dial, read, feed, flush. */
#include "cli/muxconn.h"

#include "cli/session.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <sys/socket.h>

/* One read: a full frame and its header, so that bulk data costs one call a frame. */
enum { READ_MAX = LIMIT_MUX_FRAME_MAX + 4096 };

static int dial_session(void *ctx, const void *early, size_t n, bool redial, int64_t deadline_ms, int *ret_fd, struct buf *ret_rest,
                        struct error *err)
{
	struct upgrade u = { .early = early, .early_n = n, .restart = redial, .deadline_ms = deadline_ms };
	return session_upgrade(ctx, &u, ret_fd, ret_rest, err);
}

struct dialler session_dialler(struct cli *cli)
{
	return (struct dialler){ .dial = dial_session, .ctx = cli };
}

static ssize_t all_of(const struct iovec *iov, int n)
{
	size_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return (ssize_t)sum;
}

static ssize_t sink(void *ctx, const struct iovec *iov, int n)
{
	struct muxconn *c = ctx;
	if (c->fd < 0)
		return 0;
	if (c->send_failed)
		return all_of(iov, n);
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t put;
	do {
		put = sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (put < 0 && errno == EINTR);
	if (put < 0 && errno == EAGAIN)
		return 0;
	if (put >= 0)
		return put;
	/* To report this would end the mux at once, and with it what the peer sent before it went: the CLOSE, most likely. */
	c->send_failed = true;
	return all_of(iov, n);
}

void muxconn_start(struct muxconn *c, const struct mux_handler *handler)
{
	*c = (struct muxconn)MUXCONN_INIT;
	struct mux_options o = { .handler = handler, .ctx = c, .sink = sink, .dialled = true };
	c->mux = mux_new(&o);
	auto_tlv hello = TLV_INIT;
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandbox/" SANDBOX_VERSION);
	mux_hello(c->mux, &hello);
}

int muxconn_dial(struct muxconn *c, const struct dialler *d, bool redial, int64_t deadline_ms, struct error *err)
{
	auto_buf early = BUF_INIT, rest = BUF_INIT;
	const void *p = NULL;
	for (size_t n; (n = mux_queued(c->mux, &p)) > 0; mux_taken(c->mux, n))
		buf_add(&early, p, n);
	if (d->dial(d->ctx, early.data, early.len, redial, deadline_ms, &c->fd, &rest, err) != 0) {
		c->fd = -1;
		return -1;
	}
	c->in = xmalloc(READ_MAX);
	if (rest.len > 0 && mux_feed(c->mux, rest.data, rest.len, err) != 0)
		return -1;
	return 0;
}

void muxconn_stop(struct muxconn *c)
{
	close_fdp(&c->fd);
	mux_free(c->mux);
	free(c->in);
	*c = (struct muxconn)MUXCONN_INIT;
}

void muxconn_poll(const struct muxconn *c, struct pollfd *ret)
{
	*ret = (struct pollfd){ .fd = c->fd, .events = (short)(POLLIN | (mux_want_write(c->mux) ? POLLOUT : 0)) };
}

void muxconn_flush(struct muxconn *c)
{
	mux_flush(c->mux);
}

enum muxconn_state muxconn_ready(struct muxconn *c, short revents, struct error *err)
{
	if (revents & POLLOUT)
		muxconn_flush(c);
	if (!(revents & (POLLIN | POLLHUP | POLLERR)))
		return MUXCONN_ALIVE;
	ssize_t n = recv(c->fd, c->in, READ_MAX, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return MUXCONN_ALIVE;
	if (n <= 0)
		return MUXCONN_GONE;
	return mux_feed(c->mux, c->in, (size_t)n, err) == 0 ? MUXCONN_ALIVE : MUXCONN_BROKEN;
}
