/* Heads and the framing they announce: see http.h. */
#include "daemon/edge/http.h"

#include <string.h>
#include <strings.h>

#define BAD(status, text) (*ret_why = (text), (status))

/* --- spans and bytes --- */

bool span_equals(struct span s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

bool span_is(struct span s, const char *text)
{
	return s.n == strlen(text) && strncasecmp(s.p, text, s.n) == 0;
}

bool span_begins(struct span s, const char *text)
{
	size_t n = strlen(text);
	return s.n >= n && strncasecmp(s.p, text, n) == 0;
}

static bool token_byte(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!token_byte((unsigned char)s.p[i]))
			return false;
	return s.n > 0;
}

/* Visible bytes, blanks and what is not ASCII; no control bytes: CR, LF and NUL above all. */
static bool value_bytes(struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static bool target_bytes(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] <= 0x20 || (unsigned char)s.p[i] >= 0x7f)
			return false;
	return s.n > 0;
}

static struct span trimmed(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	return (struct span){ p, (size_t)(end - p) };
}

size_t head_length(const char *p, size_t n, size_t from)
{
	from = from > 3 ? from - 3 : 0;
	const char *end = n > from ? memmem(p + from, n - from, "\r\n\r\n", 4) : NULL;
	return end ? (size_t)(end - p) + 4 : 0;
}

/* --- lines --- */

/* A line ends with CRLF and holds neither of the two elsewhere. NULL: it does not. */
static const char *line_end(const char *p, const char *end)
{
	const char *lf = memchr(p, '\n', (size_t)(end - p));
	if (!lf || lf == p || lf[-1] != '\r' || memchr(p, '\r', (size_t)(lf - p - 1)))
		return NULL;
	return lf - 1;
}

static int parse_field(const char *p, const char *end, struct field *ret, const char **ret_why)
{
	const char *colon = memchr(p, ':', (size_t)(end - p));
	if (*p == ' ' || *p == '\t')
		return BAD(400, "a header is folded over two lines");
	if (!colon)
		return BAD(400, "a header without a colon");
	*ret = (struct field){ .name = { p, (size_t)(colon - p) }, .value = trimmed(colon + 1, end) };
	if (!is_token(ret->name))
		return BAD(400, "a header's name holds what no name may");
	if (!value_bytes(ret->value))
		return BAD(400, "a header's value holds control characters");
	return 0;
}

static int parse_fields(const char *p, const char *end, struct head *h, const char **ret_why)
{
	while (p < end) {
		const char *eol = line_end(p, end);
		if (!eol)
			return BAD(400, "a line does not end with CRLF");
		if (eol == p)
			return eol + 2 == end ? 0 : BAD(400, "bytes behind the head");
		if (h->n == HTTP_FIELDS_MAX)
			return BAD(431, "too many headers");
		int status = parse_field(p, eol, &h->fields[h->n], ret_why);
		if (status)
			return status;
		h->n++;
		p = eol + 2;
	}
	return BAD(400, "the head has no end");
}

static int parse_version(struct span v, int *ret)
{
	if (v.n != 8 || memcmp(v.p, "HTTP/1.", 7) != 0 || v.p[7] < '0' || v.p[7] > '9')
		return -1;
	*ret = v.p[7] == '0' ? 0 : 1;
	return 0;
}

static int parse_request_line(const char *p, const char *eol, struct head *h, const char **ret_why)
{
	const char *first = memchr(p, ' ', (size_t)(eol - p));
	const char *second = first ? memchr(first + 1, ' ', (size_t)(eol - first - 1)) : NULL;
	if (!second)
		return BAD(400, "the request line is not METHOD TARGET VERSION");
	h->method = (struct span){ p, (size_t)(first - p) };
	h->target = (struct span){ first + 1, (size_t)(second - first - 1) };
	if (!is_token(h->method) || !target_bytes(h->target))
		return BAD(400, "the request line holds what it may not");
	if (parse_version((struct span){ second + 1, (size_t)(eol - second - 1) }, &h->minor) != 0)
		return BAD(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
	return 0;
}

int request_parse(const char *p, size_t n, struct head *ret, const char **ret_why)
{
	const char *end = p + n, *eol = line_end(p, end);
	ret->n = 0;
	if (!eol)
		return BAD(400, "the request line does not end with CRLF");
	int status = parse_request_line(p, eol, ret, ret_why);
	return status ? status : parse_fields(eol + 2, end, ret, ret_why);
}

int response_parse(const char *p, size_t n, struct head *ret, const char **ret_why)
{
	const char *end = p + n, *eol = line_end(p, end);
	ret->n = 0;
	if (!eol || eol - p < 12 || parse_version((struct span){ p, 8 }, &ret->minor) != 0 || p[8] != ' ')
		return BAD(-1, "the server's answer is not HTTP/1");
	ret->status = 0;
	for (int i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return BAD(-1, "the server's answer has no status");
		ret->status = ret->status * 10 + (p[i] - '0');
	}
	if (ret->status < 100 || (eol - p > 12 && p[12] != ' '))
		return BAD(-1, "the server's answer has no status");
	ret->reason = eol - p > 13 ? (struct span){ p + 13, (size_t)(eol - p - 13) } : (struct span){ "", 0 };
	if (!value_bytes(ret->reason))
		return BAD(-1, "the server's status line holds control characters");
	return parse_fields(eol + 2, end, ret, ret_why) ? -1 : 0;
}

/* --- fields --- */

const struct field *head_find(const struct head *h, const char *name)
{
	for (size_t i = 0; i < h->n; i++)
		if (span_is(h->fields[i].name, name))
			return &h->fields[i];
	return NULL;
}

static size_t count(const struct head *h, const char *name)
{
	size_t n = 0;
	for (size_t i = 0; i < h->n; i++)
		n += span_is(h->fields[i].name, name);
	return n;
}

static bool list_holds(struct span list, const char *token)
{
	const char *p = list.p, *end = list.p + list.n;
	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		if (span_is(trimmed(p, comma ? comma : end), token))
			return true;
		p = comma ? comma + 1 : end;
	}
	return false;
}

