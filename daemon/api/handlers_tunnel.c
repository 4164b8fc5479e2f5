/* Handlers: tunnels. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/controller/tunnels.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

#include <string.h>

enum { SUBDOMAIN_MAX = 255, WORD_MAX = 32 };

static int read_host(const char *word, bool *ret, struct error *err)
{
	if (word && strcmp(word, "rewrite") != 0 && strcmp(word, "keep") != 0)
		return error_set(err, ERR_INVALID, "host_header: '%.32s' is neither rewrite nor keep", word);
	*ret = word && strcmp(word, "keep") == 0;
	return 0;
}

static int read_request(struct request *r, char **subdomain, struct tunnel_request *q, struct error *err)
{
	auto_json *j = NULL;
	auto_free char *host = NULL;
	struct json_reader root;
	uint32_t port = 0;
	int64_t ttl = 0;
	bool authenticated = false;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_u32(&root, "container_port", JSON_REQUIRED, 1, UINT16_MAX, &port);
	json_get_enum(&root, "protocol", JSON_OPTIONAL, protocol, &q->protocol);
	json_get_str(&root, "subdomain", JSON_OPTIONAL, SUBDOMAIN_MAX, subdomain);
	json_get_bool(&root, "authenticated", JSON_OPTIONAL, &authenticated);
	q->auth = authenticated ? TUNNEL_AUTH_TOKEN : TUNNEL_AUTH_NONE;
	json_get_enum(&root, "auth", JSON_OPTIONAL, tunnel_auth, &q->auth);
	json_get_str(&root, "host_header", JSON_OPTIONAL, WORD_MAX, &host);
	json_get_i64(&root, "ttl_seconds", JSON_OPTIONAL, LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS, &ttl);
	if (json_end(&root) != 0 || read_host(host, &q->keep_host, err) != 0)
		return -1;
	q->port = (uint16_t)port;
	q->subdomain = *subdomain;
	q->ttl_ms = ttl * 1000;
	return 0;
}

static void answer_tunnel(struct request *r, struct answer *a, const struct tunnel_result *res)
{
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "tunnel", tunnel_to_json(&res->tunnel));
	if (res->operation.id.text[0])
		cJSON_AddItemToObject(j, "operation", operation_to_json(&res->operation));
	if (res->secret[0])
		json_add_str(j, "secret", res->secret);
	snprintf(r->audit_target, sizeof(r->audit_target), "%.120s", res->tunnel.hostname);
	answer_json(a, r->route->status, j);
}

int handle_tunnel_create(struct request *r, struct answer *a, struct error *err)
{
	auto_free char *subdomain = NULL;
	struct tunnel_request q = { .protocol = PROTOCOL_HTTP };
	struct tunnel_result res;
	if (read_request(r, &subdomain, &q, err) != 0)
		return -1;
	tunnel_result_init(&res);
	int rc = controller_tunnel_create(r->api->o.controller, &r->caller, r->params.value[0], &q, &res, err);
	if (rc == 0)
		answer_tunnel(r, a, &res);
	tunnel_result_done(&res);
	return rc;
}

int handle_tunnel_delete(struct request *r, struct answer *a, struct error *err)
{
	struct tunnel_result res;
	tunnel_result_init(&res);
	int rc = controller_tunnel_delete(r->api->o.controller, &r->caller, r->params.value[0], r->params.value[1], &res, err);
	if (rc == 0)
		answer_tunnel(r, a, &res);
	tunnel_result_done(&res);
	return rc;
}

int handle_tunnel_secret(struct request *r, struct answer *a, struct error *err)
{
	struct tunnel_result res;
	tunnel_result_init(&res);
	int rc = controller_tunnel_secret(r->api->o.controller, &r->caller, r->params.value[0], r->params.value[1], &res, err);
	if (rc == 0)
		answer_tunnel(r, a, &res);
	tunnel_result_done(&res);
	return rc;
}

static int list(struct request *r, const char *sandbox, struct answer *a, struct error *err)
{
	struct tunnel_list l = { .len = 0 };
	if (controller_tunnels(r->api->o.controller, &r->caller, sandbox, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *items = cJSON_AddArrayToObject(j, "tunnels");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(items, tunnel_to_json(&l.items[i]));
	answer_json(a, r->route->status, j);
	tunnel_list_done(&l);
	return 0;
}

int handle_tunnels(struct request *r, struct answer *a, struct error *err)
{
	return list(r, r->params.value[0], a, err);
}

int handle_tunnels_all(struct request *r, struct answer *a, struct error *err)
{
	return list(r, NULL, a, err);
}

struct asked {
	const char *host;
	struct tunnel_offer offer;
	bool found;
};

static void look(void *ctx, const struct tunnel_route *t)
{
	struct asked *q = ctx;
	size_t n = strlen(t->tunnel->label);
	if (strncasecmp(q->host, t->tunnel->label, n) == 0 && q->host[n] == '.' && strcasecmp(q->host + n + 1, q->offer.domain) == 0)
		q->found = true;
}

int handle_tunnel_authorize(struct request *r, struct answer *a, struct error *err)
{
	struct asked q = { .host = target_query(&r->target, "domain"), .offer = controller_tunnel_offer(r->api->o.controller) };
	if (!q.host || !*q.host)
		return error_set(err, ERR_INVALID, "domain: the name to ask about is missing");
	if (q.offer.enabled && controller_routes(r->api->o.controller, look, &q, err) != 0)
		return -1;
	if (!q.found)
		return error_set(err, ERR_NOT_FOUND, "no tunnel has this name");
	a->status = r->route->status;
	return 0;
}
