/* Risk and tier: see aegis.h. Placement is in place.c. Weights and reasons: docs/aegis.md, which must say the same. */
#include "daemon/aegis/aegis.h"

#include <stdio.h>
#include <stdlib.h>

enum { STRICT_THRESHOLD = 55, NEVER = RISK_MAX + 1, LONG_TTL_MS = 24 * 3600 * 1000 };

static const struct policy strict = {
	.profile = "strict",
	.microvm_risk_threshold = STRICT_THRESHOLD,
	.gvisor_risk_threshold = -1,
	.writable_root_weight = 0,
	.max_host_pressure = 0.92,
	.reserve_ratio = 0.05,
};

void policy_strict(struct policy *p)
{
	*p = strict;
}

void policy_trusted_workstation(struct policy *p)
{
	*p = strict;
	snprintf(p->profile, sizeof(p->profile), "trusted-workstation");
	p->microvm_risk_threshold = NEVER;
}

void decision_init(struct decision *d)
{
	*d = (struct decision){ .required = TIER_CONTAINER };
}

void decision_done(struct decision *d)
{
	free(d->nodes);
	decision_init(d);
}

static void add_signal(struct decision *d, int points, const char *kind, const char *value)
{
	if (points <= 0 || d->n_signals == DECISION_SIGNALS_MAX)
		return;
	struct risk_signal *s = &d->signals[d->n_signals++];
	snprintf(s->name, sizeof(s->name), "%s%s%s", kind, *value ? " " : "", value);
	s->points = points;
	d->score = d->score + points > RISK_MAX ? RISK_MAX : d->score + points;
}

static int sensitivity_points(enum sensitivity s)
{
	switch (s) {
	case SENSITIVITY_PUBLIC:
		return 0;
	case SENSITIVITY_INTERNAL:
		return 10;
	case SENSITIVITY_CONFIDENTIAL:
		return 25;
	case SENSITIVITY_RESTRICTED:
	case SENSITIVITY_COUNT:
		break;
	}
	return 45;
}

static int network_points(enum network n)
{
	switch (n) {
	case NETWORK_DENY:
		return 0;
	case NETWORK_RESTRICTED:
		return 10;
	case NETWORK_OPEN:
	case NETWORK_COUNT:
		break;
	}
	return 25;
}

static void assess_risk(const struct spec *s, const struct policy *p, struct decision *d)
{
	add_signal(d, sensitivity_points(s->sensitivity), "data", sensitivity_text(s->sensitivity));
	add_signal(d, network_points(s->network), "network", s->network == NETWORK_OPEN ? "open" : "restricted");
	add_signal(d, s->signals.untrusted_repository ? 20 : 0, "untrusted repository", "");
	add_signal(d, s->signals.executes_generated_code ? 20 : 0, "generated code", "");
	add_signal(d, s->signals.needs_secrets ? 15 : 0, "needs secrets", "");
	add_signal(d, s->signals.host_mounts ? 25 : 0, "host mounts", "");
	add_signal(d, s->n_exposures > 0 ? 15 : 0, "public exposure", "");
	add_signal(d, s->ttl_ms > LONG_TTL_MS ? 10 : 0, "lifetime over 24 h", "");
	add_signal(d, s->writable_root ? p->writable_root_weight : 0, "writable root", "");
	add_signal(d, s->signals.privileged ? 100 : 0, "privileged", "");
}

static enum tier stronger(enum tier a, enum tier b)
{
	return a > b ? a : b;
}

static enum tier asked_tier(const struct spec *s)
{
	return stronger(s->min_tier, s->isolation == ISOLATION_MICROVM ? TIER_MICROVM : TIER_CONTAINER);
}

/* The tier the score needs and the threshold it was held against: the reached one, or the nearest that was not. */
static enum tier policy_tier(int score, const struct policy *p, int *ret_threshold)
{
	*ret_threshold = p->microvm_risk_threshold;
	if (score >= p->microvm_risk_threshold)
		return TIER_MICROVM;
	if (p->gvisor_risk_threshold < 0)
		return TIER_CONTAINER;
	*ret_threshold = p->gvisor_risk_threshold;
	return score >= p->gvisor_risk_threshold ? TIER_GVISOR : TIER_CONTAINER;
}

void aegis_assess(const struct spec *spec, const struct policy *policy, struct decision *d)
{
	int threshold;
	d->score = 0;
	d->n_signals = 0;
	assess_risk(spec, policy, d);
	enum tier needed = policy_tier(d->score, policy, &threshold), asked = asked_tier(spec);
	d->required = stronger(needed, asked);
	d->threshold = policy->microvm_risk_threshold;
	snprintf(d->profile, sizeof(d->profile), "%s", policy->profile);
	if (asked > needed)
		snprintf(d->tier_reason, sizeof(d->tier_reason), "the request asks for %s; score %d alone needs %s", tier_text(asked), d->score,
			 tier_text(needed));
	else if (needed > TIER_CONTAINER)
		snprintf(d->tier_reason, sizeof(d->tier_reason), "score %d reaches the %s threshold %d of profile %s%s", d->score,
			 tier_text(needed), threshold, policy->profile,
			 spec->isolation == ISOLATION_CONTAINER ? "; the asked container is raised to it" : "");
	else
		snprintf(d->tier_reason, sizeof(d->tier_reason), "score %d is below the %s threshold %d of profile %s", d->score,
			 threshold == policy->gvisor_risk_threshold ? "gvisor" : "microvm", threshold, policy->profile);
}
