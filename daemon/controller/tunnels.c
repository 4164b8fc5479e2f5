/* Tunnels: who may have which, their names, their ends: see tunnels.h. */
#include "daemon/controller/tunnels.h"

#include "daemon/controller/identity.h"
#include "daemon/controller/internal.h"
#include "daemon/store/tunnels.h"
#include "shared/base/limits.h"
#include "shared/base/parse.h"

#include <sys/random.h>

enum { LABEL_RANDOM = 20, TOKEN_RANDOM = 40, PASSWORD_GROUPS = 4, REF_DIGITS_MIN = 4 };

static const int64_t name_kept_us = LIMIT_TUNNEL_NAME_DAYS * 24LL * 3600 * 1000000;

void tunnel_result_init(struct tunnel_result *r)
{
	*r = (struct tunnel_result){ .secret = "" };
	operation_init(&r->operation);
}

void tunnel_result_done(struct tunnel_result *r)
{
	operation_done(&r->operation);
	explicit_bzero(r->secret, sizeof(r->secret));
}

void tunnel_list_done(struct tunnel_list *l)
{
	free(l->items);
	*l = (struct tunnel_list){ .len = 0 };
}

void controller_offer_tunnels(struct controller *c, const struct tunnel_offer *o)
{
	pthread_mutex_lock(&c->settings_lock);
	c->offer = *o;
	pthread_mutex_unlock(&c->settings_lock);
}

struct tunnel_offer controller_tunnel_offer(struct controller *c)
{
	pthread_mutex_lock(&c->settings_lock);
	struct tunnel_offer o = c->offer;
	pthread_mutex_unlock(&c->settings_lock);
	return o;
}

/* --- names and secrets --- */

/* n characters of a-z and 2-7: five bits each. */
static int random_text(char *out, size_t n, struct error *err)
{
	unsigned char bytes[64];
	if (getrandom(bytes, n, 0) != (ssize_t)n)
		return error_errno(err, "asking the kernel for random bytes");
	for (size_t i = 0; i < n; i++)
		out[i] = "abcdefghijklmnopqrstuvwxyz234567"[bytes[i] & 31];
	out[n] = '\0';
	return 0;
}

/* Long for programs; for people in groups, and long enough that guessing over the network leads nowhere. */
static int make_secret(enum tunnel_auth auth, char out[static TUNNEL_SECRET_MAX], char hash[static TUNNEL_HASH_LEN + 1], struct error *err)
{
	char text[TOKEN_RANDOM + 1];
	out[0] = hash[0] = '\0';
	if (auth == TUNNEL_AUTH_NONE)
		return 0;
	if (random_text(text, TOKEN_RANDOM, err) != 0)
		return -1;
	if (auth == TUNNEL_AUTH_TOKEN)
		snprintf(out, TUNNEL_SECRET_MAX, "%s", text);
	else
		snprintf(out, TUNNEL_SECRET_MAX, "%.4s-%.4s-%.4s-%.4s", text, text + 4, text + 8, text + 12);
	explicit_bzero(text, sizeof(text));
	token_hash(out, hash);
	return 0;
}

