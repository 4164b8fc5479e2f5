/* Sandboxes with restricted egress: their terms, what was tried, and the connections that sandbox-init passes on. */
#include "daemon/egress/egress_priv.h"

#include "daemon/egress/addresses.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

enum { CALL_MS = 10 * 1000, MINUTE_MS = 60 * 1000 };

/* --- what is known of a sandbox --- */

static struct tally *tally_of(struct egress_box *b, enum egress_level level, const char *rule)
{
	for (size_t i = 0; i < b->n_tallies; i++)
		if (b->tallies[i].level == level && strcmp(b->tallies[i].rule, rule) == 0)
			return &b->tallies[i];
	/* Rules that were set and replaced for ever are not all remembered. */
	if (b->n_tallies == EGRESS_LEVELS * LIMIT_EGRESS_RULES_MAX)
		return NULL;
	b->tallies = xrealloc(b->tallies, b->n_tallies + 1, sizeof(*b->tallies));
	b->tallies[b->n_tallies] = (struct tally){ .level = level, .rule = xstrdup(rule) };
	return &b->tallies[b->n_tallies++];
}

static bool told_lately(struct egress_box *b, const char *target)
{
	for (unsigned i = 0; i < b->told && i < RECENT_TARGETS; i++)
		if (strcmp(b->recent[i], target) == 0)
			return true;
	return false;
}

/* A program that tries again and again is told of once. */
static void tell(struct egress_box *b, const char *target, const char *why)
{
	struct egress *e = b->owner;
	int64_t now = clock_mono_ms();
	if (now - b->minute_ms >= MINUTE_MS) {
		b->minute_ms = now;
		b->told = 0;
	}
	if (b->told >= EVENTS_PER_MINUTE || told_lately(b, target))
		return;
	snprintf(b->recent[b->told % RECENT_TARGETS], sizeof(b->recent[0]), "%s", target);
	b->told++;
	auto_free char *detail = xasprintf("%s: %s", target, why);
	pthread_mutex_lock(&e->lock);
	if (e->denied)
		e->denied(e->denied_ctx, &b->sandbox, detail);
	pthread_mutex_unlock(&e->lock);
}

static void attempt_done(struct attempt *a)
{
	free(a->why);
	a->why = NULL;
}

uint64_t box_note(struct egress_box *b, const struct egress_target *t, const struct egress_verdict *v)
{
	struct attempt *a = &b->attempts[(b->n_attempts + 1) % ATTEMPTS_KEPT];
	struct tally *tally = tally_of(b, v->level, egress_rule_text(&b->policy, v));
	attempt_done(a);
	*a = (struct attempt){ .at_us = clock_wall_us(), .allowed = v->allowed, .why = xstrdup(v->why), .number = ++b->n_attempts };
	egress_target_text(t, a->target);
	if (tally && v->allowed)
		tally->allowed++;
	else if (tally)
		tally->denied++;
	if (!v->allowed)
		tell(b, a->target, v->why);
	return a->number;
}

struct attempt *box_attempt(struct egress_box *b, uint64_t number)
{
	struct attempt *a = &b->attempts[number % ATTEMPTS_KEPT];
	return number > 0 && a->number == number ? a : NULL;
}

void box_refuse(struct egress_box *b, uint64_t number, const struct egress_target *t, const char *why)
{
	struct attempt *a = box_attempt(b, number);
	char target[EGRESS_RULE_TEXT_MAX];
	if (a) {
		a->allowed = false;
		attempt_done(a);
		a->why = xstrdup(why);
	}
	tell(b, egress_target_text(t, target), why);
}

static void box_free(struct egress_box *b)
{
	while (b->conns)
		conn_abort(b->conns, "the sandbox is gone");
	for (size_t i = 0; i < b->n_tallies; i++)
		free(b->tallies[i].rule);
	free(b->tallies);
	for (size_t i = 0; i < ATTEMPTS_KEPT; i++)
		attempt_done(&b->attempts[i]);
	egress_policy_done(&b->policy);
	free(b);
}

/* --- connections --- */

static void refuse_stream(struct mux *m, uint32_t stream, enum mux_error why, const char *text)
{
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_ERROR, why);
	tlv_add_str(&t, MUX_F_MESSAGE, text);
	mux_close(m, stream, &t);
}

/* What init says is hostile: it may open these streams and no other, and only so many. */
static void on_opened(void *ctx, const struct id *sandbox, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW };
	struct egress *e = ctx;
	struct egress_box *b = idmap_get(&e->boxes, sandbox);
	if (tlv_u64(fields, MUX_F_KIND, 0) != MUX_KIND_EGRESS || tlv_only(fields, allowed, ARRAY_LEN(allowed), NULL) != 0)
		refuse_stream(m, stream, MUX_ERR_REFUSED, "this side opens the streams");
	else if (!b)
		refuse_stream(m, stream, MUX_ERR_FORBIDDEN, "this sandbox has no egress");
	else if (b->n_conns >= LIMIT_EGRESS_CONNECTIONS || e->n_conns >= LIMIT_EGRESS_CONNECTIONS_TOTAL)
		refuse_stream(m, stream, MUX_ERR_RESOURCES, "too many connections leave at a time");
	else
		conn_open(b, m, stream);
}

