/* Handlers: secrets. What a request brings is wiped where it was, as soon as it has been sealed. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/controller/secrets.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

enum { BASE64_MAX = (LIMIT_SECRET_BYTES_MAX + 2) / 3 * 4 + 8 };

static cJSON *secret_json(const struct secret_row *s)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", s->name);
	json_add_str(j, "tenant", s->tenant);
	json_add_i64(j, "bytes", s->size);
	json_add_time(j, "created_at", s->created_us);
	json_add_time(j, "updated_at", s->updated_us);
	json_add_str(j, "updated_by", s->updated_by);
	return j;
}

static void wipe_text(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
}

static int decode(struct json_reader *root, const char *text, const char *base64, struct secret *ret, struct error *err)
{
	auto_buf bytes = BUF_INIT_MAX(LIMIT_SECRET_BYTES_MAX + 4);
	if (!text == !base64)
		return json_fail(root, "value", "give either value or value_base64");
	if (text) {
		secret_set(ret, text, strlen(text));
		return 0;
	}
	int rc = base64_decode(base64, &bytes, err);
	if (rc == 0)
		secret_set(ret, bytes.data, bytes.len);
	if (bytes.data)
		explicit_bzero(bytes.data, bytes.len);
	return rc;
}

static int read_value(const cJSON *j, struct secret *ret, struct error *err)
{
	__attribute__((cleanup(wipe_text))) char *text = NULL;
	__attribute__((cleanup(wipe_text))) char *base64 = NULL;
	struct json_reader root;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "value", JSON_OPTIONAL, LIMIT_SECRET_BYTES_MAX, &text);
	json_get_str(&root, "value_base64", JSON_OPTIONAL, BASE64_MAX, &base64);
	return json_end(&root) == 0 ? decode(&root, text, base64, ret, err) : -1;
}

static void wipe_tree(const cJSON *j)
{
	const cJSON *member;
	cJSON_ArrayForEach(member, j)
		if (cJSON_IsString(member))
			explicit_bzero(member->valuestring, strlen(member->valuestring));
}

static int take_value(struct request *r, struct secret *ret, struct error *err)
{
	auto_json *j = NULL;
	int rc = request_json(r, &j, err);
	if (r->body.data)
		explicit_bzero(r->body.data, r->body.len);
	if (rc != 0)
		return -1;
	rc = read_value(j, ret, err);
	wipe_tree(j);
	return rc;
}

int handle_secret_set(struct request *r, struct answer *a, struct error *err)
{
	auto_secret value = SECRET_INIT;
	struct secret_row row;
	if (take_value(r, &value, err) != 0 || controller_secret_set(r->api->o.controller, &r->caller, target_query(&r->target, "tenant"),
								      r->params.value[0], &value, &row, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "secret", secret_json(&row));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_secrets(struct request *r, struct answer *a, struct error *err)
{
	struct secret_list l = { .items = NULL };
	if (controller_secrets(r->api->o.controller, &r->caller, target_query(&r->target, "tenant"), &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(j, "secrets");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(list, secret_json(&l.items[i]));
	secret_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_secret_delete(struct request *r, struct answer *a, struct error *err)
{
	if (controller_secret_delete(r->api->o.controller, &r->caller, target_query(&r->target, "tenant"), r->params.value[0], err) != 0)
		return -1;
	a->status = r->route->status;
	return 0;
}
