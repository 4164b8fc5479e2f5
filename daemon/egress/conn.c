/*
 * One connection of a program inside, from its request to the bytes: judged by name, resolved, every address checked, connected to one of
 * those very addresses. Nothing is sent anywhere before all of that.
 */
#include "daemon/egress/egress_priv.h"

#include "daemon/egress/addresses.h"
#include "daemon/egress/hello.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MS = 30 * 1000, CONNECT_MS = 10 * 1000, ENDING_MS = 10 * 1000, TLS_PORT = 443 };

static const struct stream_ops conn_ops;

static void arm(struct conn *c, int64_t ms)
{
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	evtimer_add(c->ev_timer, &tv);
}

void conn_touch(struct conn *c)
{
	c->active_ms = clock_mono_ms();
}

static void stop_events(struct conn *c)
{
	if (c->ev_read)
		event_free(c->ev_read);
	if (c->ev_write)
		event_free(c->ev_write);
	c->ev_read = c->ev_write = NULL;
	close_fdp(&c->fd);
}

void conn_free(struct conn *c)
{
	struct conn **at = &c->box->conns;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->box->n_conns--;
	c->box->owner->n_conns--;
	stream_close(&c->stream, NULL);
	if (c->lookup)
		resolve_cancel(c->lookup);
	stop_events(c);
	event_free(c->ev_timer);
	proxy_request_done(&c->request);
	buf_done(&c->in);
	buf_done(&c->prefix);
	buf_done(&c->out);
	free(c);
}

void conn_abort(struct conn *c, const char *why)
{
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_ERROR, MUX_ERR_CONNECT);
	tlv_add_str(&t, MUX_F_MESSAGE, why);
	stream_close(&c->stream, &t);
	conn_free(c);
}

void conn_used(struct conn *c, size_t n)
{
	buf_consume(&c->in, n);
	c->in_base += n;
	if (c->stream.m)
		mux_consumed(c->stream.m, c->stream.id, MUX_STDIN, c->in_base);
}

static const char *reason_phrase(int status)
{
	switch (status) {
	case 200:
		return "Connection established";
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 431:
		return "Request Header Fields Too Large";
	case 502:
		return "Bad Gateway";
	case 504:
		return "Gateway Timeout";
	default:
		return "Error";
	}
}

void conn_answer(struct conn *c, int status, const char *text)
{
	auto_free char *body = xasprintf("sandbox: %s\n", text);
	buf_addf(&c->out, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n", status,
		 reason_phrase(status), strlen(body));
	if (status == 403)
		buf_addf(&c->out, "X-Sandbox-Egress: denied\r\n");
	buf_addf(&c->out, "\r\n%s", body);
	c->state = CONN_ENDING;
	c->out_eof = true;
	conn_used(c, c->in.len);
	stop_events(c);
	arm(c, ENDING_MS);
	relay_flush_out(c);
}

/* Allowed by its name, refused for something else. */
static void refuse(struct conn *c, const char *why)
{
	char target[EGRESS_RULE_TEXT_MAX];
	auto_free char *text = xasprintf("%s is not allowed: %s", egress_target_text(&c->request.target, target), why);
	box_refuse(c->box, c->attempt, &c->request.target, why);
	conn_answer(c, 403, text);
}

/* --- connecting --- */

static void try_next(struct conn *c, int sys);
static void proceed(struct conn *c);

static void connected(struct conn *c)
{
	struct attempt *a;
	event_free(c->ev_write);
	c->ev_write = NULL;
	if (relay_begin(c) != 0) {
		conn_answer(c, 502, "the worker is out of memory for events");
		return;
	}
	a = box_attempt(c->box, c->attempt);
	if (a)
		a->sent = a->received = 0;
	arm(c, LIMIT_EGRESS_IDLE_MS);
	conn_touch(c);
	if (c->request.connect) {
		buf_adds(&c->out, "HTTP/1.1 200 Connection established\r\n\r\n");
		c->state = c->request.target.port == TLS_PORT ? CONN_HELLO : CONN_RELAY;
	} else {
		c->prefix = c->request.head;
		c->request.head = (struct buf)BUF_INIT;
		c->state = CONN_RELAY;
	}
	proceed(c); /* more than the head may be here already */
}

