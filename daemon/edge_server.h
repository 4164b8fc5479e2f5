/*
 * For an edge in a process of its own: a unix socket where it gets the routes and its way to the sandboxes (daemon/edge/wire.h). It has no
 * more rights there than the edge inside: it may read routes and dial what they name.
 */
#ifndef SANDBOX_DAEMON_EDGE_SERVER_H
#define SANDBOX_DAEMON_EDGE_SERVER_H

#include "daemon/controller/controller.h"
#include "daemon/edge/wire.h"
#include "daemon/link/gate.h"

struct edge_server;

/* group: may connect, besides root and this process's user; empty, or when there is none of that name: nobody else. */
int edge_server_start(const char *path, const char *group, struct controller *c, struct gate *g, struct edge_server **ret, struct error *err);
void edge_server_stop(struct edge_server *s); /* NULL is fine */
/* Routes were added or removed (any thread). When it returns, every edge that is still connected routes by what is true now. */
void edge_server_changed(struct edge_server *s);

/* An edge that is connected now. */
struct edge_peer {
	pid_t pid;
	bool current; /* it has confirmed what is true now */
	struct edge_about about; /* version "": it has not said yet */
};
typedef void (*edge_peer_fn)(void *ctx, const struct edge_peer *p); /* must be short: it holds up the edges' thread */
void edge_server_each(struct edge_server *s, edge_peer_fn fn, void *ctx);

#endif
