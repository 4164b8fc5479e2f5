/*
 * Where clients' streams come in: each OPEN is checked field by field, authorised by the controller, and goes to the node of its
 * sandbox as the server established it. Event loop thread only, except where said.
 */
#ifndef SANDBOX_DAEMON_LINK_GATE_H
#define SANDBOX_DAEMON_LINK_GATE_H

#include "daemon/controller/controller.h"
#include "daemon/link/node_port.h"

struct gate;
struct mailbox;
struct muxloop;

struct gate *gate_new(struct muxloop *loop, struct mailbox *mail, struct controller *c, struct node_ports *ports);
/* Drops all clients: their foreground commands wait for them to resume. After the loop ended. */
void gate_free(struct gate *g);

/* Serves a client's mux connection after the upgrade: takes the descriptor (closed before gone is called, on the loop
 * thread) and copies the bytes read so far (any thread). */
void gate_serve(struct gate *g, const struct caller *who, int take_fd, const void *early, size_t n, void (*gone)(void *ctx), void *ctx);

#endif
