/* Handlers: what leaves sandboxes with restricted egress. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/controller/egress.h"
#include "daemon/link/node_port.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

#include <string.h>

static int find(struct request *r, struct sandbox *ret, struct node_port **ret_node, struct error *err)
{
	if (controller_resolve(r->api->o.controller, &r->caller, r->params.value[0], ret, err) != 0)
		return -1;
	if (ret->state != SANDBOX_RUNNING)
		return error_set(err, ERR_CONFLICT, "sandbox %s is %s, not running", id_short(&ret->id), sandbox_state_text(ret->state));
	*ret_node = node_ports_find(r->api->o.nodes, &ret->node_id, err);
	return *ret_node ? 0 : -1;
}

static void add_rules_as_asked(cJSON *j, const struct sandbox *s)
{
	json_add_str(j, "network", network_text(s->spec.network));
	json_add_strv(j, "egress", &s->spec.egress);
}

static int network_job(struct request *r, struct answer *a, struct error *err)
{
	auto_sandbox s;
	auto_json *seen = NULL;
	struct node_port *n;
	sandbox_init(&s);
	if (find(r, &s, &n, err) != 0)
		return -1;
	if (s.spec.network == NETWORK_RESTRICTED && n->ops->network(n, &s.id, NULL, &seen, err) != 0)
		return -1;
	if (!seen) {
		seen = cJSON_CreateObject();
		cJSON_AddArrayToObject(seen, "rules");
		cJSON_AddArrayToObject(seen, "attempts");
		json_add_i64(seen, "open", 0);
		json_add_i64(seen, "total", 0);
		json_add_time(seen, "since", s.created_us);
	}
	add_rules_as_asked(seen, &s);
	answer_json(a, r->route->status, steal(&seen));
	return 0;
}

int handle_network(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, network_job, err);
}

/* Of a sandbox without rules the network itself decides. */
static cJSON *plain_verdict(const char *target, bool allowed, const char *reason)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "target", target);
	json_add_bool(j, "allowed", allowed);
	json_add_str(j, "level", "sandbox");
	json_add_str(j, "rule", NULL);
	json_add_str(j, "reason", reason);
	cJSON_AddArrayToObject(j, "addresses");
	return j;
}

static int check_job(struct request *r, struct answer *a, struct error *err)
{
	auto_sandbox s;
	auto_json *verdict = NULL;
	struct node_port *n;
	struct egress_target t;
	const char *target = target_query(&r->target, "target");
	sandbox_init(&s);
	if (!target)
		return error_set(err, ERR_INVALID, "target: HOST:PORT is missing");
	if (egress_target_parse(target, 443, &t, err) != 0 || find(r, &s, &n, err) != 0)
		return -1;
	if (s.spec.network == NETWORK_DENY)
		verdict = plain_verdict(target, false, "network deny: nothing leaves this sandbox");
	else if (s.spec.network == NETWORK_OPEN)
		verdict = plain_verdict(target, true, "network open: all but private addresses and this machine's");
	else if (n->ops->network(n, &s.id, target, &verdict, err) != 0)
		return -1;
	answer_json(a, r->route->status, steal(&verdict));
	return 0;
}

int handle_network_check(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, check_job, err);
}

static int read_rules(struct request *r, struct strv *ret, bool *ret_null, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader root;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	*ret_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(j, "rules"));
	json_get_strv(&root, "rules", *ret_null ? JSON_OPTIONAL : JSON_REQUIRED, LIMIT_EGRESS_RULES_MAX, EGRESS_RULE_TEXT_MAX, ret);
	return json_end(&root);
}

static int set_job(struct request *r, struct answer *a, struct error *err)
{
	auto_sandbox s;
	auto_strv rules = STRV_INIT;
	bool null;
	sandbox_init(&s);
	if (read_rules(r, &rules, &null, err) != 0 ||
	    controller_egress_set(r->api->o.controller, &r->caller, r->params.value[0], &rules, &s, err) != 0)
		return -1;
	struct node_port *n = node_ports_find(r->api->o.nodes, &s.node_id, NULL);
	if (n) /* else it asks when it is back */
		n->ops->network_changed(n, &s.id);
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "sandbox", sandbox_to_json(&s));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_network_set(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, set_job, err);
}

/* --- tenants --- */

static int answer_tenant(struct request *r, struct answer *a, struct error *err)
{
	auto_free char *text = NULL;
	auto_egress_rules rules = EGRESS_RULES_INIT;
	const char *tenant = r->params.value[0];
	if (controller_egress_tenant(r->api->o.controller, &r->caller, tenant, &text, err) != 0 ||
	    (text && egress_rules_from_text("rules", text, &rules, err) != 0))
		return -1;
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "tenant", tenant);
	if (text)
		json_add_strv(j, "rules", &rules.texts);
	else
		json_add_str(j, "rules", NULL);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_egress(struct request *r, struct answer *a, struct error *err)
{
	return answer_tenant(r, a, err);
}

static void tell_nodes(struct request *r)
{
	size_t n = node_ports_list(r->api->o.nodes, NULL, 0);
	auto_free struct node_port **all = xcalloc(n + 1, sizeof(struct node_port *));
	size_t there = node_ports_list(r->api->o.nodes, all, n);
	for (size_t i = 0; i < n && i < there; i++)
		all[i]->ops->network_changed(all[i], NULL);
}

static int tenant_job(struct request *r, struct answer *a, struct error *err)
{
	auto_strv rules = STRV_INIT;
	bool null;
	if (read_rules(r, &rules, &null, err) != 0 ||
	    controller_egress_tenant_set(r->api->o.controller, &r->caller, r->params.value[0], null ? NULL : &rules, err) != 0)
		return -1;
	tell_nodes(r);
	return answer_tenant(r, a, err);
}

int handle_egress_set(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, tenant_job, err);
}
