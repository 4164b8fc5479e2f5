/*
 * What a program inside says to the proxy: CONNECT, or a request with an absolute http address. Strict and bounded: everything that two
 * readers could understand differently is refused. Pure.
 */
#ifndef SANDBOX_DAEMON_EGRESS_REQUEST_H
#define SANDBOX_DAEMON_EGRESS_REQUEST_H

#include "shared/model/egress.h"

enum { PROXY_HEAD_MAX = 16 * 1024, PROXY_HEADERS_MAX = 100 };

/* How much of what follows belongs to the request. */
struct proxy_body {
	enum { BODY_EMPTY, BODY_SIZED, BODY_CHUNKED } kind;
	uint64_t left;  /* SIZED: bytes to come; CHUNKED: of the chunk at hand */
	unsigned state; /* CHUNKED: see request.c */
	unsigned line;  /* CHUNKED: bytes of the line at hand */
	bool done;
};

struct proxy_request {
	bool connect;
	struct egress_target target;
	struct buf head;  /* !connect: what to send to the origin instead */
	struct proxy_body body;
};
void proxy_request_done(struct proxy_request *r);
#define auto_proxy_request __attribute__((cleanup(proxy_request_done))) struct proxy_request

/* The length of a complete head at p (its empty line included), 0: more is needed. */
size_t proxy_head_length(const char *p, size_t n);
/* Reads a complete head. *ret_status is the HTTP status of the refusal. */
int proxy_request_parse(const char *p, size_t n, struct proxy_request *ret, int *ret_status, struct error *err);
/* How many of n bytes still belong to the body; sets done behind its last. -1: malformed. */
ssize_t proxy_body_take(struct proxy_body *b, const char *p, size_t n);

#endif
