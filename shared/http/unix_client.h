/*
 * A small HTTP/1.1 client for unix sockets: one connection, keep-alive, Content-Length and chunked answers,
 * Upgrade. Used by the CLI for the local daemon (no libcurl there: it costs 5 ms to load). Blocking with deadlines.
 */
#ifndef SANDBOX_HTTP_UNIX_CLIENT_H
#define SANDBOX_HTTP_UNIX_CLIENT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdint.h>

struct http_answer {
	int status;
	struct map headers; /* names in lower case */
	struct buf body;
};

void http_answer_done(struct http_answer *a);

struct unix_client;

int unix_client_connect(const char *path, struct unix_client **ret, struct error *err); /* ERR_UNREACHABLE */
void unix_client_free(struct unix_client *c);
int unix_client_fd(const struct unix_client *c);
/* One request; reconnects once when a kept connection had been closed and the method is safe. body may be NULL.
 * headers: extra ones. timeout_ms < 0: none. ERR_TIMEOUT, ERR_PROTOCOL, ERR_UNREACHABLE, ERR_TOO_LARGE. */
int unix_client_request(struct unix_client *c, const char *method, const char *target, const struct map *headers,
                        const void *body, size_t n, int64_t timeout_ms, struct http_answer *ret, struct error *err);
/* GET target with `Upgrade: sandbox-mux`, sending `early` right behind the head. On 101 the descriptor (blocking) is
 * the caller's, and bytes that followed the head are in ret_rest. On another status: -1 and the error body decoded into err. */
int unix_client_upgrade(struct unix_client *take_c, const char *target, const void *early, size_t early_n,
                        int *ret_fd, struct buf *ret_rest, struct error *err);

/* Percent-encodes one path segment or query value. Caller frees. */
char *url_encode(const char *text);

#endif
