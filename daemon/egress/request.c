/* The proxy's requests: see request.h. The head for the origin is written anew, from what was understood. */
#include "daemon/egress/request.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>
#include <strings.h>

enum { METHOD_MAX = 32, LINE_MAX_BYTES = 8 * 1024, CHUNK_LINE_MAX = 1024, CHUNK_DIGITS_MAX = 15 };

#define TOKEN_BYTES "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

struct header {
	const char *name, *value;
	size_t name_n, value_n;
};

struct head {
	const char *method, *target;
	size_t method_n, target_n;
	bool http_1_0;
	struct header headers[PROXY_HEADERS_MAX];
	size_t n;
};

void proxy_request_done(struct proxy_request *r)
{
	buf_done(&r->head);
}

size_t proxy_head_length(const char *p, size_t n)
{
	const char *end = memmem(p, n, "\r\n\r\n", 4);
	return end ? (size_t)(end - p) + 4 : 0;
}

static int refuse(int *ret_status, int status, struct error *err, const char *why)
{
	*ret_status = status;
	return error_set(err, ERR_INVALID, "%s", why);
}

/* --- lines --- */

/* A line without its end; *p moves behind it. False: a bare CR or LF, a zero or another control byte, or too long. */
static bool take_line(const char **p, const char *end, const char **ret, size_t *ret_n)
{
	const char *cr = memchr(*p, '\r', (size_t)(end - *p));
	if (!cr || cr + 1 >= end || cr[1] != '\n' || cr - *p > LINE_MAX_BYTES)
		return false;
	for (const char *c = *p; c < cr; c++)
		if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
			return false;
	*ret = *p;
	*ret_n = (size_t)(cr - *p);
	*p = cr + 2;
	return true;
}

static bool is_token(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!p[i] || !strchr(TOKEN_BYTES, p[i]))
			return false;
	return n > 0;
}

static bool take_request_line(struct head *h, const char *line, size_t n)
{
	const char *a = memchr(line, ' ', n), *b = memrchr(line, ' ', n);
	if (!a || b == a)
		return false;
	*h = (struct head){ .method = line, .method_n = (size_t)(a - line), .target = a + 1, .target_n = (size_t)(b - a - 1), .n = 0 };
	size_t version = n - (size_t)(b + 1 - line);
	h->http_1_0 = version == 8 && memcmp(b + 1, "HTTP/1.0", 8) == 0;
	if (!h->http_1_0 && !(version == 8 && memcmp(b + 1, "HTTP/1.1", 8) == 0))
		return false;
	for (size_t i = 0; i < h->target_n; i++)
		if (h->target[i] <= ' ')
			return false;
	return h->target_n > 0 && h->method_n <= METHOD_MAX && is_token(h->method, h->method_n);
}

/* No folding, no blank before the colon: both mean different things to different readers. */
static bool take_header(struct head *h, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	if (!colon || h->n == PROXY_HEADERS_MAX || !is_token(line, (size_t)(colon - line)))
		return false;
	const char *v = colon + 1, *end = line + n;
	while (v < end && (*v == ' ' || *v == '\t'))
		v++;
	while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	h->headers[h->n++] = (struct header){ line, v, (size_t)(colon - line), (size_t)(end - v) };
	return true;
}

static bool take_head(struct head *h, const char *p, size_t n)
{
	const char *end = p + n, *line;
	size_t len;
	if (!take_line(&p, end, &line, &len) || !take_request_line(h, line, len))
		return false;
	while (take_line(&p, end, &line, &len)) {
		if (len == 0)
			return p == end;
		if (!take_header(h, line, len))
			return false;
	}
	return false;
}

static bool named(const struct header *h, const char *name)
{
	return h->name_n == strlen(name) && strncasecmp(h->name, name, h->name_n) == 0;
}

/* How often it stands there; *ret is the last. */
static size_t find(const struct head *h, const char *name, const struct header **ret)
{
	size_t n = 0;
	for (size_t i = 0; i < h->n; i++) {
		if (named(&h->headers[i], name)) {
			*ret = &h->headers[i];
			n++;
		}
	}
	return n;
}

/* --- the body --- */

