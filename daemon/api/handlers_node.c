/* Handlers: nodes, and the links of their workers. */
#include "daemon/api/handlers.h"

#include "daemon/api/pin.h"
#include "daemon/api/server.h"
#include "daemon/api/wsbridge.h"
#include "daemon/config.h"
#include "daemon/controller/fleet.h"
#include "daemon/controller/identity.h"
#include "daemon/link/link_server.h"
#include "daemon/link/peers.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <string.h>
#include <unistd.h>

/* --- looking --- */

static void add_resources(cJSON *j, const char *key, const struct resources *r)
{
	cJSON *o = cJSON_AddObjectToObject(j, key);
	json_add_i64(o, "cpu_millis", r->cpu_millis);
	json_add_i64(o, "memory_mib", r->memory_mib);
	json_add_i64(o, "disk_mib", r->disk_mib);
	json_add_i64(o, "pids", r->pids);
}

static void add_offers(cJSON *j, const struct node_info *n)
{
	cJSON *tiers = cJSON_AddArrayToObject(j, "tiers"), *network = cJSON_AddArrayToObject(j, "networks");
	for (int i = 0; i < TIER_COUNT; i++)
		if (n->tiers[i].offered)
			cJSON_AddItemToArray(tiers, cJSON_CreateString(tier_text((enum tier)i)));
	for (int i = 0; i < NETWORK_COUNT; i++)
		if (n->network[i])
			cJSON_AddItemToArray(network, cJSON_CreateString(network_text((enum network)i)));
}

static cJSON *node_json(const struct node_info *n)
{
	const struct node_identity *d = &n->identity;
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "id", d->id.text);
	json_add_str(j, "name", d->name);
	json_add_str(j, "region", n->region);
	json_add_map(j, "labels", &n->labels);
	json_add_str(j, "state", n->up ? "up" : "down");
	json_add_bool(j, "draining", d->draining);
	json_add_bool(j, "remote", *d->credential);
	json_add_str(j, "version", *d->version ? d->version : NULL);
	json_add_i64(j, "sandboxes", d->sandboxes);
	json_add_i64(j, "max_sandboxes", n->max_sandboxes);
	json_add_i64(j, "pressure_percent", (int64_t)(n->pressure * 100));
	add_resources(j, "total", &n->total);
	add_resources(j, "used", &n->used);
	add_offers(j, n);
	json_add_time(j, "seen_at", n->seen_us);
	json_add_time(j, "joined_at", d->joined_us);
	json_add_time(j, "linked_at", d->linked_us);
	json_add_i64(j, "link_epoch", d->link_epoch);
	return j;
}