static void on_connect(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	int sys = 0;
	socklen_t n = sizeof(sys);
	if (what & EV_TIMEOUT)
		sys = ETIMEDOUT;
	else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &n) != 0)
		sys = errno;
	if (sys == 0) {
		connected(c);
		return;
	}
	stop_events(c);
	c->at++;
	try_next(c, sys);
}

static int attempt(struct conn *c)
{
	const struct address *a = &c->found.items[c->at];
	struct timeval tv = { .tv_sec = CONNECT_MS / 1000 };
	c->fd = socket(a->sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -1;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	if (connect(c->fd, &a->sa.any, a->len) != 0 && errno != EINPROGRESS)
		return -1;
	c->ev_write = event_new(c->box->owner->base, c->fd, EV_WRITE, on_connect, c);
	if (!c->ev_write || event_add(c->ev_write, &tv) != 0) {
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

static void try_next(struct conn *c, int sys)
{
	char target[EGRESS_RULE_TEXT_MAX];
	while (c->at < c->found.len) {
		if (attempt(c) == 0)
			return;
		sys = errno;
		stop_events(c);
		c->at++;
	}
	auto_free char *text = xasprintf("%s does not answer: %s", egress_target_text(&c->request.target, target), strerror(sys));
	conn_answer(c, sys == ETIMEDOUT ? 504 : 502, text);
}

/* One that is not public spoils all: who controls the name could let us try until it is the one. */
static bool check_addresses(struct conn *c)
{
	for (size_t i = 0; i < c->found.len; i++) {
		const struct sockaddr *sa = &c->found.items[i].sa.any;
		const char *kind = address_refused(sa, &c->box->policy.open);
		char host[ADDRESS_TEXT_MAX];
		if (!kind)
			continue;
		address_host(sa, host);
		auto_free char *why = xasprintf("its address %s is not public (%s); the server's egress.open_addresses decides", host, kind);
		refuse(c, why);
		return false;
	}
	return true;
}

static void on_resolved(void *ctx, const struct addresses *found, const struct error *err)
{
	struct conn *c = ctx;
	c->lookup = NULL;
	if (err) {
		conn_answer(c, err->code == ERR_UNAVAILABLE ? 504 : 502, err->message);
		return;
	}
	c->found = *found;
	if (!check_addresses(c))
		return;
	c->state = CONN_CONNECTING;
	event_del(c->ev_timer);
	try_next(c, EHOSTUNREACH);
}

/* --- the request --- */

static void judge(struct conn *c)
{
	struct egress_verdict v;
	char target[EGRESS_RULE_TEXT_MAX];
	egress_decide(&c->box->policy, &c->request.target, &v);
	c->attempt = box_note(c->box, &c->request.target, &v);
	if (!v.allowed) {
		auto_free char *text = xasprintf("%s is not allowed: %s", egress_target_text(&c->request.target, target), v.why);
		conn_answer(c, 403, text);
		return;
	}
	c->state = CONN_RESOLVING;
	c->lookup = resolve_start(c->box->owner->resolver, &c->request.target, on_resolved, c);
	if (!c->lookup)
		conn_answer(c, 504, "too many names are being looked up: try again");
}

static void read_head(struct conn *c)
{
	struct error err = ERROR_INIT;
	size_t n = proxy_head_length(buf_str(&c->in), c->in.len);
	int status = 400;
	if (n == 0 && c->in.len > PROXY_HEAD_MAX)
		conn_answer(c, 431, "the request's head is longer than 16 KiB");
	else if (n == 0 && c->in_eof)
		conn_abort(c, "no request came");
	if (n == 0)
		return;
	if (n > PROXY_HEAD_MAX) {
		conn_answer(c, 431, "the request's head is longer than 16 KiB");
		return;
	}
	if (proxy_request_parse(c->in.data, n, &c->request, &status, &err) != 0) {
		conn_answer(c, status, err.message);
		return;
	}
	conn_used(c, n);
	judge(c);
}

/* --- the TLS hello --- */

/* The name that a virtual host is chosen by must be the one that was judged. NULL: it is. */
static const char *name_refused(const struct egress_target *t, const char *name)
{
	if (t->numeric ? *name == '\0' : strcasecmp(name, t->host) == 0)
		return NULL;
	return *name ? "the TLS server name is another than CONNECT's" : "TLS names no server";
}

/* False: c is gone. */
static bool read_hello(struct conn *c)
{
	char name[HELLO_NAME_MAX + 1] = "";
	const char *why = "on port 443 only TLS may be spoken";
	switch (hello_read((const uint8_t *)buf_str(&c->in), c->in.len, name)) {
	case HELLO_MORE:
		if (!c->in_eof)
			return true;
		conn_abort(c, "the connection ended before TLS began");
		return false;
	case HELLO_READ:
		why = name_refused(&c->request.target, name);
		break;
	case HELLO_BAD:
		break;
	}
	if (!why) {
		c->state = CONN_RELAY;
		return true;
	}
	box_refuse(c->box, c->attempt, &c->request.target, why);
	conn_abort(c, why);
	return false;
}

/* --- events of the stream --- */

static struct conn *conn_of(struct stream *s)
{
	return container_of(s, struct conn, stream);
}

static void proceed(struct conn *c)
{
	switch (c->state) {
	case CONN_HEAD:
		read_head(c);
		break;
	case CONN_RESOLVING:
	case CONN_CONNECTING:
		break;
	case CONN_HELLO:
		if (c->in.len == 0 && !c->in_eof)
			relay_flush_out(c);
		else if (read_hello(c))
			relay_pump(c);
		break;
	case CONN_RELAY:
		relay_pump(c);
		break;
	case CONN_ENDING:
		conn_used(c, c->in.len);
		break;
	}
}

static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct conn *c = conn_of(s);
	(void)offset;
	if (channel != MUX_STDIN) {
		mux_consumed(s->m, s->id, channel, offset + n);
		return;
	}
	buf_add(&c->in, p, n); /* the window bounds it */
	conn_touch(c);
	proceed(c);
}

static void on_eof(struct stream *s, unsigned channel)
{
	struct conn *c = conn_of(s);
	if (channel != MUX_STDIN)
		return;
	c->in_eof = true;
	proceed(c);
}

static void on_room(struct stream *s)
{
	struct conn *c = conn_of(s);
	if (c->state == CONN_HELLO || c->state == CONN_RELAY)
		relay_pump(c);
	else
		relay_flush_out(c);
}

static void on_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	(void)channel;
	(void)consumed;
	on_room(s);
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	(void)fields;
	conn_free(conn_of(s));
}

static void on_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	conn_free(conn_of(s));
}

