/* Opening a stream: a connection by libcurl (TLS, proxies), the WebSocket handshake on it by hand, then a pump. */
#include "shared/http/remote/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/http/answer.h"
#include "shared/http/ws.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HANDSHAKE_MS = 30000, PIECE = 16 * 1024, BODY_MAX = 64 * 1024 };

struct opening {
	struct remote *r;
	CURL *h;
	int sock;
	int64_t deadline_ms;
	char key[WS_KEY_LEN + 1];
	struct buf in;
};

static int wait_for(const struct opening *o, short events, struct error *err)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = o->sock, .events = events }, { .fd = o->r->interrupt_fd, .events = POLLIN } };
		int64_t left = o->deadline_ms - clock_mono_ms();
		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "no answer within %d s", HANDSHAKE_MS / 1000);
		if (poll(p, 2, (int)left) < 0 && errno != EINTR)
			return error_errno(err, "waiting for the server");
		if (p[1].revents) {
			error_set(err, ERR_TIMEOUT, "interrupted");
			if (err)
				err->sys = EINTR;
			return -1;
		}
		if (p[0].revents)
			return 0;
	}
}

static int send_all(const struct opening *o, const char *p, size_t n, struct error *err)
{
	while (n > 0) {
		size_t sent = 0;
		CURLcode rc = curl_easy_send(o->h, p, n, &sent);
		if (rc == CURLE_AGAIN) {
			if (wait_for(o, POLLOUT, err) != 0)
				return -1;
		} else if (rc != CURLE_OK) {
			return error_set(err, ERR_UNREACHABLE, "the server closed the connection without an answer");
		}
		p += sent;
		n -= sent;
	}
	return 0;
}

/* 1: more came, 0: the end, -1: err. */
static int receive(struct opening *o, struct error *err)
{
	for (;;) {
		size_t got = 0;
		char *to = buf_reserve(&o->in, PIECE);
		CURLcode rc = curl_easy_recv(o->h, to, PIECE, &got);
		if (rc == CURLE_AGAIN) {
			if (wait_for(o, POLLIN, err) != 0)
				return -1;
			continue;
		}
		if (rc != CURLE_OK || got == 0)
			return 0;
		buf_commit(&o->in, got);
		return 1;
	}
}

static int connect_to(struct opening *o, const char *target, struct error *err)
{
	char detail[CURL_ERROR_SIZE] = "";
	curl_socket_t sock = CURL_SOCKET_BAD;
	o->h = remote_handle(o->r, target, err);
	if (!o->h)
		return -1;
	curl_easy_setopt(o->h, CURLOPT_ERRORBUFFER, detail);
	curl_easy_setopt(o->h, CURLOPT_CONNECT_ONLY, 1L);
	/* Plain http through a proxy needs a tunnel as well. */
	curl_easy_setopt(o->h, CURLOPT_HTTPPROXYTUNNEL, 1L);
	CURLcode rc = curl_easy_perform(o->h);
	if (rc != CURLE_OK)
		return remote_failure(o->r, o->h, rc, detail, err);
	curl_easy_setopt(o->h, CURLOPT_ERRORBUFFER, NULL);
	curl_easy_setopt(o->h, CURLOPT_NOPROGRESS, 1L);
	if (curl_easy_getinfo(o->h, CURLINFO_ACTIVESOCKET, &sock) != CURLE_OK || sock == CURL_SOCKET_BAD)
		return error_set(err, ERR_UNREACHABLE, "the connection ended at once");
	o->sock = sock;
	return 0;
}

static int send_head(struct opening *o, const char *target, struct error *err)
{
	auto_buf head = BUF_INIT;
	const char *authority = strstr(o->r->base, "://") + 3;
	size_t n = strcspn(authority, "/");
	ws_key(o->key);
	buf_addf(&head, "GET %s%s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: sandbox/" SANDBOX_VERSION "\r\n", authority + n, target, (int)n, authority);
	if (o->r->token)
		buf_addf(&head, "Authorization: Bearer %s\r\n", o->r->token);
	if (o->r->tenant)
		buf_addf(&head, "X-Sandbox-Tenant: %s\r\n", o->r->tenant);
	buf_addf(&head,
		 "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
		 "Sec-WebSocket-Protocol: " WS_PROTOCOL "\r\n\r\n",
		 o->key);
	int rc = send_all(o, head.data, head.len, err);
	explicit_bzero(head.data, head.len);
	return rc;
}

