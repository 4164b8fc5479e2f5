/*
 * Ports of users' machines: a client's SHARE stream keeps one under a public name, and visitors' connections are opened as streams
 * towards that client. Event loop thread only.
 */
#ifndef SANDBOX_DAEMON_LINK_SHARE_H
#define SANDBOX_DAEMON_LINK_SHARE_H

#include "daemon/controller/controller.h"
#include "shared/mux/mux.h"

struct event_base;
struct shared_ports;

struct shared_ports *shared_ports_new(struct event_base *base, struct controller *c);
void shared_ports_free(struct shared_ports *all); /* streams are gone by then */

/* Answers a client's SHARE. -1: nothing was done to the stream. */
int shared_port_open(struct shared_ports *all, const struct caller *who, struct mux *m, uint32_t stream, const struct tlv *fields, struct error *err);
/* Passes the edge's stream on to the share of this id. False: there is none. */
bool shared_port_dial(struct shared_ports *all, const struct id *share, struct mux *edge, uint32_t stream);

#endif
