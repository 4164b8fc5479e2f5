/* Records of identity: tokens, the audit log, quotas. As store.h: it keeps and finds, it decides nothing. */
#ifndef SANDBOX_DAEMON_STORE_IDENTITY_H
#define SANDBOX_DAEMON_STORE_IDENTITY_H

#include "daemon/store/store.h"

enum { TOKEN_NAME_MAX = 63, TOKEN_HASH_LEN = 64, TOKEN_TENANTS_MAX = 512 };

struct token_row {
	struct id id;
	char name[TOKEN_NAME_MAX + 1];
	char hash[TOKEN_HASH_LEN + 1];       /* SHA-256 of the secret, hex */
	enum role role;
	char tenants[TOKEN_TENANTS_MAX];     /* "a,b"; "*": all */
	int64_t created_us, expires_us, revoked_us, used_us; /* 0: never */
	char created_by[128], used_from[64];
};

/* ERR_CONFLICT when a token that is not revoked has the name. */
int store_token_add(struct db_tx *tx, const struct token_row *t, struct error *err);
/* By the first digits of the hash, so that the index learns nothing that the whole comparison should decide. 1, 0, -1. */
int store_token_by_hash(struct db_tx *tx, const char *hash, struct token_row *ret, struct error *err);
/* The id, or the name of one that is not revoked. 1, 0, -1. */
int store_token_find(struct db_tx *tx, const char *ref, struct token_row *ret, struct error *err);
/* Newest first. */
typedef void (*token_fn)(void *ctx, const struct token_row *t);
int store_token_each(struct db_tx *tx, token_fn fn, void *ctx, struct error *err);
int store_token_revoke(struct db_tx *tx, const struct id *id, int64_t now, struct error *err);
int store_token_used(struct db_tx *tx, const struct id *id, const char *from, int64_t now, struct error *err);

struct audit_row {
	struct id id; /* filled by store_audit_add */
	int64_t at_us;
	const char *who, *from, *tenant, *action, *target, *outcome, *detail, *request_id;
};
int store_audit_add(struct db_tx *tx, struct audit_row *a, struct error *err);
struct audit_filter {
	const char *before; /* id; NULL: from the newest */
	const char *who, *action, *target; /* NULL: any */
	size_t limit;
};
typedef void (*audit_fn)(void *ctx, const struct audit_row *a);
int store_audit_each(struct db_tx *tx, const struct audit_filter *f, audit_fn fn, void *ctx, struct error *err);
/* Drops what is older than before, or over the count that is kept; a bounded number. *ret_more: call again. */
int store_audit_prune(struct db_tx *tx, int64_t before, bool *ret_more, struct error *err);

/* -1: no limit of its own. */
struct quota {
	int64_t sandboxes, cpu_millis, memory_mib, ttl_ms;
};
int store_quota_get(struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err); /* 1, 0, -1 */
int store_quota_put(struct db_tx *tx, const char *tenant, const struct quota *q, int64_t now, struct error *err);
/* What the tenant's live sandboxes hold; ttl_ms is 0. */
int store_quota_used(struct db_tx *tx, const char *tenant, struct quota *ret, struct error *err);

#endif
