/* sandbox operation: list, inspect, cancel. */
#include "cli/command.h"

#include "cli/cancel.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 7, COMMAND_WIDTH = 48 };

/* --- list ------------------------------------------------------------------------------------------------------- */

struct list_options {
	const char *ref;
	int64_t limit;
};

static const struct list_options list_defaults = { .limit = 50 };

static const struct option_row list_options[] = {
	OPT_INT('n', "limit", struct list_options, limit, "N", 1, 1000, "at most this many (default 50)"),
	OPT_END,
};

static const struct positional list_positionals[] = {
	POS(POS_OPTIONAL, WHAT_SANDBOX, "SANDBOX", struct list_options, ref, "only those of this sandbox"),
	POS_END,
};

static void command_text(const cJSON *op, struct buf *out)
{
	const cJSON *arg, *argv = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(op, "command"), "argv");
	cJSON_ArrayForEach(arg, argv)
	{
		const char *text = cJSON_GetStringValue(arg);
		buf_addf(out, "%s%s", out->len ? " " : "", text ? text : "");
	}
}

static void list_row(struct table *t, const cJSON *op, int64_t now_us)
{
	auto_buf command = BUF_INIT;
	int64_t us;
	char span[16] = "-";
	const char *sandbox = json_text(op, "sandbox_id");
	const cJSON *output = cJSON_GetObjectItemCaseSensitive(op, "output");
	size_t n = strlen(sandbox);
	command_text(op, &command);
	if (time_parse_rfc3339(json_text(op, "created_at"), &us) == 0)
		span_text((now_us - us) / 1000, span);
	table_cell(t, json_text(op, "id"));
	table_cell(t, n > ID_SHORT_LEN ? sandbox + n - ID_SHORT_LEN : sandbox);
	table_cell(t, json_text(op, "kind"));
	table_cell(t, json_text(op, "state"));
	if (cJSON_IsObject(output))
		table_cellf(t, "%.0f", json_number(output, "exit_code", 0));
	else
		table_cell(t, "-");
	table_cell(t, span);
	table_cellf(t, "%.*s", (int)utf8_cut(buf_str(&command), strnlen(buf_str(&command), COMMAND_WIDTH)), buf_str(&command));
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "ID", "SANDBOX", "KIND", "STATE", "EXIT", "AGE", "COMMAND" };
	const struct list_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *ref = o->ref ? url_encode(o->ref) : NULL;
	auto_free char *target =
		xasprintf("/v1/operations?limit=%lld%s%s", (long long)o->limit, ref ? "&sandbox=" : "", ref ? ref : "");
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *op, *list = cJSON_GetObjectItemCaseSensitive(answer, "operations");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of operations");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	int64_t now_us = clock_wall_us();
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(op, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(op, "id"));
		else
			list_row(t, op, now_us);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb operation_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list operations, the newest first",
	.options = list_options,
	.positionals = list_positionals,
	.size = sizeof(struct list_options),
	.defaults = &list_defaults,
	.run = run_list,
};

/* --- inspect ---------------------------------------------------------------------------------------------------- */

struct one_options {
	const char *id;
	int sig;
};

static const struct positional one_positionals[] = {
	POS(POS_ONE, WHAT_OPERATION, "OPERATION", struct one_options, id, "id of the operation"),
	POS_END,
};

static int get_operation(struct cli *cli, const char *id, cJSON **ret, struct error *err)
{
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/operations/%s", id);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(answer, "operation");
	if (!cJSON_IsObject(op)) {
		cJSON_Delete(op);
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no operation");
	}
	*ret = op;
	return 0;
}

static void field_row(struct table *t, const char *label, const char *value)
{
	if (!*value)
		return;
	table_cell(t, label);
	table_cell(t, value);
}

static void output_rows(struct table *t, const cJSON *output)
{
	if (!cJSON_IsObject(output))
		return;
	table_cell(t, "exit status");
	table_cellf(t, "%.0f%s", json_number(output, "exit_code", 0), json_flag(output, "oom_killed") ? " (out of memory)" : "");
	table_cell(t, "output");
	table_cellf(t, "%.0f bytes, %.0f on standard error%s", json_number(output, "stdout_bytes", 0), json_number(output, "stderr_bytes", 0),
		    json_flag(output, "truncated") ? "; the record holds the first and last of them" : "");
}

static int run_inspect(struct cli *cli, void *opaque, struct error *err)
{
	const struct one_options *o = opaque;
	auto_json *op = NULL;
	if (get_operation(cli, o->id, &op, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, op, err);
	auto_buf command = BUF_INIT;
	auto_table *t = table_new(2);
	command_text(op, &command);
	field_row(t, "id", json_text(op, "id"));
	field_row(t, "sandbox", json_text(op, "sandbox_id"));
	field_row(t, "kind", json_text(op, "kind"));
	field_row(t, "state", json_text(op, "state"));
	field_row(t, "outcome", json_text(op, "outcome"));
	field_row(t, "error", json_text(op, "error"));
	field_row(t, "command", buf_str(&command));
	output_rows(t, cJSON_GetObjectItemCaseSensitive(op, "output"));
	field_row(t, "created", json_text(op, "created_at"));
	field_row(t, "updated", json_text(op, "updated_at"));
	table_print(t);
	return 0;
}

static const struct verb operation_inspect = {
	.name = "inspect",
	.alias = "show",
	.summary = "show one operation",
	.positionals = one_positionals,
	.size = sizeof(struct one_options),
	.run = run_inspect,
};

/* --- cancel ----------------------------------------------------------------------------------------------------- */

static const struct option_row cancel_options[] = {
	OPT_CALL('s', "signal", struct one_options, sig, "SIGNAL", cancel_parse_signal, "name or number (default TERM, then KILL)"),
	OPT_END,
};

static int run_cancel(struct cli *cli, void *opaque, struct error *err)
{
	const struct one_options *o = opaque;
	auto_json *answer = NULL;
	if (cancel_operation(cli, o->id, o->sig, &answer, err) != 0)
		return -1;
	const cJSON *op = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	if (cli->json)
		return out_json(cli, op ? op : answer, err);
	if (cli->quiet)
		out_line("%s", json_text(op, "id"));
	out_note(cli, "told to end; `sandbox wait %s` waits for it", o->id);
	return 0;
}

static const struct verb operation_cancel = {
	.name = "cancel",
	.summary = "end a running command",
	.options = cancel_options,
	.positionals = one_positionals,
	.size = sizeof(struct one_options),
	.run = run_cancel,
};

static const struct verb *const subverbs[] = { &operation_list, &operation_inspect, &operation_cancel, NULL };

static const struct example examples[] = {
	{ "sandbox operation list web", "what was asked of one sandbox" },
	{ "sandbox operation cancel 0198c2f4-...", "end a command that was started with --detach" },
	{ NULL, NULL },
};

const struct verb verb_operation = {
	.name = "operation",
	.alias = "op",
	.group = GROUP_SANDBOX,
	.summary = "list, inspect and cancel operations",
	.manual = "An operation is one asked-for change or command. It has a state (pending, running, succeeded, failed) and, once a command ended, "
		  "an outcome (exited, signaled, timeout, lost, not_started, expired, deleted, canceled). The record of a command holds the first "
		  "and last bytes of its output.",
	.examples = examples,
	.subverbs = subverbs,
};
