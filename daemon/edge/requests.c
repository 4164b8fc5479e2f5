/*
 * A visitor's requests, one after another, each routed by its own Host, because clients and proxies send requests for several names on
 * one connection. Nothing of a request reaches a sandbox before its route's secret was shown.
 */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>

enum { FORM_MAX = 4096, COMPLAIN_MS = 10 * 1000 };

/* Once a while: requests go on coming while the daemon is away. */
static void complain(struct edge *e, const char *why)
{
	int64_t now = clock_mono_ms();
	if (e->complained_ms && now - e->complained_ms < COMPLAIN_MS)
		return;
	e->complained_ms = now;
	log_warn("edge", "no stream to the daemon: %s", why);
}

void visitor_dial(struct visitor *v, bool fresh)
{
	struct error err = ERROR_INIT;
	origin_close(steal(&v->origin));
	v->origin = fresh ? NULL : origin_take_idle(v->route);
	if (!v->origin)
		v->origin = origin_open(v->e, v->route, &err);
	if (!v->origin) {
		complain(v->e, err.message);
		visitor_page(v, 503, "the sandbox does not answer now");
		return;
	}
	v->origin->v = v;
	v->request_sent = 0;
	origin_push(v);
}

static bool safe_method(struct span m)
{
	return span_equals(m, "GET") || span_equals(m, "HEAD") || span_equals(m, "OPTIONS");
}

static void begin(struct visitor *v, const struct head *h, bool drop_authorization)
{
	atomic_fetch_add(&v->e->requests, 1);
	v->client_old = h->minor == 0;
	v->head_only = span_equals(h->method, "HEAD");
	v->keep = h->minor == 1 ? !head_lists(h, "Connection", "close") : head_lists(h, "Connection", "keep-alive");
	/* Not to HTTP/2: its requests would pass unseen. */
	v->upgrade = h->minor == 1 && head_find(h, "Upgrade") && head_lists(h, "Connection", "upgrade") && !head_lists(h, "Upgrade", "h2c");
	v->repeatable = safe_method(h->method) && v->body.kind == BODY_NONE;
	v->answering = v->in_body = false;
	v->chunks = (struct chunked){ .state = 0 };
	rewrite_request(v, h, drop_authorization, &v->request);
	visitor_enter(v, v->body.kind == BODY_NONE ? V_WAIT : V_SEND);
	visitor_dial(v, false);
}

void visitor_refuse(struct visitor *v, int status, const char *why)
{
	atomic_fetch_add(&v->e->refused, 1);
	v->keep = false;
	visitor_page(v, status, "%s", why);
}

/* What a TLS front asks before it gets a certificate: whether a name is routed. Only asked by address, which no tunnel has. */
static bool authorize_question(struct visitor *v, const struct head *h, const char *host)
{
	static const char path[] = "/v1/tunnels/authorize?domain=";
	char name[256];
	if (!span_begins(h->target, path) || (strcmp(host, "localhost") != 0 && strspn(host, "0123456789.") != strlen(host)))
		return false;
	size_t n = h->target.n - strlen(path);
	snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : 0), h->target.p + strlen(path));
	for (char *c = name; *c; c++)
		*c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
	bool routed = edge_table_find(v->e, name) != NULL;
	atomic_fetch_add(routed ? &v->e->certified : &v->e->uncertified, 1);
	page_write(v, routed ? 204 : 404, "text/plain", "", "");
	return true;
}

static bool target_allowed(const struct head *h)
{
	return h->target.p[0] == '/' || (span_equals(h->target, "*") && span_equals(h->method, "OPTIONS"));
}

static void take_request(struct visitor *v, const struct head *h)
{
	char host[256];
	const char *why = NULL;
	bool drop_authorization = false;
	const struct field *expect = head_find(h, "Expect");
	v->keep = h->minor == 1 && !head_lists(h, "Connection", "close");
	v->head_only = span_equals(h->method, "HEAD");
	v->client_old = h->minor == 0;
	visitor_busy(v, true);
	v->seen_request = true;
	int status = request_body(h, &v->body, &why);
	if (status != 0)
		visitor_refuse(v, status, why);
	else if (request_host(h, host, sizeof(host)) != 0)
		visitor_refuse(v, 400, "the request needs exactly one Host, and a host name in it");
	else if (!target_allowed(h))
		visitor_refuse(v, 400, "the request's target must be a path");
	else if (expect && !span_is(expect->value, "100-continue"))
		visitor_refuse(v, 417, "only 100-continue can be expected");
	else if (authorize_question(v, h, host))
		return;
	else if (!(v->route = edge_table_find(v->e, host)))
		visitor_refuse(v, 404, "no tunnel has this name");
	else {
		v->route->users++;
		enum verdict verdict = v->route->r.auth == EDGE_AUTH_NONE ? VERDICT_IN : auth_check(v, h, &drop_authorization);
		if (verdict == VERDICT_IN)
			begin(v, h, drop_authorization);
		else if (verdict == VERDICT_FORM)
			visitor_enter(v, V_FORM);
	}
}

