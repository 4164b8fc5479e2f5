/* HTTP/1.1 answers: head and chunked body. See answer.h. */
#include "shared/http/answer.h"
#include "shared/http/unix_client.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>
#include <strings.h>

enum { HEADERS_MAX = 100, CHUNK_LINE_MAX = 1024, CHUNK_DIGITS_MAX = 15, TRAILERS_MAX = 32 };

void http_answer_done(struct http_answer *a)
{
	map_done(&a->headers);
	buf_done(&a->body);
	a->status = 0;
	a->reason[0] = '\0';
}

void http_head_done(struct http_head *h)
{
	map_done(&h->headers);
	*h = (struct http_head){ .length = -1 };
}

static bool token_char(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK"; the reason may be missing. */
static int parse_status(const char *p, size_t n, struct http_head *h, struct error *err)
{
	if (n < 12 || memcmp(p, "HTTP/1.", 7) != 0 || !digit(p[7]) || p[8] != ' ' || !digit(p[9]) || !digit(p[10]) || !digit(p[11]) ||
	    (n > 12 && p[12] != ' '))
		return error_set(err, ERR_PROTOCOL, "the answer is not HTTP");
	h->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
	if (h->status < 100)
		return error_set(err, ERR_PROTOCOL, "the answer has status %d", h->status);
	h->close = p[7] == '0';
	size_t at = 0;
	for (size_t i = 13; i < n && at + 1 < sizeof(h->reason); i++)
		h->reason[at++] = p[i] >= ' ' && p[i] < 127 ? p[i] : '?';
	h->reason[at] = '\0';
	return 0;
}

static int parse_length(const char *text, int64_t *ret, struct error *err)
{
	int64_t v = 0;
	if (!*text || strlen(text) > 18)
		return error_set(err, ERR_PROTOCOL, "the answer has a malformed Content-Length");
	for (const char *c = text; *c; c++) {
		if (!digit(*c))
			return error_set(err, ERR_PROTOCOL, "the answer has a malformed Content-Length");
		v = v * 10 + (*c - '0');
	}
	*ret = v;
	return 0;
}

static void add_header(struct map *headers, const char *name, const char *value)
{
	const char *old = map_get(headers, name);
	if (!old) {
		map_set(headers, name, value);
		return;
	}
	auto_free char *joined = xasprintf("%s, %s", old, value);
	map_set(headers, name, joined);
}

static int parse_header(const char *p, size_t n, struct http_head *h, struct error *err)
{
	const char *colon = memchr(p, ':', n);
	if (!colon || colon == p)
		return error_set(err, ERR_PROTOCOL, "the answer has a malformed header line");
	size_t name_n = (size_t)(colon - p);
	auto_free char *name = xstrndup(p, name_n);
	for (size_t i = 0; i < name_n; i++) {
		if (!token_char((unsigned char)p[i]))
			return error_set(err, ERR_PROTOCOL, "the answer has a malformed header name");
		if (name[i] >= 'A' && name[i] <= 'Z')
			name[i] = (char)(name[i] - 'A' + 'a');
	}
	const char *v = colon + 1, *end = p + n;
	while (v < end && (*v == ' ' || *v == '\t'))
		v++;
	while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (memchr(v, '\0', (size_t)(end - v)) || memchr(v, '\r', (size_t)(end - v)))
		return error_set(err, ERR_PROTOCOL, "the answer has a control byte in a header");
	auto_free char *value = xstrndup(v, (size_t)(end - v));
	if (strcmp(name, "content-length") == 0 && map_get(&h->headers, name))
		return error_set(err, ERR_PROTOCOL, "the answer has two Content-Length headers");
	add_header(&h->headers, name, value);
	return 0;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	while (list && *list) {
		size_t len = strcspn(list, ", \t");
		if (len == n && strncasecmp(list, word, n) == 0)
			return true;
		list += len;
		list += strspn(list, ", \t");
	}
	return false;
}

static int parse_framing(struct http_head *h, struct error *err)
{
	const char *coding = map_get(&h->headers, "transfer-encoding");
	const char *length = map_get(&h->headers, "content-length");
	const char *connection = map_get(&h->headers, "connection");
	if (coding && length)
		return error_set(err, ERR_PROTOCOL, "the answer has both Content-Length and Transfer-Encoding");
	if (coding && strcasecmp(coding, "chunked") != 0)
		return error_set(err, ERR_PROTOCOL, "the answer has an unknown Transfer-Encoding");
	h->chunked = coding != NULL;
	if (length && parse_length(length, &h->length, err) != 0)
		return -1;
	if (has_word(connection, "close"))
		h->close = true;
	else if (has_word(connection, "keep-alive"))
		h->close = false;
	return 0;
}

static int parse_lines(const char *p, size_t n, struct http_head *h, struct error *err)
{
	unsigned count = 0;
	for (size_t at = 0; at < n; count++) {
		const char *nl = memchr(p + at, '\n', n - at);
		size_t len = (size_t)(nl - (p + at));
		if (len == 0 || p[at + len - 1] != '\r')
			return error_set(err, ERR_PROTOCOL, "the answer has a line without CR LF");
		if (count > HEADERS_MAX)
			return error_set(err, ERR_PROTOCOL, "the answer has more than %d headers", HEADERS_MAX);
		if ((count == 0 ? parse_status : parse_header)(p + at, len - 1, h, err) != 0)
			return -1;
		at += len + 1;
	}
	return parse_framing(h, err);
}

ssize_t http_head_parse(const char *p, size_t n, struct http_head *ret, struct error *err)
{
	size_t look = n < LIMIT_HTTP_HEAD_MAX ? n : LIMIT_HTTP_HEAD_MAX;
	const char *end = memmem(p, look, "\r\n\r\n", 4);
	size_t same = n < 7 ? n : 7;
	if (memcmp(p, "HTTP/1.", same) != 0)
		return error_set(err, ERR_PROTOCOL, "the answer is not HTTP");
	if (!end)
		return look < LIMIT_HTTP_HEAD_MAX ?
			       0 :
			       error_set(err, ERR_TOO_LARGE, "the answer's headers are over the limit HTTP_HEAD_MAX (%d bytes)", LIMIT_HTTP_HEAD_MAX);
	struct http_head h = { .length = -1 };
	size_t lines = (size_t)(end - p) + 2;
	if (parse_lines(p, lines, &h, err) != 0) {
		http_head_done(&h);
		return -1;
	}
	*ret = h;
	return (ssize_t)lines + 2;
}

enum chunk_state { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_DATA_CR, CHUNK_DATA_LF, CHUNK_TRAILER, CHUNK_END };

bool http_chunks_ended(const struct http_chunks *c)
{
	return c->state == CHUNK_END;
}

static int hex_value(char ch)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0';
	ch = (char)(ch | 0x20);
	return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static int size_char(struct http_chunks *c, char ch, struct error *err)
{
	int v = hex_value(ch);
	if (v >= 0 && c->digits < CHUNK_DIGITS_MAX) {
		c->left = c->left * 16 + (unsigned)v;
		c->digits++;
		return 0;
	}
	if (c->digits == 0 || v >= 0 || !(ch == '\r' || ch == ';' || ch == ' ' || ch == '\t'))
		return error_set(err, ERR_PROTOCOL, "the answer has a malformed chunk size");
	c->state = CHUNK_EXTENSION;
	c->line = 0;
	return 0;
}

/* A line that ends the size or is a trailer; its content does not matter. */
static int line_char(struct http_chunks *c, char ch, struct error *err)
{
	if (++c->line > CHUNK_LINE_MAX)
		return error_set(err, ERR_PROTOCOL, "the answer has an overlong chunk line");
	if (ch != '\n')
		return 0;
	if (c->state == CHUNK_EXTENSION) {
		c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
	} else if (c->line <= 2) {
		c->state = CHUNK_END;
	} else if (++c->trailers > TRAILERS_MAX) {
		return error_set(err, ERR_PROTOCOL, "the answer has more than %d trailers", TRAILERS_MAX);
	}
	c->line = 0;
	return 0;
}

static int delimiter_char(struct http_chunks *c, char ch, struct error *err)
{
	if (ch != (c->state == CHUNK_DATA_CR ? '\r' : '\n'))
		return error_set(err, ERR_PROTOCOL, "the answer has a chunk without its end");
	if (c->state == CHUNK_DATA_CR) {
		c->state = CHUNK_DATA_LF;
	} else {
		c->state = CHUNK_SIZE;
		c->digits = 0;
		c->left = 0;
	}
	return 0;
}

static int chunk_char(struct http_chunks *c, char ch, struct error *err)
{
	switch ((enum chunk_state)c->state) {
	case CHUNK_SIZE:
		return size_char(c, ch, err);
	case CHUNK_EXTENSION:
	case CHUNK_TRAILER:
		return line_char(c, ch, err);
	case CHUNK_DATA_CR:
	case CHUNK_DATA_LF:
		return delimiter_char(c, ch, err);
	case CHUNK_DATA:
	case CHUNK_END:
		break;
	}
	return 0;
}

ssize_t http_chunks_feed(struct http_chunks *c, const char *p, size_t n, const char **ret_data, size_t *ret_n, struct error *err)
{
	size_t used = 0;
	*ret_data = p;
	*ret_n = 0;
	while (used < n && c->state != CHUNK_END) {
		if (c->state == CHUNK_DATA) {
			size_t take = n - used < c->left ? n - used : (size_t)c->left;
			c->left -= take;
			if (c->left == 0)
				c->state = CHUNK_DATA_CR;
			*ret_data = p + used;
			*ret_n = take;
			return (ssize_t)(used + take);
		}
		if (chunk_char(c, p[used], err) != 0)
			return -1;
		used++;
	}
	return (ssize_t)used;
}
