/* sandbox kill: end running commands by their operations. */
#include "cli/command.h"

#include "cli/cancel.h"
#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

struct options {
	int sig;
	struct strv operations;
};

static const struct option_row options[] = {
	OPT_CALL('s', "signal", struct options, sig, "SIGNAL", cancel_parse_signal, "name or number (default TERM, then KILL)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_MANY, WHAT_OPERATION, "OPERATION", struct options, operations, "as exec --detach printed it"),
	POS_END,
};

static const struct example examples[] = {
	{ "op=$(sandbox exec -d web -- sleep 600)", "start something" },
	{ "sandbox kill $op", "end it, with everything it started" },
	{ NULL, NULL },
};

static int kill_one(struct cli *cli, const char *id, int sig, cJSON *list, struct error *err)
{
	auto_json *answer = NULL;
	if (!id[0])
		return error_set(err, ERR_INVALID, "the operation's id is empty");
	if (cancel_operation(cli, id, sig, &answer, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(answer, "operation");
	if (op)
		cJSON_AddItemToArray(list, op);
	if (!cli->json)
		out_line("%s", id);
	return 0;
}

/* Every one is tried; the first failure decides the status. */
static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *list = cJSON_CreateArray();
	struct error first = ERROR_INIT;
	for (size_t i = 0; i < o->operations.len; i++) {
		struct error e = ERROR_INIT;
		if (kill_one(cli, o->operations.items[i], o->sig, list, &e) == 0)
			continue;
		if (e.code == ERR_NONE || first.code == ERR_NONE)
			first = first.code == ERR_NONE ? e : first;
		else
			out_warn(cli, "%s", e.message);
	}
	if (cli->dry_shown)
		return error_set(err, first.code, "%s", first.message);
	if (cli->json && out_json(cli, list, err) != 0)
		return -1;
	if (first.code == ERR_NONE)
		return 0;
	if (first.code == ERR_NOT_FOUND)
		cli_hint(cli, "`sandbox operation list SANDBOX` shows a sandbox's commands; `sandbox delete` ends a sandbox");
	*err = first;
	return -1;
}

const struct verb verb_kill = {
	.name = "kill",
	.group = GROUP_INSIDE,
	.summary = "end running commands",
	.manual = "Without --signal the command's whole tree gets TERM and, after 2 seconds, KILL. Prints the operations that were told; `sandbox "
		  "wait` waits for their end.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