static bool take_length(const struct header *h, uint64_t *ret)
{
	auto_free char *text = xstrndup(h->value, h->value_n);
	int64_t v;
	if (parse_i64("length", text, 0, INT64_MAX, &v, NULL) != 0)
		return false;
	*ret = (uint64_t)v;
	return true;
}

static const char *take_framing(const struct head *h, struct proxy_body *b)
{
	const struct header *length = NULL, *coding = NULL;
	size_t lengths = find(h, "Content-Length", &length), codings = find(h, "Transfer-Encoding", &coding);
	if (lengths > 1 || codings > 1 || (lengths && codings))
		return "Content-Length and Transfer-Encoding contradict each other";
	if (codings && (h->http_1_0 || coding->value_n != 7 || strncasecmp(coding->value, "chunked", 7) != 0))
		return "the only transfer coding known here is chunked, in HTTP/1.1";
	*b = (struct proxy_body){ .kind = codings ? BODY_CHUNKED : BODY_EMPTY };
	if (lengths) {
		b->kind = BODY_SIZED;
		if (!take_length(length, &b->left))
			return "Content-Length is no number";
	}
	b->done = b->kind == BODY_EMPTY || (b->kind == BODY_SIZED && b->left == 0);
	return NULL;
}

enum chunk_state { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_SIZE_LF, CHUNK_DATA, CHUNK_DATA_CR, CHUNK_DATA_LF, CHUNK_TRAILER, CHUNK_TRAILER_LF };

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool size_byte(struct proxy_body *b, char c)
{
	int digit = hex_digit(c);
	if (digit >= 0 && b->line < CHUNK_DIGITS_MAX) {
		b->left = b->left * 16 + (unsigned)digit;
		return true;
	}
	if (b->line == 0 || digit >= 0)
		return false;
	if (c != '\r' && c != ';')
		return false;
	b->state = c == '\r' ? CHUNK_SIZE_LF : CHUNK_EXTENSION;
	return true;
}

static void next_line(struct proxy_body *b, enum chunk_state state)
{
	b->state = state;
	b->line = 0;
}

/* One byte that is not a chunk's data. False: malformed. */
static bool framing_byte(struct proxy_body *b, char c)
{
	bool control = (unsigned char)c < ' ' && c != '\t' && c != '\r';
	bool good = true;
	switch ((enum chunk_state)b->state) {
	case CHUNK_SIZE:
		good = size_byte(b, c);
		break;
	case CHUNK_EXTENSION:
		good = !control;
		if (c == '\r')
			b->state = CHUNK_SIZE_LF;
		break;
	case CHUNK_SIZE_LF:
		next_line(b, b->left ? CHUNK_DATA : CHUNK_TRAILER);
		return c == '\n';
	case CHUNK_DATA:
	case CHUNK_DATA_CR:
		b->state = CHUNK_DATA_LF;
		return c == '\r';
	case CHUNK_DATA_LF:
		next_line(b, CHUNK_SIZE);
		return c == '\n';
	case CHUNK_TRAILER:
		good = !control;
		if (c == '\r')
			b->state = CHUNK_TRAILER_LF;
		break;
	case CHUNK_TRAILER_LF:
		b->done = b->line == 1;
		next_line(b, CHUNK_TRAILER);
		return c == '\n';
	}
	b->line++;
	return good && b->line <= CHUNK_LINE_MAX;
}

static ssize_t take_chunked(struct proxy_body *b, const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && !b->done) {
		if (b->state == CHUNK_DATA) {
			size_t k = n - i < b->left ? n - i : (size_t)b->left;
			b->left -= k;
			i += k;
			if (b->left == 0)
				b->state = CHUNK_DATA_CR;
			continue;
		}
		if (!framing_byte(b, p[i++]))
			return -1;
	}
	return (ssize_t)i;
}

ssize_t proxy_body_take(struct proxy_body *b, const char *p, size_t n)
{
	if (b->done)
		return 0;
	if (b->kind == BODY_CHUNKED)
		return take_chunked(b, p, n);
	size_t k = n < b->left ? n : (size_t)b->left;
	b->left -= k;
	b->done = b->left == 0;
	return (ssize_t)k;
}

/* --- the request --- */

