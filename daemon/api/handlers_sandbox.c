/* Handlers: sandboxes. */
#include "daemon/api/handlers.h"

#include "daemon/controller/decision_json.h"
#include "daemon/api/server.h"
#include "daemon/api/wait.h"
#include "daemon/link/node_port.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/model_json.h"

#include <string.h>

/* How long a create waits for what gives way to it. */
enum { YIELD_SECONDS = 10 };

static int read_spec(struct request *r, struct spec *ret, struct error *err)
{
	auto_json *j = NULL;
	if (request_json(r, &j, err) != 0)
		return -1;
	struct json_reader root;
	json_reader_init(&root, j, "", err);
	struct json_reader child;
	if (!json_get_object(&root, "spec", JSON_REQUIRED, &child) || json_end(&root) != 0)
		return -1;
	return spec_from_json(child.object, "spec", true, ret, err);
}

static cJSON *create_json(const struct create_result *res)
{
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "sandbox", sandbox_to_json(&res->sandbox));
	cJSON_AddItemToObject(j, "operation", operation_to_json(&res->operation));
	cJSON *secrets = res->secrets.len ? cJSON_AddArrayToObject(j, "secrets") : NULL;
	for (size_t i = 0; i < res->secrets.len; i++) {
		cJSON *one = cJSON_CreateObject();
		json_add_str(one, "tunnel_id", res->secrets.items[i].key);
		json_add_str(one, "secret", res->secrets.items[i].value);
		cJSON_AddItemToArray(secrets, one);
	}
	return j;
}

/* The refusal with its reasons: error body and decision in one. */
static void answer_no_capacity(struct request *r, struct answer *a, const struct error *e, const struct decision *d)
{
	cJSON *j = error_to_json(e, r->caller.request_id);
	cJSON_AddItemToObject(j, "decision", decision_to_json(d));
	answer_json(a, error_http_status(e->code), j);
	map_set(&a->headers, "Retry-After", "5");
}

/* The answer to a create that was tried; takes what is in res. */
static int answer_create(struct request *r, struct answer *a, int rc, struct create_result *res, const struct error *e, struct error *err)
{
	if (rc == 0) {
		snprintf(r->audit_target, sizeof(r->audit_target), "%s", res->sandbox.id.text);
		answer_json(a, r->route->status, create_json(res));
	} else {
		*err = *e; /* with an answer: for the log */
		if (e->code == ERR_NO_CAPACITY) {
			answer_no_capacity(r, a, e, &res->decision);
			rc = 0;
		}
	}
	create_result_done(res);
	return rc;
}

static int explain(struct request *r, const struct spec *spec, struct answer *a, struct error *err)
{
	struct create_result res;
	create_result_init(&res);
	int rc = controller_create(r->api->o.controller, &r->caller, spec, true, NULL, &res, err);
	if (rc == 0) {
		snprintf(r->audit_target, sizeof(r->audit_target), "explain");
		cJSON *j = cJSON_CreateObject();
		cJSON_AddItemToObject(j, "decision", decision_to_json(&res.decision));
		answer_json(a, 200, j);
	}
	create_result_done(&res);
	return rc;
}

static int create_waited(struct request *r, struct answer *a, struct error *err)
{
	struct error e = r->err;
	struct create_result res;
	create_result_init(&res);
	int rc = r->create ? controller_create_end(r->api->o.controller, steal(&r->create), &res, &e) : -1;
	return answer_create(r, a, rc, &res, &e, err);
}

/* It ended, or the time did: both as they are now. A sandbox that is forgotten already stays as it was. */
static int create_settled(struct request *r, struct answer *a, struct error *err)
{
	struct create_result *res = r->created;
	const struct caller *who = &r->caller;
	struct operation op;
	struct sandbox now;
	operation_init(&op);
	sandbox_init(&now);
	if (controller_operation(r->api->o.controller, who, res->operation.id.text, &op, err) == 0) {
		operation_done(&res->operation);
		res->operation = op;
	}
	if (controller_resolve(r->api->o.controller, who, res->sandbox.id.text, &now, err) == 0) {
		sandbox_done(&res->sandbox);
		res->sandbox = now;
	}
	answer_json(a, r->route->status, create_json(res));
	return 0;
}