static const struct stream_ops conn_ops = {
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_room,
};

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	int64_t idle = clock_mono_ms() - c->active_ms;
	(void)fd;
	(void)what;
	if (c->state == CONN_HEAD) {
		conn_abort(c, "no complete request came in time");
	} else if (c->state == CONN_RESOLVING) {
		resolve_cancel(c->lookup);
		c->lookup = NULL;
		conn_answer(c, 504, "the name was not found in time");
	} else if (c->state == CONN_ENDING || idle >= LIMIT_EGRESS_IDLE_MS) {
		conn_abort(c, "nothing moved for too long");
	} else {
		arm(c, LIMIT_EGRESS_IDLE_MS - idle);
	}
}

void conn_open(struct egress_box *b, struct mux *m, uint32_t stream)
{
	struct conn *c = xcalloc(1, sizeof(*c));
	c->box = b;
	c->fd = -1;
	c->next = b->conns;
	b->conns = c;
	b->n_conns++;
	b->owner->n_conns++;
	c->ev_timer = evtimer_new(b->owner->base, on_timer, c);
	if (!c->ev_timer)
		abort();
	conn_touch(c);
	arm(c, HEAD_MS);
	stream_bind(&c->stream, &conn_ops, m, stream);
	mux_accept(m, stream, NULL, EGRESS_WINDOW);
}
