/* Tenants' logins to image registries: see registries.h. */
#include "daemon/controller/registries.h"

#include "daemon/controller/internal.h"
#include "daemon/controller/vault.h"
#include "shared/base/limits.h"
#include "shared/model/image_ref.h"

/* What a login is sealed for beside its tenant; no secret's name has a colon. */
enum { BOUND_MAX = REGISTRY_MAX_LEN + 16 };

static const char *bound_to(const char *registry, char out[static BOUND_MAX])
{
	snprintf(out, BOUND_MAX, "registry:%s", registry);
	return out;
}

/* The name that image references of it have. */
static int read_registry(const char *text, char ret[static REGISTRY_MAX_LEN + 1], struct error *err)
{
	struct image_ref ref;
	auto_free char *image = xasprintf("%s/any/image", text);
	if (strcmp(text, "index.docker.io") == 0 || strcmp(text, "registry-1.docker.io") == 0)
		text = "docker.io";
	else if (strlen(text) > REGISTRY_MAX_LEN || image_ref_parse(image, &ref, NULL) != 0 || strcmp(ref.registry, text) != 0)
		return error_set(err, ERR_INVALID, "registry: '%.80s' is no registry's host[:port], such as ghcr.io or localhost:5000", text);
	snprintf(ret, REGISTRY_MAX_LEN + 1, "%s", text);
	return 0;
}

static int check_login(const struct registry_login *l, struct error *err)
{
	size_t n = strlen(l->username);
	if (n == 0 || n > REGISTRY_USER_MAX_LEN || strpbrk(l->username, ":\n\r"))
		return error_set(err, ERR_INVALID, "username: 1 to %d characters without ':'", REGISTRY_USER_MAX_LEN);
	if (l->password->n == 0)
		return error_set(err, ERR_INVALID, "the password is empty");
	if (l->password->n > LIMIT_REGISTRY_PASSWORD_MAX)
		return error_set(err, ERR_TOO_LARGE, "the password has %zu bytes, at most %d are allowed", l->password->n, LIMIT_REGISTRY_PASSWORD_MAX);
	if (memchr(l->password->bytes, 0, l->password->n))
		return error_set(err, ERR_INVALID, "the password holds a zero byte");
	return 0;
}

static int put(struct controller *c, const struct registry_row *row, const struct secret *login, struct error *err)
{
	auto_tx *tx = NULL;
	auto_buf sealed = BUF_INIT;
	char bound[BOUND_MAX];
	int64_t others = 0;
	if (store_begin(c->store, DB_SYNCED, &tx, err) != 0 || vault_ready(c, tx, err) != 0 ||
	    store_registry_count(tx, row->tenant, row->registry, &others, err) != 0)
		return -1;
	if (others >= LIMIT_REGISTRIES_PER_TENANT)
		return error_set(err, ERR_CONFLICT, "tenant '%s' has logins for %d registries, the limit: remove one first", row->tenant,
				 LIMIT_REGISTRIES_PER_TENANT);
	if (vault_seal(c->vault, row->tenant, bound_to(row->registry, bound), login, &sealed, err) != 0 ||
	    store_registry_put(tx, row, &sealed, err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

/* user, zero byte, password */
static void join(const struct registry_login *l, struct secret *ret)
{
	auto_buf b = BUF_INIT;
	size_t user = strlen(l->username);
	(void)buf_reserve(&b, user + 1 + l->password->n + 1);
	buf_add(&b, l->username, user + 1);
	buf_add(&b, l->password->bytes, l->password->n);
	secret_set(ret, b.data, b.len);
	explicit_bzero(b.data, b.len);
}

int controller_registry_set(struct controller *c, const struct caller *who, const struct registry_login *login, struct registry_row *ret,
			    struct error *err)
{
	struct registry_row row = { .created_us = store_now(c->store) };
	auto_secret joined = SECRET_INIT;
	const char *tenant;
	if (access_may_mutate(who, err) != 0 || access_named_tenant(who, login->tenant, &tenant, err) != 0 ||
	    read_registry(login->registry, row.registry, err) != 0 || check_login(login, err) != 0)
		return -1;
	row.updated_us = row.created_us;
	snprintf(row.tenant, sizeof(row.tenant), "%s", tenant);
	snprintf(row.username, sizeof(row.username), "%s", login->username);
	snprintf(row.updated_by, sizeof(row.updated_by), "%s", who->who);
	join(login, &joined);
	if (put(c, &row, &joined, err) != 0)
		return -1;
	*ret = row;
	return 0;
}

static void add_row(void *ctx, const struct registry_row *r)
{
	struct registry_list *l = ctx;
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = *r;
}

void registry_list_done(struct registry_list *l)
{
	free(l->items);
	*l = (struct registry_list){ .items = NULL };
}

int controller_registries(struct controller *c, const struct caller *who, const char *tenant, struct registry_list *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct registry_list l = { .items = NULL };
	if (tenant && access_named_tenant(who, tenant, &tenant, err) != 0)
		return -1;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (store_registry_each(tx, tenant ? tenant : access_filter(who), add_row, &l, err) != 0) {
		registry_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

int controller_registry_delete(struct controller *c, const struct caller *who, const char *tenant, const char *registry, struct error *err)
{
	auto_tx *tx = NULL;
	char name[REGISTRY_MAX_LEN + 1];
	if (access_may_mutate(who, err) != 0 || access_named_tenant(who, tenant, &tenant, err) != 0 || read_registry(registry, name, err) != 0 ||
	    store_begin(c->store, DB_SYNCED, &tx, err) != 0)
		return -1;
	int rc = store_registry_delete(tx, tenant, name, err);
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "tenant '%s' has no login for %s", tenant, name);
	return rc < 0 ? -1 : db_commit(steal(&tx), err);
}

/* --- for pulls --- */

static int open_login(struct controller *c, struct db_tx *tx, const char *tenant, const char *image, struct secret *ret, struct error *err)
{
	struct image_ref ref;
	auto_buf sealed = BUF_INIT;
	char bound[BOUND_MAX];
	/* What is no reference is refused where the image is looked for; a sandbox of a pool has no tenant yet. */
	if (!*tenant || image_ref_parse(image, &ref, NULL) != 0 || ref.is_id)
		return 0;
	int rc = store_registry_get(tx, tenant, ref.registry, &sealed, err);
	if (rc <= 0)
		return rc;
	if (vault_ready(c, tx, err) != 0 || vault_open(c->vault, tenant, bound_to(ref.registry, bound), &sealed, ret, err) != 0)
		return error_wrap(err, "the login for %s", ref.registry);
	return 0;
}

int controller_registry_login(struct controller *c, const char *tenant, const char *image, struct secret *ret, struct error *err)
{
	auto_tx *tx = NULL;
	return store_begin(c->store, DB_READ, &tx, err) == 0 ? open_login(c, tx, tenant, image, ret, err) : -1;
}

int controller_registry_login_for(struct controller *c, const struct id *node, const struct id *sandbox, struct secret *ret, struct error *err)
{
	auto_tx *tx = NULL;
	auto_sandbox s;
	sandbox_init(&s);
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_sandbox_get(tx, sandbox, &s, err);
	if (rc == 0 || (rc == 1 && (!id_eq(&s.node_id, node) || !sandbox_live(s.state))))
		return error_set(err, ERR_NOT_FOUND, "no live sandbox %s on this node", sandbox->text);
	return rc < 0 ? -1 : open_login(c, tx, s.spec.tenant, s.spec.image, ret, err);
}
