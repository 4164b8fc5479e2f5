/* Connections to the sandbox's own loopback: 127.0.0.1 first, then ::1. Once connected the stream is a byte pipe. */
#include "daemon/init/pipe.h"

#include "shared/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 10 * 1000 };

/* A connection under way. */
struct dial {
	struct endpoint ep;
	struct init *in;
	struct watch w;
	struct timer timer;
	uint16_t port;
	int family;
};

/* A non-blocking connection attempt; -1 with errno. */
static int try_connect(int family, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *at = family == AF_INET ? (const void *)&v4 : (const void *)&v6;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	if (connect(fd, at, family == AF_INET ? sizeof(v4) : sizeof(v6)) == 0 || errno == EINPROGRESS)
		return fd;
	int sys = errno;
	close(fd);
	errno = sys;
	return -1;
}

static void dial_free(struct dial *d)
{
	if (d->ep.stream)
		link_set_endpoint(d->in, d->ep.stream, NULL);
	watch_close(&d->in->loop, &d->w);
	timer_stop(&d->timer);
	loop_free_later(&d->in->loop, d);
}

static void attempt(struct dial *d);

static void failed(struct dial *d, int sys)
{
	uint32_t stream = d->ep.stream;
	if (d->family == AF_INET) {
		d->family = AF_INET6;
		attempt(d);
		return;
	}
	link_refuse(d->in, stream, MUX_ERR_CONNECT, "nothing answers on port %u inside the sandbox: %s", d->port, strerror(sys));
	d->ep.stream = 0;
	dial_free(d);
}

static void connecting(struct watch *w, uint32_t events)
{
	struct dial *d = container_of(w, struct dial, w);
	int sys = 0;
	socklen_t n = sizeof(sys);
	(void)events;
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &sys, &n) < 0 || sys) {
		watch_close(&d->in->loop, w);
		failed(d, sys ? sys : errno);
		return;
	}
	int fd = watch_release(&d->in->loop, w);
	uint32_t stream = d->ep.stream;
	struct init *in = d->in;
	dial_free(d);
	pipe_start(pipe_new(in, stream), fd, 0);
}

static void attempt(struct dial *d)
{
	int fd = try_connect(d->family, d->port);
	if (fd < 0)
		failed(d, errno);
	else if (watch_open(&d->in->loop, &d->w, fd, EPOLLOUT) < 0)
		failed(d, ENOMEM);
}

static void too_slow(struct timer *t)
{
	struct dial *d = container_of(t, struct dial, timer);
	watch_close(&d->in->loop, &d->w);
	d->family = AF_INET6;
	failed(d, ETIMEDOUT);
}

static void on_gone(struct endpoint *e)
{
	struct dial *d = container_of(e, struct dial, ep);
	d->ep.stream = 0;
	dial_free(d);
}

static const struct endpoint_ops dial_ops = { .closed = on_gone, .lost = on_gone };

void dial_open(struct init *in, uint32_t stream, const struct tlv *t)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_PORT, MUX_F_OPERATION };
	struct error err = ERROR_INIT;
	uint64_t port = tlv_u64(t, MUX_F_PORT, 0);
	if (tlv_only(t, allowed, ARRAY_LEN(allowed), &err) < 0) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "%s", err.message);
		return;
	}
	if (port < 1 || port > 65535) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "a port is 1 to 65535");
		return;
	}
	struct dial *d = xcalloc(1, sizeof(*d));
	d->ep = (struct endpoint){ &dial_ops, stream };
	d->in = in;
	d->w = (struct watch){ .fd = -1, .ready = connecting };
	d->timer.fired = too_slow;
	d->port = (uint16_t)port;
	d->family = AF_INET;
	link_set_endpoint(in, stream, &d->ep);
	timer_arm(&in->loop, &d->timer, CONNECT_MS);
	attempt(d);
}
