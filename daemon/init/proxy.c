/*
 * The way out of a sandbox without a network: a port on loopback whose connections go to the worker, byte for byte. What they ask for is read and
 * judged there; here nothing is understood, so nothing can be got wrong.
 */
#include "daemon/init/pipe.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128, ACCEPTS_PER_EVENT = 16 };

struct door {
	struct watch w;
	struct init *in;
};

/* 127.0.0.1 and ::1, once opened for good. */
static struct door doors[2] = { { .w = { .fd = -1 } }, { .w = { .fd = -1 } } };
static uint16_t open_port;

static unsigned count_open(const struct init *in)
{
	unsigned n = 0;
	for (const struct pipe *p = in->pipes; p; p = p->next)
		n += p->egress;
	return n;
}

static void pass_on(struct init *in, int take_fd)
{
	auto_tlv t = TLV_INIT;
	struct mux *m = in->link.mux;
	uint32_t stream = 0;
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EGRESS);
	setsockopt(take_fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	/* While no worker is there nobody could answer: closed, so that the program sees it at once. */
	if (m && mux_greeted(m) && count_open(in) < LIMIT_EGRESS_CONNECTIONS)
		stream = mux_open(m, &t, PIPE_WINDOW, NULL);
	if (stream == 0)
		close(take_fd);
	else
		pipe_offer(pipe_new(in, stream), take_fd);
}

static void knock(struct watch *w, uint32_t events)
{
	struct door *d = container_of(w, struct door, w);
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		pass_on(d->in, fd);
	}
}

static int listen_on(int family, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *at = family == AF_INET ? (const void *)&v4 : (const void *)&v6;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, at, family == AF_INET ? sizeof(v4) : sizeof(v6)) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	int sys = errno;
	close(fd);
	errno = sys;
	return -1;
}

static int open_door(struct init *in, struct door *d, int family, uint16_t port)
{
	int fd = listen_on(family, port);
	if (fd < 0)
		return -1;
	*d = (struct door){ .w = { .fd = -1, .ready = knock }, .in = in };
	return watch_open(&in->loop, &d->w, fd, EPOLLIN);
}

void proxy_open(struct init *in, uint32_t stream, const struct tlv *t)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_PORT };
	struct error err = ERROR_INIT;
	uint64_t port = tlv_u64(t, MUX_F_PORT, 0);
	if (tlv_only(t, allowed, ARRAY_LEN(allowed), &err) < 0 || port < 1 || port > 65535) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "%s", err.code != ERR_NONE ? err.message : "a port is 1 to 65535");
		return;
	}
	if (open_port && open_port != port) {
		link_refuse(in, stream, MUX_ERR_CONFLICT, "the proxy is on port %u already", open_port);
		return;
	}
	if (!open_port && open_door(in, &doors[0], AF_INET, (uint16_t)port) < 0) {
		link_refuse(in, stream, MUX_ERR_RESOURCES, "port %u of loopback cannot be opened for the proxy: %s", (unsigned)port, strerror(errno));
		return;
	}
	/* Where there is no IPv6 the other is enough: programs are told of that one. */
	if (!open_port)
		(void)open_door(in, &doors[1], AF_INET6, (uint16_t)port);
	open_port = (uint16_t)port;
	mux_close(in->link.mux, stream, NULL);
}
