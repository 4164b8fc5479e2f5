/*
 * A client's stream joined to one on a link. OPEN, ACCEPT, CONTROL and CLOSE end here, are checked and issued again; DATA, EOF and
 * WINDOW pass with end-to-end credit, so that what waits here never outgrows a window per channel. When the link breaks, the
 * client's whole connection is dropped: it comes back and resumes. Event loop thread only.
 */
#ifndef SANDBOX_DAEMON_LINK_SPLICE_H
#define SANDBOX_DAEMON_LINK_SPLICE_H

#include "daemon/link/node_port.h"

/* Opens what is asked on the link and joins it to the client's stream; client NULL: nobody watches. -1: nothing was done. */
/* The client is another controller's stream when `what` names no connection: when the link breaks it is closed as lost, and ends its own
 * client's connection as above. */
int splice_open(struct mux *link, struct mux *client, uint32_t stream, const struct node_stream *what, struct error *err);
/* The same for a call that another controller passes on. */
int splice_call(struct mux *link, struct mux *client, uint32_t stream, const struct tlv *fields, struct error *err);

#endif
