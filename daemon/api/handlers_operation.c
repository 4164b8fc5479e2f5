/* Handlers: commands, operations, stream connections. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/api/wait.h"
#include "daemon/api/wsbridge.h"
#include "daemon/link/gate.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/http/ws.h"
#include "shared/json/model_json.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { OPERATIONS_DEFAULT = 100, SIGNAL_MAX = 64 };

void answer_operation(struct answer *a, int status, const struct operation *op)
{
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "operation", operation_to_json(op));
	answer_json(a, status, j);
}

static int read_command(struct request *r, struct command *ret, struct error *err)
{
	auto_json *j = NULL;
	if (request_json(r, &j, err) != 0)
		return -1;
	struct json_reader root, child;
	json_reader_init(&root, j, "", err);
	if (!json_get_object(&root, "command", JSON_REQUIRED, &child) || json_end(&root) != 0)
		return -1;
	if (command_from_json(child.object, "command", ret, err) != 0)
		return -1;
	return command_validate(ret, err);
}

/* It is running by the record; when its node cannot be told, it ends there as not started. */
static void start_command(struct request *r, const struct exec_grant *grant, const struct command *cmd)
{
	struct error err = ERROR_INIT, e = ERROR_INIT;
	struct node_port *n = node_ports_find(r->api->o.nodes, &grant->node, &err);
	if (n)
		n->ops->start_detached(n, grant, cmd);
	else if (controller_exec_end(r->api->o.controller, &grant->operation, NULL, err.code, err.message, &e) != 0)
		log_error("api", "request=%s: recording the end of operation=%s: %s", r->caller.request_id, grant->operation.text, e.message);
}

int handle_exec(struct request *r, struct answer *a, struct error *err)
{
	struct controller *c = r->api->o.controller;
	auto_command cmd;
	command_init(&cmd);
	auto_operation op;
	operation_init(&op);
	struct exec_request req = { .sandbox = r->params.value[0], .command = &cmd, .detached = true,
				    .reachable = node_ports_reachable, .ctx = r->api->o.nodes };
	struct exec_grant grant;
	bool seen;
	if (read_command(r, &cmd, err) != 0 || request_idempotency_key(r, &req.idempotency_key, err) != 0 ||
	    controller_exec_begin_once(c, &r->caller, &req, &grant, &seen, err) != 0)
		return -1;
	/* Read before the start: afterwards it may have ended already, and a 202 shows what was accepted. */
	int rc = controller_operation(c, &r->caller, grant.operation.text, &op, err);
	if (!seen)
		start_command(r, &grant, &cmd);
	if (rc == 0)
		answer_operation(a, r->route->status, &op);
	return rc;
}

int handle_operations(struct request *r, struct answer *a, struct error *err)
{
	int64_t limit = OPERATIONS_DEFAULT;
	struct operation_list l = { .items = NULL };
	if (request_query_i64(r, "limit", 1, LIMIT_LIST_PAGE_MAX, &limit, err) != 0 ||
	    controller_operations(r->api->o.controller, &r->caller, target_query(&r->target, "sandbox"), (size_t)limit, &l, err) != 0)
		return -1;
	cJSON *j = cJSON_CreateObject();
	cJSON *items = cJSON_AddArrayToObject(j, "operations");
	for (size_t i = 0; i < l.len; i++)
		cJSON_AddItemToArray(items, operation_to_json(&l.items[i]));
	operation_list_done(&l);
	answer_json(a, r->route->status, j);
	return 0;
}

static int show_operation(struct request *r, struct answer *a, struct error *err)
{
	auto_operation op;
	operation_init(&op);
	if (controller_operation(r->api->o.controller, &r->caller, r->params.value[0], &op, err) != 0)
		return -1;
	answer_operation(a, r->route->status, &op);
	return 0;
}

int handle_operation(struct request *r, struct answer *a, struct error *err)
{
	int64_t wait = 0;
	auto_operation op;
	operation_init(&op);
	if (request_query_i64(r, "wait", 0, LIMIT_WAIT_MAX_SECONDS, &wait, err) != 0 ||
	    controller_operation(r->api->o.controller, &r->caller, r->params.value[0], &op, err) != 0)
		return -1;
	if (wait > 0 && !op_ended(op.state))
		return wait_operation(r, &op.id, wait * 1000, show_operation, err);
	answer_operation(a, r->route->status, &op);
	return 0;
}

static int read_signal(struct request *r, int *ret, struct error *err)
{
	int64_t sig = 0;
	if (r->body.len) {
		auto_json *j = NULL;
		struct json_reader root;
		if (request_json(r, &j, err) != 0)
			return -1;
		json_reader_init(&root, j, "", err);
		json_get_i64(&root, "signal", JSON_OPTIONAL, 1, SIGNAL_MAX, &sig);
		if (json_end(&root) != 0)
			return -1;
	}
	*ret = (int)sig;
	return 0;
}