/* Takes what is in res. */
static int wait_created(struct request *r, struct create_result *res, int64_t wait_ms, struct error *err)
{
	snprintf(r->audit_target, sizeof(r->audit_target), "%s", res->sandbox.id.text);
	r->created = xmalloc(sizeof(*res));
	*r->created = *res;
	return wait_operation(r, &r->created->operation.id, wait_ms, create_settled, err);
}

struct create_waits {
	int64_t capacity, end; /* seconds */
};

static int create(struct request *r, const struct spec *spec, struct create_waits wait, struct answer *a, struct error *err)
{
	const char *key = NULL;
	if (request_idempotency_key(r, &key, err) != 0)
		return -1;
	struct error e = ERROR_INIT;
	struct create_result res;
	create_result_init(&res);
	int rc = controller_create(r->api->o.controller, &r->caller, spec, false, key, &res, &e);
	if (rc == 0 && wait.end > 0 && !op_ended(res.operation.state))
		return wait_created(r, &res, wait.end * 1000, err);
	int64_t poll_seconds = res.yielded && wait.capacity < YIELD_SECONDS ? YIELD_SECONDS : wait.capacity;
	if (poll_seconds > LIMIT_WAIT_MAX_SECONDS)
		poll_seconds = LIMIT_WAIT_MAX_SECONDS;
	if (rc == 0 || e.code != ERR_NO_CAPACITY || poll_seconds == 0)
		return answer_create(r, a, rc, &res, &e, err);
	create_result_done(&res);
	return wait_create(r, spec, key, poll_seconds * 1000, create_waited, err);
}

int handle_create(struct request *r, struct answer *a, struct error *err)
{
	bool only_explain = false;
	struct create_waits wait = { .capacity = 0 };
	auto_spec spec;
	spec_init(&spec);
	if (request_query_bool(r, "explain", &only_explain, err) != 0 ||
	    request_query_i64(r, "wait_capacity", 0, LIMIT_CAPACITY_WAIT_MAX_SECONDS, &wait.capacity, err) != 0 ||
	    request_query_i64(r, "wait", 0, LIMIT_WAIT_MAX_SECONDS, &wait.end, err) != 0 || read_spec(r, &spec, err) != 0)
		return -1;
	return only_explain ? explain(r, &spec, a, err) : create(r, &spec, wait, a, err);
}

static int read_labels(const struct target *t, struct map *ret, struct error *err)
{
	for (size_t i = 0; i < t->names.len; i++) {
		if (strcmp(t->names.items[i], "label") != 0)
			continue;
		const char *text = t->values.items[i], *eq = strchr(text, '=');
		if (!eq)
			return error_set(err, ERR_INVALID, "label: '%.64s' is not KEY=VALUE", text);
		auto_free char *key = xstrndup(text, (size_t)(eq - text));
		if (map_get(ret, key))
			return error_set(err, ERR_INVALID, "label: key '%.64s' stands twice", key);
		map_set(ret, key, eq + 1);
	}
	return 0;
}

static cJSON *list_json(const struct sandbox_list *l, size_t limit)
{
	size_t n = limit && l->len > limit ? limit : l->len;
	cJSON *j = cJSON_CreateObject();
	cJSON *items = cJSON_AddArrayToObject(j, "sandboxes");
	for (size_t i = 0; i < n; i++)
		cJSON_AddItemToArray(items, sandbox_to_json(&l->items[i]));
	if (n < l->len)
		json_add_str(j, "next", l->items[n - 1].id.text);
	return j;
}