static int read_head(struct opening *o, struct http_head *ret, struct error *err)
{
	for (;;) {
		ssize_t n = o->in.len ? http_head_parse(o->in.data, o->in.len, ret, err) : 0;
		if (n < 0)
			return error_wrap(err, "what answers there does not speak HTTP");
		if (n > 0) {
			buf_consume(&o->in, (size_t)n);
			if (ret->status == 101 || ret->status >= 200)
				return 0;
			http_head_done(ret);
			continue;
		}
		int rc = receive(o, err);
		if (rc < 0)
			return -1;
		if (rc == 0 && o->in.len == 0)
			return error_set(err, ERR_UNREACHABLE, "the server closed the connection without an answer");
		if (rc == 0)
			return error_set(err, ERR_PROTOCOL, "the server closed the connection within its answer");
	}
}

/* The body of a refusal as far as it is short: errors are. */
static void read_refusal(struct opening *o, struct http_head *h, struct http_answer *ret)
{
	*ret = (struct http_answer){ .status = h->status, .headers = h->headers, .body = BUF_INIT_MAX(BODY_MAX) };
	memcpy(ret->reason, h->reason, sizeof(ret->reason));
	h->headers = (struct map)MAP_INIT;
	struct http_chunks chunks = { 0 };
	for (bool more = true; more;) {
		const char *piece = o->in.data;
		size_t n = o->in.len, used = n;
		if (h->chunked && n > 0) {
			ssize_t rc = http_chunks_feed(&chunks, o->in.data, o->in.len, &piece, &n, NULL);
			if (rc < 0)
				return;
			used = (size_t)rc;
		}
		buf_add(&ret->body, piece, n);
		buf_consume(&o->in, used);
		bool whole = h->chunked ? http_chunks_ended(&chunks) : h->length >= 0 && ret->body.len >= (size_t)h->length;
		if (whole || ret->body.overflow)
			return;
		more = used > 0 || receive(o, NULL) > 0;
		if (used == 0 && !more)
			return;
		if (used > 0 && o->in.len == 0)
			more = receive(o, NULL) > 0;
	}
}

static int check_agreement(const struct opening *o, const struct http_head *h, struct error *err)
{
	char want[WS_ACCEPT_LEN + 1];
	const char *accept = map_get(&h->headers, "sec-websocket-accept"), *protocol = map_get(&h->headers, "sec-websocket-protocol");
	ws_accept(o->key, want);
	if (!accept || strcmp(accept, want) != 0)
		return error_set(err, ERR_PROTOCOL, "the server did not agree to WebSocket as it should (Sec-WebSocket-Accept)");
	if (!protocol || strcmp(protocol, WS_PROTOCOL) != 0)
		return error_set(err, ERR_PROTOCOL, "the server did not agree to the protocol " WS_PROTOCOL);
	return 0;
}

static int begin(struct opening *o, const void *early, size_t n, int *ret_fd, struct error *err)
{
	int pair[2];
	auto_buf wire = BUF_INIT;
	struct ws *ws = ws_new(true);
	for (size_t at = 0; at < n; at += WS_PAYLOAD_MAX)
		ws_send(ws, (const char *)early + at, n - at < WS_PAYLOAD_MAX ? n - at : WS_PAYLOAD_MAX, &wire);
	if (send_all(o, wire.data, wire.len, err) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
		ws_free(ws);
		return err && err->code ? -1 : error_errno(err, "making a socket pair");
	}
	io_set_nonblock(pair[0], true);
	if (pump_start(o->r, steal(&o->h), ws, &o->in, pair[0], err) != 0) {
		close(pair[1]);
		return -1;
	}
	*ret_fd = pair[1];
	return 0;
}

int remote_stream(struct remote *r, const char *target, const void *early, size_t n, int *ret_fd, struct http_answer *ret_refusal,
		  struct error *err)
{
	struct opening o = { .r = r, .sock = -1, .deadline_ms = clock_mono_ms() + HANDSHAKE_MS };
	struct http_head h = { .length = -1 };
	int rc = -1;
	if (connect_to(&o, target, err) == 0 && send_head(&o, target, err) == 0 && read_head(&o, &h, err) == 0) {
		if (h.status != 101) {
			read_refusal(&o, &h, ret_refusal);
			rc = 1;
		} else if (check_agreement(&o, &h, err) == 0) {
			rc = begin(&o, early, n, ret_fd, err);
		}
	}
	http_head_done(&h);
	buf_done(&o.in);
	if (o.h)
		curl_easy_cleanup(o.h);
	return rc;
}
