/*
 * What strangers and servers send through the edge. Nothing may be read outside the bytes; a head that is accepted must say the same when
 * it is written out and read again; a chunked body must not depend on how it is cut.
 * fuzz-archives: daemon
 */
#include "daemon/edge/http.h"
#include "shared/base/buf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct span s, const char *p, size_t n)
{
	if (s.n > 0 && (s.p < p || s.p + s.n > p + n))
		abort();
}

static void write_out(const struct head *h, struct buf *out)
{
	buf_add(out, h->method.p, h->method.n);
	buf_addc(out, ' ');
	buf_add(out, h->target.p, h->target.n);
	buf_addf(out, " HTTP/1.%d\r\n", h->minor);
	for (size_t i = 0; i < h->n; i++) {
		buf_add(out, h->fields[i].name.p, h->fields[i].name.n);
		buf_adds(out, ": ");
		buf_add(out, h->fields[i].value.p, h->fields[i].value.n);
		buf_adds(out, "\r\n");
	}
	buf_adds(out, "\r\n");
}

static void request(const char *p, size_t n)
{
	struct head h, again;
	struct body body, same;
	const char *why = NULL;
	char host[256] = "", host2[256] = "";
	auto_buf out = BUF_INIT;
	size_t whole = head_length(p, n, 0);
	if (whole == 0 || request_parse(p, whole, &h, &why) != 0)
		return;
	for (size_t i = 0; i < h.n; i++) {
		inside(h.fields[i].name, p, whole);
		inside(h.fields[i].value, p, whole);
	}
	write_out(&h, &out);
	if (request_parse(out.data, out.len, &again, &why) != 0 || again.n != h.n)
		abort();
	int a = request_body(&h, &body, &why), b = request_body(&again, &same, &why);
	if (a != b || (a == 0 && (body.kind != same.kind || (body.kind == BODY_LENGTH && body.length != same.length))))
		abort();
	if (request_host(&h, host, sizeof(host)) != request_host(&again, host2, sizeof(host2)) || strcmp(host, host2) != 0)
		abort();
}

static void response(const char *p, size_t n)
{
	struct head h;
	struct body body;
	const char *why = NULL;
	size_t whole = head_length(p, n, 0);
	if (whole == 0 || response_parse(p, whole, &h, &why) != 0)
		return;
	inside(h.reason, p, whole);
	response_body(&h, n & 1, &body, &why);
}

static void gather(void *ctx, const char *p, size_t n)
{
	buf_add(ctx, p, n);
}

static void chunks(const char *p, size_t n)
{
	struct chunked whole = { .state = 0 }, single = { .state = 0 };
	auto_buf a = BUF_INIT, b = BUF_INIT;
	ssize_t took = chunked_feed(&whole, p, n, gather, &a), total = 0;
	for (size_t i = 0; i < n && total >= 0 && !chunked_done(&single); i++) {
		ssize_t one = chunked_feed(&single, p + i, 1, gather, &b);
		total = one < 0 ? -1 : total + one;
	}
	if (took != total || chunked_done(&whole) != chunked_done(&single) || (took >= 0 && (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len) != 0))))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	/* A copy of the exact size, so that a read behind it is seen. */
	char *p = malloc(size - 1 ? size - 1 : 1);
	if (!p)
		return 0;
	memcpy(p, data + 1, size - 1);
	if (data[0] % 3 == 0)
		request(p, size - 1);
	else if (data[0] % 3 == 1)
		response(p, size - 1);
	else
		chunks(p, size - 1);
	free(p);
	return 0;
}
