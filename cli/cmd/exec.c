/* sandbox exec: a command in a running sandbox, as if it ran here. */
#include "cli/command.h"

#include "cli/launch.h"
#include "shared/base/mem.h"

struct options {
	struct launch_options launch;
	bool detach, wait;
	const char *sandbox;
	struct words command;
};

static const struct options defaults = { .launch = { LAUNCH_DEFAULTS }, .wait = true };

static const struct option_row options[] = {
	LAUNCH_ROWS_MAIN(struct options, launch),
	OPT_FLAG('d', "detach", struct options, detach, "start it, print its operation's id, do not wait"),
	OPT_REST,
	{ .name = "wait", .kind = OPT_KIND_FLAG, .flags = OPT_NEGATABLE | OPT_HIDDEN, .offset = OPT_OFFSET(struct options, wait, bool),
	  .help = "--no-wait is --detach" },
	LAUNCH_ROWS_REST(struct options, launch),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, sandbox, "id, name, or a unique part of the id"),
	POS(POS_COMMAND, WHAT_COMMAND, "COMMAND", struct options, command, "program and arguments"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox exec web -- ls -l /workspace", "run a program" },
	{ "tar c src | sandbox exec web -- tar x -C /workspace", "pipe into it" },
	{ "sandbox exec --timeout 30s web -- sh -c 'make && make test'", "a shell line with a limit" },
	{ NULL, NULL },
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	struct launch l = {
		.sandbox = o->sandbox, .options = &o->launch, .argv = &o->command, .detach = o->detach || !o->wait,
	};
	return launch_run(cli, &l, err);
}

const struct verb verb_exec = {
	.name = "exec",
	.group = GROUP_RUN,
	.flags = VERB_STATUS_OF_COMMAND,
	.summary = "run a command in a sandbox",
	.manual = LAUNCH_MANUAL "\n\n" LAUNCH_MANUAL_TTY
		  "\n\n"
		  "With --detach the command outlives this program; `sandbox attach` shows it and `sandbox operation` lists it. With --json the "
		  "output is collected (up to 16 MiB of each stream) and printed in the operation's record; bytes that are not UTF-8 are "
		  "carried in stdout_base64 and stderr_base64.\n"
		  "\n"
		  "--status-fd writes one line: {outcome, code, signal, oom_killed, stdout_bytes, stderr_bytes, operation, error}.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