/* False: nothing can be done before more comes. */
static bool take_head(struct visitor *v)
{
	struct head h;
	const char *why = NULL;
	/* One empty line in front is what old clients send behind a body. */
	if (v->in.len >= 2 && memcmp(v->in.data, "\r\n", 2) == 0)
		buf_consume(&v->in, 2);
	size_t n = head_length(v->in.data, v->in.len, v->looked);
	v->looked = v->in.len;
	v->body = (struct body){ .kind = BODY_NONE };
	if (n == 0 && v->in.len <= LIMIT_EDGE_HEAD_MAX)
		return false;
	if (n == 0 || n > LIMIT_EDGE_HEAD_MAX) {
		visitor_refuse(v, 431, "the request's headers are too long");
		return false;
	}
	struct buf bytes = v->in;
	v->in = (struct buf)BUF_INIT;
	buf_add(&v->in, bytes.data + n, bytes.len - n);
	int status = request_parse(bytes.data, n, &h, &why);
	if (status != 0)
		visitor_refuse(v, status, why);
	else
		take_request(v, &h);
	buf_done(&bytes);
	return v->fd >= 0 && v->in.len > 0;
}

static bool take_form(struct visitor *v)
{
	if (v->body.length > FORM_MAX) {
		visitor_refuse(v, 413, "the form is too long");
		return false;
	}
	if (v->in.len < v->body.length)
		return false;
	struct buf bytes = v->in;
	size_t n = (size_t)v->body.length;
	v->in = (struct buf)BUF_INIT;
	buf_add(&v->in, bytes.data + n, bytes.len - n);
	v->body = (struct body){ .kind = BODY_NONE };
	auth_form(v, bytes.data, n);
	buf_done(&bytes);
	return v->fd >= 0 && v->in.len > 0;
}

/* How much of p the request's body may still take; -1: broken. *ret_done: it ends there. */
static ssize_t of_body(struct visitor *v, const char *p, size_t n, bool *ret_done)
{
	if (v->body.kind == BODY_LENGTH) {
		size_t take = v->body.length < n ? (size_t)v->body.length : n;
		v->body.length -= take;
		*ret_done = v->body.length == 0;
		return (ssize_t)take;
	}
	ssize_t took = chunked_feed(&v->chunks, p, n, NULL, NULL);
	*ret_done = took >= 0 && chunked_done(&v->chunks);
	return took;
}

/* Passes on what the stream takes. */
static bool send_body(struct visitor *v)
{
	struct origin *o = v->origin;
	bool done = false;
	if (!o || !o->stream.m || !o->accepted || v->request_sent < v->request.len || v->in.len == 0)
		return false;
	size_t room = mux_sendable(o->stream.m, o->stream.id, MUX_STDIN), n = v->in.len < room ? v->in.len : room;
	if (n == 0)
		return false;
	ssize_t took = of_body(v, v->in.data, n, &done);
	if (took < 0) {
		origin_close(steal(&v->origin));
		if (v->answering)
			visitor_abort(v);
		else
			visitor_refuse(v, 400, "the request's body breaks the chunked coding");
		return false;
	}
	mux_send(o->stream.m, o->stream.id, MUX_STDIN, v->in.data, (size_t)took);
	buf_consume(&v->in, (size_t)took);
	if (done)
		visitor_enter(v, V_WAIT);
	return !done;
}

static bool send_raw(struct visitor *v)
{
	struct origin *o = v->origin;
	size_t sent = 0;
	if (o && o->stream.m && v->in.len > 0)
		sent = mux_send(o->stream.m, o->stream.id, MUX_STDIN, v->in.data, v->in.len);
	buf_consume(&v->in, sent);
	if (o && o->stream.m && v->in_eof && v->in.len == 0) {
		mux_eof(o->stream.m, o->stream.id, MUX_STDIN);
		if (o->ended)
			visitor_end(v);
	}
	return false;
}

static bool step(struct visitor *v)
{
	switch (v->state) {
	case V_HEAD:
		return take_head(v);
	case V_FORM:
		return take_form(v);
	case V_SEND:
		return send_body(v);
	case V_RAW:
		return send_raw(v);
	case V_WAIT:
		break;
	case V_FLUSH:
	case V_LINGER:
		buf_done(&v->in);
		break;
	}
	return false;
}

/* What waits is bounded: more is read when there is room for it. */
static void settle(struct visitor *v)
{
	size_t most = v->state == V_HEAD ? LIMIT_EDGE_HEAD_MAX : PIECE;
	if (v->fd >= 0)
		visitor_reading(v, v->in.len <= most && v->state != V_FLUSH);
	if (v->fd >= 0 && v->in.len == 0)
		buf_done(&v->in);
}

void visitor_process(struct visitor *v)
{
	while (v->fd >= 0 && step(v))
		continue;
	settle(v);
}
