/* The edge's own answers. */
#include "daemon/edge/internal.h"

#include <string.h>

static const struct {
	int status;
	const char *text;
} reasons[] = {
	{ 200, "OK" },		     { 204, "No Content" },	     { 303, "See Other" },
	{ 400, "Bad Request" },	     { 401, "Unauthorized" },	     { 404, "Not Found" },
	{ 408, "Request Timeout" },  { 413, "Content Too Large" },   { 417, "Expectation Failed" },
	{ 429, "Too Many Requests" },{ 431, "Request Header Fields Too Large" },
	{ 502, "Bad Gateway" },	     { 503, "Service Unavailable" }, { 505, "HTTP Version Not Supported" },
};

const char *status_reason(int status)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "";
}

void page_write(struct visitor *v, int status, const char *type, const char *extra, const char *text)
{
	auto_buf out = BUF_INIT;
	size_t n = strlen(text);
	/* A body that was not read would be taken for the next request. */
	bool keep = v->keep && (v->state == V_WAIT || v->body.kind == BODY_NONE);
	buf_addf(&out, "HTTP/1.1 %d %s\r\n", status, status_reason(status));
	if (status != 204)
		buf_addf(&out, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, n);
	buf_addf(&out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n%s%s\r\n", extra,
		 !keep ? "Connection: close\r\n" : v->client_old ? "Connection: keep-alive\r\n" : "");
	if (!v->head_only && status != 204)
		buf_add(&out, text, n);
	visitor_write(v, out.data, out.len);
	if (v->fd >= 0)
		visitor_next(v, keep);
}
