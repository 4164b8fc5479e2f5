/*
 * Controllers of one store among themselves: a node's worker has its link to one of them, and what another is asked about this node
 * goes there. Each dials the others that have links; a connection carries streams and calls, each naming its node. Both ends are
 * trusted alike: they share the store and the peers' secret.
 */
#ifndef SANDBOX_DAEMON_LINK_PEERS_H
#define SANDBOX_DAEMON_LINK_PEERS_H

#include "daemon/link/link_server.h"

struct daemon_config;
struct peers;

struct peers_options {
	const struct daemon_config *config;
	struct muxloop *loop;
	struct mailbox *mail;
	struct controller *controller;
	struct link_server *links;
	const char *secret; /* copied */
};
/* Begins to dial. */
int peers_start(const struct peers_options *o, struct peers **ret, struct error *err);
/* First stop (the loop runs), then free (it has ended; before the link server's). NULL is fine. */
void peers_stop(struct peers *p);
void peers_free(struct peers *p);

/* Takes the upgraded connection of another controller (any thread). */
void peers_accept(struct peers *p, const struct caller *who, int take_fd);

/* The secret of peers.secret_file; NULL when none is configured. ERR_INVALID: others may read the file, or it is too short. */
int peers_secret(const struct daemon_config *config, char **ret, struct error *err);

#endif
