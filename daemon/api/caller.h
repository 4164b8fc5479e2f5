/* Admission of a request before its body is read: who it is, whether they may, how large the body is. */
#ifndef SANDBOX_DAEMON_API_CALLER_H
#define SANDBOX_DAEMON_API_CALLER_H

#include "daemon/api/request.h"

struct listener;

/* Establishes r->caller: peer credentials on the unix socket; on TCP Host, Origin and the bearer token. public_route: a
 * token is not asked for. */
int caller_establish(struct request *r, const struct listener *l, bool public_route, struct error *err);
/* May r->caller make this call? ERR_FORBIDDEN. */
int caller_admit(const struct request *r, const struct route *route, struct error *err);
/* Length and type of the body as announced. *ret_has_body: there is one. ERR_TOO_LARGE, ERR_INVALID. */
int body_admit(struct request *r, const struct route *route, bool *ret_has_body, struct error *err);

#endif
