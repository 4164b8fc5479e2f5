/* A placement decision as JSON. */
#include "daemon/controller/decision_json.h"

static cJSON *signals_json(const struct decision *d)
{
	cJSON *list = cJSON_CreateArray();
	for (size_t i = 0; i < d->n_signals; i++) {
		cJSON *j = cJSON_CreateObject();
		json_add_str(j, "name", d->signals[i].name);
		json_add_i64(j, "points", d->signals[i].points);
		cJSON_AddItemToArray(list, j);
	}
	return list;
}

static cJSON *nodes_json(const struct decision *d)
{
	cJSON *list = cJSON_CreateArray();
	for (size_t i = 0; i < d->n_nodes; i++) {
		const struct node_verdict *v = &d->nodes[i];
		cJSON *j = cJSON_CreateObject();
		json_add_str(j, "id", v->id.text);
		json_add_str(j, "name", v->name);
		json_add_bool(j, "fits", v->fits);
		json_add_i64(j, "rank", v->rank);
		json_add_str(j, "reason", v->reason);
		cJSON_AddItemToArray(list, j);
	}
	return list;
}

cJSON *decision_to_json(const struct decision *d)
{
	cJSON *j = cJSON_CreateObject();
	json_add_i64(j, "score", d->score);
	cJSON_AddItemToObject(j, "signals", signals_json(d));
	json_add_str(j, "required_tier", tier_text(d->required));
	json_add_str(j, "tier_reason", d->tier_reason);
	json_add_str(j, "profile", d->profile);
	json_add_i64(j, "threshold", d->threshold);
	json_add_bool(j, "placed", d->placed);
	json_add_str(j, "node", d->placed ? d->node_name : NULL);
	cJSON_AddItemToObject(j, "nodes", nodes_json(d));
	json_add_str(j, "refusal", d->placed ? NULL : d->refusal);
	if (!d->placed)
		json_add_bool(j, "may_pass", d->may_pass);
	return j;
}
