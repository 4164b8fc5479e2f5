/* Tokens: see identity.h. libsodium hashes and compares. */
#include "daemon/controller/identity.h"

#include "daemon/controller/internal.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/parse.h"

#include <sodium.h>

enum { SECRET_BYTES = 32, TENANTS_OF_A_TOKEN = 8, USED_GRAIN_US = 60 * 1000000 };

#define PREFIX "sbx_"

void token_hash(const char *secret, char out[static TOKEN_HASH_LEN + 1])
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	crypto_hash_sha256(digest, (const unsigned char *)secret, strlen(secret));
	sodium_bin2hex(out, TOKEN_HASH_LEN + 1, digest, sizeof(digest));
}

bool token_hash_equal(const char *a, const char *b)
{
	return strlen(a) == TOKEN_HASH_LEN && strlen(b) == TOKEN_HASH_LEN && sodium_memcmp(a, b, TOKEN_HASH_LEN) == 0;
}

static int may_administer(const struct caller *who, struct error *err)
{
	if (who->role == ROLE_ADMIN && who->all_tenants)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "only an admin may do this; %s is %s", who->who, role_text(who->role));
}

/* --- making --- */

static int check_tenants(const struct token_request *q, char ret[static TOKEN_TENANTS_MAX], struct error *err)
{
	bool all = q->tenants->len == 0 || strv_has(q->tenants, "*");
	auto_buf list = BUF_INIT;
	if (all) {
		snprintf(ret, TOKEN_TENANTS_MAX, "*");
		return 0;
	}
	if (q->role == ROLE_ADMIN)
		return error_set(err, ERR_INVALID, "tenants: an admin's token is for all tenants; give the role operator for some");
	if (q->tenants->len > TENANTS_OF_A_TOKEN)
		return error_set(err, ERR_INVALID, "tenants: at most %d", TENANTS_OF_A_TOKEN);
	for (size_t i = 0; i < q->tenants->len; i++) {
		if (!tenant_valid(q->tenants->items[i]))
			return error_set(err, ERR_INVALID, "tenants: '%.80s' is not a tenant name", q->tenants->items[i]);
		buf_addf(&list, "%s%s", i ? "," : "", q->tenants->items[i]);
	}
	snprintf(ret, TOKEN_TENANTS_MAX, "%s", buf_str(&list));
	return 0;
}

static int check_request(const struct token_request *q, struct token_row *t, struct error *err)
{
	if (!name_valid(q->name))
		return error_set(err, ERR_INVALID, "name: '%.80s' is not [a-z][a-z0-9-]{0,62} with a letter beyond f", q->name);
	snprintf(t->name, sizeof(t->name), "%s", q->name);
	t->role = q->role;
	return check_tenants(q, t->tenants, err);
}

static void count(void *ctx, const struct token_row *t)
{
	*(size_t *)ctx += t->revoked_us == 0;
}

static int add(struct controller *c, struct token_row *t, int64_t lifetime_ms, struct error *err)
{
	auto_tx *tx = NULL;
	size_t live = 0;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || store_token_each(tx, count, &live, err) != 0)
		return -1;
	if (live >= LIMIT_TOKENS_MAX)
		return error_set(err, ERR_CONFLICT, "there are %zu tokens, the limit TOKENS_MAX: revoke some first", live);
	t->created_us = store_now(c->store);
	t->expires_us = lifetime_ms ? t->created_us + lifetime_ms * 1000 : 0;
	struct error e = ERROR_INIT;
	if (store_token_add(tx, t, &e) == 0)
		return db_commit(steal(&tx), err);
	if (e.code == ERR_CONFLICT)
		return error_set(err, ERR_CONFLICT, "the token '%s' exists: revoke it first, or choose another name", t->name);
	*err = e;
	return -1;
}

void secret_new(const char *prefix, char secret[static TOKEN_SECRET_LEN + 1], char hash[static TOKEN_HASH_LEN + 1])
{
	unsigned char raw[SECRET_BYTES];
	char hex[2 * SECRET_BYTES + 1];
	random_bytes(raw, sizeof(raw));
	sodium_bin2hex(hex, sizeof(hex), raw, sizeof(raw));
	snprintf(secret, TOKEN_SECRET_LEN + 1, "%.4s%s", prefix, hex);
	token_hash(secret, hash);
	sodium_memzero(raw, sizeof(raw));
	sodium_memzero(hex, sizeof(hex));
}

int controller_token_create(struct controller *c, const struct caller *who, const struct token_request *q, struct token_row *ret,
			    char secret[static TOKEN_SECRET_LEN + 1], struct error *err)
{
	struct token_row t = { .id = id_new() };
	char text[TOKEN_SECRET_LEN + 1];
	if (may_administer(who, err) != 0 || check_request(q, &t, err) != 0)
		return -1;
	secret_new(PREFIX, text, t.hash);
	snprintf(t.created_by, sizeof(t.created_by), "%s", who->who);
	int rc = add(c, &t, q->lifetime_ms, err);
	if (rc == 0) {
		memcpy(secret, text, sizeof(text));
		*ret = t;
	}
	sodium_memzero(text, sizeof(text));
	return rc;
}

