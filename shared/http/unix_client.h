/*
 * A small HTTP/1.1 client for unix sockets: one connection, keep-alive, Content-Length and chunked answers,
 * Upgrade. Used by the CLI for the local daemon (no libcurl there: it costs 5 ms to load). Blocking with deadlines.
 */
#ifndef SANDBOX_HTTP_UNIX_CLIENT_H
#define SANDBOX_HTTP_UNIX_CLIENT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct http_answer {
	int status;
	char reason[64];
	struct map headers; /* names in lower case */
	struct buf body;
};

void http_answer_done(struct http_answer *a);

struct unix_client;

int unix_client_connect(const char *path, struct unix_client **ret, struct error *err); /* ERR_UNREACHABLE, ERR_FORBIDDEN */
void unix_client_free(struct unix_client *c);
int unix_client_fd(const struct unix_client *c);
/* One request; reconnects once when a kept connection had been closed and the method is safe. body may be NULL.
 * headers: extra ones. timeout_ms < 0: none. ERR_TIMEOUT, ERR_PROTOCOL, ERR_UNREACHABLE, ERR_TOO_LARGE. */
int unix_client_request(struct unix_client *c, const char *method, const char *target, const struct map *headers,
                        const void *body, size_t n, int64_t timeout_ms, struct http_answer *ret, struct error *err);

/* The long form: a body from a descriptor, an answer given out as it comes. */
struct http_request {
	const char *method, *target;
	const struct map *headers; /* NULL: none */
	const void *body;          /* n bytes, or NULL */
	size_t n;
	bool from_fd;              /* the body is read from body_fd to its end, sent chunked */
	int body_fd;
	int64_t timeout_ms;        /* of the whole request; with from_fd or on_body: of each silence. < 0: none */
	/* Pieces of a 2xx answer's body, instead of ret->body; -1 with err ends the request. */
	int (*on_body)(void *ctx, const char *p, size_t n, struct error *err);
	void *ctx;
};
int unix_client_send(struct unix_client *c, const struct http_request *q, struct http_answer *ret, struct error *err);

/* A client on a connected stream socket, without a path to dial again (tests; sockets made elsewhere). */
struct unix_client *unix_client_from_fd(int take_fd);
/* Waits end when fd becomes readable: ERR_TIMEOUT with err->sys == EINTR. -1: none. */
void unix_client_set_interrupt(struct unix_client *c, int fd);

/* Sent with every request as X-Sandbox-Tenant. Borrowed; NULL or "": none. */
void unix_client_set_tenant(struct unix_client *c, const char *tenant);

/* GET target with `Upgrade: sandbox-mux`, sending `early` right behind the head. On 101 the descriptor (blocking) is
 * the caller's, and bytes that followed the head are in ret_rest. On another status: -1 and the error body decoded into err. */
int unix_client_upgrade(struct unix_client *take_c, const char *target, const void *early, size_t early_n,
                        int *ret_fd, struct buf *ret_rest, struct error *err);

/* Percent-encodes one path segment or query value. Caller frees. */
char *url_encode(const char *text);

#endif
