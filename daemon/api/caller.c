/* Admission: see caller.h. */
#include "daemon/api/caller.h"

#include "daemon/api/peer.h"
#include "daemon/api/server.h"
#include "daemon/config.h"
#include "shared/base/parse.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TENANT_HEADER "X-Sandbox-Tenant"

/* A page in a browser can reach loopback: its name games end at Host, its scripts at Origin. */
static int check_browser(struct request *r, const struct listener *l, struct error *err)
{
	const char *host = request_header(r, "Host");
	if (request_header(r, "Origin"))
		return error_set(err, ERR_FORBIDDEN, "requests of web pages (Origin) are refused");
	if (!host)
		return error_set(err, ERR_FORBIDDEN, "a Host header is needed");
	if (!api_host_allowed(r->api, l, host))
		return error_set(err, ERR_FORBIDDEN, "Host '%.64s' is not a name of this server; daemon.hosts lists those it answers to", host);
	return 0;
}

static enum MHD_Result add_forwarded(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct buf *list = ctx;
	(void)kind;
	if (value && strcasecmp(name, "X-Forwarded-For") == 0)
		buf_addf(list, "%s%s", list->len ? "," : "", value);
	return MHD_YES;
}

static void take_address(struct request *r)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	char peer[ADDRESS_TEXT_MAX] = "";
	auto_buf forwarded = BUF_INIT;
	if (info && info->client_addr)
		address_host(info->client_addr, peer);
	/* All of them: a proxy may add a line of its own under one that the client wrote. */
	MHD_get_connection_values(r->conn, MHD_HEADER_KIND, add_forwarded, &forwarded);
	api_client_address(r->api, peer, forwarded.len ? buf_str(&forwarded) : NULL, r->caller.from);
}

static int check_token(struct request *r, struct error *err)
{
	const struct api_options *o = &r->api->o;
	const char *value = request_header(r, "Authorization");
	if (!value)
		return error_set(err, ERR_UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN");
	if (strncasecmp(value, "Bearer ", 7) != 0 || !o->token_caller)
		return error_set(err, ERR_UNAUTHORIZED, "only Authorization: Bearer TOKEN is understood");
	return o->token_caller(o->token_ctx, value + 7, request_header(r, TENANT_HEADER), &r->caller, err);
}

int caller_establish(struct request *r, const struct listener *l, bool public_route, struct error *err)
{
	if (l->tcp) {
		take_address(r);
		if (check_browser(r, l, err) != 0)
			return -1;
		return public_route ? 0 : check_token(r, err);
	}
	snprintf(r->caller.from, sizeof(r->caller.from), "unix");
	if (public_route)
		return 0;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (!info)
		return error_set(err, ERR_INTERNAL, "the connection has no descriptor");
	if (peer_caller(info->connect_fd, r->api->o.config->socket_group, &r->caller, err) != 0)
		return -1;
	return access_act_in(&r->caller, request_header(r, TENANT_HEADER), err);
}

/* What a worker's daemon answers. */
static bool of_worker(const struct route *route)
{
	return strcmp(route->id, "healthz") == 0 || strcmp(route->id, "readyz") == 0 || strcmp(route->id, "doctor") == 0;
}

int caller_admit(const struct request *r, const struct route *route, struct error *err)
{
	if (r->api && r->api->o.link_state && !of_worker(route))
		return error_set(err, ERR_UNAVAILABLE, "this daemon is a worker: ask its controller, %s", r->api->o.config->controller_url);
	if (route->class == CALLER_PUBLIC)
		return 0;
	bool is_node = r->caller.node.text[0] != '\0';
	if (route->class == CALLER_NODE && is_node)
		return 0;
	if (is_node)
		return error_set(err, ERR_FORBIDDEN, "the credential of a node opens its link and does nothing else");
	if (route->class == CALLER_PEER && r->caller.peer)
		return 0;
	if (r->caller.peer)
		return error_set(err, ERR_FORBIDDEN, "the secret of controllers opens their connection and does nothing else");
	if (route->class != CALLER_OPERATOR)
		return error_set(err, ERR_FORBIDDEN, "this call is for %s credentials", caller_class_text(route->class));
	if (r->caller.role < route->role)
		return error_set(err, ERR_FORBIDDEN, "this call needs the role %s; %s is %s", role_text(route->role), r->caller.who,
				 role_text(r->caller.role));
	return 0;
}

static int check_type(struct request *r, const struct route *route, struct error *err)
{
	if (!r->tcp || (route->body != BODY_JSON && route->body != BODY_JSON_OPT))
		return 0;
	const char *type = request_header(r, "Content-Type");
	size_t n = type ? strcspn(type, "; \t") : 0;
	if (n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0)
		return 0;
	return error_set(err, ERR_INVALID, "the body must be sent as Content-Type: application/json");
}

int body_admit(struct request *r, const struct route *route, bool *ret_has_body, struct error *err)
{
	const char *length = request_header(r, "Content-Length");
	int64_t n = 0;
	*ret_has_body = request_header(r, "Transfer-Encoding") != NULL;
	if (length && parse_i64("Content-Length", length, 0, INT64_MAX, &n, err) != 0)
		return -1;
	*ret_has_body = *ret_has_body || n > 0;
	if ((uint64_t)n > route->body_max && route->body == BODY_NONE)
		return error_set(err, ERR_TOO_LARGE, "this call takes no body");
	if ((uint64_t)n > route->body_max)
		return error_set(err, ERR_TOO_LARGE, "the body has %lld bytes; this call takes at most %zu", (long long)n, route->body_max);
	return *ret_has_body ? check_type(r, route, err) : 0;
}
