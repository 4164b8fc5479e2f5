/*
 * The controller's end of links: workers' connections, what they ask, and a port for each node that has one. Nothing a worker sends
 * is taken for another node than its credential's, nor over a link that a newer one of its node replaced.
 */
#ifndef SANDBOX_DAEMON_LINK_LINK_SERVER_H
#define SANDBOX_DAEMON_LINK_LINK_SERVER_H

#include "daemon/controller/controller.h"
#include "daemon/link/node_port.h"

struct link_server;
struct mailbox;
struct muxloop;

struct link_server_options {
	struct muxloop *loop;
	struct mailbox *mail;
	struct controller *controller;
	struct node_ports *ports; /* gets a port for each node that links */
	const char *address;      /* of this controller, for the records */
};
/* On the loop thread, or before it runs. */
struct link_server *link_server_new(const struct link_server_options *o);
/* First stop (the loop runs), then free (it has ended). Workers go on and dial again. */
void link_server_stop(struct link_server *s);
void link_server_free(struct link_server *s);

/* Takes the upgraded connection of a node's worker (any thread); copies the bytes read so far. */
void link_server_accept(struct link_server *s, const struct caller *who, int take_fd, const void *early, size_t n);
/* Drops a node's link, as when it was removed (any thread). */
void link_server_drop(struct link_server *s, const struct id *node);

#endif
