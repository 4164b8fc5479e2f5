/* The HTTP/1.1 client for unix sockets: one connection, one request at a time. See unix_client.h. */
#include "shared/http/unix_client.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/http/answer.h"
#include "shared/json/model_json.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_PIECE = 64 * 1024, UPGRADE_TIMEOUT_MS = 30 * 1000 };

struct unix_client {
	char *path; /* NULL: cannot be dialled again */
	int fd;
	int interrupt_fd;
	const char *tenant; /* borrowed; NULL: none */
	struct buf in;  /* bytes read and not yet used */
	bool used;      /* a request was completed on this connection */
	bool broken;    /* must not be used again */
};

/* One exchange in progress. */
struct exchange {
	struct unix_client *c;
	const struct http_request *q;
	int64_t deadline_ms; /* monotonic; -1: none */
	bool answered_early; /* the peer spoke before the body was sent */
};

struct unix_client *unix_client_from_fd(int take_fd)
{
	struct unix_client *c = xcalloc(1, sizeof(*c));
	c->fd = take_fd;
	c->interrupt_fd = -1;
	return c;
}

static int dial(struct unix_client *c, struct error *err)
{
	close_fdp(&c->fd);
	buf_reset(&c->in);
	c->used = c->broken = false;
	struct error e = ERROR_INIT;
	c->fd = io_connect_unix(c->path, &e);
	if (c->fd >= 0)
		return 0;
	error_set(err, e.code == ERR_FORBIDDEN ? ERR_FORBIDDEN : ERR_UNREACHABLE, "%s", e.message);
	if (err)
		err->sys = e.sys;
	return -1;
}

