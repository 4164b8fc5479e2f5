/* The table of tools, how it is listed, and how a call's result is written. */
#include "cli/mcp/mcp.h"

#include "cli/output.h"
#include "shared/base/mem.h"

#include <string.h>

const struct tool *const mcp_tools[] = {
	&tool_health, &tool_create, &tool_exec, &tool_list, &tool_inspect, &tool_delete, &tool_operation, &tool_wait, &tool_logs,
	&tool_extend, &tool_tunnel_create, &tool_tunnel_delete, &tool_files_read, &tool_files_write, &tool_files_list,
	&tool_agent_list, &tool_agent_run, NULL
};

const struct tool *mcp_tool_find(const char *name)
{
	for (const struct tool *const *t = mcp_tools; *t; t++)
		if (strcmp((*t)->name, name) == 0)
			return *t;
	return NULL;
}

static const char *flag(const struct tool *t, enum tool_hint hint)
{
	return t->hints & hint ? "true" : "false";
}

static void list_one(const struct tool *t, struct buf *out)
{
	buf_addf(out, "{\"name\":\"%s\",\"title\":\"%s\",\"description\":", t->name, t->title);
	rpc_add_string(out, t->description);
	buf_addf(out, ",\"inputSchema\":{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{%s},\"required\":%s}", t->properties,
		 t->required);
	buf_addf(out, ",\"outputSchema\":{\"type\":\"object\",\"properties\":{%s,\"error\":{\"type\":\"object\"}}}", t->output);
	buf_addf(out, ",\"annotations\":{\"title\":\"%s\",\"readOnlyHint\":%s,\"destructiveHint\":%s,\"idempotentHint\":%s,\"openWorldHint\":%s}}",
		 t->title, flag(t, HINT_READ_ONLY), flag(t, HINT_DESTRUCTIVE), flag(t, HINT_IDEMPOTENT), flag(t, HINT_OPEN_WORLD));
}

void mcp_tools_list(struct buf *out)
{
	buf_adds(out, "{\"tools\":[");
	for (const struct tool *const *t = mcp_tools; *t; t++) {
		if (t != mcp_tools)
			buf_addc(out, ',');
		list_one(*t, out);
	}
	buf_adds(out, "]}");
}

/* {"error":{code, message, hint?, …}}; the server's own body brings what it knows besides, such as the decision behind no_capacity. */
static cJSON *failure(struct tool_call *c, const struct error *err)
{
	cJSON *j = cJSON_CreateObject();
	cJSON *e = c->cli.error_body ? cJSON_Duplicate(c->cli.error_body, true) : cJSON_CreateObject();
	cJSON_DeleteItemFromObjectCaseSensitive(e, "code");
	cJSON_DeleteItemFromObjectCaseSensitive(e, "message");
	json_add_str(e, "code", error_wire(err->code));
	json_add_str(e, "message", err->message);
	if (c->cli.hint)
		json_add_str(e, "hint", c->cli.hint);
	cJSON_AddItemToObject(j, "error", e);
	return j;
}

void mcp_tool_call(struct tool_call *c, const struct tool *t, const cJSON *arguments, struct buf *out)
{
	auto_json *none = cJSON_CreateObject();
	auto_json *value = NULL;
	struct error err = ERROR_INIT;
	struct json_reader args;
	struct tool_result result = { .value = NULL };
	json_reader_init(&args, arguments ? arguments : none, "", &err);
	bool failed = t->run(c, &args, &result, &err) != 0;
	value = failed ? failure(c, &err) : result.value;
	auto_free char *text = json_print(value);
	buf_adds(out, "{\"content\":[{\"type\":\"text\",\"text\":");
	rpc_add_string(out, text);
	buf_addf(out, "}],\"structuredContent\":%s,\"isError\":%s}", text, failed || result.failed ? "true" : "false");
}

int arg_sandbox(struct json_reader *args, char **ret)
{
	json_get_str(args, "sandbox_id", JSON_REQUIRED, 128, ret);
	if (json_ok(args) && !**ret)
		json_fail(args, "sandbox_id", "must not be empty");
	return json_ok(args) ? 0 : -1;
}

void arg_output(struct json_reader *args, int64_t *ret)
{
	*ret = MCP_OUTPUT_DEFAULT;
	json_get_i64(args, "max_output_bytes", JSON_OPTIONAL, 256, MCP_OUTPUT_MAX, ret);
}
