/* Help texts: see help.h. */
#include "cli/help.h"

#include "cli/cli.h"
#include "shared/base/mem.h"

#include <string.h>

enum { COLUMNS = 80, HELP_COLUMN_MAX = 30 };

bool help_option_shown(const struct option_row *o)
{
	return o->name[0] && !(o->flags & OPT_HIDDEN);
}

bool help_has_options(const struct verb *v)
{
	for (const struct option_row *o = v->options; o && o->name; o++)
		if (help_option_shown(o))
			return true;
	return false;
}

void help_option_label(const struct option_row *o, struct buf *out)
{
	if (o->letter)
		buf_addf(out, "-%c, ", o->letter);
	buf_addf(out, o->flags & OPT_NEGATABLE ? "--[no-]%s" : "--%s", o->name);
	if (o->kind == OPT_KIND_OPTIONAL)
		buf_addf(out, "[=%s]", o->arg);
	else if (o->arg)
		buf_addf(out, " %s", o->arg);
}

static void usage_positional(const struct positional *p, struct buf *out)
{
	switch (p->kind) {
	case POS_ONE:
		buf_addf(out, " %s", p->name);
		break;
	case POS_OPTIONAL:
		buf_addf(out, " [%s]", p->name);
		break;
	case POS_MANY:
		buf_addf(out, " %s...", p->name);
		break;
	case POS_ANY:
		buf_addf(out, " [%s...]", p->name);
		break;
	case POS_COMMAND:
		buf_addf(out, " [--] %s [ARG...]", p->name);
		break;
	case POS_COMMAND_OPTIONAL:
	case POS_COMMAND_DASHED:
		buf_addf(out, " [-- %s [ARG...]]", p->name);
		break;
	}
}

void help_usage(const struct verb *v, const struct verb *parent, struct buf *out)
{
	buf_adds(out, "sandbox");
	if (parent)
		buf_addf(out, " %s", parent->name);
	buf_addf(out, " %s", v->name);
	if (v->subverbs)
		buf_adds(out, " COMMAND");
	if (help_has_options(v))
		buf_adds(out, " [OPTIONS]");
	for (const struct positional *p = v->positionals; p && p->name; p++)
		usage_positional(p, out);
}

static void add_label(const struct option_row *o, size_t column, struct buf *out)
{
	auto_buf label = BUF_INIT;
	if (!o->letter)
		buf_adds(&label, "    ");
	help_option_label(o, &label);
	buf_addf(out, "  %-*s  %s\n", (int)column, label.data, o->help);
}

static size_t label_column(const struct option_row *rows)
{
	size_t widest = 0;
	for (const struct option_row *o = rows; o && o->name && o->name[0]; o++) {
		auto_buf label = BUF_INIT;
		help_option_label(o, &label);
		size_t n = label.len + (o->letter ? 0 : 4);
		if (help_option_shown(o) && n > widest && n <= HELP_COLUMN_MAX)
			widest = n;
	}
	return widest;
}

/* Words at a left margin, broken before the last column. */
static void add_wrapped(const char *word, size_t margin, size_t *column, struct buf *out)
{
	size_t n = strlen(word);
	if (*column + 1 + n >= COLUMNS) {
		buf_addf(out, "\n%*s", (int)margin, "");
		*column = margin;
	} else {
		buf_addc(out, ' ');
		*column += 1;
	}
	buf_adds(out, word);
	*column += n;
}

static const struct option_row *next_shown(const struct option_row *o)
{
	while (o->name && !help_option_shown(o))
		o++;
	return o->name ? o : NULL;
}

static void add_rest(const struct option_row *o, struct buf *out)
{
	static const char intro[] = "More, explained in the manual:";
	size_t column = sizeof(intro) - 1;
	buf_adds(out, intro);
	for (const struct option_row *next; (o = next_shown(o)); o = next) {
		auto_buf word = BUF_INIT;
		next = o + 1;
		buf_addf(&word, o->flags & OPT_NEGATABLE ? "--[no-]%s%s" : "--%s%s", o->name, next_shown(next) ? "," : ".");
		add_wrapped(word.data, 2, &column, out);
	}
	buf_addc(out, '\n');
}

