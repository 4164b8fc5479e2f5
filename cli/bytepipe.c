/* A connection carried by a stream: see bytepipe.h. */
#include "cli/bytepipe.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { CHUNK = 64 * 1024, CHUNKS_PER_EVENT = 4 };

/* A half-closed connection on which nothing moves for so long has been forgotten by somebody. */
static const int64_t half_closed_ms = 3600 * 1000LL;

void bytepipe_init(struct bytepipe *p, int take_fd, struct mux *m, uint32_t stream)
{
	*p = (struct bytepipe){ .fd = take_fd, .m = m, .stream = stream, .moved_ms = clock_mono_ms() };
	io_set_nonblock(take_fd, true);
	setsockopt(take_fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	/* A peer that vanished is noticed by the kernel, in its own time. */
	setsockopt(take_fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	if (stream)
		mux_set_user(m, stream, p);
}

void bytepipe_end(struct bytepipe *p, bool reset)
{
	if (p->stream) {
		mux_set_user(p->m, p->stream, NULL);
		mux_close(p->m, p->stream, NULL);
		p->stream = 0;
	}
	if (reset && p->fd >= 0)
		setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	close_fdp(&p->fd);
	buf_done(&p->out);
}

/* --- to the connection --- */

static void out_done(struct bytepipe *p)
{
	buf_done(&p->out);
	p->head = 0;
	if (p->draining)
		bytepipe_end(p, false);
	else if (p->out_eof)
		shutdown(p->fd, SHUT_WR);
}

/* Returns how many bytes were taken; the pipe is over when its reader has gone. */
static size_t put(struct bytepipe *p, const char *bytes, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t w = send(p->fd, bytes + done, n - done, MSG_NOSIGNAL);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			break;
		if (w < 0) {
			bytepipe_end(p, true);
			return n;
		}
		done += (size_t)w;
	}
	p->taken += done;
	p->moved_ms = clock_mono_ms();
	if (p->stream)
		mux_consumed(p->m, p->stream, MUX_STDIN, p->taken);
	return done;
}

static void flush_out(struct bytepipe *p)
{
	p->head += put(p, buf_str(&p->out) + p->head, p->out.len - p->head);
	if (!bytepipe_over(p) && p->head == p->out.len)
		out_done(p);
}

void bytepipe_data(struct bytepipe *p, uint64_t offset, const void *bytes, size_t n)
{
	size_t done = 0;
	(void)offset;
	if (p->out.len == 0)
		done = put(p, bytes, n);
	if (bytepipe_over(p) || done == n)
		return;
	if (p->head > BYTEPIPE_WINDOW) {
		buf_consume(&p->out, p->head);
		p->head = 0;
	}
	buf_add(&p->out, (const char *)bytes + done, n - done);
}

void bytepipe_eof(struct bytepipe *p)
{
	p->out_eof = true;
	if (p->out.len == 0)
		out_done(p);
}

void bytepipe_closed(struct bytepipe *p, bool failed)
{
	p->stream = 0;
	p->draining = true;
	if (failed)
		bytepipe_end(p, true);
	else if (p->out.len == 0)
		out_done(p);
}

/* --- from the connection --- */

static bool wants_input(const struct bytepipe *p)
{
	return p->stream && p->live && !p->in_eof && mux_sendable(p->m, p->stream, MUX_STDIN) > 0;
}

void bytepipe_poll(const struct bytepipe *p, struct pollfd *ret)
{
	short events = (short)((wants_input(p) ? POLLIN : 0) | (p->out.len ? POLLOUT : 0));
	/* A connection of which nothing is wanted would report its hang-up over and over. */
	*ret = (struct pollfd){ .fd = events ? p->fd : -1, .events = events };
}

/* One chunk. False when there is no more now. */
static bool pull(struct bytepipe *p)
{
	static char chunk[CHUNK];
	size_t most = mux_sendable(p->m, p->stream, MUX_STDIN);
	most = most < sizeof(chunk) ? most : sizeof(chunk);
	ssize_t n = recv(p->fd, chunk, most, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		bytepipe_end(p, true);
		return false;
	}
	p->moved_ms = clock_mono_ms();
	if (n == 0) {
		p->in_eof = true;
		mux_eof(p->m, p->stream, MUX_STDIN);
		return false;
	}
	mux_send(p->m, p->stream, MUX_STDIN, chunk, (size_t)n);
	return (size_t)n == most;
}

void bytepipe_ready(struct bytepipe *p, short revents)
{
	if (revents & (POLLOUT | POLLERR) && p->out.len)
		flush_out(p);
	if (!(revents & (POLLIN | POLLHUP | POLLERR)))
		return;
	for (int i = 0; i < CHUNKS_PER_EVENT && !bytepipe_over(p) && wants_input(p) && pull(p); i++)
		continue;
}

/* --- many of them --- */

struct bytepipe *bytepipes_add(struct bytepipes *all, int take_fd, struct mux *m, uint32_t stream, const void *tag)
{
	struct bytepipe *p = xcalloc(1, sizeof(*p));
	bytepipe_init(p, take_fd, m, stream);
	p->tag = tag;
	p->next = all->first;
	all->first = p;
	all->n++;
	if (!stream)
		bytepipe_end(p, true);
	return p;
}

void bytepipes_sweep(struct bytepipes *all)
{
	int64_t now = clock_mono_ms();
	for (struct bytepipe **at = &all->first; *at;) {
		struct bytepipe *p = *at;
		if (!bytepipe_over(p) && p->in_eof != p->out_eof && now - p->moved_ms > half_closed_ms)
			bytepipe_end(p, true);
		if (!bytepipe_over(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		all->n--;
		free(p);
	}
}

void bytepipes_done(struct bytepipes *all)
{
	for (struct bytepipe *p = all->first; p; p = p->next)
		bytepipe_end(p, true);
	bytepipes_sweep(all);
}

void bytepipes_poll(const struct bytepipes *all, struct pollfd *fds)
{
	for (const struct bytepipe *p = all->first; p; p = p->next)
		bytepipe_poll(p, fds++);
}

void bytepipes_ready(struct bytepipes *all, const struct pollfd *fds)
{
	for (struct bytepipe *p = all->first; p; p = p->next, fds++)
		if (fds->fd >= 0 && fds->revents && !bytepipe_over(p))
			bytepipe_ready(p, fds->revents);
}

void bytepipe_on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *bytes, size_t n)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p && channel == MUX_STDIN)
		bytepipe_data(p, offset, bytes, n);
}

void bytepipe_on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p && channel == MUX_STDIN)
		bytepipe_eof(p);
}

void bytepipe_on_lost(void *ctx, struct mux *m, uint32_t stream)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p) {
		p->stream = 0;
		bytepipe_end(p, true);
	}
}