/* Meant for this hop, or written anew. */
static bool stays_here(const struct header *h, const struct header *connection)
{
	static const char *const hop[] = { "Host",    "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authorization",
					   "Trailer", "TE",	    "Upgrade",		"Proxy-Authenticate" };
	for (size_t i = 0; i < ARRAY_LEN(hop); i++)
		if (named(h, hop[i]))
			return true;
	/* Connection may name others; the body's framing is not its to take away. */
	if (!connection || named(h, "Content-Length") || named(h, "Transfer-Encoding"))
		return false;
	for (size_t i = 0; i + h->name_n <= connection->value_n; i++) {
		const char *at = connection->value + i;
		bool begins = i == 0 || strchr(", \t", at[-1]), ends = i + h->name_n == connection->value_n || strchr(", \t", at[h->name_n]);
		if (begins && ends && strncasecmp(at, h->name, h->name_n) == 0)
			return true;
	}
	return false;
}

static void write_head(const struct head *h, const char *path, size_t path_n, const struct egress_target *t, struct buf *out)
{
	const struct header *connection = NULL;
	char host[EGRESS_RULE_TEXT_MAX];
	egress_target_text(t, host);
	if (t->port == 80)
		*strrchr(host, ':') = '\0';
	find(h, "Connection", &connection);
	buf_add(out, h->method, h->method_n);
	buf_adds(out, *path == '/' && path_n ? " " : " /");
	buf_add(out, path, path_n);
	buf_adds(out, h->http_1_0 ? " HTTP/1.0\r\nHost: " : " HTTP/1.1\r\nHost: ");
	buf_adds(out, host);
	buf_adds(out, "\r\n");
	for (size_t i = 0; i < h->n; i++) {
		const struct header *one = &h->headers[i];
		if (stays_here(one, connection))
			continue;
		buf_add(out, one->name, one->name_n);
		buf_adds(out, ": ");
		buf_add(out, one->value, one->value_n);
		buf_adds(out, "\r\n");
	}
	buf_adds(out, "Connection: close\r\n\r\n");
}

static int take_absolute(const struct head *h, struct proxy_request *r, int *ret_status, struct error *err)
{
	static const char scheme[] = "http://";
	const struct header *connection = NULL;
	const char *end = h->target + h->target_n;
	if (h->target_n <= strlen(scheme) || strncasecmp(h->target, scheme, strlen(scheme)) != 0)
		return refuse(ret_status, 400, err, "this is a proxy: it takes CONNECT HOST:PORT and requests for http://HOST/…");
	const char *host = h->target + strlen(scheme);
	size_t n = 0;
	while (host + n < end && !strchr("/?#", host[n]))
		n++;
	auto_free char *authority = xstrndup(host, n);
	if (strlen(authority) != n || egress_target_parse(authority, 80, &r->target, err) != 0 || memchr(host + n, '#', (size_t)(end - host) - n)) {
		*ret_status = 400;
		return error_set(err, ERR_INVALID, "the address names no host and port that can be meant");
	}
	if (find(h, "Connection", &connection) > 1 || find(h, "Host", &connection) > 1)
		return refuse(ret_status, 400, err, "a header stands twice that may stand once");
	const char *framing = take_framing(h, &r->body);
	if (framing)
		return refuse(ret_status, 400, err, framing);
	write_head(h, host + n, (size_t)(end - host) - n, &r->target, &r->head);
	return 0;
}

int proxy_request_parse(const char *p, size_t n, struct proxy_request *ret, int *ret_status, struct error *err)
{
	struct head h;
	struct proxy_request r = { .head = BUF_INIT };
	*ret_status = 400;
	if (!take_head(&h, p, n))
		return error_set(err, ERR_INVALID, "this is no HTTP/1 request that can be understood in one way only");
	r.connect = h.method_n == 7 && memcmp(h.method, "CONNECT", 7) == 0;
	if (r.connect) {
		auto_free char *target = xstrndup(h.target, h.target_n);
		if (strlen(target) != h.target_n || egress_target_parse(target, 0, &r.target, err) != 0)
			return error_set(err, ERR_INVALID, "CONNECT names no HOST:PORT that can be meant");
	} else if (take_absolute(&h, &r, ret_status, err) != 0) {
		proxy_request_done(&r);
		return -1;
	}
	*ret = r;
	return 0;
}
