/* Records of tenants' logins to image registries. As store.h: it keeps and finds. */
#ifndef SANDBOX_DAEMON_STORE_REGISTRIES_H
#define SANDBOX_DAEMON_STORE_REGISTRIES_H

#include "daemon/store/store.h"
#include "shared/base/buf.h"

enum { REGISTRY_MAX_LEN = 255, REGISTRY_USER_MAX_LEN = 255 };

struct registry_row {
	char tenant[TENANT_MAX_LEN + 1];
	char registry[REGISTRY_MAX_LEN + 1]; /* "ghcr.io", "localhost:5000" */
	char username[REGISTRY_USER_MAX_LEN + 1];
	int64_t created_us, updated_us;
	char updated_by[128];
};

/* Adds or replaces. */
int store_registry_put(struct db_tx *tx, const struct registry_row *r, const struct buf *sealed, struct error *err);
/* 1, 0, -1; appends the sealed bytes. */
int store_registry_get(struct db_tx *tx, const char *tenant, const char *registry, struct buf *ret_sealed, struct error *err);
int store_registry_count(struct db_tx *tx, const char *tenant, const char *other_than, int64_t *ret, struct error *err);
/* By registry. tenant NULL: all. */
typedef void (*registry_row_fn)(void *ctx, const struct registry_row *r);
int store_registry_each(struct db_tx *tx, const char *tenant, registry_row_fn fn, void *ctx, struct error *err);
/* 1: it was there, 0, -1. */
int store_registry_delete(struct db_tx *tx, const char *tenant, const char *registry, struct error *err);

#endif
