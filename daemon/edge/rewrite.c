/*
 * Heads on their way: what belongs to one connection stays on it, what a visitor says of itself is replaced by what the edge knows, and
 * a server cannot set cookies for hosts that are not its own.
 */
#include "daemon/edge/internal.h"

#include "shared/base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* Written anew by whoever passes a message on. */
static const char *const per_hop[] = { "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
				       "TE", "Trailer", "Transfer-Encoding", "Upgrade" };
/* Said by the edge alone; servers that turn '-' into '_' take both spellings for one. */
static const char *const claimed[] = { "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
				       "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Real-IP", "Forwarded", "X-Sandbox-Token",
				       "Host", "Content-Length", "Transfer-Encoding" };

static bool same_name(struct span s, const char *name)
{
	if (s.n != strlen(name))
		return false;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i] == '_' ? '-' : s.p[i];
		if (tolower((unsigned char)c) != tolower((unsigned char)name[i]))
			return false;
	}
	return true;
}

static bool in_list(const char *const *list, size_t n, struct span name)
{
	for (size_t i = 0; i < n; i++)
		if (same_name(name, list[i]))
			return true;
	return false;
}

/* Named by Connection: for this connection only. */
static bool named(const struct head *h, struct span name)
{
	char text[64];
	if (name.n >= sizeof(text))
		return false;
	snprintf(text, sizeof(text), "%.*s", (int)name.n, name.p);
	return head_lists(h, "Connection", text);
}

static bool stays_here(const struct head *h, struct span name)
{
	return in_list(per_hop, ARRAY_LEN(per_hop), name) || named(h, name);
}

static void add(struct buf *out, struct span name, struct span value)
{
	buf_add(out, name.p, name.n);
	buf_add(out, ": ", 2);
	buf_add(out, value.p, value.n);
	buf_add(out, "\r\n", 2);
}

static void add_text(struct buf *out, const char *name, struct span value)
{
	add(out, (struct span){ name, strlen(name) }, value);
}

static struct span text_span(const char *s)
{
	return (struct span){ s, strlen(s) };
}

/* --- requests --- */

/* Without the edge's own. */
static void add_cookies(struct buf *out, struct span value)
{
	const char *p = value.p, *end = p + value.n;
	size_t n = 0;
	while (p < end) {
		const char *semi = memchr(p, ';', (size_t)(end - p)), *stop = semi ? semi : end;
		while (p < stop && *p == ' ')
			p++;
		struct span one = { p, (size_t)(stop - p) };
		if (one.n > 0 && !auth_cookie_name(one)) {
			buf_adds(out, n++ ? "; " : "Cookie: ");
			buf_add(out, one.p, one.n);
		}
		p = semi ? semi + 1 : end;
	}
	if (n > 0)
		buf_adds(out, "\r\n");
}

static void local_origin(const struct visitor *v, char out[static 32])
{
	snprintf(out, 32, "http://localhost:%u", v->route->r.port);
}

static void public_origin(const struct visitor *v, char *out, size_t n)
{
	snprintf(out, n, "%s://%s%s", v->e->scheme, v->route->r.label, v->e->origin_suffix);
}

/* The page's own origin, as the server that believes to be localhost knows it. */
static void add_origin(const struct visitor *v, struct span value, struct buf *out)
{
	char from[512], to[32];
	public_origin(v, from, sizeof(from));
	local_origin(v, to);
	add_text(out, "Origin", !v->route->r.keep_host && span_is(value, from) ? text_span(to) : value);
}

static void add_forwarded(const struct visitor *v, const struct head *h, struct buf *out)
{
	const struct field *client = v->trusted ? head_find(h, "X-Forwarded-For") : NULL;
	const struct field *proto = v->trusted ? head_find(h, "X-Forwarded-Proto") : NULL;
	bool known = proto && (span_equals(proto->value, "https") || span_equals(proto->value, "http"));
	add_text(out, "X-Forwarded-For", client && client->value.n ? client->value : text_span(v->peer));
	add_text(out, "X-Forwarded-Host", head_find(h, "Host")->value);
	add_text(out, "X-Forwarded-Proto", known ? proto->value : text_span(v->e->scheme));
}

static void add_request_fields(const struct visitor *v, const struct head *h, bool drop_authorization, struct buf *out)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct field *f = &h->fields[i];
		if (stays_here(h, f->name) || in_list(claimed, ARRAY_LEN(claimed), f->name))
			continue;
		if (drop_authorization && span_is(f->name, "Authorization"))
			continue;
		if (span_is(f->name, "Cookie"))
			add_cookies(out, f->value);
		else if (span_is(f->name, "Origin"))
			add_origin(v, f->value, out);
		else
			add(out, f->name, f->value);
	}
}

