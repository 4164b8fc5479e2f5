/* Secrets of tenants: see secrets.h. */
#include "daemon/controller/secrets.h"

#include "daemon/controller/internal.h"
#include "daemon/controller/vault.h"
#include "shared/base/limits.h"
#include "shared/base/parse.h"

static int check_name(const char *name, struct error *err)
{
	if (secret_name_valid(name))
		return 0;
	return error_set(err, ERR_INVALID, "a secret's name is 1 to %d of letters, digits, '.', '_', '-', beginning with a letter or '_'", NAME_MAX_LEN);
}

/* The key is made with the first secret, and only then. */
int vault_ready(struct controller *c, struct db_tx *tx, struct error *err)
{
	int64_t n = 0;
	if (store_secret_any(tx, &n, err) != 0)
		return -1;
	return vault_unlock(c->vault, n == 0, err);
}

static int put(struct controller *c, const struct secret_row *row, const struct secret *value, struct error *err)
{
	auto_tx *tx = NULL;
	auto_buf sealed = BUF_INIT;
	int64_t others = 0;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || vault_ready(c, tx, err) != 0 ||
	    store_secret_count(tx, row->tenant, row->name, &others, err) != 0)
		return -1;
	if (others >= LIMIT_SECRETS_PER_TENANT)
		return error_set(err, ERR_CONFLICT, "tenant '%s' has %d secrets, the limit: delete one first", row->tenant, LIMIT_SECRETS_PER_TENANT);
	if (vault_seal(c->vault, row->tenant, row->name, value, &sealed, err) != 0 || store_secret_put(tx, row, &sealed, err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

int controller_secret_set(struct controller *c, const struct caller *who, const char *tenant, const char *name, const struct secret *value,
			  struct secret_row *ret, struct error *err)
{
	struct secret_row row = { .size = (int64_t)value->n };
	if (access_may_mutate(who, err) != 0 || access_named_tenant(who, tenant, &tenant, err) != 0 || check_name(name, err) != 0)
		return -1;
	if (value->n == 0)
		return error_set(err, ERR_INVALID, "the value is empty");
	if (value->n > LIMIT_SECRET_BYTES_MAX)
		return error_set(err, ERR_TOO_LARGE, "the value has %zu bytes, at most %d are allowed", value->n, LIMIT_SECRET_BYTES_MAX);
	row.created_us = row.updated_us = store_now(c->store);
	snprintf(row.tenant, sizeof(row.tenant), "%s", tenant);
	snprintf(row.name, sizeof(row.name), "%s", name);
	snprintf(row.updated_by, sizeof(row.updated_by), "%s", who->who);
	if (put(c, &row, value, err) != 0)
		return -1;
	*ret = row;
	return 0;
}

static void add_row(void *ctx, const struct secret_row *s)
{
	struct secret_list *l = ctx;
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = *s;
}

void secret_list_done(struct secret_list *l)
{
	free(l->items);
	*l = (struct secret_list){ .items = NULL };
}

int controller_secrets(struct controller *c, const struct caller *who, const char *tenant, struct secret_list *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct secret_list l = { .items = NULL };
	if (tenant && access_named_tenant(who, tenant, &tenant, err) != 0)
		return -1;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (store_secret_each(tx, tenant ? tenant : access_filter(who), add_row, &l, err) != 0) {
		secret_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

int controller_secret_delete(struct controller *c, const struct caller *who, const char *tenant, const char *name, struct error *err)
{
	auto_tx *tx = NULL;
	if (access_may_mutate(who, err) != 0 || access_named_tenant(who, tenant, &tenant, err) != 0 || check_name(name, err) != 0 ||
	    store_begin(c->store, DB_SYNCED, &tx, err) != 0)
		return -1;
	int rc = store_secret_delete(tx, tenant, name, err);
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "tenant '%s' has no secret '%s'", tenant, name);
	return rc < 0 ? -1 : db_commit(steal(&tx), err);
}

/* --- for sandboxes --- */

static int open_one(struct controller *c, struct db_tx *tx, const char *tenant, const struct secret_use *u, struct secret_value *ret,
		    struct error *err)
{
	auto_buf sealed = BUF_INIT;
	int rc = store_secret_get(tx, tenant, u->name, &sealed, err);
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "tenant '%s' has no secret '%s': sandbox secret set %s --stdin", tenant, u->name, u->name);
	if (rc < 0 || vault_open(c->vault, tenant, u->name, &sealed, &ret->value, err) != 0)
		return -1;
	ret->env = xstrdup0(u->env);
	ret->file = xstrdup0(u->file);
	if (u->env && memchr(ret->value.bytes, 0, ret->value.n))
		return error_set(err, ERR_INVALID, "secret '%s' holds a zero byte, which no variable can: use it as a file (--secret %s:/run/secrets/%s)",
				 u->name, u->name, u->name);
	return 0;
}

static int open_all(struct controller *c, struct db_tx *tx, const struct spec *s, struct secret_values *ret, struct error *err)
{
	auto_secret_values v = SECRET_VALUES_INIT;
	if (s->n_secrets > 0 && vault_ready(c, tx, err) != 0)
		return -1;
	v.items = xcalloc(s->n_secrets + 1, sizeof(*v.items));
	for (size_t i = 0; i < s->n_secrets; i++)
		if (open_one(c, tx, s->tenant, &s->secrets[i], &v.items[v.len++], err) != 0)
			return -1;
	*ret = v;
	v = (struct secret_values)SECRET_VALUES_INIT;
	return 0;
}

int secrets_check(struct controller *c, struct db_tx *tx, const struct spec *s, struct error *err)
{
	auto_secret_values v = SECRET_VALUES_INIT;
	return s->n_secrets ? open_all(c, tx, s, &v, err) : 0;
}

int controller_secret_values(struct controller *c, const struct id *node, const struct id *sandbox, struct secret_values *ret,
			     struct error *err)
{
	auto_tx *tx = NULL;
	auto_sandbox s;
	sandbox_init(&s);
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_sandbox_get(tx, sandbox, &s, err);
	/* What is not this node's does not exist for it. */
	if (rc == 0 || (rc == 1 && (!id_eq(&s.node_id, node) || !sandbox_live(s.state))))
		return error_set(err, ERR_NOT_FOUND, "no live sandbox %s on this node", sandbox->text);
	return rc < 0 ? -1 : open_all(c, tx, &s.spec, ret, err);
}