int egress_new(struct event_base *base, struct initlinks *links, const char *hosts, struct egress **ret, struct error *err)
{
	struct egress *e = xcalloc(1, sizeof(*e));
	if (resolver_new(initlinks_mailbox(links), hosts, &e->resolver, err) != 0) {
		free(e);
		return -1;
	}
	e->base = base;
	e->links = links;
	e->mail = initlinks_mailbox(links);
	e->buffer = xmalloc(RELAY_CHUNK);
	pthread_mutex_init(&e->lock, NULL);
	initlinks_on_opened(links, on_opened, e);
	*ret = e;
	return 0;
}

void egress_free(struct egress *e)
{
	if (!e)
		return;
	mailbox_drain(e->mail);
	initlinks_on_opened(e->links, NULL, NULL);
	size_t n = e->boxes.len;
	void **all = idmap_values(&e->boxes);
	for (size_t i = 0; i < n; i++)
		box_free(all[i]);
	free(all);
	idmap_done(&e->boxes);
	resolver_free(e->resolver);
	pthread_mutex_destroy(&e->lock);
	free(e->buffer);
	free(e);
}

void egress_on_denied(struct egress *e, egress_denied fn, void *ctx)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->denied = fn;
	e->denied_ctx = ctx;
	pthread_mutex_unlock(&e->lock);
}

/* --- calls of other threads --- */

struct call {
	struct egress *e;
	const struct id *sandbox;
	struct egress_policy policy;
	const struct egress_target *target;
	struct egress_verdict verdict;
	char rule[EGRESS_RULE_TEXT_MAX];
	struct subnets open;
	cJSON *json;
	struct id *ids;
	size_t n_ids;
	bool found;
};

/* What is open and would be refused now ends. */
static void judge_again(struct egress_box *b)
{
	struct conn *next;
	for (struct conn *c = b->conns; c; c = next) {
		struct egress_verdict v;
		next = c->next;
		if (c->state == CONN_HEAD || c->state == CONN_ENDING)
			continue;
		egress_decide(&b->policy, &c->request.target, &v);
		if (v.allowed)
			continue;
		box_refuse(b, c->attempt, &c->request.target, v.why);
		conn_abort(c, "the rules have changed");
	}
}

static void do_set(void *arg)
{
	struct call *call = arg;
	struct egress_box *b = idmap_get(&call->e->boxes, call->sandbox);
	if (!b) {
		b = xcalloc(1, sizeof(*b));
		b->owner = call->e;
		b->sandbox = *call->sandbox;
		b->since_us = clock_wall_us();
		b->minute_ms = clock_mono_ms();
		idmap_put(&call->e->boxes, call->sandbox, b);
	}
	egress_policy_done(&b->policy);
	b->policy = call->policy;
	call->policy = (struct egress_policy){ .standard = false };
	judge_again(b);
}

int egress_set(struct egress *e, const struct id *sandbox, const struct egress_terms *terms, struct error *err)
{
	struct call call = { .e = e, .sandbox = sandbox };
	if (egress_policy_from(terms, &call.policy, err) != 0)
		return -1;
	int rc = mailbox_call(e->mail, do_set, &call, CALL_MS, err);
	egress_policy_done(&call.policy);
	return rc;
}

struct leaving {
	struct egress *e;
	struct id sandbox;
};

static void do_drop(void *arg)
{
	struct leaving *l = arg;
	struct egress_box *b = idmap_remove(&l->e->boxes, &l->sandbox);
	if (b)
		box_free(b);
	free(l);
}

void egress_drop(struct egress *e, const struct id *sandbox)
{
	if (!e)
		return;
	struct leaving *l = xmalloc(sizeof(*l));
	*l = (struct leaving){ e, *sandbox };
	mailbox_post(e->mail, do_drop, l);
}

static void do_find(void *arg)
{
	struct call *call = arg;
	call->found = idmap_get(&call->e->boxes, call->sandbox) != NULL;
}

bool egress_has(struct egress *e, const struct id *sandbox)
{
	struct call call = { .e = e, .sandbox = sandbox };
	return e && mailbox_call(e->mail, do_find, &call, CALL_MS, NULL) == 0 && call.found;
}

static void do_list(void *arg)
{
	struct call *call = arg;
	void **all = idmap_values(&call->e->boxes);
	call->n_ids = call->e->boxes.len;
	call->ids = xcalloc(call->n_ids + 1, sizeof(*call->ids));
	for (size_t i = 0; i < call->n_ids; i++)
		call->ids[i] = ((struct egress_box *)all[i])->sandbox;
	free(all);
}

void egress_list(struct egress *e, struct id **ret, size_t *ret_n)
{
	struct call call = { .e = e };
	if (!e || mailbox_call(e->mail, do_list, &call, CALL_MS, NULL) != 0)
		return;
	*ret = call.ids;
	*ret_n = call.n_ids;
}

