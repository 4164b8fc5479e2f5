/*
 * Every way out of a sandbox that a program can try with sockets, from inside, with the rights it really has. Static and without our
 * libraries, to run in any image on any tier (tests/lib/ways.bash).
 *   ways reach      lines "tcp ADDRESS PORT", "udp ADDRESS PORT", "dns ADDRESS", "ping ADDRESS" on stdin; answers each with yes or no
 *   ways ask        lines "HOST:PORT" or "http://…" on stdin: what the proxy on port 61080 answers, as a status, 0 without one
 *   ways sockets    kinds of sockets and devices that go around addresses; status 1 when one is to be had
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/vm_sockets.h>
#include <net/route.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINES_MAX = 192, REACH_MS = 4000, ANSWER_MS = 20000, PROXY_PORT = 61080 };

struct attempt {
	char line[256];
	int fd; /* -1: it failed at once */
	short events;
	int reached;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static socklen_t address_of(const char *text, int port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *a = (void *)ret;
	struct sockaddr_in6 *b = (void *)ret;

	memset(ret, 0, sizeof(*ret));
	if (strchr(text, ':')) {
		b->sin6_family = AF_INET6;
		b->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, text, &b->sin6_addr) == 1 ? sizeof(*b) : 0;
	}
	a->sin_family = AF_INET;
	a->sin_port = htons((uint16_t)port);
	return inet_aton(text, &a->sin_addr) ? sizeof(*a) : 0; /* as lenient as programs are: octal, hexadecimal, fewer parts */
}

static const unsigned char question[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04good\x04test\x00\x00\x01\x00\x01";
static const unsigned char echo[] = "\x08\x00\xf7\xff\x00\x00\x00\x00";

static void begin(struct attempt *a)
{
	char kind[16] = "", address[80] = "";
	int port = 0, n = sscanf(a->line, "%15s %79s %d", kind, address, &port);
	struct sockaddr_storage to;
	int tcp = strcmp(kind, "tcp") == 0, ping = strcmp(kind, "ping") == 0, dns = strcmp(kind, "dns") == 0;
	socklen_t len = n >= 2 ? address_of(address, dns ? 53 : port, &to) : 0;

	a->fd = len ? socket(to.ss_family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, ping ? IPPROTO_ICMP : 0) : -1;
	a->events = tcp ? POLLOUT : POLLIN;
	if (a->fd < 0)
		return;
	if (connect(a->fd, (struct sockaddr *)&to, len) != 0 && errno != EINPROGRESS)
		goto failed;
	if (!tcp && send(a->fd, dns ? (const void *)question : ping ? (const void *)echo : "hello", dns ? sizeof(question) - 1 : ping ? 8 : 5, MSG_NOSIGNAL) < 0)
		goto failed;
	return;
failed:
	close(a->fd);
	a->fd = -1;
}

static void look(struct attempt *a)
{
	int error = 0;
	socklen_t n = sizeof(error);
	char answer[64];

	if (a->events == POLLOUT)
		a->reached = getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
	else
		a->reached = recv(a->fd, answer, sizeof(answer), 0) > 0;
	close(a->fd);
	a->fd = -1;
}

static int reach(void)
{
	static struct attempt all[LINES_MAX];
	struct pollfd fds[LINES_MAX];
	int count = 0, left = 1;

	while (count < LINES_MAX && fgets(all[count].line, sizeof(all[0].line), stdin)) {
		all[count].line[strcspn(all[count].line, "\n")] = '\0';
		begin(&all[count++]);
	}
	for (int64_t until = now_ms() + REACH_MS; left && now_ms() < until;) {
		left = 0;
		for (int i = 0; i < count; i++) {
			fds[i] = (struct pollfd){ .fd = all[i].fd, .events = all[i].events };
			left |= all[i].fd >= 0;
		}
		if (poll(fds, (nfds_t)count, 100) <= 0)
			continue;
		for (int i = 0; i < count; i++)
			if (fds[i].revents)
				look(&all[i]);
	}
	for (int i = 0; i < count; i++)
		printf("%s %s\n", all[i].line, all[i].reached ? "yes" : "no");
	return 0;
}

static int status_of(const char *target)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PROXY_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval wait = { .tv_sec = ANSWER_MS / 1000 };
	char text[1024];
	int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
	int n = snprintf(text, sizeof(text), strncmp(target, "http:", 5) == 0 ? "GET %s HTTP/1.1\r\nConnection: close\r\n\r\n" : "CONNECT %s HTTP/1.1\r\n\r\n", target);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n) {
		ssize_t got = recv(fd, text, sizeof(text) - 1, 0);

		text[got > 0 ? got : 0] = '\0';
		if (sscanf(text, "HTTP/1.1 %d", &status) != 1)
			status = 0;
	}
	close(fd);
	return status;
}

