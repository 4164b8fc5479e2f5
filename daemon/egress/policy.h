/*
 * What one sandbox may reach: lists of rules that must all agree (the server's, its tenant's, its own), and networks that the server opens
 * although they are not public. A list that is not there says nothing; a sandbox without one of its own, whose tenant has none either, has the
 * server's default. Pure.
 */
#ifndef SANDBOX_DAEMON_EGRESS_POLICY_H
#define SANDBOX_DAEMON_EGRESS_POLICY_H

#include "daemon/address.h"
#include "shared/model/egress.h"

enum egress_level { EGRESS_SANDBOX, EGRESS_TENANT, EGRESS_SERVER, EGRESS_LEVELS };

struct egress_policy {
	struct egress_rules lists[EGRESS_LEVELS];
	bool there[EGRESS_LEVELS];
	bool standard;        /* the sandbox's list is the server's default */
	struct subnets open;
};
void egress_policy_done(struct egress_policy *p);
/* Replaces *ret. */
int egress_policy_from(const struct egress_terms *t, struct egress_policy *ret, struct error *err);

enum { EGRESS_WHY_MAX = 400 };
struct egress_verdict {
	bool allowed;
	enum egress_level level; /* the list that decided; of what is allowed the narrowest */
	int rule;                /* its rule, -1: none matched */
	char why[EGRESS_WHY_MAX];
};
void egress_decide(const struct egress_policy *p, const struct egress_target *t, struct egress_verdict *ret);
/* "sandbox", "tenant", "server". */
const char *egress_level_text(enum egress_level level);
/* Text of the rule that decided, "" when none matched. Borrowed from the policy. */
const char *egress_rule_text(const struct egress_policy *p, const struct egress_verdict *v);

#endif
