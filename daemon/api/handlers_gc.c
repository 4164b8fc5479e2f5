/* Handlers: what is left over on the worker. Everything here asks the runtime, so it runs on threads of its own. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/worker/worker.h"
#include "shared/base/mem.h"

static void add_leak(void *ctx, const struct leak *leak)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "kind", leak->kind);
	json_add_str(j, "name", leak->name);
	json_add_str(j, "sandbox_id", leak->owner.text);
	json_add_str(j, "evidence", leak->evidence);
	cJSON_AddItemToArray(ctx, j);
}

static int look(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(j, "leaks");
	if (!r->api->o.worker)
		return error_set(err, ERR_UNAVAILABLE, "this daemon has no worker");
	if (worker_leaks(r->api->o.worker, add_leak, list, err) != 0)
		return -1;
	answer_json(a, r->route->status, steal(&j));
	return 0;
}

int handle_leaks(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, look, err);
}

static int collect(struct request *r, struct answer *a, struct error *err)
{
	if (r->api->o.worker && worker_reconcile(r->api->o.worker, err) != 0)
		return -1;
	return look(r, a, err);
}

int handle_gc(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, collect, err);
}