static int ask(void)
{
	char line[512];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		printf("%s %d\n", line, status_of(line));
	}
	return 0;
}

/* --- around addresses --- */

static int bad;

static void none(const char *what, int rc)
{
	printf("%s: %s\n", what, rc < 0 ? strerror(errno) : "TO BE HAD");
	bad |= rc >= 0;
}

static int to_vsock(unsigned cid, unsigned port)
{
	struct sockaddr_vm to = { .svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port };
	struct timeval wait = { .tv_sec = 3 };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &wait, sizeof(wait));
	return connect(fd, (struct sockaddr *)&to, sizeof(to));
}

static int to_address(void)
{
	struct ifreq q = { .ifr_name = "lo:9" };
	struct sockaddr_in *a = (void *)&q.ifr_addr;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x0a630709);
	return fd < 0 ? -1 : ioctl(fd, SIOCSIFADDR, &q);
}

static int to_route(void)
{
	struct rtentry q = { .rt_flags = RTF_UP, .rt_dev = (char *)"lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	q.rt_dst.sa_family = q.rt_genmask.sa_family = q.rt_gateway.sa_family = AF_INET;
	((struct sockaddr_in *)&q.rt_dst)->sin_addr.s_addr = htonl(0x0b000000);
	((struct sockaddr_in *)&q.rt_genmask)->sin_addr.s_addr = htonl(0xff000000);
	return fd < 0 ? -1 : ioctl(fd, SIOCADDRT, &q);
}

/* A sentry lets everybody open the device; an interface is what it takes. */
static int to_tun(void)
{
	struct ifreq q = { .ifr_name = "tun9", .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR);

	return fd < 0 ? -1 : ioctl(fd, TUNSETIFF, &q);
}

static int sockets(void)
{
	static const struct {
		const char *what;
		int family, type, protocol;
	} kinds[] = {
		{ "raw ICMP", AF_INET, SOCK_RAW, IPPROTO_ICMP }, { "raw IP", AF_INET, SOCK_RAW, IPPROTO_RAW }, { "raw TCP", AF_INET, SOCK_RAW, IPPROTO_TCP },
		{ "raw ICMPv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 }, { "raw IPv6", AF_INET6, SOCK_RAW, IPPROTO_RAW },
		{ "packets", AF_PACKET, SOCK_RAW, 0x0300 }, { "cooked packets", AF_PACKET, SOCK_DGRAM, 0x0300 },
	};
	static const unsigned cids[] = { VMADDR_CID_HYPERVISOR, 1, VMADDR_CID_HOST, 3 };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		none(kinds[i].what, socket(kinds[i].family, kinds[i].type, kinds[i].protocol));
	for (size_t i = 0; i < sizeof(cids) / sizeof(*cids); i++)
		none("vsock", to_vsock(cids[i], 1024));
	none("tun", to_tun());
	none("another address", to_address());
	none("another route", to_route());
	return bad;
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(mode, "reach") == 0)
		return reach();
	if (strcmp(mode, "ask") == 0)
		return ask();
	if (strcmp(mode, "sockets") == 0)
		return sockets();
	fprintf(stderr, "usage: ways reach|ask|sockets\n");
	return 2;
}
