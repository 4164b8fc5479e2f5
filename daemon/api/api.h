/*
 * The HTTP API of the daemon: libmicrohttpd with an epoll pool, on sockets we open ourselves. On the unix socket the
 * peer's credentials decide; on TCP a token does. One struct api may listen on both.
 */
#ifndef SANDBOX_DAEMON_API_H
#define SANDBOX_DAEMON_API_H

#include "daemon/controller/controller.h"
#include "shared/base/error.h"

#include <sys/types.h>

struct api;
struct buf;
struct check_row;
struct daemon_config;
struct event_base;
struct gate;
struct link_server;
struct peers;
struct node_ports;

struct api_options {
	const struct daemon_config *config;
	struct controller *controller;
	struct node_ports *nodes;
	struct gate *gate;
	struct link_server *links; /* NULL: takes no links */
	struct peers *peers;       /* NULL: takes no other controllers' connections */
	/* A worker's daemon: it answers about itself alone. How its link stands: true when it is up. */
	bool (*link_state)(void *ctx, char *ret, size_t n);
	void *link_ctx;
	/* What serves tunnels, for doctor and metrics; NULL: nothing here does. */
	size_t (*edge_checks)(void *ctx, struct check_row *ret, size_t max);
	void (*edge_metrics)(void *ctx, struct buf *out);
	void *edge_ctx;
	struct event_base *base; /* its loop runs in another thread */
	/* Who a bearer token stands for, acting in a tenant (NULL: its first); ret->from is set. ERR_UNAUTHORIZED, ERR_FORBIDDEN.
	 * NULL: no token is valid. */
	int (*token_caller)(void *ctx, const char *token, const char *tenant, struct caller *ret, struct error *err);
	void *token_ctx;
};

struct api *api_new(const struct api_options *o);
/* ERR_CONFLICT when another daemon answers on this path, or it is no socket. */
int api_socket_free(const char *path, struct error *err);
/* Serves on a unix socket; makes its directory, replaces a stale socket. ERR_CONFLICT: another daemon answers there. */
int api_listen_unix(struct api *a, const char *path, struct error *err);
/* Serves on "ADDRESS:PORT" (port 0: any, told in *ret_port): HTTPS when the configuration has a certificate. */
int api_listen_tcp(struct api *a, const char *address, uint16_t *ret_port, struct error *err);
/* After a reload of the configuration: policy profile, host names, trusted proxies, certificate. -1: the old certificate and
 * names stay. */
int api_reload(struct api *a, struct error *err);
/* Stops accepting, answers who waits, waits up to timeout for slow work, removes the socket. False when slow work is still
 * under way: then nothing it uses may be freed. */
bool api_stop(struct api *a, int64_t timeout_ms);
void api_free(struct api *a); /* after api_stop returned true; NULL is fine */

#endif
