/*
 * Identity: tokens that people and machines show, what tenants may hold, and the log of who did what. Any thread.
 * A token's secret is known to its owner alone: the store has its SHA-256, and comparing takes the same time whatever it holds.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_IDENTITY_H
#define SANDBOX_DAEMON_CONTROLLER_IDENTITY_H

#include "daemon/controller/controller.h"
#include "daemon/store/identity.h"
#include "shared/base/buf.h"

enum { TOKEN_SECRET_LEN = 4 + 64 }; /* "sbx_" and 32 random bytes in hex */

struct token_request {
	const char *name;
	enum role role;
	const struct strv *tenants; /* empty or "*": all, which an admin's must be */
	int64_t lifetime_ms;        /* 0: until it is revoked */
};
/* The secret is told here and never again. ERR_CONFLICT: the name is taken; ERR_INVALID. */
int controller_token_create(struct controller *c, const struct caller *who, const struct token_request *q, struct token_row *ret,
                            char secret[static TOKEN_SECRET_LEN + 1], struct error *err);
struct token_list {
	struct token_row *items;
	size_t len;
};
void token_list_done(struct token_list *l);
int controller_tokens(struct controller *c, const struct caller *who, struct token_list *ret, struct error *err);
/* By id or name; idempotent by id. ERR_NOT_FOUND. */
int controller_token_revoke(struct controller *c, const struct caller *who, const char *ref, struct token_row *ret, struct error *err);

/* SHA-256 of a secret in hex, and a comparison that takes the same time whatever differs. */
void token_hash(const char *secret, char out[static TOKEN_HASH_LEN + 1]);
bool token_hash_equal(const char *a, const char *b);
/* Fills role, tenant and name of a caller from a row; tenant: the one asked for, NULL: the first. ERR_FORBIDDEN. */
int token_caller(const struct token_row *t, const char *tenant, struct caller *ret, struct error *err);
/* Who a secret stands for (ret->from is set already and kept as its last use). ERR_UNAUTHORIZED: unknown, revoked, expired. */
int controller_token_caller(struct controller *c, const char *secret, const char *tenant, struct caller *ret, struct error *err);

/* --- audit --- */

struct audit_entry {
	const char *action;  /* "create", "stream.exec", … */
	const char *target;  /* sandbox, operation or other object; NULL: none */
	enum error_code code; /* NONE: it was done or is under way */
	const char *detail;  /* NULL: none */
};
/* Never fails: what cannot be written is logged. */
void controller_audit(struct controller *c, const struct caller *who, const struct audit_entry *e);
/* Newest first; texts are valid within fn. ERR_FORBIDDEN for who is no admin. */
int controller_audit_each(struct controller *c, const struct caller *who, const struct audit_filter *f, audit_fn fn, void *ctx,
                          struct error *err);

/* --- quotas --- */

/* What is in force for a tenant (its own, else the configuration's; -1: no limit), and what it holds. */
int controller_quota(struct controller *c, const struct caller *who, const char *tenant, struct quota *ret, struct quota *ret_used,
                     struct error *err);
int controller_quota_set(struct controller *c, const struct caller *who, const char *tenant, const struct quota *q, struct error *err);

#endif
