/* Create: spec → validate → policy → AEGIS → one transaction {sandbox, operation, reservation, outbox, key}. */
#include "daemon/controller/internal.h"

#include "daemon/controller/decision_json.h"
#include "shared/base/limits.h"
#include "shared/json/model_json.h"

#include <inttypes.h>

#define ROUTE "POST /v1/sandboxes"

/* Another controller may take a slot between the decision and the guarded update; then the decision is made again. */
enum { PLACE_TRIES = 3 };

void create_result_init(struct create_result *r)
{
	*r = (struct create_result){ .replayed = false };
	sandbox_init(&r->sandbox);
	operation_init(&r->operation);
	decision_init(&r->decision);
}

void create_result_done(struct create_result *r)
{
	sandbox_done(&r->sandbox);
	operation_done(&r->operation);
	decision_done(&r->decision);
	for (size_t i = 0; i < r->secrets.len; i++)
		explicit_bzero(r->secrets.items[i].value, strlen(r->secrets.items[i].value));
	map_done(&r->secrets);
	create_result_init(r);
}

/* What is created: the spec in its tenant, and the key under which it may be asked for again. */
struct asked {
	const struct caller *who;
	struct spec spec;
	struct idem_key key; /* key.key NULL: none */
};

static int check(struct controller *c, const struct caller *who, const struct spec *spec, struct spec *ret, struct error *err)
{
	const char *tenant;
	if (access_tenant(who, spec->tenant, &tenant, err) != 0)
		return -1;
	spec_copy(ret, spec);
	char *name = xstrdup(tenant);
	free(ret->tenant);
	ret->tenant = name;
	/* Whoever is given one needs them, whatever else was said. */
	ret->signals.needs_secrets |= ret->n_secrets > 0;
	if (spec_validate(ret, err) != 0)
		return -1;
	if (ret->n_exposures && (tunnels_check_offer(c, err) != 0 || tunnels_check_data(ret->sensitivity, err) != 0))
		return -1;
	int64_t max_ms = controller_settings(c).max_ttl_ms;
	if (ret->ttl_ms > max_ms)
		return error_set(err, ERR_INVALID, "spec.ttl_seconds: %" PRId64 " is above the longest lifetime here, %" PRId64 " (policy.max_ttl)",
				 ret->ttl_ms / 1000, max_ms / 1000);
	return 0;
}

uint64_t spec_hash(const struct spec *s)
{
	cJSON *j = spec_to_json(s);
	auto_free char *text = json_print(j);
	cJSON_Delete(j);
	return hash_text(HASH_INIT, text);
}

/* 1: this key has made a sandbox already, ret is filled; 0: new; -1: error. */
static int replay(struct change *ch, struct asked *a, struct create_result *ret, struct error *err)
{
	uint64_t hash = a->key.body_hash;
	int rc = a->key.key ? store_key_get(ch->tx, &a->key, err) : 0;
	if (rc <= 0)
		return rc;
	if (a->key.body_hash != hash)
		return error_set(err, ERR_CONFLICT, "Idempotency-Key '%s' was used with another body: use a new key", a->key.key);
	int have_sandbox = store_sandbox_get(ch->tx, &a->key.sandbox, &ret->sandbox, err);
	int have_op = have_sandbox == 1 ? store_op_get(ch->tx, &a->key.operation, &ret->operation, err) : have_sandbox;
	if (have_op < 0)
		return -1;
	a->key.body_hash = hash;
	/* What it made is past its retention: as if the key had gone with it. */
	if (have_op == 0)
		return store_key_drop(ch->tx, &a->key, err);
	ret->replayed = true;
	ret->decision.placed = true;
	ret->decision.node = ret->sandbox.node_id;
	snprintf(ret->decision.node_name, sizeof(ret->decision.node_name), "%s", ret->sandbox.node_name);
	return 1;
}

static int check_name(struct change *ch, const struct spec *s, struct error *err)
{
	struct sandbox_head h;
	int n = s->name ? store_sandbox_match(ch->tx, MATCH_NAME, s->name, true, s->tenant, &h, 1, err) : 0;
	if (n <= 0)
		return n;
	return error_set(err, ERR_CONFLICT, "the name '%s' is taken by sandbox %s (%s): choose another, or delete that one first", s->name,
			 h.id.text, sandbox_state_text(h.state));
}

static int check_quota(struct change *ch, const struct spec *s, struct decision *d, struct error *err)
{
	struct error e = ERROR_INIT;
	if (quota_check(ch->c, ch->tx, s, &e) == 0)
		return 0;
	snprintf(d->refusal, sizeof(d->refusal), "%s", e.message);
	*err = e;
	return -1;
}

