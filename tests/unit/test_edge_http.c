/* What the edge takes for an HTTP message, and what it refuses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/edge/http.h"
#include "shared/base/buf.h"

#include <string.h>

/* 0, or the status that refuses the head or its framing; *ret_body as announced. */
static int judge(const char *text, struct body *ret_body, char host[256])
{
	struct head h;
	const char *why = NULL;
	size_t n = head_length(text, strlen(text), 0);
	assert_true(n > 0);
	int status = request_parse(text, n, &h, &why);
	if (status == 0)
		status = request_body(&h, ret_body, &why);
	if (status == 0 && request_host(&h, host, 256) != 0)
		status = 400;
	if (status != 0 && why == NULL)
		why = "host";
	return status;
}

#define GET "GET / HTTP/1.1\r\nHost: a.example\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a.example\r\n"

static void requests(void **state)
{
	static const struct {
		const char *text;
		int status;
		enum body_kind kind;
		uint64_t length;
	} rows[] = {
		{ GET "\r\n", 0, BODY_NONE, 0 },
		{ "GET /x?y=%20 HTTP/1.0\r\nhost:a.example:8080\r\n\r\n", 0, BODY_NONE, 0 },
		{ POST "Content-Length: 5\r\n\r\n", 0, BODY_LENGTH, 5 },
		{ POST "Content-Length: 0\r\n\r\n", 0, BODY_NONE, 0 },
		{ POST "Transfer-Encoding: Chunked\r\n\r\n", 0, BODY_CHUNKED, 0 },
		{ GET "X-Empty:\r\nX-Blank:   \r\n\r\n", 0, BODY_NONE, 0 },
		/* two readings of one message */
		{ POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: 5, 5\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: +5\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: 0x5\r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: \r\n\r\n", 400, 0, 0 },
		{ POST "Content-Length: 9999999999999999999\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding: identity\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding: xchunked\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding:\x0b" "chunked\r\n\r\n", 400, 0, 0 },
		{ POST "Transfer-Encoding : chunked\r\n\r\n", 400, 0, 0 },
		{ "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, 0 },
		{ POST "X: y\r\n folded: z\r\n\r\n", 400, 0, 0 },
		{ POST " Content-Length: 5\r\n\r\n", 400, 0, 0 },
		{ GET "X: a\nContent-Length: 5\r\n\r\n", 400, 0, 0 },
		{ GET "X: a\rContent-Length: 5\r\n\r\n", 400, 0, 0 },
		{ GET "no colon\r\n\r\n", 400, 0, 0 },
		{ GET ": no name\r\n\r\n", 400, 0, 0 },
		{ GET "X[y]: z\r\n\r\n", 400, 0, 0 },
		{ "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 505, 0, 0 },
		{ "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, 0, 0 },
		{ "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0, 0 },
		{ "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0, 0 },
		{ "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0, 0 },
		/* hosts */
		{ "GET / HTTP/1.1\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, 0, 0 },
		{ "GET / HTTP/1.1\r\nHost: .\r\n\r\n", 400, 0, 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct body b = { .kind = BODY_NONE };
		char host[256];
		int status = judge(rows[i].text, &b, host);
		if (status != rows[i].status || (status == 0 && (b.kind != rows[i].kind || (b.kind == BODY_LENGTH && b.length != rows[i].length))))
			fail_msg("row %zu (%s): status %d kind %d", i, rows[i].text, status, b.kind);
	}
}

static void hosts_are_compared_as_names(void **state)
{
	struct body b;
	char host[256];
	(void)state;
	assert_int_equal(judge("GET / HTTP/1.1\r\nHOST:  WEB.Example.ORG.:8443 \r\n\r\n", &b, host), 0);
	assert_string_equal(host, "web.example.org");
}

static void a_nul_byte_is_refused(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
	struct head h;
	const char *why;
	(void)state;
	assert_int_equal(request_parse(text, sizeof(text) - 1, &h, &why), 400);
}

static void too_many_headers(void **state)
{
	auto_buf b = BUF_INIT;
	struct head h;
	const char *why;
	(void)state;
	buf_adds(&b, GET);
	for (int i = 0; i < HTTP_FIELDS_MAX; i++)
		buf_addf(&b, "X-%d: y\r\n", i);
	buf_adds(&b, "\r\n");
	assert_int_equal(request_parse(b.data, b.len, &h, &why), 431);
}

static void answers(void **state)
{
	static const struct {
		const char *text;
		bool head_only;
		int rc, status;
		enum body_kind kind;
	} rows[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, 0, 200, BODY_LENGTH },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, 0, 200, BODY_NONE },
		{ "HTTP/1.1 200\r\n\r\n", false, 0, 200, BODY_TO_END },
		{ "HTTP/1.0 200 OK\r\n\r\n", false, 0, 200, BODY_TO_END },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, 0, 200, BODY_CHUNKED },
		{ "HTTP/1.1 204 No Content\r\n\r\n", false, 0, 204, BODY_NONE },
		{ "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", false, 0, 304, BODY_NONE },
		{ "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", false, 0, 101, BODY_NONE },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/1.1 2000 OK\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/1.1 20 OK\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/1.1 099 OK\r\n\r\n", false, -1, 0, 0 },
		{ "ICY 200 OK\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/2 200\r\n\r\n", false, -1, 0, 0 },
		{ "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", false, -1, 0, 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct head h = { .status = 0 };
		struct body b = { .kind = BODY_NONE };
		const char *why = NULL;
		int rc = response_parse(rows[i].text, strlen(rows[i].text), &h, &why);
		if (rc == 0)
			rc = response_body(&h, rows[i].head_only, &b, &why);
		if (rc != rows[i].rc || (rc == 0 && (h.status != rows[i].status || b.kind != rows[i].kind)))
			fail_msg("row %zu: rc %d status %d kind %d", i, rc, h.status, b.kind);
	}
}

static void gather(void *ctx, const char *p, size_t n)
{
	buf_add(ctx, p, n);
}

/* In pieces of `step` bytes; returns what was taken, -1 when it was refused. */
static ssize_t feed_in(const char *text, size_t step, struct buf *content, bool *ret_done)
{
	struct chunked c = { .state = 0 };
	size_t n = strlen(text), at = 0;
	while (at < n && !chunked_done(&c)) {
		size_t k = n - at < step ? n - at : step;
		ssize_t took = chunked_feed(&c, text + at, k, gather, content);
		if (took < 0)
			return -1;
		at += (size_t)took;
	}
	*ret_done = chunked_done(&c);
	return (ssize_t)at;
}

static void chunks(void **state)
{
	static const struct {
		const char *text, *content; /* content NULL: refused */
		ssize_t taken;
	} rows[] = {
		{ "5\r\nhello\r\n0\r\n\r\nGET /", "hello", 15 },
		{ "0005\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", 24 },
		{ "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n", "01234567890123456789", 45 },
		{ "5;x=y\r\nhello\r\n0\r\n\r\n", NULL, 0 },
		{ "5 \r\nhello\r\n0\r\n\r\n", NULL, 0 },
		{ "5\nhello\r\n0\r\n\r\n", NULL, 0 },
		{ "5\r\nhelloX\r\n0\r\n\r\n", NULL, 0 },
		{ "5\r\nhello\n0\r\n\r\n", NULL, 0 },
		{ "0x5\r\nhello\r\n0\r\n\r\n", NULL, 0 },
		{ "-5\r\nhello\r\n0\r\n\r\n", NULL, 0 },
		{ "\r\nhello\r\n", NULL, 0 },
		{ "FFFFFFFFFFFFFFFFF\r\n", NULL, 0 },
		{ "0\r\nContent-Length: 5\r\n\r\n", NULL, 0 },
		{ "0\r\nTransfer-Encoding: x\r\n\r\n", NULL, 0 },
		{ "0\r\nX y: z\r\n\r\n", NULL, 0 },
		{ "0\r\nnocolon\r\n\r\n", NULL, 0 },
		{ "0\r\nX: a\n\r\n\r\n", NULL, 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t step = 1; step < 60; step += 3) {
			auto_buf content = BUF_INIT;
			bool done = false;
			ssize_t took = feed_in(rows[i].text, step, &content, &done);
			if (rows[i].content ? took != rows[i].taken || !done || strcmp(buf_str(&content), rows[i].content) != 0 : took != -1)
				fail_msg("row %zu in steps of %zu: took %zd, %s", i, step, took, buf_str(&content));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests), cmocka_unit_test(hosts_are_compared_as_names), cmocka_unit_test(a_nul_byte_is_refused),
		cmocka_unit_test(too_many_headers), cmocka_unit_test(answers), cmocka_unit_test(chunks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
