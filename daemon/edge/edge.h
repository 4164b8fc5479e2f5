/*
 * The edge: an HTTP/1.1 proxy from the public names of tunnels to ports inside sandboxes. It parses what strangers send, so it knows
 * a route table and nothing else: no store, no runtime, no operator's rights. Bytes to a sandbox go through a mux connection on which
 * it may only dial what its routes name; the other end checks that again.
 * It runs on a thread of its own.
 */
#ifndef SANDBOX_DAEMON_EDGE_H
#define SANDBOX_DAEMON_EDGE_H

#include "shared/base/error.h"
#include "shared/base/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct edge;

enum { EDGE_LABEL_MAX = 63, EDGE_HASH_LEN = 64 };

enum edge_auth { EDGE_AUTH_NONE, EDGE_AUTH_TOKEN, EDGE_AUTH_PASSWORD };

struct edge_route {
	struct id tunnel;
	char label[EDGE_LABEL_MAX + 1]; /* the first label of the host name */
	struct id target;               /* what is dialled: a sandbox, or a share of somebody's machine */
	uint16_t port;
	enum edge_auth auth;
	char hash[EDGE_HASH_LEN + 1];   /* SHA-256 of the visitors' secret, hex; "" without */
	bool keep_host;                 /* the server is given the public name, else localhost:PORT */
};

typedef void (*edge_route_fn)(void *ctx, const struct edge_route *r);

struct edge_options {
	const char *listen;  /* "address:port", "unix:/path", several by commas */
	const char *domain;  /* names are LABEL.domain */
	const char *scheme;  /* of public addresses: http or https */
	unsigned public_port; /* 0: that of https, or for http the first listener's */
	const char *trusted; /* networks whose X-Forwarded-* are believed; a unix socket's peers are */
	unsigned keepalive_s; /* a quiet visitor is asked by TCP after this, and gone when it did not answer three times */
	/* On the edge's thread. All routes there are, once each. */
	int (*routes)(void *ctx, edge_route_fn add, void *add_ctx, struct error *err);
	/* On the edge's thread. A stream socket on which mux is spoken; the edge dials. */
	int (*connect)(void *ctx, int *ret_fd, struct error *err);
	void *ctx;
};

/* Borrowed texts are copied. ERR_INVALID, ERR_CONFLICT when an address is taken. */
int edge_start(const struct edge_options *o, struct edge **ret, struct error *err);
/* Ends every connection; routes and connect are not called any more. */
void edge_stop(struct edge *e);
/* Routes were added or removed (any thread). When it returns, no request that comes is routed by what was read before. */
void edge_changed(struct edge *e);
/* The port in public addresses, 0: that of the scheme. */
unsigned edge_port_of(const struct edge_options *o); /* by listen, scheme and public_port alone, of an edge elsewhere */
unsigned edge_public_port(const struct edge *e);

struct edge_stats {
	uint64_t requests, refused, failed; /* routed; refused by the edge; the server inside did not answer in order */
	uint64_t certified, uncertified;    /* a TLS front asked whether a name is routed: yes; no */
	size_t connections;
};
void edge_stats(const struct edge *e, struct edge_stats *ret); /* any thread */

#endif