int create_reserve(struct change *ch, const struct spec *s, struct decision *d, struct reservation *r, struct error *err)
{
	if (nodes_follow(ch->c, ch->tx, err) != 0)
		return -1;
	for (int i = 0; i < PLACE_TRIES; i++) {
		nodes_place(ch->c, s, d, r);
		if (!d->placed && i == 0 && store_shared(ch->c->store)) {
			/* What another controller freed just now counts. */
			if (nodes_refresh(ch->c, ch->tx, err) != 0)
				return -1;
			nodes_place(ch->c, s, d, r);
		}
		if (!d->placed)
			return error_set(err, ERR_NO_CAPACITY, "%s", d->refusal[0] ? d->refusal : "no node can run this");
		ch->taken = r;
		int rc = store_reserve(ch->tx, r, err);
		if (rc != 0)
			return rc < 0 ? -1 : 0;
		nodes_give(ch->c, r);
		ch->taken = NULL;
		if (nodes_refresh(ch->c, ch->tx, err) != 0)
			return -1;
	}
	d->placed = false;
	snprintf(d->refusal, sizeof(d->refusal), "the last free places went to other requests: try again");
	return error_set(err, ERR_NO_CAPACITY, "%s", d->refusal);
}

static void fill_sandbox(struct sandbox *s, const struct asked *a, const struct decision *d, const struct change *ch)
{
	cJSON *decision = decision_to_json(d);
	spec_copy(&s->spec, &a->spec);
	s->node_id = d->node;
	snprintf(s->node_name, sizeof(s->node_name), "%s", d->node_name);
	s->tier = d->required;
	s->risk_score = (uint16_t)d->score;
	s->decision = json_print(decision);
	s->created_us = s->updated_us = ch->now;
	s->expires_us = ch->now + a->spec.ttl_ms * 1000;
	cJSON_Delete(decision);
}

/* What the spec exposes is there from the beginning, and leads somewhere once the sandbox runs. */
static int write_tunnels(struct change *ch, const struct sandbox_head *h, struct create_result *ret, struct error *err)
{
	const struct spec *spec = &ret->sandbox.spec;
	for (size_t i = 0; i < spec->n_exposures; i++) {
		const struct exposure *e = &spec->exposures[i];
		struct tunnel_request q = { .port = e->container_port, .protocol = e->protocol, .subdomain = e->subdomain,
					    .auth = e->authenticated ? TUNNEL_AUTH_TOKEN : TUNNEL_AUTH_NONE };
		struct tunnel_result t;
		tunnel_result_init(&t);
		int rc = tunnels_add(ch, h, &q, TUNNEL_PENDING, &t, err);
		if (rc == 0 && t.secret[0])
			map_set(&ret->secrets, t.tunnel.id.text, t.secret);
		tunnel_result_done(&t);
		if (rc != 0)
			return error_wrap(err, "spec.exposures[%zu]", i);
	}
	return tunnels_of(ch->c, ch->tx, &h->id, &ret->sandbox.tunnels, &ret->sandbox.n_tunnels, err);
}

/* warm: the row is there, and so may be what it stands for; a worker that does not find it ready begins anew. */
static int write_rows(struct change *ch, struct asked *a, struct create_result *ret, bool warm, struct error *err)
{
	const struct sandbox *s = &ret->sandbox;
	struct sandbox_head h = { .id = s->id, .node = s->node_id, .state = s->state, .expires_us = s->expires_us };
	snprintf(h.tenant, sizeof(h.tenant), "%s", s->spec.tenant);
	a->key.sandbox = s->id;
	a->key.operation = id_new();
	struct op_new op = { .id = a->key.operation, .sandbox = &h, .kind = OPK_CREATE, .state = OP_PENDING, .attempts = warm, .actor = a->who->who };
	if ((warm ? store_warm_claim(ch->tx, s, err) : store_sandbox_insert(ch->tx, s, err)) != 0 || store_op_insert(ch->tx, &op, ch->now, err) != 0 ||
	    write_tunnels(ch, &h, ret, err) != 0)
		return -1;
	change_event(ch, &h, "sandbox.scheduled", s->spec.name, a->who->who);
	return a->key.key ? store_key_add(ch->tx, &a->key, ch->now, err) : 0;
}

static int reserve(struct change *ch, const struct asked *a, struct reservation *r, struct create_result *ret, struct error *err)
{
	ret->sandbox.id = r->sandbox = id_new();
	r->resources = a->spec.resources;
	strv_copy(&r->anti_affinity, &a->spec.placement.anti_affinity_keys);
	return create_reserve(ch, &a->spec, &ret->decision, r, err);
}

