/* sandbox collect: what was changed in a workspace, as a patch file. */
#include "cli/command.h"

#include "cli/changes.h"
#include "cli/output.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
	struct changes_request ask;
	int64_t max_size;
	const char *output;
};

static const struct options defaults = { .max_size = (int64_t)CHANGES_MAX_DEFAULT_MIB << 20 };

static const struct option_row options[] = {
	OPT_TEXT('o', "output", struct options, output, "FILE", "the patch, replaced if it is there (default NAME.patch)"),
	OPT_TEXT(0, "base", struct options, ask.base, "DIR", "compare with DIR here instead of what was uploaded"),
	OPT_SIZE(0, "max-size", struct options, max_size, "SIZE", 1 << 20, INT64_MAX, "of all files read together (default 1g)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ask.sandbox, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox collect fixer", "into fixer.patch, which must not be there yet" },
	{ "sandbox collect -o /tmp/p fixer && git apply --check /tmp/p", "whether it fits here" },
	{ NULL, NULL },
};

/* Complete or not there; a name of our own choice replaces nothing. */
static int write_patch(const struct changes *c, const char *path, bool replace, struct error *err)
{
	auto_free char *aside = xasprintf("%s.%ld.tmp", path, (long)getpid());
	auto_close int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, "making %s", aside);
	int rc = changes_patch(c, fd, false, err);
	if (rc == 0 && replace ? rename(aside, path) != 0 : rc == 0 && link(aside, path) != 0)
		rc = errno == EEXIST ? error_set(err, ERR_CONFLICT, "%s is there already; name another file, or the same to replace it, with --output", path) :
				       error_errno(err, "naming the patch %s", path);
	if (rc != 0 || !replace)
		unlink(aside);
	return rc;
}

static int say(struct cli *cli, const struct changes *c, const char *path, struct error *err)
{
	auto_json *j = NULL;
	if (cli->json) {
		if (changes_json(c, &j, err) != 0)
			return -1;
		json_add_str(j, "patch", path);
		return out_json(cli, j, err);
	}
	if (!cli->quiet && changes_summary(cli, c, STDERR_FILENO, err) != 0)
		return -1;
	out_note(cli, "read it, then: git apply %s", path);
	out_line("%s", path);
	return 0;
}

static int collect(struct cli *cli, const struct options *o, const struct changes *c, struct error *err)
{
	auto_free char *own = xasprintf("%s.patch", changes_name(c));
	const char *path = o->output ? o->output : own;
	if (changes_none(c) && !cli->json) {
		out_note(cli, "nothing was changed in %s; no file was written", changes_name(c));
		return 0;
	}
	return write_patch(c, path, o->output != NULL, err) != 0 ? -1 : say(cli, c, path, err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	struct changes *c;
	o->ask.max_bytes = (uint64_t)o->max_size;
	if (changes_read(cli, &o->ask, &c, err) != 0)
		return -1;
	int rc = collect(cli, o, c, err);
	changes_free(c);
	return rc;
}

const struct verb verb_collect = {
	.name = "collect",
	.group = GROUP_INSIDE,
	.summary = "fetch what was changed in a workspace as a patch file",
	.details = "The patch of `sandbox diff` in a file that only you can read. Nothing of it is\napplied: read it, then use `git apply`.",
	.manual = "Its name is printed. Without changes no file is written (with --json an empty one, so that a script finds it).",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
