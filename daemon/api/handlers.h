/* Handlers of the route table: `handle_<id>` for every row of routes.def, found in handlers_*.c. */
#ifndef SANDBOX_DAEMON_API_HANDLERS_H
#define SANDBOX_DAEMON_API_HANDLERS_H

#include "daemon/api/request.h"

#include <microhttpd.h>

#define ROUTE(name, ...) int handle_##name(struct request *r, struct answer *a, struct error *err);
#include "daemon/api/routes.def"
#undef ROUTE

/* handlers_operation.c: does the request ask for this protocol, and the answer that agrees to WebSocket. */
bool request_upgrades(struct request *r, const char *protocol);
int answer_websocket(struct request *r, struct answer *a, MHD_UpgradeHandler upgraded, struct error *err);

/* {"operation": …} */
void answer_operation(struct answer *a, int status, const struct operation *op);

#endif