int unix_client_connect(const char *path, struct unix_client **ret, struct error *err)
{
	struct unix_client *c = unix_client_from_fd(-1);
	c->path = xstrdup(path);
	if (dial(c, err) != 0) {
		unix_client_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void unix_client_free(struct unix_client *c)
{
	if (!c)
		return;
	close_fdp(&c->fd);
	buf_done(&c->in);
	free(c->path);
	free(c);
}

int unix_client_fd(const struct unix_client *c)
{
	return c->fd;
}

void unix_client_set_interrupt(struct unix_client *c, int fd)
{
	c->interrupt_fd = fd;
}

void unix_client_set_tenant(struct unix_client *c, const char *tenant)
{
	c->tenant = tenant && *tenant ? tenant : NULL;
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

static void rearm(struct exchange *x)
{
	x->deadline_ms = x->q->timeout_ms < 0 ? -1 : clock_mono_ms() + x->q->timeout_ms;
}

/* Waits for events on the socket or readability of extra_fd (-1: none). Returns the socket's revents (0: the extra one), -1 on error. */
static int wait_events(const struct exchange *x, short events, int extra_fd, struct error *err)
{
	struct pollfd p[3] = { { x->c->fd, events, 0 }, { x->c->interrupt_fd, POLLIN, 0 }, { extra_fd, POLLIN, 0 } };
	for (;;) {
		int64_t left = x->deadline_ms < 0 ? -1 : x->deadline_ms - clock_mono_ms();
		if (x->deadline_ms >= 0 && left <= 0)
			return error_set(err, ERR_TIMEOUT, "no answer within %.3g s", (double)x->q->timeout_ms / 1000.0);
		int n = poll(p, 3, left < 0 ? -1 : left > 1000000 ? 1000000 : (int)left);
		if (n < 0 && errno != EINTR)
			return error_errno(err, "waiting for the server");
		if (n > 0 && p[1].revents) {
			error_set(err, ERR_TIMEOUT, "interrupted");
			if (err)
				err->sys = EINTR;
			return -1;
		}
		if (n > 0 && (p[0].revents || p[2].revents))
			return p[0].revents;
	}
}

/* --- sending ---------------------------------------------------------------------------------------------------- */

static bool gone(int e)
{
	return e == EPIPE || e == ECONNRESET || e == ENOTCONN;
}

/* Sends all, unless the peer answers first or is gone (both end up in reading the answer). */
static int send_all(struct exchange *x, const char *p, size_t n, struct error *err)
{
	struct unix_client *c = x->c;
	while (n > 0 && !x->answered_early) {
		ssize_t w = send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (w >= 0) {
			p += w;
			n -= (size_t)w;
			if (x->q->from_fd)
				rearm(x);
		} else if (gone(errno)) {
			x->answered_early = c->broken = true;
		} else if (errno == EAGAIN) {
			int ev = wait_events(x, POLLOUT | POLLIN, -1, err);
			if (ev < 0)
				return -1;
			if (ev & POLLIN)
				x->answered_early = c->broken = true;
		} else if (errno != EINTR) {
			return error_errno(err, "sending to the server");
		}
	}
	return 0;
}

static bool text_clean(const char *s, bool blanks)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127 || (*s == ' ' && !blanks))
			return false;
	return true;
}

static int build_head(const struct exchange *x, bool upgrade, struct buf *out, struct error *err)
{
	const struct http_request *q = x->q;
	const char *tenant = x->c->tenant;
	if (!text_clean(q->target, false))
		return error_set(err, ERR_INVALID, "the request target holds a blank or control byte");
	buf_addf(out, "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: sandbox/" SANDBOX_VERSION "\r\n", q->method, q->target);
	if (tenant && !text_clean(tenant, false))
		return error_set(err, ERR_INVALID, "the tenant's name holds a blank or control byte");
	if (tenant)
		buf_addf(out, "X-Sandbox-Tenant: %s\r\n", tenant);
	if (upgrade)
		buf_adds(out, "Connection: Upgrade\r\nUpgrade: sandbox-mux\r\n");
	for (size_t i = 0; q->headers && i < q->headers->len; i++) {
		const struct kv *h = &q->headers->items[i];
		if (!text_clean(h->key, false) || !text_clean(h->value, true))
			return error_set(err, ERR_INVALID, "the value of %s holds a control byte", h->key);
		buf_addf(out, "%s: %s\r\n", h->key, h->value);
	}
	if (q->from_fd)
		buf_adds(out, "Transfer-Encoding: chunked\r\n");
	else if (!upgrade && (q->body || strcmp(q->method, "POST") == 0)) /* bytes behind an upgrade are the other protocol's, not a body */
		buf_addf(out, "Content-Length: %zu\r\n", q->body ? q->n : 0);
	buf_adds(out, "\r\n");
	return 0;
}

static int send_chunk(struct exchange *x, const char *p, size_t n, struct error *err)
{
	char head[24];
	int len = snprintf(head, sizeof(head), "%zx\r\n", n);
	if (send_all(x, head, (size_t)len, err) != 0 || send_all(x, p, n, err) != 0)
		return -1;
	return send_all(x, "\r\n", n ? 2 : 0, err);
}

static int send_from_fd(struct exchange *x, struct error *err)
{
	auto_free char *piece = xmalloc(READ_PIECE);
	while (!x->answered_early) {
		ssize_t n = read(x->q->body_fd, piece, READ_PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			rearm(x);
			if (wait_events(x, 0, x->q->body_fd, err) < 0)
				return -1;
			continue;
		}
		if (n < 0) {
			x->c->broken = true;
			return error_errno(err, "reading what to send");
		}
		if (n == 0)
			return send_all(x, "0\r\n\r\n", 5, err);
		if (send_chunk(x, piece, (size_t)n, err) != 0)
			return -1;
	}
	return 0;
}

static int send_request(struct exchange *x, bool upgrade, struct error *err)
{
	auto_buf head = BUF_INIT;
	if (build_head(x, upgrade, &head, err) != 0)
		return -1;
	if (x->q->body && x->q->n <= READ_PIECE) {
		buf_add(&head, x->q->body, x->q->n);
		return send_all(x, head.data, head.len, err);
	}
	if (send_all(x, head.data, head.len, err) != 0)
		return -1;
	if (x->q->from_fd)
		return send_from_fd(x, err);
	return x->q->body ? send_all(x, x->q->body, x->q->n, err) : 0;
}

/* --- receiving -------------------------------------------------------------------------------------------------- */

/* More bytes into c->in. Returns 1, 0 at the end, -1 on error. */
static int receive(struct exchange *x, struct error *err)
{
	struct unix_client *c = x->c;
	char *to = buf_reserve(&c->in, READ_PIECE);
	for (;;) {
		ssize_t n = recv(c->fd, to, READ_PIECE, MSG_DONTWAIT);
		if (n > 0) {
			buf_commit(&c->in, (size_t)n);
			if (x->q->on_body)
				rearm(x);
			return 1;
		}
		if (n == 0 || gone(errno))
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return error_errno(err, "reading the answer");
		if (wait_events(x, POLLIN, -1, err) < 0)
			return -1;
	}
}

/* The head of the final answer; interim ones are skipped. Returns 1, 0 when the peer closed before a first byte, -1 on error. */
static int read_head(struct exchange *x, struct http_head *h, struct error *err)
{
	struct unix_client *c = x->c;
	for (;;) {
		ssize_t n = c->in.len ? http_head_parse(c->in.data, c->in.len, h, err) : 0;
		if (n < 0)
			return -1;
		if (n > 0) {
			buf_consume(&c->in, (size_t)n);
			if (h->status >= 200 || h->status == 101)
				return 1;
			http_head_done(h);
			continue;
		}
		int r = receive(x, err);
		if (r < 0)
			return -1;
		if (r == 0)
			return c->in.len ? error_set(err, ERR_PROTOCOL, "the server closed the connection within its answer") : 0;
	}
}

static int take_body(struct exchange *x, struct http_answer *a, const char *p, size_t n, struct error *err)
{
	if (n == 0)
		return 0;
	if (x->q->on_body && a->status >= 200 && a->status < 300)
		return x->q->on_body(x->q->ctx, p, n, err);
	buf_add(&a->body, p, n);
	if (a->body.overflow)
		return error_set(err, ERR_TOO_LARGE, "the answer is over the limit JSON_BYTES_MAX (%d bytes)", LIMIT_JSON_BYTES_MAX);
	return 0;
}

static int cut_off(struct error *err)
{
	return error_set(err, ERR_PROTOCOL, "the server closed the connection within its answer");
}

static int read_chunked(struct exchange *x, struct http_answer *a, struct error *err)
{
	struct unix_client *c = x->c;
	struct http_chunks state = { 0 };
	while (!http_chunks_ended(&state)) {
		size_t used = 0;
		while (used < c->in.len && !http_chunks_ended(&state)) {
			const char *piece;
			size_t piece_n;
			ssize_t n = http_chunks_feed(&state, c->in.data + used, c->in.len - used, &piece, &piece_n, err);
			if (n < 0 || take_body(x, a, piece, piece_n, err) != 0)
				return -1;
			used += (size_t)n;
		}
		buf_consume(&c->in, used);
		if (http_chunks_ended(&state))
			break;
		int r = receive(x, err);
		if (r <= 0)
			return r < 0 ? -1 : cut_off(err);
	}
	return 0;
}

/* length < 0: until the connection ends. */
static int read_plain(struct exchange *x, struct http_answer *a, int64_t length, struct error *err)
{
	struct unix_client *c = x->c;
	for (int64_t got = 0; length < 0 || got < length;) {
		size_t n = c->in.len;
		if (length >= 0 && (int64_t)n > length - got)
			n = (size_t)(length - got);
		if (n) {
			if (take_body(x, a, c->in.data, n, err) != 0)
				return -1;
			buf_consume(&c->in, n);
			got += (int64_t)n;
			continue;
		}
		int r = receive(x, err);
		if (r < 0)
			return -1;
		if (r == 0)
			return length < 0 ? 0 : cut_off(err);
	}
	return 0;
}

static int read_body(struct exchange *x, const struct http_head *h, struct http_answer *a, struct error *err)
{
	if (h->status == 204 || h->status == 304 || h->status < 200 || strcmp(x->q->method, "HEAD") == 0)
		return 0;
	if (h->chunked)
		return read_chunked(x, a, err);
	if (h->length < 0)
		x->c->broken = true;
	return read_plain(x, a, h->length, err);
}

static void answer_from_head(struct http_answer *a, struct http_head *h)
{
	*a = (struct http_answer){ .status = h->status, .headers = h->headers, .body = BUF_INIT_MAX(LIMIT_JSON_BYTES_MAX) };
	memcpy(a->reason, h->reason, sizeof(a->reason));
	h->headers = (struct map)MAP_INIT;
}

static int unanswered(const struct http_request *q, struct error *err)
{
	if (strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0)
		return error_set(err, ERR_UNREACHABLE, "the server closed the connection without an answer");
	return error_set(err, ERR_UNREACHABLE, "the server closed the connection without an answer; whether it acted is unknown");
}

/* --- whole requests --------------------------------------------------------------------------------------------- */

/* A kept connection whose other end is closed is noticed before anything is sent on it. */
static bool stale(const struct unix_client *c)
{
	char b;
	if (c->fd < 0 || c->broken || c->in.len)
		return true;
	return c->used && (recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN);
}

static int ensure_connected(struct unix_client *c, struct error *err)
{
	if (!stale(c))
		return 0;
	if (!c->path)
		return error_set(err, ERR_UNREACHABLE, "the connection is closed");
	return dial(c, err);
}

/* One try. 1: answered, 0: closed before a first byte, -1: failed. */
static int exchange(struct exchange *x, struct http_answer *ret, struct error *err)
{
	struct http_head h = { .length = -1 };
	rearm(x);
	if (send_request(x, false, err) != 0)
		return -1;
	int r = read_head(x, &h, err);
	if (r <= 0)
		return r;
	if (h.status == 101) {
		http_head_done(&h);
		return error_set(err, ERR_PROTOCOL, "the server switched protocols unasked");
	}
	struct http_answer a;
	answer_from_head(&a, &h);
	if (read_body(x, &h, &a, err) != 0) {
		http_answer_done(&a);
		return -1;
	}
	if (h.close || x->answered_early)
		x->c->broken = true;
	*ret = a;
	return 1;
}

int unix_client_send(struct unix_client *c, const struct http_request *q, struct http_answer *ret, struct error *err)
{
	bool safe = strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
	for (;;) {
		if (ensure_connected(c, err) != 0)
			return -1;
		bool kept = c->used;
		struct exchange x = { .c = c, .q = q };
		int r = exchange(&x, ret, err);
		c->used = true;
		if (r > 0)
			return 0;
		c->broken = true;
		if (r < 0)
			return -1;
		if (!kept || !safe || !c->path)
			return unanswered(q, err);
	}
}

int unix_client_request(struct unix_client *c, const char *method, const char *target, const struct map *headers, const void *body, size_t n,
			int64_t timeout_ms, struct http_answer *ret, struct error *err)
{
	struct http_request q = {
		.method = method, .target = target, .headers = headers, .body = body, .n = n, .body_fd = -1, .timeout_ms = timeout_ms
	};
	return unix_client_send(c, &q, ret, err);
}

static int refused(struct exchange *x, struct http_head *h, struct error *err)
{
	struct http_answer a;
	answer_from_head(&a, h);
	int status = a.status, rc = read_body(x, h, &a, err);
	cJSON *j = NULL;
	if (rc == 0 && (json_parse(buf_str(&a.body), a.body.len, &j, NULL) != 0 || !error_from_json(j, err)))
		error_set(err, ERR_PROTOCOL, "the server answered %d %s to an upgrade", status, a.reason);
	json_freep(&j);
	http_answer_done(&a);
	return -1;
}

static int upgrade(struct exchange *x, int *ret_fd, struct buf *ret_rest, struct error *err)
{
	struct http_head h = { .length = -1 };
	rearm(x);
	if (send_request(x, true, err) != 0)
		return -1;
	int r = read_head(x, &h, err);
	if (r <= 0)
		return r < 0 ? -1 : unanswered(x->q, err);
	if (h.status != 101) {
		refused(x, &h, err);
		http_head_done(&h);
		return -1;
	}
	http_head_done(&h);
	buf_add(ret_rest, x->c->in.data, x->c->in.len);
	*ret_fd = steal_fd(&x->c->fd);
	return 0;
}

int unix_client_upgrade(struct unix_client *take_c, const char *target, const void *early, size_t early_n, int *ret_fd, struct buf *ret_rest,
			struct error *err)
{
	struct http_request q = {
		.method = "GET", .target = target, .body = early, .n = early_n, .body_fd = -1, .timeout_ms = UPGRADE_TIMEOUT_MS
	};
	struct exchange x = { .c = take_c, .q = &q };
	int rc = ensure_connected(take_c, err) == 0 ? upgrade(&x, ret_fd, ret_rest, err) : -1;
	unix_client_free(take_c);
	return rc;
}
