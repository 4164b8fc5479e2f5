/* Tools for public addresses of ports inside a sandbox. Both have taken effect when the server answers; nothing is waited for. */
#include "cli/mcp/mcp.h"

#include "cli/session.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

enum { WORD_MAX_LEN = 64 };

static void pass_text(struct json_reader *args, const char *key, cJSON *body)
{
	auto_free char *v = NULL;
	json_get_str(args, key, JSON_OPTIONAL, WORD_MAX_LEN, &v);
	if (v)
		json_add_str(body, key, v);
}

/* `wait` is the original's: it is taken, and there is nothing to wait for. */
static int ready(struct json_reader *args)
{
	bool wait = true;
	json_get_bool(args, "wait", JSON_OPTIONAL, &wait);
	return json_end(args);
}

static int run_create(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *ref = NULL;
	auto_json *body = cJSON_CreateObject();
	int64_t port = 0, ttl = 0;
	arg_sandbox(args, &ref);
	json_get_i64(args, "container_port", JSON_REQUIRED, 1, 65535, &port);
	json_get_i64(args, "ttl_seconds", JSON_OPTIONAL, LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS, &ttl);
	pass_text(args, "subdomain", body);
	pass_text(args, "auth", body);
	if (ready(args) != 0)
		return -1;
	json_add_i64(body, "container_port", port);
	if (ttl)
		json_add_i64(body, "ttl_seconds", ttl);
	struct call_request q = { .method = "POST", .target = session_path("/v1/sandboxes/%s/tunnels", ref), .body = body, .keyed = true };
	return mcp_request(c, &q, &ret->value, err);
}

const struct tool tool_tunnel_create = {
	.name = "sandbox_tunnel_create", .title = "Give a port a public address", .hints = HINT_OPEN_WORLD,
	.description = "Publish one HTTP port of a running sandbox at public_url, which the server chooses: use it as it is. The service may listen on the loopback "
		       "inside. Everybody who has the address reaches it unless auth asks for a token or password; that is `secret`, told once. Delete it when done.",
	.properties = PROP_SANDBOX ",\"container_port\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":65535},"
		      "\"subdomain\":{\"type\":\"string\",\"description\":\"First part of the address; without it one nobody can guess.\"},"
		      "\"auth\":{\"type\":\"string\",\"enum\":[\"none\",\"token\",\"password\"],\"default\":\"none\"},"
		      "\"ttl_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":604800},\"wait\":{\"type\":\"boolean\",\"default\":true}",
	.required = "[\"sandbox_id\",\"container_port\"]",
	.output = "\"tunnel\":{\"type\":\"object\"}," OUT_OPERATION ",\"secret\":{\"type\":\"string\"}", .run = run_create,
};

static int run_delete(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *ref = NULL, *tunnel = NULL;
	arg_sandbox(args, &ref);
	json_get_str(args, "tunnel_id", JSON_REQUIRED, WORD_MAX_LEN, &tunnel);
	if (ready(args) != 0)
		return -1;
	struct call_request q = { .method = "DELETE", .target = session_path("/v1/sandboxes/%s/tunnels/%s", ref, tunnel), .keyed = true };
	return mcp_request(c, &q, &ret->value, err);
}

const struct tool tool_tunnel_delete = {
	.name = "sandbox_tunnel_delete", .title = "Take a public address away", .hints = HINT_DESTRUCTIVE,
	.description = "Remove a public address: no request that comes after the answer reaches the sandbox.",
	.properties = PROP_SANDBOX ",\"tunnel_id\":{\"type\":\"string\",\"minLength\":1,\"description\":\"Its id, the last digits of it, or its name.\"},"
		      "\"wait\":{\"type\":\"boolean\",\"default\":true}",
	.required = "[\"sandbox_id\",\"tunnel_id\"]", .output = "\"tunnel\":{\"type\":\"object\"}," OUT_OPERATION, .run = run_delete,
};
