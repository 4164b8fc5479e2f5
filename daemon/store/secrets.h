/* Records of secrets (sealed: the store cannot read them) and of tenants' egress rules. As store.h: it keeps and finds. */
#ifndef SANDBOX_DAEMON_STORE_SECRETS_H
#define SANDBOX_DAEMON_STORE_SECRETS_H

#include "daemon/store/store.h"
#include "shared/base/buf.h"

struct secret_row {
	char tenant[TENANT_MAX_LEN + 1], name[NAME_MAX_LEN + 1];
	int64_t size; /* bytes of the value */
	int64_t created_us, updated_us;
	char updated_by[128];
};

/* Adds or replaces. */
int store_secret_put(struct db_tx *tx, const struct secret_row *s, const struct buf *sealed, struct error *err);
/* 1, 0, -1; appends the sealed bytes. */
int store_secret_get(struct db_tx *tx, const char *tenant, const char *name, struct buf *ret_sealed, struct error *err);
int store_secret_count(struct db_tx *tx, const char *tenant, const char *other_than, int64_t *ret, struct error *err);
/* How many there are at all. */
int store_secret_any(struct db_tx *tx, int64_t *ret, struct error *err);
/* By name. tenant NULL: all. */
typedef void (*secret_row_fn)(void *ctx, const struct secret_row *s);
int store_secret_each(struct db_tx *tx, const char *tenant, secret_row_fn fn, void *ctx, struct error *err);
/* 1: it was there, 0, -1. */
int store_secret_delete(struct db_tx *tx, const char *tenant, const char *name, struct error *err);

/* Rules between blanks; 1, 0 when the tenant has none of its own, -1. The caller frees. */
int store_egress_get(struct db_tx *tx, const char *tenant, char **ret_rules, struct error *err);
/* NULL takes them away. */
int store_egress_put(struct db_tx *tx, const char *tenant, const char *rules, int64_t now, struct error *err);
/* Replaces the spec of a live sandbox. */
int store_sandbox_set_spec(struct db_tx *tx, const struct id *id, const struct spec *spec, int64_t now, struct error *err);

#endif