static int commit_create(struct change *ch, struct asked *a, struct reservation *r, struct create_result *ret, struct error *err)
{
	int seen = replay(ch, a, ret, err);
	if (seen != 0)
		return seen < 0 ? -1 : 0;
	struct sandbox *s = &ret->sandbox;
	if (check_name(ch, &a->spec, err) != 0 || secrets_check(ch->c, ch->tx, &a->spec, err) != 0 || check_quota(ch, &a->spec, &ret->decision, err) != 0)
		return -1;
	int warm = pools_claim(ch, &a->spec, &s->id, &ret->decision, err);
	if (warm < 0 || (!warm && reserve(ch, a, r, ret, err) != 0))
		return -1;
	fill_sandbox(s, a, &ret->decision, ch);
	if (write_rows(ch, a, ret, warm, err) != 0 || lookup_operation(ch->tx, &a->key.operation, &ret->operation, err) != 0)
		return -1;
	change_work(ch, &s->node_id);
	change_wake(ch, nodes_several(ch->c) && ch->now + STRAND_LOOK_US < s->expires_us ? ch->now + STRAND_LOOK_US : s->expires_us);
	return change_commit(ch, err);
}

static int create(struct controller *c, struct asked *a, struct create_result *ret, struct error *err)
{
	struct reservation r = { .anti_affinity = STRV_INIT };
	int rc;
	{
		auto_change ch = CHANGE_INIT; /* ends before r does: it may give r back */
		rc = change_begin(c, DB_WRITE, &ch, err);
		if (rc == 0)
			rc = commit_create(&ch, a, &r, ret, err);
	}
	reservation_done(&r);
	/* The worker has begun by now: what it does would not outlive a power loss either, only the answer has to. */
	return rc == 0 ? store_flush(c->store, err) : rc;
}

/* In a shared store another create may have taken the name or the key after this one looked; the second look finds it. */
static int create_twice(struct controller *c, struct asked *a, struct create_result *ret, struct error *err)
{
	struct error local = ERROR_INIT;
	uint64_t hash = a->key.body_hash;
	int rc = create(c, a, ret, &local);
	if (rc != 0 && local.code == ERR_CONFLICT && store_shared(c->store)) {
		sandbox_done(&ret->sandbox);
		operation_done(&ret->operation);
		map_done(&ret->secrets);
		sandbox_init(&ret->sandbox);
		operation_init(&ret->operation);
		a->key.body_hash = hash;
		rc = create(c, a, ret, &local);
	}
	if (rc != 0 && err)
		*err = local;
	return rc;
}

static int explain(struct controller *c, const struct spec *s, struct decision *d, struct error *err)
{
	bool shared = store_shared(c->store), pools = pools_any(c);
	auto_tx *tx = NULL;
	if ((shared || pools) && store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	if (shared && nodes_refresh(c, tx, err) != 0)
		return -1;
	nodes_place(c, s, d, NULL);
	return pools ? pools_explain(c, tx, s, d, err) : 0;
}

static int check_key(const char *key, struct error *err)
{
	if (!key || (key[0] && strlen(key) <= LIMIT_IDEMPOTENCY_KEY_MAX))
		return 0;
	return error_set(err, ERR_INVALID, "Idempotency-Key must have 1 to %d characters", LIMIT_IDEMPOTENCY_KEY_MAX);
}

/* key: NULL also where nothing is stored. */
static int decide(struct controller *c, const struct caller *who, const struct spec *spec, bool explain_only, const char *key,
		  struct create_result *ret, struct error *err)
{
	struct asked a = { .who = who };
	spec_init(&a.spec);
	int rc = check(c, who, spec, &a.spec, err);
	if (rc == 0) {
		struct settings settings = controller_settings(c);
		aegis_assess(&a.spec, &settings.policy, &ret->decision);
		a.key = (struct idem_key){ .tenant = a.spec.tenant, .route = ROUTE, .key = key, .body_hash = key ? spec_hash(&a.spec) : 0 };
		rc = explain_only ? explain(c, &a.spec, &ret->decision, err) : create_twice(c, &a, ret, err);
	}
	if (rc != 0) {
		/* The decision stays: it says why. */
		sandbox_done(&ret->sandbox);
		operation_done(&ret->operation);
	}
	spec_done(&a.spec);
	return rc;
}

int create_now(struct controller *c, const struct caller *who, const struct spec *spec, const char *key, struct create_result *ret,
	       struct error *err)
{
	if (access_may_mutate(who, err) != 0 || check_key(key, err) != 0)
		return -1;
	return decide(c, who, spec, false, key, ret, err);
}

int controller_create(struct controller *c, const struct caller *who, const struct spec *spec, bool explain_only,
		      const char *idempotency_key, struct create_result *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	if (explain_only)
		return decide(c, who, spec, true, NULL, ret, err);
	int rc = queue_create(c, who, spec, idempotency_key, ret, &e);
	/* A quota looks at no node, and what waits in pools is in none. */
	if (rc != 0 && e.code == ERR_NO_CAPACITY && ret->decision.n_nodes > 0)
		ret->yielded = pools_yield(c, spec, &ret->decision);
	if (rc != 0 && err)
		*err = e;
	return rc;
}
