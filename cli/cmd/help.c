/* sandbox help: the guide, or one verb's page. */
#include "cli/command.h"

#include "cli/help.h"
#include "cli/output.h"
#include "shared/base/parse.h"

#include <string.h>

struct options {
	struct strv path;
};

static const struct positional positionals[] = {
	POS(POS_ANY, WHAT_VERB, "VERB", struct options, path, "the command to explain"),
	POS_END,
};

static int unknown(const char *word, struct error *err)
{
	char shown[80];
	text_escape(word, strlen(word), shown, sizeof(shown));
	return error_set(err, ERR_INVALID, "'%s' is not a command", shown);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_buf text = BUF_INIT;
	const struct verb *v = NULL, *parent = NULL;
	(void)cli;
	for (size_t i = 0; i < o->path.len; i++) {
		const struct verb *const *table = !v ? verbs : v->subverbs;
		if (!table)
			return unknown(o->path.items[i], err);
		parent = v;
		v = verb_find(table, o->path.items[i]);
		if (!v)
			return unknown(o->path.items[i], err);
	}
	if (v)
		help_verb(v, parent, &text);
	else
		help_guide(&text);
	fputs(buf_str(&text), stdout);
	return 0;
}

const struct verb verb_help = {
	.name = "help",
	.group = GROUP_SYSTEM,
	.flags = VERB_NO_SETTINGS,
	.summary = "explain a command",
	.positionals = positionals,
	.size = sizeof(struct options),
	.run = run,
};
