/*
 * The key that secrets are sealed with: 32 bytes in a file of mode 0600, never in the store. Sealing is XChaCha20-Poly1305 with tenant and
 * name as associated data, so that a row moved under another name or tenant does not open. Any thread.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_VAULT_H
#define SANDBOX_DAEMON_CONTROLLER_VAULT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/crypto/secret.h"

struct vault;

/* Touches nothing yet. */
struct vault *vault_new(const char *key_file);
void vault_free(struct vault *v);
/* May the key be made when it is missing? It may not when something is sealed already: then the file was lost. ERR_FORBIDDEN: others may read
 * the file; ERR_INVALID: it holds no key; ERR_NOT_FOUND: it is missing. */
int vault_unlock(struct vault *v, bool may_make, struct error *err);
/* Both need the key. Appends to *ret. */
int vault_seal(struct vault *v, const char *tenant, const char *name, const struct secret *value, struct buf *ret, struct error *err);
/* ERR_CONFLICT: another key sealed it; ERR_INTERNAL: damaged, or of another tenant or name. */
int vault_open(struct vault *v, const char *tenant, const char *name, const struct buf *sealed, struct secret *ret, struct error *err);

#endif
