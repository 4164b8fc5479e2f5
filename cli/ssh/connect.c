/* How bytes get to the other side: a TCP connection, or a channel of a connection to a jump host. */
#include "cli/ssh/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESS_MS = 15 * 1000 };

/* 0 when connected; -1 with errno. */
static int finish(struct ssh *s, int fd, int64_t until_ms)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLOUT }, { .fd = s->interrupt_fd, .events = POLLIN } };
	int64_t left = until_ms - clock_mono_ms();
	int failed = 0;
	socklen_t n = sizeof(failed);
	if (left <= 0 || poll(p, 2, (int)left) == 0) {
		errno = ETIMEDOUT;
		return -1;
	}
	if (p[1].revents) {
		errno = EINTR;
		return -1;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n) != 0)
		return -1;
	errno = failed;
	return failed ? -1 : 0;
}

static int try_address(struct ssh *s, const struct addrinfo *a)
{
	static const int on = 1;
	int64_t until = clock_mono_ms() + ADDRESS_MS;
	auto_close int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && (errno != EINPROGRESS || finish(s, fd, until < s->deadline_ms ? until : s->deadline_ms) != 0))
		return -1;
	return steal_fd(&fd);
}

int ssh_connect(struct ssh *s, struct error *err)
{
	char port[8];
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	snprintf(port, sizeof(port), "%u", s->port);
	int rc = getaddrinfo(s->host, port, &hints, &list);
	if (rc != 0)
		return error_set(err, ERR_UNREACHABLE, "%s: %s", s->host, gai_strerror(rc));
	for (const struct addrinfo *a = list; a && s->fd < 0; a = a->ai_next)
		s->fd = try_address(s, a);
	int why = errno;
	freeaddrinfo(list);
	if (s->fd >= 0)
		return 0;
	errno = why;
	return error_set(err, why == ETIMEDOUT ? ERR_TIMEOUT : ERR_UNREACHABLE, "%s port %u: %m", s->host, s->port);
}

/*
 * libssh2 never hears that a send has to wait: with half a packet out it cannot answer a key exchange that the other side begins. All it
 * sends is taken here, and who writes data asks ssh_backlog before.
 */
enum { BACKLOG = 64 * 1024 };

bool ssh_backlog(const struct ssh *s)
{
	return s->out.len - s->out_at + s->piece_n > BACKLOG;
}

static void drop_sent(struct ssh *s)
{
	if (s->out_at == s->out.len)
		s->out.len = s->out_at = 0;
}

static void flush_socket(struct ssh *s)
{
	while (s->out_at < s->out.len) {
		ssize_t n = send(s->fd, s->out.data + s->out_at, s->out.len - s->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			break; /* full, or gone: then reading says so */
		s->out_at += (size_t)n;
	}
	drop_sent(s);
}

static void flush_through(struct ssh *s)
{
	for (;;) {
		if (!s->piece_n) {
			size_t left = s->out.len - s->out_at;
			s->piece_n = left < sizeof(s->piece) ? left : sizeof(s->piece);
			memcpy(s->piece, s->out.data + s->out_at, s->piece_n);
			s->out_at += s->piece_n;
			drop_sent(s);
		}
		ssize_t n = s->piece_n ? libssh2_channel_write(s->through, s->piece, s->piece_n) : 0;
		if (n <= 0)
			return;
		memmove(s->piece, s->piece + n, s->piece_n - (size_t)n);
		s->piece_n -= (size_t)n;
	}
}

void ssh_flush(struct ssh *s)
{
	for (; s; s = s->via) {
		if (s->through && (s->piece_n || s->out.len))
			flush_through(s);
		else if (!s->via)
			flush_socket(s);
	}
}

/* libssh2 speaks to the agent by the same two functions, over the agent's own socket; it asks and waits, so these may wait as well. */
static bool ready(const struct ssh *s, int fd, short events)
{
	struct pollfd p[2] = { { .fd = fd, .events = events }, { .fd = s->interrupt_fd, .events = POLLIN } };
	int64_t left = s->deadline_ms - clock_mono_ms();
	return left > 0 && poll(p, 2, (int)left) > 0 && p[0].revents && !p[1].revents;
}

static ssize_t send_to_agent(const struct ssh *s, int fd, const void *p, size_t n)
{
	if (!ready(s, fd, POLLOUT))
		return -ECONNRESET;
	ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
	return sent < 0 ? -errno : sent;
}

/* An agent that left would be asked again for ever. */
static ssize_t receive_from_agent(const struct ssh *s, int fd, void *p, size_t n)
{
	if (!ready(s, fd, POLLIN))
		return -ECONNRESET;
	ssize_t got = recv(fd, p, n, 0);
	return got < 0 ? -errno : got == 0 ? -ECONNRESET : got;
}

static ssize_t take_sent(libssh2_socket_t fd, const void *p, size_t n, int flags, void **abstract)
{
	struct ssh *s = *abstract;
	(void)flags;
	if (fd != s->fd)
		return send_to_agent(s, fd, p, n);
	buf_add(&s->out, p, n);
	ssh_flush(s);
	return (ssize_t)n;
}

/* libssh2 wants what recv(2) would say, with -errno for failures. */
static ssize_t receive(libssh2_socket_t fd, void *p, size_t n, int flags, void **abstract)
{
	struct ssh *s = *abstract;
	if (fd != s->fd)
		return receive_from_agent(s, fd, p, n);
	if (!s->through) {
		ssize_t got = recv(fd, p, n, flags);
		return got < 0 ? -errno : got;
	}
	ssize_t got = libssh2_channel_read(s->through, p, n);
	if (got == 0 && !libssh2_channel_eof(s->through))
		return -EAGAIN;
	return got == LIBSSH2_ERROR_EAGAIN ? -EAGAIN : got < 0 ? -ECONNRESET : got;
}

/* libssh2 takes callbacks of all types as a plain pointer. */
#define set_callback(session, which, fn) \
	do { \
		void *p_; \
		__typeof__(&(fn)) f_ = (fn); \
		memcpy(&p_, &f_, sizeof(p_)); \
		libssh2_session_callback_set((session), (which), p_); \
	} while (0)

static int open_through(struct ssh *s, struct error *err)
{
	struct ssh *v = s->via;
	while (!(s->through = libssh2_channel_direct_tcpip(v->session, s->host, s->port))) {
		if (libssh2_session_last_errno(v->session) != LIBSSH2_ERROR_EAGAIN)
			return error_set(err, ERR_UNREACHABLE, "%s does not connect to %s port %u", v->host, s->host, s->port);
		if (ssh_wait(v, v->host, err) != 0)
			return -1;
	}
	return 0;
}

int ssh_carry(struct ssh *s, struct error *err)
{
	if (s->via && open_through(s, err) != 0)
		return -1;
	set_callback(s->session, LIBSSH2_CALLBACK_SEND, take_sent);
	set_callback(s->session, LIBSSH2_CALLBACK_RECV, receive);
	return 0;
}
