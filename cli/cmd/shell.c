/* sandbox shell: a terminal session in a sandbox. */
#include "cli/command.h"

#include "cli/launch.h"
#include "shared/base/mem.h"

struct options {
	struct launch_options launch;
	const char *sandbox;
	struct words command;
};

static const struct options defaults = { .launch = { LAUNCH_DEFAULTS, .tty = true } };

static const struct option_row options[] = {
	OPT_SECRETS('e', "env", struct options, launch.env, "NAME[=VALUE]", "variable; NAME alone takes the local value, if set"),
	OPT_LIST(0, "env-file", struct options, launch.env_file, "FILE", "read NAME=VALUE lines, literally (# comments)"),
	OPT_TEXT('w', "cwd", struct options, launch.cwd, "DIR", "working directory, an absolute path"),
	OPT_TEXT('u', "user", struct options, launch.user, "USER[:GROUP]", "run as this user, by name or number"),
	OPT_TEXT(0, "escape", struct options, launch.escape, "KEY", "escape key, or none (default ~)"),
	OPT_REST,
	OPT_INT(0, "status-fd", struct options, launch.status_fd, "N", 0, 1 << 20, "write how it ended as a JSON line to descriptor N"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, sandbox, "id, name, or a unique part of the id"),
	POS(POS_COMMAND_OPTIONAL, WHAT_COMMAND, "COMMAND", struct options, command, "instead of a shell"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox shell web", "bash where there is one, else sh" },
	{ "sandbox shell web -- top", "a program that wants a terminal" },
	{ NULL, NULL },
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	static char bash[] = "bash";
	char *shell[] = { bash, NULL };
	struct words words = { .items = shell, .len = 1 };
	bool given = o->command.len > 0;
	struct launch l = {
		.sandbox = o->sandbox, .options = &o->launch, .argv = given ? &o->command : &words, .shell_fallback = !given,
	};
	if (cli->json)
		return error_set(err, ERR_INVALID, "shell has no JSON output; use exec --json");
	return launch_run(cli, &l, err);
}

const struct verb verb_shell = {
	.name = "shell",
	.group = GROUP_RUN,
	.flags = VERB_STATUS_OF_COMMAND,
	.summary = "open a terminal session in a sandbox",
	.details = "~. after a newline leaves, ~^Z suspends, ~~ sends one ~ (--escape).",
	.manual = "Runs bash, or sh where there is none, on a terminal of the local one's size; later changes follow. The local terminal is put "
		  "back as it was on every ending. Only the shell's own end ends the session, with its status; after a lost connection, an "
		  "expired or deleted sandbox it is 125 and the reason is printed. TERM and HUP sent to this program end the session.\n"
		  "\n" LAUNCH_MANUAL_TTY,
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