static void add_options(const struct option_row *rows, struct buf *out)
{
	size_t column = label_column(rows);
	for (const struct option_row *o = rows; o && o->name; o++) {
		if (!o->name[0]) {
			add_rest(o + 1, out);
			return;
		}
		if (help_option_shown(o))
			add_label(o, column, out);
	}
}

static void add_examples(const struct verb *v, struct buf *out)
{
	if (!v->examples)
		return;
	buf_adds(out, "\nExamples:\n");
	for (const struct example *e = v->examples; e->line; e++)
		buf_addf(out, "  %s\n", e->line);
}

static void add_subverbs(const struct verb *v, struct buf *out)
{
	buf_addc(out, '\n');
	for (const struct verb *const *s = v->subverbs; *s; s++) {
		if ((*s)->flags & VERB_HIDDEN)
			continue;
		auto_buf usage = BUF_INIT;
		buf_adds(&usage, (*s)->name);
		for (const struct positional *p = (*s)->positionals; p && p->name; p++)
			usage_positional(p, &usage);
		buf_addf(out, "  %-26s %s\n", usage.data, (*s)->summary);
	}
}

static void add_footer(struct buf *out)
{
	size_t column = 5;
	buf_adds(out, "\nAlso:");
	for (const struct option_row *o = cli_globals; o->name; o++) {
		auto_buf word = BUF_INIT;
		if (!help_option_shown(o) || o->flags & OPT_RARE)
			continue;
		if (o->letter)
			buf_addf(&word, "-%c", o->letter);
		else
			buf_addf(&word, "--%s", o->name);
		add_wrapped(buf_str(&word), 2, &column, out);
	}
	buf_adds(out, " -h\n");
}

static void tree_line(const struct verb *v, unsigned depth, struct buf *out)
{
	auto_buf label = BUF_INIT;
	if (v->flags & VERB_HIDDEN)
		return;
	buf_addf(&label, "%*s%s", (int)depth * 2, "", v->name);
	if (v->alias)
		buf_addf(&label, ", %s", v->alias);
	buf_addf(out, "%-20s %s\n", buf_str(&label), v->summary);
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		tree_line(*s, depth + 1, out);
}

void help_tree(struct buf *out)
{
	for (const struct verb *const *v = verbs; *v; v++)
		tree_line(*v, 0, out);
}

void help_verb(const struct verb *v, const struct verb *parent, struct buf *out)
{
	buf_adds(out, "Usage: ");
	help_usage(v, parent, out);
	buf_addf(out, "\n%c%s.", v->summary[0] - 'a' + 'A', v->summary + 1);
	if (v->alias)
		buf_addf(out, " Also called %s.", v->alias);
	buf_addc(out, '\n');
	if (v->details)
		buf_addf(out, "%s\n", v->details);
	if (v->subverbs)
		add_subverbs(v, out);
	if (help_has_options(v)) {
		buf_addc(out, '\n');
		add_options(v->options, out);
	}
	add_examples(v, out);
	add_footer(out);
}

void help_guide(struct buf *out)
{
	buf_adds(out, "sandbox gives code a temporary machine without handing it the host.\n\n"
		      "  sandbox run -- uname -a          create, run, delete: in one step\n");
	for (int g = 0; g < GROUP_COUNT; g++) {
		size_t column = 0;
		bool any = false;
		for (const struct verb *const *v = verbs; *v; v++) {
			if ((*v)->group != (enum verb_group)g || ((*v)->flags & VERB_HIDDEN))
				continue;
			if (!any)
				buf_addf(out, "\n%-17s", verb_group_title((enum verb_group)g));
			if (!any)
				column = 17;
			add_wrapped((*v)->name, 18, &column, out);
			any = true;
		}
	}
	buf_adds(out, "\n\n"
		      "`sandbox help VERB` explains one; `sandbox doctor` checks this machine.\n"
		      "Results are on standard output, the rest on standard error; --json gives JSON.\n");
}
