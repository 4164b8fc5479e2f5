/* Loopback listeners: see listen.h. */
#include "cli/listen.h"

#include "shared/base/io.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128, TRIES = 16 };

static int bind_to(int fd, int family, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	return family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof(v4)) : bind(fd, (struct sockaddr *)&v6, sizeof(v6));
}

/* -1 with errno. */
static int listen_on(int family, uint16_t port)
{
	auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind_to(fd, family, port) != 0 || listen(fd, BACKLOG) != 0 || io_set_nonblock(fd, true) != 0)
		return -1;
	return steal_fd(&fd);
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in at = { .sin_port = 0 };
	socklen_t n = sizeof(at);
	return getsockname(fd, (struct sockaddr *)&at, &n) == 0 ? ntohs(at.sin_port) : 0;
}

static bool no_ipv6(int sys)
{
	return sys == EAFNOSUPPORT || sys == EADDRNOTAVAIL;
}

static int refused(uint16_t port, const char *address, struct error *err)
{
	int sys = errno;
	if (sys == EADDRINUSE)
		return error_set(err, ERR_CONFLICT, "port %u on %s is taken by another program", port, address);
	if (sys == EACCES)
		return error_set(err, ERR_FORBIDDEN, "port %u may not be used by this user: ports below 1024 are root's", port);
	return error_errno(err, "listening on %s port %u", address, port);
}

int listen_loopback(uint16_t *port, int ret_fd[2], struct error *err)
{
	for (int i = 0;; i++) {
		auto_close int v4 = listen_on(AF_INET, *port);
		if (v4 < 0)
			return refused(*port, "127.0.0.1", err);
		uint16_t got = port_of(v4);
		int v6 = listen_on(AF_INET6, got);
		if (v6 < 0 && errno == EADDRINUSE && *port == 0 && i < TRIES)
			continue;
		if (v6 < 0 && !no_ipv6(errno))
			return refused(got, "::1", err);
		*port = got;
		ret_fd[0] = steal_fd(&v4);
		ret_fd[1] = v6;
		return 0;
	}
}