int handle_list(struct request *r, struct answer *a, struct error *err)
{
	int64_t limit = 0;
	auto_map labels = MAP_INIT;
	struct list_query q = { .tenant = target_query(&r->target, "tenant"), .after = target_query(&r->target, "after") };
	if (request_query_bool(r, "all", &q.all, err) != 0 || request_query_i64(r, "limit", 1, LIMIT_LIST_PAGE_MAX, &limit, err) != 0 ||
	    read_labels(&r->target, &labels, err) != 0)
		return -1;
	if (q.tenant && !tenant_valid(q.tenant))
		return error_set(err, ERR_INVALID, "tenant: '%.64s' is no tenant name", q.tenant);
	if (q.after && !id_valid(q.after))
		return error_set(err, ERR_INVALID, "after: want the `next` value of the page before");
	q.labels = labels.len ? &labels : NULL;
	q.limit = limit ? (size_t)limit + 1 : 0; /* one more tells whether there is a next page */
	struct sandbox_list l = { .items = NULL };
	if (controller_list(r->api->o.controller, &r->caller, &q, &l, err) != 0)
		return -1;
	answer_json(a, r->route->status, list_json(&l, (size_t)limit));
	sandbox_list_done(&l);
	return 0;
}

int handle_inspect(struct request *r, struct answer *a, struct error *err)
{
	auto_sandbox s;
	sandbox_init(&s);
	if (controller_resolve(r->api->o.controller, &r->caller, r->params.value[0], &s, err) != 0)
		return -1;
	answer_json(a, r->route->status, sandbox_to_json(&s));
	return 0;
}

int handle_delete(struct request *r, struct answer *a, struct error *err)
{
	auto_operation op;
	operation_init(&op);
	if (controller_delete(r->api->o.controller, &r->caller, r->params.value[0], &op, err) != 0)
		return -1;
	answer_operation(a, r->route->status, &op);
	return 0;
}

static int read_ttl(struct request *r, int64_t *ret_ms, struct error *err)
{
	auto_json *j = NULL;
	if (request_json(r, &j, err) != 0)
		return -1;
	struct json_reader root;
	int64_t seconds = 0;
	json_reader_init(&root, j, "", err);
	json_get_i64(&root, "ttl_seconds", JSON_REQUIRED, LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS, &seconds);
	*ret_ms = seconds * 1000;
	return json_end(&root);
}

int handle_extend(struct request *r, struct answer *a, struct error *err)
{
	int64_t ttl_ms;
	auto_sandbox s;
	sandbox_init(&s);
	if (read_ttl(r, &ttl_ms, err) != 0 || controller_extend(r->api->o.controller, &r->caller, r->params.value[0], ttl_ms, &s, err) != 0)
		return -1;
	struct node_port *n = node_ports_find(r->api->o.nodes, &s.node_id, NULL);
	if (n) /* else it asks when it is back */
		n->ops->deadline_moved(n, &s.id);
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "sandbox", sandbox_to_json(&s));
	answer_json(a, r->route->status, j);
	return 0;
}

static int stats_job(struct request *r, struct answer *a, struct error *err)
{
	auto_sandbox s;
	sandbox_init(&s);
	struct runtime_stats st;
	if (controller_resolve(r->api->o.controller, &r->caller, r->params.value[0], &s, err) != 0)
		return -1;
	if (s.state != SANDBOX_RUNNING)
		return error_set(err, ERR_CONFLICT, "sandbox %s is %s, not running", id_short(&s.id), sandbox_state_text(s.state));
	struct node_port *n = node_ports_find(r->api->o.nodes, &s.node_id, err);
	if (!n || n->ops->stats(n, &s.id, &st, err) != 0)
		return -1;
	/* A container's has room for sandbox-init beside what was asked; of the other tiers the host counts something else. */
	if (s.tier == TIER_CONTAINER && st.pids_limit > s.spec.resources.pids)
		st.pids_limit = s.spec.resources.pids;
	cJSON *j = cJSON_CreateObject();
	json_add_i64(j, "cpu_us", (int64_t)st.cpu_us);
	json_add_i64(j, "memory_bytes", (int64_t)st.memory_bytes);
	json_add_i64(j, "memory_limit_bytes", (int64_t)st.memory_limit_bytes);
	json_add_i64(j, "pids", (int64_t)st.pids);
	json_add_i64(j, "pids_limit", (int64_t)st.pids_limit);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_stats(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, stats_job, err);
}