bool head_lists(const struct head *h, const char *name, const char *token)
{
	for (size_t i = 0; i < h->n; i++)
		if (span_is(h->fields[i].name, name) && list_holds(h->fields[i].value, token))
			return true;
	return false;
}

/* --- framing --- */

enum { LENGTH_DIGITS_MAX = 18 };

static int parse_length(struct span v, uint64_t *ret)
{
	*ret = 0;
	if (v.n == 0 || v.n > LENGTH_DIGITS_MAX)
		return -1;
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return -1;
		*ret = *ret * 10 + (uint64_t)(v.p[i] - '0');
	}
	return 0;
}

/* What the two headers say: NONE when neither is there. -1: they are not to be understood in one way. */
static int announced(const struct head *h, struct body *ret, const char **ret_why)
{
	const struct field *te = head_find(h, "Transfer-Encoding"), *cl = head_find(h, "Content-Length");
	*ret = (struct body){ .kind = BODY_NONE };
	if (te && cl)
		return BAD(-1, "both Content-Length and Transfer-Encoding");
	if (count(h, "Transfer-Encoding") > 1 || count(h, "Content-Length") > 1)
		return BAD(-1, "the length of the body is said twice");
	if (te && h->minor == 0)
		return BAD(-1, "Transfer-Encoding in HTTP/1.0");
	if (te && !span_is(te->value, "chunked"))
		return BAD(-1, "a Transfer-Encoding other than chunked");
	if (te)
		ret->kind = BODY_CHUNKED;
	if (cl && parse_length(cl->value, &ret->length) != 0)
		return BAD(-1, "a Content-Length that is no number");
	if (cl)
		ret->kind = BODY_LENGTH;
	return 0;
}

int request_body(const struct head *h, struct body *ret, const char **ret_why)
{
	if (announced(h, ret, ret_why) != 0)
		return 400;
	if (ret->kind == BODY_LENGTH && ret->length == 0)
		ret->kind = BODY_NONE;
	return 0;
}

int response_body(const struct head *h, bool head_only, struct body *ret, const char **ret_why)
{
	if (announced(h, ret, ret_why) != 0)
		return -1;
	if (head_only || h->status < 200 || h->status == 204 || h->status == 304)
		*ret = (struct body){ .kind = BODY_NONE };
	else if (ret->kind == BODY_NONE)
		ret->kind = BODY_TO_END;
	else if (ret->kind == BODY_LENGTH && ret->length == 0)
		ret->kind = BODY_NONE;
	return 0;
}

/* --- host --- */

static bool host_byte(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.';
}

static bool port_valid(const char *p, size_t n)
{
	unsigned port = 0;
	for (size_t i = 0; i < n && i < 6; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		port = port * 10 + (unsigned)(p[i] - '0');
	}
	return n <= 5 && port <= UINT16_MAX;
}

int request_host(const struct head *h, char *out, size_t out_size)
{
	const struct field *f = head_find(h, "Host");
	if (!f || count(h, "Host") != 1)
		return -1;
	struct span v = f->value;
	const char *colon = memchr(v.p, ':', v.n);
	size_t n = colon ? (size_t)(colon - v.p) : v.n;
	if (colon && !port_valid(colon + 1, v.n - n - 1))
		return -1;
	n -= n > 0 && v.p[n - 1] == '.';
	if (n == 0 || n >= out_size || n > 253)
		return -1;
	for (size_t i = 0; i < n; i++) {
		char c = v.p[i];
		out[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
		if (!host_byte((unsigned char)out[i]))
			return -1;
	}
	out[n] = '\0';
	return 0;
}
