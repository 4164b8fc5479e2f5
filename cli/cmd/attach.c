/* sandbox attach: the output of a command that is running or has ended, from its spool. Read-only. */
#include "cli/command.h"

#include "cli/ending.h"
#include "cli/follow.h"
#include "shared/base/mem.h"

struct options {
	struct follow_options follow;
	const char *operation;
};

static const struct option_row options[] = {
	OPT_CALL(0, "since", struct options, follow, "WHEN", follow_parse_since, "a time, how long ago, or bytes to skip: OUT[,ERR]"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_OPERATION, "OPERATION", struct options, operation, "as exec --detach printed it"),
	POS_END,
};

static const struct example examples[] = {
	{ "op=$(sandbox exec -d web -- make)", "start something" },
	{ "sandbox attach $op", "its output from the beginning, until it ends" },
	{ NULL, NULL },
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	struct stream_result r;
	if (cli->json)
		return error_set(err, ERR_INVALID, "attach has no JSON output; use `sandbox operation inspect`");
	o->follow.operation = o->operation;
	if (follow_run(cli, &o->follow, &r, err) != 0) {
		if (err->code == ERR_NOT_FOUND)
			cli_hint(cli, "`sandbox operation list SANDBOX` shows a sandbox's commands; `sandbox shell` opens a terminal in one");
		return -1;
	}
	auto_free char *text = ending_text(&r, 0);
	int status = ending_status(&r);
	if (text)
		ending_say(text);
	result_done(&r.result);
	return status;
}

const struct verb verb_attach = {
	.name = "attach",
	.group = GROUP_RUN,
	.flags = VERB_STATUS_OF_COMMAND,
	.summary = "show the output of a command, until it ends",
	.manual = "Replays what is kept of the command's output and follows it. Standard output and error come out apart. Of a command that had no "
		  "reader, only the last part may be kept; how many bytes are missing is said. Leaving (Ctrl-C) does not touch the command. The "
		  "exit status is the command's, as with exec.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
