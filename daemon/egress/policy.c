/* Deciding by rules: see policy.h. */
#include "daemon/egress/policy.h"

#include <stdio.h>
#include <string.h>

void egress_policy_done(struct egress_policy *p)
{
	for (int i = 0; i < EGRESS_LEVELS; i++)
		egress_rules_done(&p->lists[i]);
	subnets_done(&p->open);
	*p = (struct egress_policy){ .standard = false };
}

int egress_policy_from(const struct egress_terms *t, struct egress_policy *ret, struct error *err)
{
	struct egress_policy p = { .there = { [EGRESS_SERVER] = true, [EGRESS_TENANT] = t->tenant != NULL } };
	int rc = egress_rules_from_text("egress.rules", t->server, &p.lists[EGRESS_SERVER], err);
	if (rc == 0 && t->tenant)
		rc = egress_rules_from_text("the tenant's egress rules", t->tenant, &p.lists[EGRESS_TENANT], err);
	if (rc == 0 && t->sandbox.len > 0)
		rc = egress_rules_from("spec.egress", &t->sandbox, &p.lists[EGRESS_SANDBOX], err);
	else if (rc == 0 && !t->tenant)
		rc = egress_rules_from_text("egress.default", t->standard, &p.lists[EGRESS_SANDBOX], err);
	p.standard = t->sandbox.len == 0;
	p.there[EGRESS_SANDBOX] = t->sandbox.len > 0 || !t->tenant;
	if (rc == 0)
		rc = subnets_parse("egress.open_addresses", t->open, &p.open, err);
	if (rc != 0) {
		egress_policy_done(&p);
		return -1;
	}
	egress_policy_done(ret);
	*ret = p;
	return 0;
}

const char *egress_level_text(enum egress_level level)
{
	static const char *const texts[EGRESS_LEVELS] = { "sandbox", "tenant", "server" };
	return texts[level];
}

const char *egress_rule_text(const struct egress_policy *p, const struct egress_verdict *v)
{
	return v->rule < 0 ? "" : p->lists[v->level].texts.items[v->rule];
}

/* How a user names the list, and the way to change it. */
static const char *list_name(const struct egress_policy *p, enum egress_level level)
{
	if (level == EGRESS_SERVER)
		return "the server's egress.rules";
	if (level == EGRESS_TENANT)
		return "the tenant's rules";
	return p->standard ? "the server's egress.default" : "the sandbox's rules";
}

static void explain(const struct egress_policy *p, const struct egress_target *t, struct egress_verdict *v)
{
	char target[EGRESS_RULE_TEXT_MAX];
	const char *list = list_name(p, v->level);
	egress_target_text(t, target);
	if (v->rule >= 0)
		snprintf(v->why, sizeof(v->why), "%s by '%s' of %s", v->allowed ? "allowed" : "refused", egress_rule_text(p, v), list);
	else if (v->level == EGRESS_SANDBOX)
		snprintf(v->why, sizeof(v->why), "no rule of %s allows it (--allow %s)", list, target);
	else
		snprintf(v->why, sizeof(v->why), "no rule of %s allows it", list);
}

void egress_decide(const struct egress_policy *p, const struct egress_target *t, struct egress_verdict *ret)
{
	struct egress_verdict v = { .allowed = false, .level = EGRESS_SERVER, .rule = -1 };
	bool first = true;
	for (int i = 0; i < EGRESS_LEVELS; i++) {
		if (!p->there[i])
			continue;
		int rule = egress_rules_find(&p->lists[i], t);
		bool allowed = rule >= 0 && !p->lists[i].items[rule].deny;
		if (first || !allowed)
			v = (struct egress_verdict){ .allowed = allowed, .level = (enum egress_level)i, .rule = rule };
		first = false;
		if (!allowed)
			break;
	}
	explain(p, t, &v);
	*ret = v;
}
