/* The role edge: the proxy for tunnels' visitors in a process that holds nothing else, no store, no key, no runtime. */
#ifndef SANDBOX_DAEMON_EDGE_PROCESS_H
#define SANDBOX_DAEMON_EDGE_PROCESS_H

#include "daemon/config.h"

/* Serves until SIGTERM or SIGINT, which must be blocked. ready is called once visitors are served. -1: it could not start. */
int edge_process_run(const struct daemon_config *config, void (*ready)(void *ctx), void *ctx, struct error *err);

#endif
