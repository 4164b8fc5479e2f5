/* sandbox diff: what was changed in a workspace since it was filled. */
#include "cli/command.h"

#include "cli/changes.h"
#include "cli/output.h"
#include "shared/json/json.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

struct options {
	struct changes_request ask;
	int64_t max_size;
	bool stat;
};

static const struct options defaults = { .max_size = (int64_t)CHANGES_MAX_DEFAULT_MIB << 20 };

static const struct option_row options[] = {
	OPT_FLAG(0, "stat", struct options, stat, "only how much changed in which file"),
	OPT_TEXT(0, "base", struct options, ask.base, "DIR", "compare with DIR here instead of what was uploaded"),
	OPT_SIZE(0, "max-size", struct options, max_size, "SIZE", 1 << 20, INT64_MAX, "of all files read together (default 1g)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ask.sandbox, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox diff fixer", "as a patch, to look at" },
	{ "sandbox diff --stat fixer", "which files, and how much" },
	{ "sandbox diff --base . fixer", "against this directory as it is now" },
	{ NULL, NULL },
};

static int print(struct cli *cli, const struct options *o, const struct changes *c, struct error *err)
{
	auto_json *j = NULL;
	if (cli->json)
		return changes_json(c, &j, err) != 0 ? -1 : out_json(cli, j, err);
	if (changes_none(c)) {
		out_note(cli, "nothing was changed in %s", changes_name(c));
		return 0;
	}
	return o->stat ? changes_summary(cli, c, STDOUT_FILENO, err) : changes_patch(c, STDOUT_FILENO, cli->out_tty, err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	struct changes *c;
	o->ask.max_bytes = (uint64_t)o->max_size;
	if (changes_read(cli, &o->ask, &c, err) != 0)
		return -1;
	int rc = print(cli, o, c, err);
	changes_free(c);
	/* A pager that was left is no failure. */
	return rc != 0 && err->sys == EPIPE ? 128 + SIGPIPE : rc;
}

const struct verb verb_diff = {
	.name = "diff",
	.group = GROUP_INSIDE,
	.summary = "show what was changed in a sandbox's workspace",
	.details = "Compares /workspace with what `sandbox agent run` uploaded, or with --base DIR,\nand prints a git patch. Nothing is changed here.",
	.manual = "What was uploaded is remembered on this machine (below the state directory, until the sandbox is deleted), and compared by this machine's git "
		  "with what is in /workspace now; the image needs no git. Nothing that a sandbox wrote is configuration to git here: no hooks, filters, attributes "
		  "or settings of it are looked at, and its files get no names on this machine.\n"
		  "\n"
		  "Left out are .git at any depth (the files count, not what was committed), the agent's home /workspace/.home, and what the uploaded .gitignore "
		  "files name; those that the agent wrote do not count. Empty directories, times and owners are not part of a patch.\n"
		  "\n"
		  "On a terminal control characters are shown escaped; elsewhere the patch is exact, as `git apply` takes it. Read it before you apply it: it is "
		  "written by whoever worked in the sandbox. --json gives files and numbers.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