/* --- listing, revoking --- */

static void take(void *ctx, const struct token_row *t)
{
	struct token_list *l = ctx;
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = *t;
}

void token_list_done(struct token_list *l)
{
	free(l->items);
	*l = (struct token_list){ .items = NULL };
}

int controller_tokens(struct controller *c, const struct caller *who, struct token_list *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct token_list l = { .items = NULL };
	if (may_administer(who, err) != 0 || store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (store_token_each(tx, take, &l, err) != 0) {
		token_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

int controller_token_revoke(struct controller *c, const struct caller *who, const char *ref, struct token_row *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct token_row t;
	if (may_administer(who, err) != 0 || store_begin(c->store, DB_SYNCED, &tx, err) != 0)
		return -1;
	int found = store_token_find(tx, ref, &t, err);
	if (found <= 0)
		return found < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "no token in use is called '%.80s'", ref);
	int64_t now = store_now(c->store);
	if (store_token_revoke(tx, &t.id, now, err) != 0 || db_commit(steal(&tx), err) != 0)
		return -1;
	if (!t.revoked_us)
		t.revoked_us = now;
	*ret = t;
	return 0;
}

/* --- using --- */

int token_caller(const struct token_row *t, const char *tenant, struct caller *ret, struct error *err)
{
	bool all = strcmp(t->tenants, "*") == 0;
	const char *first = all ? "default" : t->tenants;
	size_t n = strcspn(first, ",");
	if (tenant && *tenant && !all) {
		size_t want = strlen(tenant);
		const char *p = t->tenants;
		while (strncmp(p, tenant, want) != 0 || (p[want] != ',' && p[want] != '\0')) {
			p = strchr(p, ',');
			if (!p)
				return error_set(err, ERR_FORBIDDEN, "the token '%s' is not for tenant '%.80s'", t->name, tenant);
			p++;
		}
		first = p;
		n = want;
	} else if (tenant && *tenant) {
		if (!tenant_valid(tenant))
			return error_set(err, ERR_INVALID, "'%.80s' is not a tenant name", tenant);
		first = tenant;
		n = strlen(tenant);
	}
	snprintf(ret->tenant, sizeof(ret->tenant), "%.*s", (int)n, first);
	snprintf(ret->who, sizeof(ret->who), "token %s", t->name);
	ret->role = t->role;
	ret->all_tenants = all;
	ret->tenant_asked = tenant && *tenant;
	return 0;
}

/* Once a minute is precise enough for people, and cheap enough for every request. */
static void note_use(struct controller *c, const struct token_row *t, const char *from, int64_t now)
{
	auto_tx *tx = NULL;
	struct error err = ERROR_INIT;
	if (now - t->used_us < USED_GRAIN_US && strcmp(t->used_from, from) == 0)
		return;
	if (store_begin(c->store, DB_WRITE, &tx, &err) != 0 || store_token_used(tx, &t->id, from, now, &err) != 0 ||
	    db_commit(steal(&tx), &err) != 0)
		log_warn("identity", "the use of token '%s' is not noted: %s", t->name, err.message);
}

static int find_secret(struct controller *c, const char *secret, struct token_row *ret, struct error *err)
{
	auto_tx *tx = NULL;
	char hash[TOKEN_HASH_LEN + 1];
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	token_hash(secret, hash);
	int found = store_token_by_hash(tx, hash, ret, err);
	if (found < 0)
		return -1;
	if (found == 0 || !token_hash_equal(hash, ret->hash))
		return error_set(err, ERR_UNAUTHORIZED, "the token is not valid here");
	return 0;
}

int controller_token_caller(struct controller *c, const char *secret, const char *tenant, struct caller *ret, struct error *err)
{
	struct token_row t;
	int64_t now = store_now(c->store);
	/* Nothing that cannot be one costs a look into the store. */
	if (strncmp(secret, PREFIX, strlen(PREFIX)) != 0 || strlen(secret) != TOKEN_SECRET_LEN)
		return error_set(err, ERR_UNAUTHORIZED, "the token is not valid here");
	if (find_secret(c, secret, &t, err) != 0)
		return -1;
	if (t.revoked_us)
		return error_set(err, ERR_UNAUTHORIZED, "the token '%s' was revoked", t.name);
	if (t.expires_us && now >= t.expires_us)
		return error_set(err, ERR_UNAUTHORIZED, "the token '%s' has expired", t.name);
	if (token_caller(&t, tenant, ret, err) != 0)
		return -1;
	note_use(c, &t, ret->from, now);
	return 0;
}