static bool label_valid(const char *s)
{
	size_t n = strlen(s);
	if (n < 1 || n > TUNNEL_LABEL_MAX || s[0] == '-' || s[n - 1] == '-' || strncmp(s, "xn--", 4) == 0)
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* A chosen label: free, or this tenant's of late. */
static int claim_label(struct change *ch, const char *tenant, const char *label, struct error *err)
{
	char owner[TENANT_MAX_LEN + 1], shown[80];
	int64_t until = 0;
	struct tunnel_row row;
	if (!label_valid(label))
		return error_set(err, ERR_INVALID, "subdomain: '%s' is no label of a host name: lower-case letters, digits and dashes, at most %d, no dash at an end",
				 text_escape(label, strlen(label), shown, sizeof(shown)), TUNNEL_LABEL_MAX);
	int rc = store_tunnel_by_label(ch->tx, label, &row, err);
	if (rc == 1)
		return error_set(err, ERR_CONFLICT, "subdomain: '%s' is taken: choose another", label);
	if (rc == 0)
		rc = store_tunnel_name_get(ch->tx, label, owner, &until, err);
	if (rc == 1 && strcmp(owner, tenant) != 0 && until > ch->now)
		return error_set(err, ERR_CONFLICT, "subdomain: '%s' is taken: choose another", label);
	if (rc < 0)
		return -1;
	return store_tunnel_name_put(ch->tx, label, tenant, ch->now + name_kept_us, err);
}

int tunnels_claim(struct change *ch, const char *tenant, const char *asked, char ret[static TUNNEL_LABEL_MAX + 1], struct error *err)
{
	if (!asked)
		return random_text(ret, LABEL_RANDOM, err);
	if (claim_label(ch, tenant, asked, err) != 0)
		return -1;
	snprintf(ret, TUNNEL_LABEL_MAX + 1, "%s", asked);
	return 0;
}

/* A name that was chosen stays with its tenant for a while after its tunnel. */
static int keep_name(struct change *ch, const struct tunnel *t, struct error *err)
{
	char owner[TENANT_MAX_LEN + 1];
	int64_t until;
	int rc = store_tunnel_name_get(ch->tx, t->label, owner, &until, err);
	return rc <= 0 ? rc : store_tunnel_name_put(ch->tx, t->label, t->tenant, ch->now + name_kept_us, err);
}

void tunnel_address(const struct tunnel_offer *o, struct tunnel *t)
{
	snprintf(t->hostname, sizeof(t->hostname), "%s.%s", t->label, o->domain);
	if (o->port)
		snprintf(t->url, sizeof(t->url), "%s://%s:%u", o->scheme, t->hostname, o->port);
	else
		snprintf(t->url, sizeof(t->url), "%s://%s", o->scheme, t->hostname);
}

/* --- rules --- */

int tunnels_check_data(enum sensitivity s, struct error *err)
{
	if (s < SENSITIVITY_CONFIDENTIAL)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "a sandbox with %s data is not exposed: use `sandbox forward` for a private way in", sensitivity_text(s));
}

int tunnels_check_offer(struct controller *c, struct error *err)
{
	if (controller_tunnel_offer(c).enabled)
		return 0;
	return error_set(err, ERR_UNAVAILABLE, "this server offers no tunnels (edge.listen is not set); `sandbox forward` works without");
}

static void count(void *ctx, const struct tunnel_row *r)
{
	*(int64_t *)ctx += r->t.state != TUNNEL_FAILED;
}

static int check_limit(struct change *ch, const struct id *sandbox, struct error *err)
{
	int64_t n = 0, most = controller_tunnel_offer(ch->c).per_sandbox;
	if (store_tunnel_each(ch->tx, sandbox, NULL, count, &n, err) != 0)
		return -1;
	if (n < most)
		return 0;
	return error_set(err, ERR_NO_CAPACITY, "the sandbox has %lld tunnels and may have %lld (edge.per_sandbox): delete one first", (long long)n, (long long)most);
}

static int check_request(const struct tunnel_request *q, struct error *err)
{
	if (q->port == 0)
		return error_set(err, ERR_INVALID, "container_port: must be from 1 to 65535");
	if (q->protocol != PROTOCOL_HTTP)
		return error_set(err, ERR_INVALID, "protocol: public tunnels carry http; `sandbox forward` carries any TCP");
	return 0;
}

/* --- making --- */

int tunnels_add(struct change *ch, const struct sandbox_head *h, const struct tunnel_request *q, enum tunnel_state state, struct tunnel_result *ret,
		struct error *err)
{
	struct tunnel_offer offer = controller_tunnel_offer(ch->c);
	struct tunnel_row row = { .t = { .id = id_new(), .sandbox = h->id, .port = q->port, .protocol = q->protocol, .auth = q->auth,
					 .keep_host = q->keep_host, .state = state, .created_us = ch->now,
					 .expires_us = q->ttl_ms ? ch->now + q->ttl_ms * 1000 : 0 } };
	struct tunnel *t = &row.t;
	snprintf(t->tenant, sizeof(t->tenant), "%s", h->tenant);
	if (check_request(q, err) != 0 || check_limit(ch, &h->id, err) != 0)
		return -1;
	if (q->subdomain && shares_hold(ch->c->shares, q->subdomain))
		return error_set(err, ERR_CONFLICT, "subdomain: '%s' is taken: choose another", q->subdomain);
	if (tunnels_claim(ch, h->tenant, q->subdomain, t->label, err) != 0 || make_secret(q->auth, ret->secret, row.hash, err) != 0 || store_tunnel_add(ch->tx, &row, err) != 0)
		return -1;
	tunnel_address(&offer, t);
	ret->tunnel = *t;
	ch->routes = true;
	if (t->expires_us)
		change_wake(ch, t->expires_us);
	return 0;
}

