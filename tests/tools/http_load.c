/*
 * Load on an HTTP server: http_load PORT HOST PATH CONNECTIONS SECONDS: one request at a time on each connection, kept alive. Prints
 * {"rps":…,"p50_us":…,"p99_us":…,"mb_per_s":…} of 127.0.0.1:PORT. Answers must have a Content-Length.
 */
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 256 * 1024, HEAD_MAX = 8192, SAMPLES_MAX = 4 * 1024 * 1024 };

struct conn {
	int fd;
	int64_t asked_us;
	char head[HEAD_MAX];
	size_t head_n;
	uint64_t left; /* of the body */
	bool in_body;
};

struct load {
	int epoll;
	char request[1024];
	size_t request_n;
	char piece[PIECE];
	uint32_t *samples;
	size_t n;
	uint64_t bytes;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void ask(struct load *l, struct conn *c)
{
	c->asked_us = clock_mono_us();
	c->head_n = 0;
	c->in_body = false;
	if (send(c->fd, l->request, l->request_n, MSG_NOSIGNAL) != (ssize_t)l->request_n)
		die("send");
}

static void answered(struct load *l, struct conn *c)
{
	if (l->n < SAMPLES_MAX)
		l->samples[l->n++] = (uint32_t)(clock_mono_us() - c->asked_us);
	ask(l, c);
}

static void take_head(struct conn *c)
{
	const char *field = strcasestr(c->head, "\r\ncontent-length:");
	if (strncmp(c->head, "HTTP/1.1 200", 12) != 0 || !field) {
		fprintf(stderr, "not what was asked for: %.200s\n", c->head);
		exit(1);
	}
	c->left = strtoull(field + 17, NULL, 10);
	c->in_body = true;
}

/* Returns bytes used of p. */
static size_t take(struct load *l, struct conn *c, const char *p, size_t n)
{
	if (c->in_body) {
		size_t k = n < c->left ? n : (size_t)c->left;
		c->left -= k;
		if (c->left == 0)
			answered(l, c);
		return k;
	}
	size_t k = n < HEAD_MAX - 1 - c->head_n ? n : HEAD_MAX - 1 - c->head_n, before = c->head_n;
	memcpy(c->head + before, p, k);
	c->head[before + k] = '\0';
	const char *end = strstr(c->head, "\r\n\r\n");
	if (!end) {
		c->head_n += k;
		return k;
	}
	size_t whole = (size_t)(end + 4 - c->head);
	take_head(c);
	if (c->left == 0)
		answered(l, c);
	return whole - before;
}

static void readable(struct load *l, struct conn *c)
{
	ssize_t n = recv(c->fd, l->piece, PIECE, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		die("the connection ended");
	l->bytes += (uint64_t)n;
	for (size_t at = 0; at < (size_t)n;)
		at += take(l, c, l->piece + at, (size_t)n - at);
}

static void open_one(struct load *l, struct conn *c, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		die("connect");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){ .events = EPOLLIN, .data.ptr = c }) != 0)
		die("epoll");
	ask(l, c);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void run(struct load *l, int64_t seconds)
{
	struct epoll_event ev[256];
	int64_t start = clock_mono_us(), end = start + seconds * 1000000;
	while (clock_mono_us() < end) {
		int n = epoll_wait(l->epoll, ev, 256, 1000);
		for (int i = 0; i < n; i++)
			readable(l, ev[i].data.ptr);
	}
	double took = (double)(clock_mono_us() - start) / 1e6;
	qsort(l->samples, l->n, sizeof(*l->samples), by_value);
	printf("{\"rps\":%.0f,\"p50_us\":%u,\"p99_us\":%u,\"mb_per_s\":%.1f}\n", (double)l->n / took, l->n ? l->samples[l->n / 2] : 0,
	       l->n ? l->samples[l->n * 99 / 100] : 0, (double)l->bytes / took / 1e6);
}

int main(int argc, char **argv)
{
	int64_t port, connections, seconds;
	if (argc != 6 || parse_i64("PORT", argv[1], 1, 65535, &port, NULL) != 0 || parse_i64("N", argv[4], 1, 10000, &connections, NULL) != 0 ||
	    parse_i64("S", argv[5], 1, 600, &seconds, NULL) != 0) {
		fprintf(stderr, "usage: http_load PORT HOST PATH CONNECTIONS SECONDS\n");
		return 2;
	}
	struct load *l = xcalloc(1, sizeof(*l));
	struct conn *conns = xcalloc((size_t)connections, sizeof(*conns));
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->samples = xmalloc(SAMPLES_MAX * sizeof(*l->samples));
	l->request_n = (size_t)snprintf(l->request, sizeof(l->request), "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", argv[3], argv[2]);
	for (int64_t i = 0; i < connections; i++)
		open_one(l, &conns[i], (uint16_t)port);
	run(l, seconds);
	for (int64_t i = 0; i < connections; i++)
		close(conns[i].fd);
	free(conns);
	free(l->samples);
	close(l->epoll);
	free(l);
	return 0;
}