/* --- what is shown --- */

static cJSON *tally_json(const struct tally *t)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "level", egress_level_text(t->level));
	json_add_str(j, "rule", *t->rule ? t->rule : NULL);
	json_add_i64(j, "allowed", (int64_t)t->allowed);
	json_add_i64(j, "denied", (int64_t)t->denied);
	return j;
}

static cJSON *attempt_json(const struct attempt *a)
{
	cJSON *j = cJSON_CreateObject();
	json_add_time(j, "at", a->at_us);
	json_add_str(j, "target", a->target);
	json_add_bool(j, "allowed", a->allowed);
	json_add_str(j, "reason", a->why);
	json_add_i64(j, "bytes_out", (int64_t)a->sent);
	json_add_i64(j, "bytes_in", (int64_t)a->received);
	return j;
}

static void do_view(void *arg)
{
	struct call *call = arg;
	struct egress_box *b = idmap_get(&call->e->boxes, call->sandbox);
	if (!b)
		return;
	call->json = cJSON_CreateObject();
	cJSON *rules = cJSON_AddArrayToObject(call->json, "rules"), *attempts = cJSON_AddArrayToObject(call->json, "attempts");
	for (size_t i = 0; i < b->n_tallies; i++)
		cJSON_AddItemToArray(rules, tally_json(&b->tallies[i]));
	uint64_t first = b->n_attempts > ATTEMPTS_KEPT ? b->n_attempts - ATTEMPTS_KEPT + 1 : 1;
	for (uint64_t n = first; n <= b->n_attempts; n++)
		cJSON_AddItemToArray(attempts, attempt_json(box_attempt(b, n)));
	json_add_i64(call->json, "open", b->n_conns);
	json_add_i64(call->json, "total", (int64_t)b->n_attempts);
	json_add_time(call->json, "since", b->since_us);
}

static int not_here(const struct id *sandbox, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "sandbox %s has no restricted egress on this worker", sandbox->text);
}

int egress_view(struct egress *e, const struct id *sandbox, cJSON **ret, struct error *err)
{
	struct call call = { .e = e, .sandbox = sandbox };
	if (mailbox_call(e->mail, do_view, &call, CALL_MS, err) != 0)
		return -1;
	if (!call.json)
		return not_here(sandbox, err);
	*ret = call.json;
	return 0;
}

static void do_check(void *arg)
{
	struct call *call = arg;
	struct egress_box *b = idmap_get(&call->e->boxes, call->sandbox);
	if (!b)
		return;
	call->found = true;
	egress_decide(&b->policy, call->target, &call->verdict);
	snprintf(call->rule, sizeof(call->rule), "%s", egress_rule_text(&b->policy, &call->verdict));
	call->open.len = b->policy.open.len;
	call->open.items = call->open.len ? xmemdup(b->policy.open.items, b->policy.open.len * sizeof(*b->policy.open.items)) : NULL;
}

/* The addresses of an allowed name, each looked at as a connection would. */
static void check_addresses(struct call *call, cJSON *list)
{
	struct addresses found = { .len = 0 };
	struct error err = ERROR_INIT;
	struct egress_verdict *v = &call->verdict;
	if (resolve_now(call->e->resolver, call->target, &found, &err) != 0) {
		v->allowed = false;
		snprintf(v->why, sizeof(v->why), "%s", err.message);
	}
	for (size_t i = 0; i < found.len; i++) {
		char host[ADDRESS_TEXT_MAX];
		const char *kind = address_refused(&found.items[i].sa.any, &call->open);
		address_host(&found.items[i].sa.any, host);
		cJSON_AddItemToArray(list, cJSON_CreateString(host));
		if (!kind || !v->allowed)
			continue;
		v->allowed = false;
		snprintf(v->why, sizeof(v->why), "its address %s is not public (%s); the server's egress.open_addresses decides", host, kind);
	}
}

int egress_check(struct egress *e, const struct id *sandbox, const char *target, cJSON **ret, struct error *err)
{
	struct egress_target t;
	char text[EGRESS_RULE_TEXT_MAX];
	struct call call = { .e = e, .sandbox = sandbox, .target = &t };
	if (egress_target_parse(target, 443, &t, err) != 0 || mailbox_call(e->mail, do_check, &call, CALL_MS, err) != 0)
		return -1;
	if (!call.found)
		return not_here(sandbox, err);
	cJSON *list = cJSON_CreateArray(), *j = cJSON_CreateObject();
	if (call.verdict.allowed)
		check_addresses(&call, list);
	subnets_done(&call.open);
	json_add_str(j, "target", egress_target_text(&t, text));
	json_add_bool(j, "allowed", call.verdict.allowed);
	json_add_str(j, "level", egress_level_text(call.verdict.level));
	json_add_str(j, "rule", *call.rule ? call.rule : NULL);
	json_add_str(j, "reason", call.verdict.why);
	cJSON_AddItemToObject(j, "addresses", list);
	*ret = j;
	return 0;
}