/* An operation that is over when it begins: what it asks for is a record alone. */
static int add_operation(struct change *ch, const struct sandbox_head *h, enum op_kind kind, const char *actor, struct operation *ret, struct error *err)
{
	struct op_new op = { .id = id_new(), .sandbox = h, .kind = kind, .state = OP_SUCCEEDED, .actor = actor };
	if (store_op_insert(ch->tx, &op, ch->now, err) != 0)
		return -1;
	change_wake(ch, ch->now + controller_settings(ch->c).retention_ms * 1000);
	return lookup_operation(ch->tx, &op.id, ret, err);
}

static int check_running(struct change *ch, const struct sandbox_head *h, struct error *err)
{
	char label[LABEL_MAX];
	if (!sandbox_live(h->state))
		return lookup_ended(ch->tx, h, err);
	if (h->state != SANDBOX_RUNNING)
		return error_set(err, ERR_CONFLICT, "sandbox %s is %s, not running", lookup_label(h, label), sandbox_state_text(h->state));
	return 0;
}

static int check_sandbox(struct change *ch, const struct sandbox_head *h, struct error *err)
{
	auto_sandbox s;
	sandbox_init(&s);
	if (check_running(ch, h, err) != 0 || lookup_load(ch->c, ch->tx, &h->id, &s, err) != 0)
		return -1;
	return tunnels_check_data(s.spec.sensitivity, err);
}

int controller_tunnel_create(struct controller *c, const struct caller *who, const char *sandbox_ref, const struct tunnel_request *q,
			     struct tunnel_result *ret, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (access_may_mutate(who, err) != 0 || tunnels_check_offer(c, err) != 0 || change_begin(c, DB_WRITE, &ch, err) != 0 ||
	    change_lookup(&ch, who, sandbox_ref, &h, err) != 0 || check_sandbox(&ch, &h, err) != 0 ||
	    tunnels_add(&ch, &h, q, TUNNEL_ACTIVE, ret, err) != 0 || add_operation(&ch, &h, OPK_EXPOSE, who->who, &ret->operation, err) != 0)
		return -1;
	change_event(&ch, &h, "tunnel.active", ret->tunnel.hostname, who->who);
	return change_commit(&ch, err);
}

/* --- finding --- */

struct wanted {
	const char *ref;
	size_t found;
	struct tunnel_row row;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);
	return k >= REF_DIGITS_MIN && n >= k && strcasecmp(text + n - k, end) == 0;
}

static void match(void *ctx, const struct tunnel_row *r)
{
	struct wanted *w = ctx;
	if (strcmp(r->t.id.text, w->ref) != 0 && strcmp(r->t.label, w->ref) != 0 && !ends_with(r->t.id.text, w->ref))
		return;
	w->row = *r;
	w->found++;
}

static int find(struct change *ch, const struct sandbox_head *h, const char *ref, struct tunnel_row *ret, struct error *err)
{
	struct wanted w = { .ref = ref };
	char shown[200], label[LABEL_MAX];
	if (store_tunnel_each(ch->tx, &h->id, NULL, match, &w, err) != 0)
		return -1;
	text_escape(ref, strlen(ref), shown, sizeof(shown));
	if (w.found == 0)
		return error_set(err, ERR_NOT_FOUND, "sandbox %s has no tunnel '%s'", lookup_label(h, label), shown);
	if (w.found > 1)
		return error_set(err, ERR_CONFLICT, "'%s' matches more than one tunnel: give more digits", shown);
	*ret = w.row;
	return 0;
}

