/*
 * Secrets of tenants: set and never shown again, given only to the worker that runs a sandbox which asks for them. Any thread.
 * The store holds them sealed (vault.h); the key is a file of this server's.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_SECRETS_H
#define SANDBOX_DAEMON_CONTROLLER_SECRETS_H

#include "daemon/controller/controller.h"
#include "daemon/store/secrets.h"
#include "shared/crypto/secret_values.h"

/* Adds or replaces. tenant NULL or "": the caller's. ERR_INVALID, ERR_FORBIDDEN, ERR_TOO_LARGE, ERR_CONFLICT at the tenant's limit. */
int controller_secret_set(struct controller *c, const struct caller *who, const char *tenant, const char *name, const struct secret *value,
			  struct secret_row *ret, struct error *err);
struct secret_list {
	struct secret_row *items;
	size_t len;
};
void secret_list_done(struct secret_list *l);
/* tenant NULL: all the caller may see. */
int controller_secrets(struct controller *c, const struct caller *who, const char *tenant, struct secret_list *ret, struct error *err);
/* ERR_NOT_FOUND. Sandboxes that run keep what they were given. */
int controller_secret_delete(struct controller *c, const struct caller *who, const char *tenant, const char *name, struct error *err);

/* --- workers --- */

/* What a live sandbox of this node was created with; empty when it uses none. ERR_NOT_FOUND: no such sandbox here, or a secret is gone. */
int controller_secret_values(struct controller *c, const struct id *node, const struct id *sandbox, struct secret_values *ret,
			     struct error *err);

#endif