void rewrite_request(const struct visitor *v, const struct head *h, bool drop_authorization, struct buf *out)
{
	buf_add(out, h->method.p, h->method.n);
	buf_addc(out, ' ');
	buf_add(out, h->target.p, h->target.n);
	if (v->route->r.keep_host)
		buf_addf(out, " HTTP/1.1\r\nHost: %.*s\r\n", (int)head_find(h, "Host")->value.n, head_find(h, "Host")->value.p);
	else
		buf_addf(out, " HTTP/1.1\r\nHost: localhost:%u\r\n", v->route->r.port);
	add_request_fields(v, h, drop_authorization, out);
	add_forwarded(v, h, out);
	if (v->body.kind == BODY_LENGTH || head_find(h, "Content-Length"))
		buf_addf(out, "Content-Length: %" PRIu64 "\r\n", v->body.kind == BODY_LENGTH ? v->body.length : 0);
	else if (v->body.kind == BODY_CHUNKED)
		buf_adds(out, "Transfer-Encoding: chunked\r\n");
	if (v->upgrade) {
		buf_adds(out, "Connection: Upgrade\r\n");
		add_text(out, "Upgrade", head_find(h, "Upgrade")->value);
	}
	buf_adds(out, "\r\n");
}

/* --- answers --- */

static struct span trimmed(const char *p, const char *end)
{
	while (p < end && *p == ' ')
		p++;
	while (end > p && end[-1] == ' ')
		end--;
	return (struct span){ p, (size_t)(end - p) };
}

/* A cookie for other hosts than this one, or in the edge's own name. */
static bool foreign_cookie(struct span value)
{
	const char *p = value.p, *end = p + value.n;
	if (auth_cookie_name(value))
		return true;
	while ((p = memchr(p, ';', (size_t)(end - p)))) {
		p++;
		const char *semi = memchr(p, ';', (size_t)(end - p)), *stop = semi ? semi : end;
		const char *eq = memchr(p, '=', (size_t)(stop - p));
		if (span_is(trimmed(p, eq ? eq : stop), "Domain"))
			return true;
	}
	return false;
}

/* An address of the server's own, as visitors know it. False: it is none. */
static bool add_public(const struct visitor *v, const struct field *f, struct buf *out)
{
	char local[2][32], to[512];
	local_origin(v, local[0]);
	snprintf(local[1], sizeof(local[1]), "http://127.0.0.1:%u", v->route->r.port);
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(local[i]);
		if (!span_begins(f->value, local[i]) || (f->value.n > n && !strchr("/?#", f->value.p[n])))
			continue;
		public_origin(v, to, sizeof(to));
		buf_add(out, f->name.p, f->name.n);
		buf_addf(out, ": %s%.*s\r\n", to, (int)(f->value.n - n), f->value.p + n);
		return true;
	}
	return false;
}

static void add_answer_fields(const struct visitor *v, const struct head *h, struct buf *out)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct field *f = &h->fields[i];
		if (stays_here(h, f->name) || span_is(f->name, "Content-Length") || (span_is(f->name, "Set-Cookie") && foreign_cookie(f->value)))
			continue;
		bool address = span_is(f->name, "Location") || span_is(f->name, "Access-Control-Allow-Origin");
		if (!address || v->route->r.keep_host || !add_public(v, f, out))
			add(out, f->name, f->value);
	}
}

void rewrite_answer(const struct visitor *v, const struct head *h, bool keep, struct buf *out)
{
	buf_addf(out, "HTTP/1.1 %03d %.*s\r\n", h->status, (int)h->reason.n, h->reason.p);
	add_answer_fields(v, h, out);
	if (h->status == 101) {
		const struct field *upgrade = head_find(h, "Upgrade");
		buf_adds(out, "Connection: Upgrade\r\n");
		if (upgrade)
			add_text(out, "Upgrade", upgrade->value);
	} else if (h->status >= 200) {
		/* Whatever Connection says of it: it tells where the answer ends. */
		if (head_find(h, "Content-Length"))
			add_text(out, "Content-Length", head_find(h, "Content-Length")->value);
		if (v->answer_body.kind == BODY_CHUNKED && !v->unchunk)
			buf_adds(out, "Transfer-Encoding: chunked\r\n");
		buf_adds(out, !keep ? "Connection: close\r\n" : v->client_old ? "Connection: keep-alive\r\n" : "");
	}
	buf_adds(out, "\r\n");
}
