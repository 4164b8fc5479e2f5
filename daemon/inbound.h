/* The edge and this daemon: its routes from the controller, its way to the sandboxes through the gate. */
#ifndef SANDBOX_DAEMON_INBOUND_H
#define SANDBOX_DAEMON_INBOUND_H

#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/edge/edge.h"
#include "daemon/link/gate.h"
#include "daemon/worker/worker.h"

struct inbound;

/* What edge.* says; who starts an edge adds routes, connect and ctx. */
struct edge_options inbound_edge_options(const struct daemon_config *config);
struct tunnel_route;
struct edge_route edge_route_of(const struct tunnel_route *t);

/* The edge inside, or with edge.link the socket for one in a process of its own. Tells the controller what is offered. *ret NULL when edge.listen
 * is empty. */
int inbound_start(const struct daemon_config *config, struct controller *c, struct gate *g, struct inbound **ret, struct error *err);
/* Doctor's rows and the metrics of what serves tunnels, here or in processes of its own (any thread). NULL is fine: there are none then. */
size_t inbound_checks(struct inbound *i, struct check_row *ret, size_t max);
void inbound_metrics(struct inbound *i, struct buf *out);
/* Before the gate's loop ends. NULL is fine. */
void inbound_stop(struct inbound *i);

#endif
