/* Handlers of the route table: `handle_<id>` for every row of routes.def, found in handlers_*.c. */
#ifndef SANDBOX_DAEMON_API_HANDLERS_H
#define SANDBOX_DAEMON_API_HANDLERS_H

#include "daemon/api/request.h"

#define ROUTE(name, ...) int handle_##name(struct request *r, struct answer *a, struct error *err);
#include "daemon/api/routes.def"
#undef ROUTE

/* {"operation": …} */
void answer_operation(struct answer *a, int status, const struct operation *op);

#endif
