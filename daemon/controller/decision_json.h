/* A placement decision as JSON: {score, signals, required_tier, tier_reason, profile, threshold, placed, node, nodes, refusal}. What
 * explain answers, what refusals carry and what a sandbox's record keeps. The caller frees. */
#ifndef SANDBOX_DAEMON_DECISION_JSON_H
#define SANDBOX_DAEMON_DECISION_JSON_H

#include "daemon/aegis/aegis.h"
#include "shared/json/json.h"

cJSON *decision_to_json(const struct decision *d);

#endif
