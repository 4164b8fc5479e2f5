/*
 * What sandboxes with restricted egress may reach: the rules of the server (configuration), of tenants and of sandboxes, and what was
 * refused. Any thread. Deciding about one connection is the worker's (daemon/egress).
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_EGRESS_H
#define SANDBOX_DAEMON_CONTROLLER_EGRESS_H

#include "daemon/controller/controller.h"
#include "shared/model/egress.h"

/* --- operators --- */

/* Replaces the rules of a live sandbox with restricted egress; empty: the default again. ret: the sandbox as it is now.
 * ERR_INVALID, ERR_CONFLICT for one with another network or that ended. The worker must be told. */
int controller_egress_set(struct controller *c, const struct caller *who, const char *ref, const struct strv *rules, struct sandbox *ret,
			  struct error *err);
/* A tenant's own rules; empty text: none. *ret: NULL when there are none; the caller frees. */
int controller_egress_tenant(struct controller *c, const struct caller *who, const char *tenant, char **ret, struct error *err);
/* Admins only. NULL takes them away; an empty list allows nothing. */
int controller_egress_tenant_set(struct controller *c, const struct caller *who, const char *tenant, const struct strv *rules, struct error *err);

/* --- workers --- */

/* ERR_NOT_FOUND: no live sandbox of this node. */
int controller_egress_terms(struct controller *c, const struct id *node, const struct id *sandbox, struct egress_terms *ret, struct error *err);
/* An attempt that was refused, as an event egress.denied. Callers bound how often. Never fails. */
void controller_egress_denied(struct controller *c, const struct id *sandbox, const char *detail);

#endif
