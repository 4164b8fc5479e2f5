/* Bearer tokens of all kinds: see credentials.h. */
#include "daemon/api/credentials.h"

#include "daemon/api/peer.h"
#include "daemon/controller/fleet.h"
#include "daemon/controller/identity.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

#define VARIABLE "SANDBOX_BOOTSTRAP_TOKENS"

enum { BOOTSTRAP_MAX = 32, SECRET_MIN = 32 };

struct credentials {
	struct controller *controller;
	struct admin_token *admin;
	struct token_row bootstrap[BOOTSTRAP_MAX];
	size_t n_bootstrap;
	bool has_peer;
	char peer_hash[TOKEN_HASH_LEN + 1];
};

/* ROLE or ROLE@TENANT */
static int take_rights(const char *text, struct token_row *t, struct error *err)
{
	const char *at = strchr(text, '@');
	auto_free char *role = at ? xstrndup(text, (size_t)(at - text)) : xstrdup(text);
	if (role_parse(role, &t->role) != 0)
		return error_set(err, ERR_INVALID, VARIABLE ": '%.32s' is not a role (admin, operator, viewer)", role);
	if (at && (!tenant_valid(at + 1) || t->role == ROLE_ADMIN))
		return error_set(err, ERR_INVALID, VARIABLE ": '%.64s': want operator@TENANT or viewer@TENANT", text);
	if (at)
		snprintf(t->tenants, sizeof(t->tenants), "%s", at + 1);
	return 0;
}

static int take_word(struct credentials *c, char *word, struct error *err)
{
	struct token_row t = { .role = ROLE_ADMIN, .tenants = "*" };
	char *colon = strchr(word, ':'), *secret = colon ? colon + 1 : word;
	if (c->n_bootstrap == BOOTSTRAP_MAX)
		return error_set(err, ERR_INVALID, VARIABLE ": more than %d tokens", BOOTSTRAP_MAX);
	if (colon) {
		*colon = '\0';
		if (take_rights(word, &t, err) != 0)
			return -1;
	}
	if (strlen(secret) < SECRET_MIN)
		return error_set(err, ERR_INVALID, VARIABLE ": token %zu has %zu characters, at least %d are needed", c->n_bootstrap + 1,
				 strlen(secret), SECRET_MIN);
	token_hash(secret, t.hash);
	for (size_t i = 0; i < c->n_bootstrap; i++)
		if (token_hash_equal(c->bootstrap[i].hash, t.hash))
			return error_set(err, ERR_INVALID, VARIABLE ": tokens %zu and %zu are the same", i + 1, c->n_bootstrap + 1);
	snprintf(t.name, sizeof(t.name), "bootstrap-%zu", c->n_bootstrap + 1);
	c->bootstrap[c->n_bootstrap++] = t;
	return 0;
}

static int take_environment(struct credentials *c, struct error *err)
{
	char *value = getenv(VARIABLE), *state = NULL;
	int rc = 0;
	if (!value)
		return 0;
	auto_free char *copy = xstrdup(value);
	size_t n = strlen(copy);
	explicit_bzero(value, n);
	unsetenv(VARIABLE);
	for (char *w = strtok_r(copy, ", \t\n", &state); w && rc == 0; w = strtok_r(NULL, ", \t\n", &state))
		rc = take_word(c, w, err);
	explicit_bzero(copy, n);
	return rc;
}

int credentials_new(const char *state_dir, struct controller *controller, const char *peer, struct credentials **ret, struct error *err)
{
	struct credentials *c = xcalloc(1, sizeof(*c));
	c->controller = controller;
	c->has_peer = peer != NULL;
	if (peer)
		token_hash(peer, c->peer_hash);
	if (take_environment(c, err) != 0 || admin_token_load(state_dir, &c->admin, err) != 0) {
		credentials_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void credentials_free(struct credentials *c)
{
	if (!c)
		return;
	admin_token_free(c->admin);
	free(c);
}

static int peer_controller(const struct credentials *c, const char *token, struct caller *ret, struct error *err)
{
	char hash[TOKEN_HASH_LEN + 1];
	token_hash(token, hash);
	if (!c->has_peer || !token_hash_equal(c->peer_hash, hash))
		return error_set(err, ERR_UNAUTHORIZED, "the secret of controllers is not the one of this controller (peers.secret_file)");
	ret->role = ROLE_VIEWER;
	ret->all_tenants = false;
	ret->peer = true;
	ret->tenant[0] = '\0';
	snprintf(ret->who, sizeof(ret->who), "a controller");
	return 0;
}

int credentials_caller(void *ctx, const char *token, const char *tenant, struct caller *ret, struct error *err)
{
	const struct credentials *c = ctx;
	char hash[TOKEN_HASH_LEN + 1];
	if (strncmp(token, NODE_SECRET_PREFIX, strlen(NODE_SECRET_PREFIX)) == 0)
		return controller_node_caller(c->controller, token, ret, err);
	if (strncmp(token, PEER_SECRET_PREFIX, strlen(PEER_SECRET_PREFIX)) == 0)
		return peer_controller(c, token, ret, err);
	if (admin_token_caller(c->admin, token, ret, NULL) == 0) {
		struct token_row t = { .name = "admin", .role = ROLE_ADMIN, .tenants = "*" };
		return token_caller(&t, tenant, ret, err);
	}
	token_hash(token, hash);
	for (size_t i = 0; i < c->n_bootstrap; i++)
		if (token_hash_equal(c->bootstrap[i].hash, hash))
			return token_caller(&c->bootstrap[i], tenant, ret, err);
	return controller_token_caller(c->controller, token, tenant, ret, err);
}