int handle_nodes(struct request *r, struct answer *a, struct error *err)
{
	struct node_info_list l = { .len = 0 };
	if (controller_nodes(r->api->o.controller, &r->caller, NULL, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(j, "nodes");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(list, node_json(&l.items[i]));
	node_info_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

static int answer_node(struct request *r, const char *ref, struct answer *a, struct error *err)
{
	struct node_info_list l = { .len = 0 };
	if (controller_nodes(r->api->o.controller, &r->caller, ref, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "node", node_json(&l.items[0]));
	node_info_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_node(struct request *r, struct answer *a, struct error *err)
{
	return answer_node(r, r->params.value[0], a, err);
}

/* --- changing --- */

static int drain(struct request *r, bool draining, struct answer *a, struct error *err)
{
	struct id node;
	if (controller_node_drain(r->api->o.controller, &r->caller, r->params.value[0], draining, &node, err) != 0)
		return -1;
	return answer_node(r, node.text, a, err);
}

int handle_node_drain(struct request *r, struct answer *a, struct error *err)
{
	return drain(r, true, a, err);
}

int handle_node_undrain(struct request *r, struct answer *a, struct error *err)
{
	return drain(r, false, a, err);
}

int handle_node_remove(struct request *r, struct answer *a, struct error *err)
{
	const char *force = target_query(&r->target, "force");
	struct id node;
	if (force && strcmp(force, "true") != 0 && strcmp(force, "false") != 0)
		return error_set(err, ERR_INVALID, "force: '%.20s' is not true or false", force);
	if (controller_node_remove(r->api->o.controller, &r->caller, r->params.value[0], force && strcmp(force, "true") == 0, &node, err) != 0)
		return -1;
	if (r->api->o.links)
		link_server_drop(r->api->o.links, &node);
	a->status = r->route->status;
	return 0;
}

/* --- joining --- */

static int read_token(struct request *r, char **name, char **pin, int64_t *ms, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader root;
	int64_t seconds = JOIN_LIFETIME_MS / 1000;
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "name", JSON_REQUIRED, NAME_MAX_LEN, name);
	json_get_str(&root, "pin", JSON_OPTIONAL, LINK_TEXT_MAX, pin);
	json_get_i64(&root, "lifetime_seconds", JSON_OPTIONAL, 1, JOIN_LIFETIME_MS / 1000, &seconds);
	*ms = seconds * 1000;
	return json_end(&root);
}

/* Without one asked for: this server's own, when it speaks TLS itself. "": none. */
static int choose_pin(struct request *r, char **pin, struct error *err)
{
	const char *cert = r->api->o.config->tls_cert;
	char own[PIN_TEXT_MAX];
	if (*pin && **pin && strncmp(*pin, "sha256//", 8) != 0)
		return error_set(err, ERR_INVALID, "pin: '%.80s' is not sha256//BASE64", *pin);
	if (*pin || !*cert)
		return 0;
	if (pin_of_certificate(cert, own, err) != 0)
		return -1;
	*pin = xstrdup(own);
	return 0;
}

int handle_node_token(struct request *r, struct answer *a, struct error *err)
{
	auto_free char *name = NULL, *pin = NULL;
	char secret[NODE_SECRET_LEN + 1];
	struct join_token t;
	int64_t ms;
	int rc = read_token(r, &name, &pin, &ms, err);
	if (name)
		snprintf(r->audit_target, sizeof(r->audit_target), "%s", name);
	if (rc != 0 || choose_pin(r, &pin, err) != 0 ||
	    controller_join_token(r->api->o.controller, &r->caller, name, pin && *pin ? pin : NULL, ms, &t, secret, err) != 0)
		return -1;
	auto_free char *whole = xasprintf("%s%s%s", secret, *t.pin ? "." : "", t.pin);
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "name", t.name);
	json_add_str(j, "pin", *t.pin ? t.pin : NULL);
	json_add_time(j, "expires_at", t.expires_us);
	json_add_str(j, "secret", whole);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(whole, strlen(whole));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_node_join(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = NULL;
	auto_free char *token = NULL, *name = NULL, *node = NULL, *pin = NULL;
	struct json_reader root;
	struct join_request q = { .token = NULL };
	char secret[NODE_SECRET_LEN + 1];
	if (request_json(r, &j, err) != 0)
		return -1;
	json_reader_init(&root, j, "", err);
	json_get_str(&root, "token", JSON_REQUIRED, NODE_SECRET_LEN, &token);
	json_get_str(&root, "name", JSON_REQUIRED, NAME_MAX_LEN, &name);
	json_get_str(&root, "node_id", JSON_REQUIRED, ID_TEXT_LEN, &node);
	json_get_str(&root, "pin", JSON_OPTIONAL, LINK_TEXT_MAX, &pin);
	if (node && id_parse(node, &q.node) != 0)
		json_fail(&root, "node_id", "is not an id");
	if (json_end(&root) != 0)
		return -1;
	q.token = token;
	q.name = name;
	q.pin = pin;
	snprintf(r->caller.who, sizeof(r->caller.who), "node %.64s", name);
	snprintf(r->audit_target, sizeof(r->audit_target), "%s", name);
	int rc = controller_node_join(r->api->o.controller, &q, secret, err);
	explicit_bzero(token, strlen(token));
	if (rc != 0)
		return -1;
	struct audit_entry e = { .action = "node_join", .target = name, .detail = node };
	controller_audit(r->api->o.controller, &r->caller, &e);
	cJSON *answer = cJSON_CreateObject();
	json_add_str(answer, "credential", secret);
	explicit_bzero(secret, sizeof(secret));
	answer_json(a, r->route->status, answer);
	return 0;
}

/* --- links --- */

/* Both ends of it are workers or controllers. */
static void on_link(void *cls, struct MHD_Connection *conn, void *ctx, const char *extra, size_t n, MHD_socket fd,
		    struct MHD_UpgradeResponseHandle *urh)
{
	(void)cls;
	(void)conn;
	struct request *r = ctx;
	struct error err = ERROR_INIT;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int stream = own >= 0 ? bridge_open(r->api->bridges, own, extra, n, &err) : error_errno(&err, "duplicating a descriptor");
	if (stream >= 0 && r->caller.peer)
		peers_accept(r->api->o.peers, &r->caller, stream);
	else if (stream >= 0)
		link_server_accept(r->api->o.links, &r->caller, stream, NULL, 0);
	else
		log_error("api", "request=%s: no link: %s", r->caller.request_id, err.message);
	MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

int handle_link(struct request *r, struct answer *a, struct error *err)
{
	if (!r->api->o.links)
		return error_set(err, ERR_UNAVAILABLE, "this daemon takes no links");
	if (!request_upgrades(r, "websocket"))
		return error_set(err, ERR_INVALID, "a link is a WebSocket: send Connection: Upgrade and Upgrade: websocket");
	struct audit_entry e = { .action = "link", .target = r->caller.node.text };
	controller_audit(r->api->o.controller, &r->caller, &e);
	return answer_websocket(r, a, on_link, err);
}

int handle_peer(struct request *r, struct answer *a, struct error *err)
{
	if (!r->api->o.peers)
		return error_set(err, ERR_UNAVAILABLE, "this daemon knows no other controllers: peers.url is empty");
	if (!request_upgrades(r, "websocket"))
		return error_set(err, ERR_INVALID, "this connection is a WebSocket: send Connection: Upgrade and Upgrade: websocket");
	struct audit_entry e = { .action = "peer", .target = r->caller.from };
	controller_audit(r->api->o.controller, &r->caller, &e);
	return answer_websocket(r, a, on_link, err);
}
