/*
 * Tools for commands: exec, operation, wait. A command that ran is a result, whatever its status; an error is what kept it from running
 * or from being observed. A long one is handed over as an operation, so that no client's time-out loses it.
 */
#include "cli/mcp/mcp.h"

#include "cli/cancel.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>

/* The command did not run, or how it ended is not known. */
static bool not_observed(const cJSON *op)
{
	static const char *const fine[] = { "exited", "signaled", "timeout", "canceled" };
	const char *outcome = json_text(op, "outcome");
	if (strcmp(json_text(op, "state"), "failed") != 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		if (strcmp(outcome, fine[i]) == 0)
			return false;
	return true;
}

static void give(struct tool_result *ret, cJSON *take_op, int64_t max_output)
{
	mcp_trim_output(take_op, (size_t)max_output);
	ret->failed = mcp_ended(take_op) && not_observed(take_op);
	ret->value = cJSON_CreateObject();
	cJSON_AddItemToObject(ret->value, "operation", take_op);
}

/* --- exec ------------------------------------------------------------------------------------------------------------- */

struct exec {
	char *sandbox;
	cJSON *command;
	bool wait;
	int64_t max_output;
};

static int read_exec(struct json_reader *args, struct exec *o)
{
	auto_strv argv = STRV_INIT;
	auto_map env = MAP_INIT;
	auto_free char *cwd = NULL, *user = NULL;
	int64_t timeout = LIMIT_EXEC_TIMEOUT_DEFAULT_SECONDS;
	arg_sandbox(args, &o->sandbox);
	json_get_strv(args, "argv", JSON_REQUIRED, LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX, &argv);
	json_get_map(args, "env", JSON_OPTIONAL, LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX, &env);
	json_get_str(args, "cwd", JSON_OPTIONAL, LIMIT_PATH_BYTES_MAX, &cwd);
	json_get_str(args, "user", JSON_OPTIONAL, 256, &user);
	json_get_i64(args, "timeout_seconds", JSON_OPTIONAL, 1, LIMIT_EXEC_TIMEOUT_MAX_SECONDS, &timeout);
	json_get_bool(args, "wait", JSON_OPTIONAL, &o->wait);
	arg_output(args, &o->max_output);
	if (json_ok(args) && argv.len == 0)
		json_fail(args, "argv", "must hold the program and its arguments");
	if (json_end(args) != 0)
		return -1;
	json_add_strv(o->command, "argv", &argv);
	json_add_map(o->command, "env", &env);
	json_add_i64(o->command, "timeout_seconds", timeout);
	if (cwd)
		json_add_str(o->command, "cwd", cwd);
	if (user)
		json_add_str(o->command, "user", user);
	return 0;
}

static void end_command(struct tool_call *c, const char *operation)
{
	int interrupt = c->cli.interrupt;
	c->cli.interrupt = -1;
	cancel_operation(&c->cli, operation, 0, NULL, NULL);
	c->cli.interrupt = interrupt;
}

/* Waits for a command this call started; a cancelled call takes its command with it. */
static int await_exec(struct tool_call *c, const char *id, cJSON **ret, struct error *err)
{
	struct error e = ERROR_INIT;
	if (mcp_wait(c, id, "running", c->wait_ms, ret, &e) == 0) {
		if (!mcp_ended(*ret))
			call_leaves_running(c, id);
		return 0;
	}
	if (e.sys == EINTR)
		end_command(c, id);
	*err = e;
	return -1;
}

static int run_exec(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	struct exec o = { .command = cJSON_AddObjectToObject(body, "command"), .wait = true };
	int rc = read_exec(args, &o);
	auto_free char *sandbox = o.sandbox;
	if (rc != 0)
		return -1;
	struct call_request q = { .method = "POST", .target = session_path("/v1/sandboxes/%s/exec", sandbox), .body = body, .keyed = true };
	if (mcp_request(c, &q, &answer, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(answer, "operation");
	auto_free char *id = xstrdup(json_text(op, "id"));
	if (!*id) {
		cJSON_Delete(op);
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no operation");
	}
	if (o.wait) {
		cJSON_Delete(op);
		if (await_exec(c, id, &op, err) != 0)
			return -1;
	}
	give(ret, op, o.max_output);
	return 0;
}

const struct tool tool_exec = {
	.name = "sandbox_exec", .title = "Run a command", .hints = HINT_DESTRUCTIVE | HINT_OPEN_WORLD,
	.description = "Run a program in a running sandbox: argv is an array, no shell is involved (use [\"sh\",\"-c\",\"...\"] for one), stdin is empty. "
		       "Waits up to 25 s; after that it returns the operation in state running: go on with sandbox_wait. A non-zero exit_code is a normal "
		       "result. Long output is cut in the middle: see truncated and next_cursor. With wait=false the command outlives this session.",
	.properties = PROP_SANDBOX ","
		      "\"argv\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1},"
		      "\"cwd\":{\"type\":\"string\",\"description\":\"Absolute directory.\"},"
		      "\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},\"description\":\"No credentials.\"},"
		      "\"user\":{\"type\":\"string\"},"
		      "\"timeout_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":86400,\"default\":300,\"description\":\"After it the command is ended.\"},"
		      "\"wait\":{\"type\":\"boolean\",\"default\":true}," PROP_OUTPUT,
	.required = "[\"sandbox_id\",\"argv\"]", .output = OUT_OPERATION, .run = run_exec,
};

/* --- operation, wait ---------------------------------------------------------------------------------------------------- */

static void arg_operation(struct json_reader *args, char **ret)
{
	json_get_str(args, "operation_id", JSON_REQUIRED, 64, ret);
	if (json_ok(args) && !**ret)
		json_fail(args, "operation_id", "must not be empty");
}

static int run_operation(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *id = NULL;
	int64_t max_output;
	cJSON *op;
	arg_operation(args, &id);
	arg_output(args, &max_output);
	if (json_end(args) != 0 || mcp_wait(c, id, "running", 0, &op, err) != 0)
		return -1;
	give(ret, op, max_output);
	ret->failed = false;
	return 0;
}

const struct tool tool_operation = {
	.name = "sandbox_operation", .title = "Show an operation", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Show one create, exec or delete as it stands now, without waiting.",
	.properties = PROP_OPERATION "," PROP_OUTPUT, .required = "[\"operation_id\"]", .output = OUT_OPERATION, .run = run_operation,
};

static int run_wait(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *id = NULL;
	int64_t max_output, seconds = c->wait_ms / 1000;
	cJSON *op;
	arg_operation(args, &id);
	json_get_i64(args, "timeout_seconds", JSON_OPTIONAL, 1, LIMIT_EXEC_TIMEOUT_MAX_SECONDS, &seconds);
	arg_output(args, &max_output);
	if (json_end(args) != 0 || mcp_wait(c, id, "waiting", seconds * 1000, &op, err) != 0)
		return -1;
	give(ret, op, max_output);
	return 0;
}

const struct tool tool_wait = {
	.name = "sandbox_wait", .title = "Wait for an operation", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Wait until an operation has succeeded or failed. When the time is over first, the operation comes back still running: that says nothing "
		       "about how it will end, so wait again before repeating anything.",
	.properties = PROP_OPERATION ",\"timeout_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":86400,\"default\":25,"
		      "\"description\":\"Keep it below your client's own time-out.\"}," PROP_OUTPUT,
	.required = "[\"operation_id\"]", .output = OUT_OPERATION, .run = run_wait,
};
