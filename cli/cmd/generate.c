/* sandbox __generate: writes man pages, completions or docs/cli.md from the command table. For `make generate` only. */
#include "cli/command.h"

#include "cli/generate.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <string.h>

struct options {
	const char *what, *dir;
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "WHAT", struct options, what, "man, bash, zsh, fish or md"),
	POS(POS_ONE, WHAT_FILE, "DIR", struct options, dir, "an existing directory"),
	POS_END,
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	static const struct {
		const char *what;
		int (*generate)(const char *dir, struct error *err);
	} kinds[] = {
		{ "man", generate_man }, { "bash", generate_bash }, { "zsh", generate_zsh }, { "fish", generate_fish }, { "md", generate_md },
	};
	const struct options *o = opaque;
	(void)cli;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i].what, o->what) == 0)
			return kinds[i].generate(o->dir, err);
	return error_set(err, ERR_INVALID, "'%.40s' is not one of man, bash, zsh, fish, md", o->what);
}

int generate_write(const char *dir, const char *name, const struct buf *text, struct error *err)
{
	auto_free char *path = xasprintf("%s/%s", dir, name);
	return io_write_file_atomic(path, buf_str(text), text->len, 0644, false, err);
}

const struct verb verb_generate = {
	.name = "__generate",
	.group = GROUP_SYSTEM,
	.flags = VERB_HIDDEN | VERB_NO_SETTINGS,
	.summary = "write generated files",
	.positionals = positionals,
	.size = sizeof(struct options),
	.run = run,
};
