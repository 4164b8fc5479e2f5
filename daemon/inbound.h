/* The edge inside this process: its routes from the controller, its way to the sandboxes through the gate. */
#ifndef SANDBOX_DAEMON_INBOUND_H
#define SANDBOX_DAEMON_INBOUND_H

#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/edge/edge.h"
#include "daemon/link/gate.h"

struct inbound;

/* Tells the controller what is offered. *ret NULL when edge.listen is empty. */
int inbound_start(const struct daemon_config *config, struct controller *c, struct gate *g, struct inbound **ret, struct error *err);
/* Before the gate's loop ends. NULL is fine. */
void inbound_stop(struct inbound *i);

#endif
