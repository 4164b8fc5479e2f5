/*
 * What a bearer token may be: the admin token in STATE/api-token, a bootstrap token of the environment, or one of the store.
 *
 * SANDBOX_BOOTSTRAP_TOKENS, for containers: words separated by blanks or commas, each [ROLE[@TENANT]:]TOKEN (admin when no role
 * stands there), at least 32 characters and all different. It is taken out of the environment.
 */
#ifndef SANDBOX_DAEMON_API_CREDENTIALS_H
#define SANDBOX_DAEMON_API_CREDENTIALS_H

#include "daemon/controller/controller.h"

struct credentials;

/* peer: what other controllers show; NULL: none do. Copied as a hash. */
int credentials_new(const char *state_dir, struct controller *c, const char *peer, struct credentials **ret, struct error *err);
void credentials_free(struct credentials *c); /* NULL is fine */
/* For api_options.token_caller; ctx is the struct credentials. */
int credentials_caller(void *ctx, const char *token, const char *tenant, struct caller *ret, struct error *err);

#endif
