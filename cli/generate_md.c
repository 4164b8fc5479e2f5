/* docs/cli.md from the command table. */
#include "cli/generate.h"

#include "cli/help.h"
#include "shared/base/mem.h"

#include <ctype.h>
#include <string.h>

/* Table cells: a bar would end one. */
static void cell(const char *text, struct buf *out)
{
	for (; *text; text++) {
		if (*text == '|')
			buf_addc(out, '\\');
		buf_addc(out, *text);
	}
}

static void options_table(const struct option_row *rows, struct buf *out)
{
	bool any = false;
	for (const struct option_row *o = rows; o && o->name; o++) {
		auto_buf label = BUF_INIT;
		if (!help_option_shown(o))
			continue;
		if (!any)
			buf_adds(out, "| option | |\n| --- | --- |\n");
		any = true;
		help_option_label(o, &label);
		buf_adds(out, "| `");
		cell(buf_str(&label), out);
		buf_adds(out, "` | ");
		cell(o->help, out);
		buf_adds(out, " |\n");
	}
	if (any)
		buf_addc(out, '\n');
}

static void usage_block(const struct verb *v, const struct verb *parent, struct buf *out)
{
	buf_adds(out, "```\n");
	help_usage(v, parent, out);
	buf_adds(out, "\n```\n\n");
}

static void sentence(const char *text, struct buf *out)
{
	buf_addf(out, "%c%s.\n\n", toupper((unsigned char)text[0]), text + 1);
}

static void examples_block(const struct verb *v, struct buf *out)
{
	if (!v->examples)
		return;
	buf_adds(out, "```sh\n");
	for (const struct example *e = v->examples; e->line; e++)
		buf_addf(out, "%s%s%s\n", e->line, e->text ? "   # " : "", e->text ? e->text : "");
	buf_adds(out, "```\n\n");
}

static void verb_section(const struct verb *v, struct buf *out)
{
	buf_addf(out, "### sandbox %s\n\n", v->name);
	sentence(v->summary, out);
	if (!v->subverbs)
		usage_block(v, NULL, out);
	if (v->details)
		buf_addf(out, "%s\n\n", v->details);
	if (v->manual)
		buf_addf(out, "%s\n\n", v->manual);
	options_table(v->options, out);
	for (const struct verb *const *s = v->subverbs; s && *s; s++) {
		buf_addf(out, "#### sandbox %s %s\n\n", v->name, (*s)->name);
		sentence((*s)->summary, out);
		usage_block(*s, v, out);
		if ((*s)->details)
			buf_addf(out, "%s\n\n", (*s)->details);
		options_table((*s)->options, out);
	}
	examples_block(v, out);
}

int generate_md(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	buf_adds(&out, "# The command line\n\nGenerated from the command table by `make generate`; the same text is in the manual pages.\n\n"
		       "Results are on standard output, everything for people on standard error. `--json` prints exactly one JSON value.\n\n"
		       "## Options every command takes\n\n");
	options_table(cli_globals, &out);
	buf_adds(&out, "## Exit status\n\n"
		       "`run`, `exec`, `shell` and `attach`: the command's own; 128 + n for signal n; 124 its time-out; 125 the tool itself failed or "
		       "the outcome is unknown; 126 not executable; 127 not found.\n\n"
		       "Every other command: 0 ok, 1 failed, 2 wrong use, 3 not found, 4 not allowed, 5 conflict, 6 no capacity, 7 timed out waiting "
		       "(the outcome is unknown), 8 the server cannot be reached.\n\n");
	for (int g = 0; g < GROUP_COUNT; g++) {
		buf_addf(&out, "## %s\n\n", verb_group_title((enum verb_group)g));
		for (const struct verb *const *v = verbs; *v; v++)
			if ((*v)->group == (enum verb_group)g && !((*v)->flags & VERB_HIDDEN))
				verb_section(*v, &out);
	}
	while (out.len > 1 && out.data[out.len - 2] == '\n')
		out.data[--out.len] = '\0';
	return generate_write(dir, "cli.md", &out, err);
}
