/* Handlers: tokens, the audit log, quotas. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/controller/identity.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

enum { AUDIT_DEFAULT = 100, TENANTS_MAX = 64 };

static const int64_t lifetime_max = 10LL * 365 * 24 * 3600;

static cJSON *tenants_json(const char *list)
{
	cJSON *j = cJSON_CreateArray();
	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ",");
		auto_free char *name = xstrndup(p, n);
		cJSON_AddItemToArray(j, cJSON_CreateString(name));
		p += n + (p[n] == ',');
	}
	return j;
}

static cJSON *token_json(const struct token_row *t)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "id", t->id.text);
	json_add_str(j, "name", t->name);
	json_add_str(j, "role", role_text(t->role));
	cJSON_AddItemToObject(j, "tenants", tenants_json(t->tenants));
	json_add_str(j, "created_by", t->created_by);
	json_add_time(j, "created_at", t->created_us);
	json_add_time(j, "expires_at", t->expires_us);
	json_add_time(j, "revoked_at", t->revoked_us);
	json_add_time(j, "last_used_at", t->used_us);
	json_add_str(j, "last_used_from", t->used_us ? t->used_from : NULL);
	return j;
}

static int read_token(struct request *r, char **ret_name, struct strv *tenants, struct token_request *q, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader root;
	int64_t seconds = 0;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "name", JSON_REQUIRED, TOKEN_NAME_MAX, ret_name);
	json_get_enum(&root, "role", JSON_REQUIRED, role, &q->role);
	json_get_strv(&root, "tenants", JSON_OPTIONAL, TENANTS_MAX, 64, tenants);
	json_get_i64(&root, "lifetime_seconds", JSON_OPTIONAL, 1, lifetime_max, &seconds);
	if (json_end(&root) != 0)
		return -1;
	q->name = *ret_name;
	q->tenants = tenants;
	q->lifetime_ms = seconds * 1000;
	return 0;
}

int handle_token_create(struct request *r, struct answer *a, struct error *err)
{
	auto_free char *name = NULL;
	auto_strv tenants = STRV_INIT;
	struct token_request q = { .name = NULL };
	struct token_row t;
	char secret[TOKEN_SECRET_LEN + 1];
	int rc = read_token(r, &name, &tenants, &q, err);
	if (name)
		snprintf(r->audit_target, sizeof(r->audit_target), "%s", name);
	if (rc != 0 || controller_token_create(r->api->o.controller, &r->caller, &q, &t, secret, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "token", token_json(&t));
	json_add_str(j, "secret", secret);
	explicit_bzero(secret, sizeof(secret));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_tokens(struct request *r, struct answer *a, struct error *err)
{
	struct token_list l = { .items = NULL };
	if (controller_tokens(r->api->o.controller, &r->caller, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *items = cJSON_AddArrayToObject(j, "tokens");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(items, token_json(&l.items[i]));
	token_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_token_revoke(struct request *r, struct answer *a, struct error *err)
{
	struct token_row t;
	if (controller_token_revoke(r->api->o.controller, &r->caller, r->params.value[0], &t, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "token", token_json(&t));
	answer_json(a, r->route->status, j);
	return 0;
}

/* --- audit --- */

struct page {
	cJSON *items;
	size_t n;
	struct id last;
};

static void add_entry(void *ctx, const struct audit_row *row)
{
	struct page *p = ctx;
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "id", row->id.text);
	json_add_time(j, "at", row->at_us);
	json_add_str(j, "who", row->who);
	json_add_str(j, "from", row->from);
	json_add_str(j, "tenant", row->tenant);
	json_add_str(j, "action", row->action);
	json_add_str(j, "target", row->target);
	json_add_str(j, "outcome", row->outcome);
	json_add_str(j, "detail", row->detail);
	json_add_str(j, "request_id", row->request_id);
	cJSON_AddItemToArray(p->items, j);
	p->n++;
	p->last = row->id;
}

int handle_audit(struct request *r, struct answer *a, struct error *err)
{
	int64_t limit = AUDIT_DEFAULT;
	if (request_query_i64(r, "limit", 1, LIMIT_LIST_PAGE_MAX, &limit, err) != 0)
		return -1;
	struct audit_filter f = {
		.before = target_query(&r->target, "after"), .who = target_query(&r->target, "who"),
		.action = target_query(&r->target, "action"), .target = target_query(&r->target, "target"), .limit = (size_t)limit,
	};
	struct page p = { .items = cJSON_CreateArray() };
	if (controller_audit_each(r->api->o.controller, &r->caller, &f, add_entry, &p, err) != 0) {
		cJSON_Delete(p.items);
		return -1;
	}
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "entries", p.items);
	if (p.n == f.limit)
		json_add_str(j, "next", p.last.text);
	answer_json(a, r->route->status, j);
	return 0;
}

/* --- quotas --- */

static void add_limit(cJSON *j, const char *key, int64_t v)
{
	if (v < 0)
		cJSON_AddNullToObject(j, key);
	else
		json_add_i64(j, key, v);
}

static int answer_quota(struct request *r, struct answer *a, struct error *err)
{
	const char *tenant = r->params.value[0];
	struct quota q, used = { .sandboxes = 0 };
	if (controller_quota(r->api->o.controller, &r->caller, tenant, &q, &used, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject(), *u = cJSON_CreateObject();
	json_add_str(j, "tenant", tenant);
	add_limit(j, "sandboxes", q.sandboxes);
	add_limit(j, "cpu_millis", q.cpu_millis);
	add_limit(j, "memory_mib", q.memory_mib);
	add_limit(j, "ttl_seconds", q.ttl_ms < 0 ? -1 : q.ttl_ms / 1000);
	json_add_i64(u, "sandboxes", used.sandboxes);
	json_add_i64(u, "cpu_millis", used.cpu_millis);
	json_add_i64(u, "memory_mib", used.memory_mib);
	cJSON_AddItemToObject(j, "used", u);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_quota(struct request *r, struct answer *a, struct error *err)
{
	return answer_quota(r, a, err);
}

int handle_quota_set(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader root;
	int64_t seconds = -1;
	struct quota q = { -1, -1, -1, -1 };
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_i64(&root, "sandboxes", JSON_OPTIONAL, 0, INT32_MAX, &q.sandboxes);
	json_get_i64(&root, "cpu_millis", JSON_OPTIONAL, 0, 1LL << 40, &q.cpu_millis);
	json_get_i64(&root, "memory_mib", JSON_OPTIONAL, 0, 1LL << 40, &q.memory_mib);
	json_get_i64(&root, "ttl_seconds", JSON_OPTIONAL, 1, LIMIT_TTL_MAX_SECONDS, &seconds);
	if (json_end(&root) != 0)
		return -1;
	q.ttl_ms = seconds < 0 ? -1 : seconds * 1000;
	if (controller_quota_set(r->api->o.controller, &r->caller, r->params.value[0], &q, err) != 0)
		return -1;
	return answer_quota(r, a, err);
}
