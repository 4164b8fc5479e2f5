/* WebSocket connections as plain streams: each gets a socket pair, and its messages' bytes cross on the carrier's thread. */
#ifndef SANDBOX_DAEMON_API_WSBRIDGE_H
#define SANDBOX_DAEMON_API_WSBRIDGE_H

#include "shared/base/error.h"

#include <stddef.h>

struct bridges;
struct carrier;

struct bridges *bridges_new(struct carrier *c);
/* After carrier_stop. NULL is fine. */
void bridges_free(struct bridges *b);
/* Takes the upgraded connection, with the n bytes already read from it. Returns the plain end, the caller's; -1: err, and the
 * connection is closed. Any thread. */
int bridge_open(struct bridges *b, int take_fd, const void *early, size_t n, struct error *err);

#endif
