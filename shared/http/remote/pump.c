/*
 * A stream's thread: bytes of a socket pair ↔ WebSocket messages. Either direction is read only while nothing of it waits, so
 * whoever is slow stops the other side.
 */
#include "shared/http/remote/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/http/ws.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = WS_PAYLOAD_MAX, CLOSE_NORMAL = 1000, CLOSE_WAIT_MS = 500 };

struct pump {
	struct pump *next;
	pthread_t thread;
	CURL *h;
	int sock, plain; /* plain -1: closed */
	struct ws *ws;
	struct buf to_wire, to_plain;
	bool wire_end;
	int64_t close_by_ms; /* 0: not closing */
	char piece[PIECE];
};

static void take(struct pump *p, const void *bytes, size_t n)
{
	if (ws_feed(p->ws, bytes, n, &p->to_plain, &p->to_wire, NULL) != 0 || ws_ended(p->ws))
		p->wire_end = true;
}

static bool from_wire(struct pump *p)
{
	size_t got = 0;
	if (p->wire_end || (p->to_plain.len > 0 && p->plain >= 0))
		return false;
	CURLcode rc = curl_easy_recv(p->h, p->piece, sizeof(p->piece), &got);
	if (rc == CURLE_AGAIN)
		return false;
	if (rc != CURLE_OK || got == 0)
		p->wire_end = true;
	else
		take(p, p->piece, got);
	return true;
}

static bool to_plain(struct pump *p)
{
	if (p->to_plain.len == 0)
		return false;
	ssize_t n = p->plain >= 0 ? send(p->plain, p->to_plain.data, p->to_plain.len, MSG_DONTWAIT | MSG_NOSIGNAL) : (ssize_t)p->to_plain.len;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* Nobody reads any more: what comes is dropped until its end is noticed. */
	buf_consume(&p->to_plain, n < 0 ? p->to_plain.len : (size_t)n);
	return true;
}

static bool from_plain(struct pump *p)
{
	if (p->plain < 0 || p->to_wire.len > 0)
		return false;
	ssize_t n = recv(p->plain, p->piece, sizeof(p->piece), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0) {
		ws_send(p->ws, p->piece, (size_t)n, &p->to_wire);
		return true;
	}
	close_fdp(&p->plain);
	ws_close(p->ws, CLOSE_NORMAL, &p->to_wire);
	p->close_by_ms = clock_mono_ms() + CLOSE_WAIT_MS;
	return true;
}

static bool to_wire(struct pump *p)
{
	size_t sent = 0;
	if (p->to_wire.len == 0)
		return false;
	CURLcode rc = curl_easy_send(p->h, p->to_wire.data, p->to_wire.len, &sent);
	if (rc == CURLE_AGAIN)
		return false;
	if (rc != CURLE_OK) {
		p->wire_end = true;
		buf_reset(&p->to_wire);
		return true;
	}
	buf_consume(&p->to_wire, sent);
	return true;
}

static bool ended(const struct pump *p)
{
	if (p->close_by_ms && clock_mono_ms() >= p->close_by_ms)
		return true;
	return p->wire_end && p->to_wire.len == 0 && (p->plain < 0 || p->to_plain.len == 0);
}

static void wait_more(struct pump *p)
{
	short wire = 0, plain = 0;
	if (!p->wire_end && (p->to_plain.len == 0 || p->plain < 0))
		wire |= POLLIN;
	if (p->to_wire.len > 0)
		wire |= POLLOUT;
	if (p->to_wire.len == 0)
		plain |= POLLIN;
	if (p->to_plain.len > 0)
		plain |= POLLOUT;
	struct pollfd fds[2] = { { .fd = p->wire_end && !wire ? -1 : p->sock, .events = wire }, { .fd = p->plain, .events = plain } };
	poll(fds, 2, p->close_by_ms ? CLOSE_WAIT_MS : -1);
}

static void *run(void *arg)
{
	struct pump *p = arg;
	while (!ended(p)) {
		bool moved = from_wire(p);
		moved = to_plain(p) || moved;
		moved = from_plain(p) || moved;
		moved = to_wire(p) || moved;
		if (!moved)
			wait_more(p);
	}
	close_fdp(&p->plain);
	curl_easy_cleanup(p->h);
	ws_free(p->ws);
	buf_done(&p->to_wire);
	buf_done(&p->to_plain);
	return NULL;
}

int pump_start(struct remote *r, CURL *take_h, struct ws *take_ws, struct buf *take_in, int take_plain, struct error *err)
{
	struct pump *p = xcalloc(1, sizeof(*p));
	curl_socket_t sock = CURL_SOCKET_BAD;
	curl_easy_getinfo(take_h, CURLINFO_ACTIVESOCKET, &sock);
	p->h = take_h;
	p->ws = take_ws;
	p->sock = sock;
	p->plain = take_plain;
	take(p, take_in->data, take_in->len);
	buf_done(take_in);
	/* Signals are the program's own business. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0) {
		close_fdp(&p->plain);
		curl_easy_cleanup(p->h);
		ws_free(p->ws);
		free(p);
		errno = rc;
		return error_errno(err, "starting a thread for the stream");
	}
	p->next = r->pumps;
	r->pumps = p;
	return 0;
}

void pumps_finish(struct remote *r, int64_t timeout_ms)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (r->pumps) {
		struct pump *p = r->pumps;
		r->pumps = p->next;
		/* One whose peer takes nothing is left to the end of the process. */
		if (pthread_timedjoin_np(p->thread, NULL, &until) == 0)
			free(p);
	}
}
