/* docs/openapi.json (OpenAPI 3.1) from the route table and schemas.def. */
#include "daemon/api/routes.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static cJSON *reference(const char *schema)
{
	char path[96];
	snprintf(path, sizeof(path), "#/components/schemas/%s", schema);
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "$ref", path);
	return j;
}

static cJSON *enum_type(const char *words)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "type", "string");
	cJSON *list = cJSON_AddArrayToObject(j, "enum");
	for (const char *p = words; *p;) {
		size_t n = strcspn(p, "|");
		auto_free char *word = xstrndup(p, n);
		cJSON_AddItemToArray(list, cJSON_CreateString(word));
		p += n + (p[n] == '|');
	}
	return j;
}

/* A scalar type of schemas.def: "time", "map", "any", a schema's name, or a JSON Schema type itself. */
static cJSON *scalar_type(const char *type)
{
	if (isupper((unsigned char)type[0]))
		return reference(type);
	if (strncmp(type, "enum:", 5) == 0)
		return enum_type(type + 5);
	cJSON *j = cJSON_CreateObject();
	if (strcmp(type, "any") == 0)
		return j;
	if (strcmp(type, "time") == 0) {
		json_add_str(j, "type", "string");
		json_add_str(j, "format", "date-time");
	} else if (strcmp(type, "map") == 0) {
		json_add_str(j, "type", "object");
		cJSON_AddItemToObject(j, "additionalProperties", scalar_type("string"));
	} else {
		json_add_str(j, "type", type);
	}
	return j;
}

static cJSON *type_json(const char *type)
{
	size_t n = strlen(type);
	if (type[0] != '[')
		return scalar_type(type);
	auto_free char *inner = xstrndup(type + 1, n - 2);
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "type", "array");
	cJSON_AddItemToObject(j, "items", scalar_type(inner));
	return j;
}

static cJSON *child(cJSON *parent, const char *key)
{
	cJSON *j = cJSON_GetObjectItemCaseSensitive(parent, key);
	return j ? j : cJSON_AddObjectToObject(parent, key);
}

static void add_field(cJSON *schemas, const char *owner, const char *key, const char *type, bool always, const char *help)
{
	cJSON *schema = child(schemas, owner);
	if (!cJSON_GetObjectItemCaseSensitive(schema, "type"))
		json_add_str(schema, "type", "object");
	cJSON *j = type_json(type);
	if (*help)
		json_add_str(j, "description", help);
	cJSON_AddItemToObject(child(schema, "properties"), key, j);
	if (!always)
		return;
	cJSON *required = cJSON_GetObjectItemCaseSensitive(schema, "required");
	if (!required)
		required = cJSON_AddArrayToObject(schema, "required");
	cJSON_AddItemToArray(required, cJSON_CreateString(key));
}

static cJSON *schemas_json(void)
{
	cJSON *schemas = cJSON_CreateObject();
#define FIELD(owner, key, kind, need, text) add_field(schemas, #owner, #key, kind, need, text);
#include "daemon/api/schemas.def"
#undef FIELD
	return schemas;
}

static void add_parameter(cJSON *list, const char *in, const char *name, bool repeats)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", name);
	json_add_str(j, "in", in);
	json_add_bool(j, "required", strcmp(in, "path") == 0);
	cJSON_AddItemToObject(j, "schema", type_json(repeats ? "[string]" : "string"));
	cJSON_AddItemToArray(list, j);
}

/* "/v1/images/{name...}" is "/v1/images/{name}" in OpenAPI. Adds the path's parameters to list. */
static char *path_of(const struct route *r, cJSON *list)
{
	auto_buf path = BUF_INIT;
	for (const char *p = r->pattern; *p;) {
		size_t n = strcspn(p, "{");
		buf_add(&path, p, n);
		p += n;
		if (!*p)
			break;
		size_t name = strcspn(p + 1, ".}");
		auto_free char *text = xstrndup(p + 1, name);
		buf_addf(&path, "{%s}", text);
		add_parameter(list, "path", text, false);
		p += strcspn(p, "}") + 1;
	}
	return buf_steal(&path);
}

