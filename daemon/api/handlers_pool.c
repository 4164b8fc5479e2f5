/* Handlers: warm pools. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

static cJSON *resources_json(const struct resources *r)
{
	cJSON *j = cJSON_CreateObject();
	json_add_i64(j, "cpu_millis", r->cpu_millis);
	json_add_i64(j, "memory_mib", r->memory_mib);
	json_add_i64(j, "disk_mib", r->disk_mib);
	json_add_i64(j, "pids", r->pids);
	return j;
}

static void add_pool(void *ctx, const struct pool_view *v)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", v->name);
	json_add_str(j, "image", v->spec->image);
	json_add_str(j, "tier", tier_text(v->tier));
	json_add_str(j, "network", network_text(v->spec->network));
	cJSON_AddItemToObject(j, "resources", resources_json(&v->spec->resources));
	json_add_bool(j, "writable_root", v->spec->writable_root);
	json_add_i64(j, "size", (int64_t)v->size);
	json_add_i64(j, "ready", (int64_t)v->ready);
	json_add_i64(j, "starting", (int64_t)v->starting);
	json_add_i64(j, "max_age_seconds", v->max_age_ms / 1000);
	json_add_i64(j, "claims", (int64_t)v->claims);
	json_add_i64(j, "misses", (int64_t)v->misses);
	json_add_str(j, "why", v->why);
	cJSON_AddItemToArray(ctx, j);
}

int handle_pools(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	if (controller_pools(r->api->o.controller, add_pool, cJSON_AddArrayToObject(j, "pools"), err) != 0)
		return -1;
	answer_json(a, r->route->status, steal(&j));
	return 0;
}
