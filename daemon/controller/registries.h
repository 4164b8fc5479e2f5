/*
 * Tenants' logins to image registries: set and never shown again, used for pulls and for asking a registry whether the tenant may use an
 * image that a worker has already. Any thread. The store holds them sealed by the key of secrets (vault.h).
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_REGISTRIES_H
#define SANDBOX_DAEMON_CONTROLLER_REGISTRIES_H

#include "daemon/controller/controller.h"
#include "daemon/store/registries.h"
#include "shared/crypto/secret.h"

/* Adds or replaces. tenant NULL or "": the caller's. ERR_INVALID, ERR_FORBIDDEN, ERR_TOO_LARGE, ERR_CONFLICT at the tenant's limit. */
struct registry_login {
	const char *tenant, *registry, *username;
	const struct secret *password;
};
int controller_registry_set(struct controller *c, const struct caller *who, const struct registry_login *login, struct registry_row *ret,
			    struct error *err);
struct registry_list {
	struct registry_row *items;
	size_t len;
};
void registry_list_done(struct registry_list *l);
/* tenant NULL: all the caller may see. */
int controller_registries(struct controller *c, const struct caller *who, const char *tenant, struct registry_list *ret, struct error *err);
/* ERR_NOT_FOUND. Sandboxes that run are left alone. */
int controller_registry_delete(struct controller *c, const struct caller *who, const char *tenant, const char *registry, struct error *err);

/* User and password with a zero byte between them, for the registry of this image; empty: the tenant has none for it. */
int controller_registry_login(struct controller *c, const char *tenant, const char *image, struct secret *ret, struct error *err);
/* The same for a worker: of the tenant and image of a live sandbox on this node. */
int controller_registry_login_for(struct controller *c, const struct id *node, const struct id *sandbox, struct secret *ret, struct error *err);

#endif