/* --- changing and removing --- */

int controller_tunnel_secret(struct controller *c, const struct caller *who, const char *sandbox_ref, const char *tunnel,
			     struct tunnel_result *ret, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	struct tunnel_row row;
	struct tunnel_offer offer = controller_tunnel_offer(c);
	if (access_may_mutate(who, err) != 0 || change_begin(c, DB_WRITE, &ch, err) != 0 || change_lookup(&ch, who, sandbox_ref, &h, err) != 0 ||
	    find(&ch, &h, tunnel, &row, err) != 0)
		return -1;
	if (row.t.auth == TUNNEL_AUTH_NONE)
		return error_set(err, ERR_CONFLICT, "visitors of %s need no secret: make a tunnel with --auth token or password", row.t.label);
	if (make_secret(row.t.auth, ret->secret, row.hash, err) != 0 || store_tunnel_set_hash(ch.tx, &row.t.id, row.hash, err) != 0)
		return -1;
	tunnel_address(&offer, &row.t);
	ret->tunnel = row.t;
	ch.routes = true;
	return change_commit(&ch, err);
}

static int drop(struct change *ch, const struct sandbox_head *h, struct tunnel *t, const char *actor, struct error *err)
{
	struct tunnel_offer offer = controller_tunnel_offer(ch->c);
	if (store_tunnel_drop(ch->tx, &t->id, err) != 0 || keep_name(ch, t, err) != 0)
		return -1;
	tunnel_address(&offer, t);
	t->state = TUNNEL_REMOVING;
	ch->routes = true;
	change_event(ch, h, "tunnel.removed", t->hostname, actor);
	return 0;
}

int controller_tunnel_delete(struct controller *c, const struct caller *who, const char *sandbox_ref, const char *tunnel, struct tunnel_result *ret,
			     struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	struct tunnel_row row;
	if (access_may_mutate(who, err) != 0 || change_begin(c, DB_WRITE, &ch, err) != 0 || change_lookup(&ch, who, sandbox_ref, &h, err) != 0 ||
	    find(&ch, &h, tunnel, &row, err) != 0 || drop(&ch, &h, &row.t, who->who, err) != 0 ||
	    add_operation(&ch, &h, OPK_UNEXPOSE, who->who, &ret->operation, err) != 0)
		return -1;
	ret->tunnel = row.t;
	return change_commit(&ch, err);
}

static void collect(void *ctx, const struct tunnel_row *r)
{
	struct tunnel_list *l = ctx;
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = r->t;
}

static int keep_names(struct change *ch, const struct id *sandbox, struct error *err)
{
	struct tunnel_list l = { .len = 0 };
	int rc = store_tunnel_each(ch->tx, sandbox, NULL, collect, &l, err);
	for (size_t i = 0; rc == 0 && i < l.len; i++)
		rc = keep_name(ch, &l.items[i], err);
	tunnel_list_done(&l);
	return rc;
}

int tunnels_follow(struct change *ch, const struct sandbox_head *h, enum sandbox_state to, struct error *err)
{
	int64_t n = 0;
	int rc = 0;
	switch (to) {
	case SANDBOX_SCHEDULED:
	case SANDBOX_CREATING:
		return 0;
	case SANDBOX_RUNNING:
		rc = store_tunnel_move_all(ch->tx, &h->id, TUNNEL_ACTIVE, NULL, &n, err);
		break;
	case SANDBOX_FAILED:
		if (keep_names(ch, &h->id, err) != 0)
			return -1;
		rc = store_tunnel_move_all(ch->tx, &h->id, TUNNEL_FAILED, "the sandbox failed", &n, err);
		break;
	case SANDBOX_STOPPING:
	case SANDBOX_STOPPED:
		if (keep_names(ch, &h->id, err) != 0)
			return -1;
		rc = store_tunnel_drop_all(ch->tx, &h->id, &n, err);
		break;
	case SANDBOX_COUNT:
		break;
	}
	ch->routes = ch->routes || n > 0;
	return rc;
}

/* --- time --- */

