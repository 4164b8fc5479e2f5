/* Handlers: logins to image registries. As with secrets, what a request brings is wiped where it was. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/controller/registries.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

static cJSON *registry_json(const struct registry_row *r)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "registry", r->registry);
	json_add_str(j, "tenant", r->tenant);
	json_add_str(j, "username", r->username);
	json_add_time(j, "created_at", r->created_us);
	json_add_time(j, "updated_at", r->updated_us);
	json_add_str(j, "updated_by", r->updated_by);
	return j;
}

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
}

static int take_login(struct request *r, char **ret_user, struct secret *ret, struct error *err)
{
	auto_json *j = NULL;
	auto_free char *user = NULL;
	auto_free char *password = NULL;
	struct json_reader root;
	int rc = request_json(r, &j, err);
	if (r->body.data)
		explicit_bzero(r->body.data, r->body.len);
	if (rc != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "username", JSON_REQUIRED, REGISTRY_USER_MAX_LEN, &user);
	json_get_str(&root, "password", JSON_REQUIRED, LIMIT_REGISTRY_PASSWORD_MAX, &password);
	rc = json_end(&root);
	if (rc == 0) {
		secret_set(ret, password, strlen(password));
		*ret_user = steal(&user);
	}
	wipe(password);
	cJSON *held = cJSON_GetObjectItemCaseSensitive(j, "password");
	if (cJSON_IsString(held))
		wipe(held->valuestring);
	return rc;
}

int handle_registry_set(struct request *r, struct answer *a, struct error *err)
{
	auto_free char *user = NULL;
	auto_secret password = SECRET_INIT;
	struct registry_row row;
	if (take_login(r, &user, &password, err) != 0)
		return -1;
	struct registry_login l = { .tenant = target_query(&r->target, "tenant"), .registry = r->params.value[0], .username = user,
				    .password = &password };
	if (controller_registry_set(r->api->o.controller, &r->caller, &l, &row, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "registry", registry_json(&row));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_registries(struct request *r, struct answer *a, struct error *err)
{
	struct registry_list l = { .items = NULL };
	if (controller_registries(r->api->o.controller, &r->caller, target_query(&r->target, "tenant"), &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(j, "registries");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(list, registry_json(&l.items[i]));
	registry_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_registry_delete(struct request *r, struct answer *a, struct error *err)
{
	if (controller_registry_delete(r->api->o.controller, &r->caller, target_query(&r->target, "tenant"), r->params.value[0], err) != 0)
		return -1;
	a->status = r->route->status;
	return 0;
}