static void add_query(const struct route *r, cJSON *list)
{
	for (const char *p = r->query; *p;) {
		size_t n = strcspn(p, " ");
		bool repeats = p[n - 1] == '*';
		auto_free char *name = xstrndup(p, n - repeats);
		add_parameter(list, "query", name, repeats);
		p += n;
		p += strspn(p, " ");
	}
}

static cJSON *content(const char *media, const char *schema)
{
	cJSON *j = cJSON_CreateObject();
	cJSON *m = cJSON_AddObjectToObject(cJSON_AddObjectToObject(j, "content"), media);
	cJSON_AddItemToObject(m, "schema", schema ? reference(schema) : cJSON_CreateObject());
	return j;
}

static cJSON *request_body(const struct route *r)
{
	cJSON *j = content(r->body == BODY_STREAM ? "application/octet-stream" : "application/json", r->request);
	json_add_bool(j, "required", r->body != BODY_JSON_OPT);
	return j;
}

static cJSON *responses(const struct route *r)
{
	cJSON *all = cJSON_CreateObject();
	char status[8];
	snprintf(status, sizeof(status), "%d", r->status);
	bool lines = r->answer && strcmp(r->answer, "ImageProgress") == 0;
	cJSON *ok = r->answer ? content(lines ? "application/x-ndjson" : "application/json", r->answer) : cJSON_CreateObject();
	json_add_str(ok, "description", r->summary);
	cJSON_AddItemToObject(all, status, ok);
	cJSON *failed = content("application/json", "Error");
	json_add_str(failed, "description", "the call failed");
	cJSON_AddItemToObject(all, "default", failed);
	return all;
}

static void add_route(cJSON *paths, const struct route *r)
{
	cJSON *op = cJSON_CreateObject(), *parameters = cJSON_CreateArray();
	auto_free char *path = path_of(r, parameters);
	auto_free char *method = xstrdup(r->method);
	for (char *p = method; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	add_query(r, parameters);
	json_add_str(op, "operationId", r->id);
	json_add_str(op, "summary", r->summary);
	json_add_str(op, "description", r->detail);
	json_add_str(op, "x-caller", caller_class_text(r->class));
	json_add_str(op, "x-role", role_text(r->role));
	cJSON_AddItemToObject(op, "parameters", parameters);
	if (r->body != BODY_NONE)
		cJSON_AddItemToObject(op, "requestBody", request_body(r));
	cJSON_AddItemToObject(op, "responses", responses(r));
	if (r->class == CALLER_PUBLIC)
		cJSON_AddItemToObject(op, "security", cJSON_CreateArray());
	cJSON_AddItemToObject(child(paths, path), method, op);
}

static cJSON *security(cJSON *components)
{
	cJSON *scheme = cJSON_AddObjectToObject(cJSON_AddObjectToObject(components, "securitySchemes"), "token");
	json_add_str(scheme, "type", "http");
	json_add_str(scheme, "scheme", "bearer");
	json_add_str(scheme, "description", "On TCP. On the unix socket the peer's credentials decide.");
	cJSON *list = cJSON_CreateArray(), *need = cJSON_CreateObject();
	cJSON_AddArrayToObject(need, "token");
	cJSON_AddItemToArray(list, need);
	return list;
}

void api_doc_openapi(struct buf *out)
{
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "openapi", "3.1.0");
	cJSON *info = cJSON_AddObjectToObject(j, "info");
	json_add_str(info, "title", "Sandbox");
	json_add_str(info, "version", "v1");
	json_add_str(info, "description", "Temporary machines for code: create, run, expose, collect, destroy. Generated from the route table.");
	cJSON *paths = cJSON_AddObjectToObject(j, "paths");
	for (size_t i = 0; i < routes_len; i++)
		add_route(paths, &routes[i]);
	cJSON *components = cJSON_AddObjectToObject(j, "components");
	cJSON_AddItemToObject(components, "schemas", schemas_json());
	cJSON_AddItemToObject(j, "security", security(components));
	auto_free char *text = cJSON_Print(j);
	buf_adds(out, text);
	buf_adds(out, "\n");
}