static int cancel_job(struct request *r, struct answer *a, struct error *err)
{
	struct controller *c = r->api->o.controller;
	struct id node;
	int sig;
	auto_operation op;
	operation_init(&op);
	if (read_signal(r, &sig, err) != 0 || controller_operation(c, &r->caller, r->params.value[0], &op, err) != 0)
		return -1;
	if (op.kind != OPK_EXEC)
		return error_set(err, ERR_CONFLICT, "operation %s is a %s, not a command; delete the sandbox to stop it", id_short(&op.id),
				 op_kind_text(op.kind));
	if (op_ended(op.state))
		return error_set(err, ERR_CONFLICT, "operation %s has ended", id_short(&op.id));
	if (controller_operation_node(c, &op.id, &node, err) != 0)
		return -1;
	struct node_port *n = node_ports_find(r->api->o.nodes, &node, err);
	if (!n || n->ops->cancel(n, &op.id, sig, err) != 0)
		return -1;
	answer_operation(a, r->route->status, &op);
	return 0;
}

int handle_cancel(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, cancel_job, err);
}

/* The connection is taken from the library whole: a duplicate of its descriptor goes on, its own is closed at once, so that
 * neither its limits nor its stopping know about streams. */
static void on_upgraded(void *cls, struct MHD_Connection *conn, void *ctx, const char *extra, size_t n, MHD_socket fd,
			struct MHD_UpgradeResponseHandle *urh)
{
	(void)cls;
	(void)conn;
	struct request *r = ctx;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own >= 0)
		gate_serve(r->api->o.gate, &r->caller, own, extra, n, NULL, NULL);
	else
		log_error("api", "request=%s: no descriptor for a stream connection", r->caller.request_id);
	MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

/* The same over WebSocket, which proxies pass: a bridge takes the messages' bytes to a plain stream. */
static void on_websocket(void *cls, struct MHD_Connection *conn, void *ctx, const char *extra, size_t n, MHD_socket fd,
			 struct MHD_UpgradeResponseHandle *urh)
{
	(void)cls;
	(void)conn;
	struct request *r = ctx;
	struct error err = ERROR_INIT;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int stream = own >= 0 ? bridge_open(r->api->bridges, own, extra, n, &err) : error_errno(&err, "duplicating a descriptor");
	if (stream >= 0)
		gate_serve(r->api->o.gate, &r->caller, stream, NULL, 0, NULL, NULL);
	else
		log_error("api", "request=%s: no WebSocket connection: %s", r->caller.request_id, err.message);
	MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

bool request_upgrades(struct request *r, const char *protocol)
{
	const char *upgrade = request_header(r, "Upgrade"), *connection = request_header(r, "Connection");
	return strcmp(r->method, "GET") == 0 && upgrade && strcasecmp(upgrade, protocol) == 0 && connection &&
	       ws_header_has(connection, "upgrade");
}

int answer_websocket(struct request *r, struct answer *a, MHD_UpgradeHandler upgraded, struct error *err)
{
	const char *key = request_header(r, "Sec-WebSocket-Key"), *version = request_header(r, "Sec-WebSocket-Version");
	char accept[WS_ACCEPT_LEN + 1];
	if (!r->api->bridges)
		return error_set(err, ERR_INVALID, "the unix socket takes Upgrade: sandbox-mux; WebSocket is for TCP");
	if (!version || strcmp(version, "13") != 0)
		return error_set(err, ERR_INVALID, "Sec-WebSocket-Version: 13 is needed");
	if (!ws_key_valid(key))
		return error_set(err, ERR_INVALID, "Sec-WebSocket-Key must be 16 bytes in base64");
	if (!ws_header_has(request_header(r, "Sec-WebSocket-Protocol"), WS_PROTOCOL))
		return error_set(err, ERR_INVALID, "Sec-WebSocket-Protocol must offer " WS_PROTOCOL);
	ws_accept(key, accept);
	a->status = r->route->status;
	a->response = MHD_create_response_for_upgrade(upgraded, NULL);
	MHD_add_response_header(a->response, "Upgrade", "websocket");
	MHD_add_response_header(a->response, "Sec-WebSocket-Accept", accept);
	MHD_add_response_header(a->response, "Sec-WebSocket-Protocol", WS_PROTOCOL);
	return 0;
}

int handle_mux(struct request *r, struct answer *a, struct error *err)
{
	if (request_upgrades(r, "websocket"))
		return answer_websocket(r, a, on_websocket, err);
	if (!request_upgrades(r, "sandbox-mux"))
		return error_set(err, ERR_INVALID, "this call opens streams: send Connection: Upgrade and Upgrade: sandbox-mux, or websocket");
	a->status = r->route->status;
	a->response = MHD_create_response_for_upgrade(on_upgraded, NULL);
	MHD_add_response_header(a->response, "Upgrade", "sandbox-mux");
	return 0;
}
