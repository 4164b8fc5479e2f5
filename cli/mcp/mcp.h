/*
 * The MCP bridge: JSON-RPC lines on standard input and output, tools that use the session and stream library of the CLI.
 *
 * One thread reads requests, answers what needs no server at once and owns standard output; every tool call runs on a thread of its own
 * with a session of its own, so that pings are answered and calls can be cancelled while others run. What a call says goes through
 * the first thread, one whole message at a time.
 */
#ifndef SANDBOX_CLI_MCP_MCP_H
#define SANDBOX_CLI_MCP_MCP_H

#include "cli/cli.h"
#include "cli/mcp/rpc.h"
#include "shared/json/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bridge;

/* One tools/call while it runs. */
struct tool_call {
	struct cli cli;       /* its session; waits end when cli.interrupt becomes readable */
	struct bridge *bridge;
	char *progress_token; /* JSON text; NULL: no progress wanted */
	int64_t started_ms, wait_ms;
};

/* What a tool has to say; `failed` marks a result that is an error to the model. */
struct tool_result {
	cJSON *value; /* an object, owned */
	bool failed;
};

enum tool_hint {
	HINT_READ_ONLY = 1,
	HINT_DESTRUCTIVE = 2,
	HINT_IDEMPOTENT = 4,
	HINT_OPEN_WORLD = 8,
};

struct tool {
	const char *name, *title, *description;
	unsigned hints;
	const char *properties; /* of the input schema: members of a JSON object, as text */
	const char *required;   /* JSON array, as text; "[]" when nothing is */
	const char *output;     /* members of the output schema's properties */
	/* 0 with *ret, or -1 with err: shown to the model as an error it can act on. Reads every argument, then json_end, then acts. */
	int (*run)(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err);
};

/* NULL-ended. How to add one: write its struct in a tool_*.c, list it in tools.c, describe it in docs/mcp.md. */
extern const struct tool *const mcp_tools[];
const struct tool *mcp_tool_find(const char *name);
/* Members of the answer to tools/list. */
void mcp_tools_list(struct buf *out);
/* Runs a tool on checked parameters: the text of a CallToolResult. */
void mcp_tool_call(struct tool_call *c, const struct tool *t, const cJSON *arguments, struct buf *out);

/* What is answered without a server. True: *ret_result holds the result's text; false: *ret is the error. */
bool mcp_method(const char *method, const cJSON *params, struct rpc_version *version, struct buf *ret_result, struct rpc_failure *ret);

/* The bridge's loop, until the client ends it. in and out are borrowed. Exit status. */
struct serve {
	const struct cli *settings; /* nothing opened yet; outlives the bridge */
	int64_t wait_ms; /* the longest one call waits, unless it asks for more */
	int in, out;
};
int mcp_serve(const struct serve *how);
/* The same for a whole process: standard output is kept for messages, whatever else prints goes to standard error. */
int mcp_serve_process(const struct cli *settings, int64_t wait_ms);

/* --- for tools ------------------------------------------------------------------------------------------------------ */

bool call_cancelled(const struct tool_call *c);
/* A progress notification, when the caller asked for them. */
void call_progress(struct tool_call *c, const char *message);
/* A command goes on although nobody waits for it: it is ended with the bridge. */
void call_leaves_running(struct tool_call *c, const char *operation);

enum { MCP_WAIT_MS = 25 * 1000, MCP_OUTPUT_DEFAULT = 16 * 1024, MCP_OUTPUT_MAX = 128 * 1024 };

/* Waits up to `ms` for an operation; *ret is its record, ended or not. ERR_TIMEOUT with err->sys == EINTR when the call was cancelled. */
int mcp_wait(struct tool_call *c, const char *operation, const char *doing, int64_t ms, cJSON **ret, struct error *err);
bool mcp_ended(const cJSON *operation);
/* {sandbox, operation} of a create that has been sent, waited for and brought up to date; undone when the call was cancelled. */
int mcp_await_create(struct tool_call *c, cJSON *answer, struct tool_result *ret, struct error *err);
/* A request that a cancelled call still finishes, so that what it began is known. */
struct call_request {
	const char *method;
	char *target; /* taken */
	const cJSON *body;
	bool keyed;   /* with an idempotency key */
};
int mcp_request(struct tool_call *c, const struct call_request *q, cJSON **ret, struct error *err);

/* Cuts the output in an operation's record to `max` bytes a stream, head and tail, and says where the rest is. */
void mcp_trim_output(cJSON *operation, size_t max);
/* p[0..n) as text for a model, cut to max bytes as head and tail; gap_at and missing: bytes already left out at that place. Returns
 * the bytes of the head. */
size_t mcp_head_tail(const char *p, size_t n, size_t gap_at, uint64_t missing, size_t max, struct buf *out);
/* Text with what is not UTF-8 replaced. */
void mcp_add_lossy(cJSON *object, const char *key, const char *p, size_t n);

/* Arguments that several tools take. */
int arg_sandbox(struct json_reader *args, char **ret); /* sandbox_id: required, not empty */
void arg_output(struct json_reader *args, int64_t *ret);

extern const struct tool tool_tunnel_create, tool_tunnel_delete;
extern const struct tool tool_health, tool_create, tool_exec, tool_list, tool_inspect, tool_delete, tool_operation, tool_wait, tool_logs,
	tool_agent_list, tool_agent_run, tool_extend, tool_files_read, tool_files_write, tool_files_list;

#define PROP_SANDBOX "\"sandbox_id\":{\"type\":\"string\",\"minLength\":1,\"description\":\"Sandbox id, name, or unique end of the id.\"}"
#define PROP_OPERATION "\"operation_id\":{\"type\":\"string\",\"minLength\":1}"
#define PROP_OUTPUT \
	"\"max_output_bytes\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":131072,\"default\":16384," \
	"\"description\":\"Bytes kept of each stream, first and last; sandbox_logs gives the rest.\"}"
#define OUT_SANDBOX "\"sandbox\":{\"type\":\"object\"}"
#define OUT_OPERATION "\"operation\":{\"type\":\"object\"}"

#endif