static int expire_one(struct controller *c, bool *ret_more, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct tunnel_row row;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = store_tunnel_due(ch.tx, ch.now, &row, err);
	*ret_more = rc == 1;
	if (rc <= 0)
		return rc;
	rc = store_sandbox_head(ch.tx, &row.t.sandbox, &h, err);
	if (rc < 0 || (rc == 0 ? store_tunnel_drop(ch.tx, &row.t.id, err) : drop(&ch, &h, &row.t, NULL, err)) != 0)
		return -1;
	return change_commit(&ch, err);
}

int tunnels_expire(struct controller *c, int64_t *ret_next, struct error *err)
{
	for (bool more = true; more;) {
		int64_t at = 0;
		{
			auto_tx *tx = NULL;
			if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_tunnel_next_due(tx, &at, err) != 0)
				return -1;
		}
		more = at && at <= store_now(c->store);
		if (!more && at && (*ret_next == 0 || at < *ret_next))
			*ret_next = at;
		if (more && expire_one(c, &more, err) != 0)
			return -1;
	}
	return 0;
}

/* --- reading --- */

int tunnels_of(struct controller *c, struct db_tx *tx, const struct id *sandbox, struct tunnel **ret, size_t *ret_n, struct error *err)
{
	struct tunnel_offer offer = controller_tunnel_offer(c);
	struct tunnel_list l = { .len = 0 };
	if (store_tunnel_each(tx, sandbox, NULL, collect, &l, err) != 0) {
		tunnel_list_done(&l);
		return -1;
	}
	for (size_t i = 0; i < l.len; i++)
		tunnel_address(&offer, &l.items[i]);
	free(*ret);
	*ret = l.items;
	*ret_n = l.len;
	return 0;
}

int controller_tunnels(struct controller *c, const struct caller *who, const char *sandbox_ref, struct tunnel_list *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct sandbox_head h;
	struct tunnel_list l = { .len = 0 };
	struct tunnel_offer offer = controller_tunnel_offer(c);
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || (sandbox_ref && lookup_head(tx, who, sandbox_ref, &h, err) != 0))
		return -1;
	if (store_tunnel_each(tx, sandbox_ref ? &h.id : NULL, sandbox_ref ? NULL : access_filter(who), collect, &l, err) != 0) {
		tunnel_list_done(&l);
		return -1;
	}
	for (size_t i = 0; i < l.len; i++)
		tunnel_address(&offer, &l.items[i]);
	*ret = l;
	return 0;
}

/* --- for the edge --- */

struct routes {
	tunnel_route_fn fn;
	void *ctx;
};

static void route(void *ctx, const struct tunnel_row *r)
{
	const struct routes *to = ctx;
	if (r->t.state == TUNNEL_ACTIVE)
		to->fn(to->ctx, &(struct tunnel_route){ .tunnel = &r->t, .hash = r->hash });
}

int controller_routes(struct controller *c, tunnel_route_fn fn, void *ctx, struct error *err)
{
	auto_tx *tx = NULL;
	struct routes to = { .fn = fn, .ctx = ctx };
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (store_tunnel_each(tx, NULL, NULL, route, &to, err) != 0)
		return -1;
	shares_routes(c->shares, fn, ctx);
	return 0;
}

struct dial {
	uint16_t port;
	bool found;
};

static void dialled(void *ctx, const struct tunnel_row *r)
{
	struct dial *d = ctx;
	d->found = d->found || (r->t.state == TUNNEL_ACTIVE && r->t.port == d->port);
}

int controller_route_dial(struct controller *c, const struct id *sandbox, uint16_t port, struct id *ret_node, struct error *err)
{
	auto_tx *tx = NULL;
	struct dial d = { .port = port };
	struct sandbox_head h;
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_tunnel_each(tx, sandbox, NULL, dialled, &d, err) != 0)
		return -1;
	int rc = d.found ? store_sandbox_head(tx, sandbox, &h, err) : 0;
	if (rc == 0 || (rc == 1 && h.state != SANDBOX_RUNNING))
		return error_set(err, ERR_NOT_FOUND, "no tunnel leads to port %u of sandbox %s", port, sandbox->text);
	if (rc == 1)
		*ret_node = h.node;
	return rc == 1 ? 0 : -1;
}
