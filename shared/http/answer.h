/*
 * Reading HTTP/1.1 answers from bytes: pure parsing, no I/O. Everything the peer sends is bounded and ambiguity is refused
 * (two lengths, a length beside chunked, folded headers, NUL), so that both ends always agree where an answer ends.
 */
#ifndef SANDBOX_HTTP_ANSWER_H
#define SANDBOX_HTTP_ANSWER_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct http_head {
	int status;
	char reason[64];    /* printable, cut */
	struct map headers; /* names in lower case; of repeated ones the values joined by ", " */
	bool chunked;
	int64_t length;     /* Content-Length; -1: none */
	bool close;         /* the connection does not stay open */
};

void http_head_done(struct http_head *h);
/* The head's length when p[0..n) holds a whole one (ret is then filled, done by the caller); 0: more is needed; -1: ERR_PROTOCOL, or
 * ERR_TOO_LARGE past LIMIT_HTTP_HEAD_MAX. */
ssize_t http_head_parse(const char *p, size_t n, struct http_head *ret, struct error *err);

/* Chunked coding. */
struct http_chunks {
	int state;
	uint64_t left;  /* of the present chunk */
	unsigned digits;
	unsigned line;  /* bytes of the present line: extensions and trailers are bounded */
	unsigned trailers;
};

/* Takes bytes from p[0..n): returns how many were used; *ret_data, *ret_n is a piece of the body inside p (n may be 0). Call again with the
 * rest until nothing is used or http_chunks_ended. -1: ERR_PROTOCOL. */
ssize_t http_chunks_feed(struct http_chunks *c, const char *p, size_t n, const char **ret_data, size_t *ret_n, struct error *err);
bool http_chunks_ended(const struct http_chunks *c);

#endif
