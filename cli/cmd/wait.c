/* sandbox wait: until an operation ended. */
#include "cli/command.h"

#include "cli/create.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>

struct options {
	const char *id;
	int64_t timeout_ms;
};

static const struct options defaults = { .timeout_ms = 300 * 1000 };

static const struct option_row options[] = {
	OPT_DURATION('t', "timeout", struct options, timeout_ms, "TIME", 1000, 7 * 24 * 3600 * 1000LL, "give up after this long (default 5m)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_OPERATION, "OPERATION", struct options, id, "id of the operation to wait for"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox wait 0198c2f4-... --timeout 900", "at most a quarter of an hour" },
	{ NULL, NULL },
};

static int interrupted(struct cli *cli, const char *id, struct error *err)
{
	cli_hint(cli, "the operation goes on; look again with `sandbox wait %s`", id);
	error_set(err, ERR_TIMEOUT, "interrupted while waiting for operation %s; its outcome is unknown", id);
	out_error(cli, err);
	return 128 + interrupt_signal();
}

static void print_ended(struct cli *cli, const cJSON *op)
{
	const cJSON *output = cJSON_GetObjectItemCaseSensitive(op, "output");
	const char *outcome = json_text(op, "outcome");
	if (cli->quiet)
		out_line("%s", json_text(op, "id"));
	else if (cJSON_IsObject(output))
		out_line("%s  %s  exit status %.0f", json_text(op, "state"), outcome, json_number(output, "exit_code", 0));
	else
		out_line("%s", json_text(op, "state"));
}

/* A failed operation is reported by its text and its kind; a command's own status is a result, not an error of ours. */
static int ended(struct cli *cli, const cJSON *op, struct error *err)
{
	bool failed = strcmp(json_text(op, "state"), "failed") == 0;
	bool command = cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(op, "output"));
	if (cli->json) {
		if (out_json(cli, op, err) != 0)
			return -1;
	} else if (!failed || command) {
		print_ended(cli, op);
	}
	if (!failed)
		return 0;
	json_operation_error(op, err);
	if (!cli->json && !command)
		return -1;
	int status = command || err->code == ERR_NONE ? 1 : error_exit_status(err->code);
	if (!cli->json)
		out_note(cli, "%s", err->message);
	return status;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *op = NULL;
	interrupt_watch();
	if (operation_wait(cli, o->id, "waiting", o->timeout_ms, &op, err) != 0)
		return err->sys == EINTR ? interrupted(cli, o->id, err) : -1;
	return ended(cli, op, err);
}

const struct verb verb_wait = {
	.name = "wait",
	.group = GROUP_SANDBOX,
	.summary = "wait until an operation ended",
	.manual = "Prints the state the operation ended in. The exit status is 0 when it succeeded and that of the failure's kind when it failed; "
		  "for a command that ran and did not succeed it is 1 (the command's own status is in the output, and in "
		  "output.exit_code with --json). It is 7 when the time passed: the operation goes on and its outcome is unknown. A server "
		  "that restarts meanwhile is waited for.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
