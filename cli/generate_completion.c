/* Completions for zsh and fish from the command table. Ids, names and paths are asked from the program itself, which starts no daemon for it. */
#include "cli/completion.h"

#include "cli/generate.h"
#include "cli/help.h"
#include "shared/base/mem.h"

#include <string.h>

#define GENERATED "# Generated from the command table: edit cli/, then `make generate`.\n"

bool completion_shown(const struct verb *v)
{
	return !(v->flags & VERB_HIDDEN);
}

/* What completes a positional: a word the shell code below knows. */
const char *completion_what(enum pos_what w)
{
	switch (w) {
	case WHAT_SANDBOX:
		return "sandbox";
	case WHAT_OPERATION:
		return "operation";
	case WHAT_IMAGE:
		return "image";
	case WHAT_CONTEXT:
		return "context";
	case WHAT_PATH:
		return "path";
	case WHAT_TENANT:
		return "tenant";
	case WHAT_NODE:
		return "node";
	case WHAT_SECRET:
		return "secret";
	case WHAT_TOKEN:
		return "token";
	case WHAT_TUNNEL:
		return "tunnel";
	case WHAT_AGENT:
		return "agent";
	case WHAT_CLIENT:
		return "client";
	case WHAT_SETTING:
		return "setting";
	case WHAT_FILE:
		return "file";
	case WHAT_VERB:
		return "verb";
	case WHAT_COMMAND:
	case WHAT_TEXT:
		break;
	}
	return "none";
}

/* What completes an option's value. */
const char *completion_value(const struct option_row *o)
{
	static const struct {
		const char *arg, *word;
	} rows[] = { { "FILE", "file" }, { "DIR", "file" }, { "IMAGE", "image" }, { "TENANT", "tenant" }, { "SIGNAL", "signal" } };
	static const char *const named[] = { "context", "tenant", "secret", "client" };
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strcmp(rows[i].arg, o->arg) == 0)
			return rows[i].word;
	for (size_t i = 0; i < ARRAY_LEN(named); i++)
		if (strcmp(named[i], o->name) == 0)
			return o->name;
	return "none";
}

bool completion_repeats(const struct positional *p)
{
	return p->kind == POS_MANY || p->kind == POS_ANY || p->kind == POS_COMMAND || p->kind == POS_COMMAND_OPTIONAL ||
	       p->kind == POS_COMMAND_DASHED;
}

/* What the program itself is asked for. */
bool completion_asked(enum pos_what w)
{
	return w != WHAT_TEXT && w != WHAT_FILE && w != WHAT_VERB && w != WHAT_COMMAND;
}

void completion_names(const struct verb *const *table, struct buf *out)
{
	bool any = false;
	for (; *table; table++) {
		if (!completion_shown(*table))
			continue;
		buf_addf(out, "%s%s", any ? " " : "", (*table)->name);
		any = true;
	}
}

/* --- zsh -------------------------------------------------------------------------------------------------------- */

/* Text inside '…' and inside an _arguments spec: quotes and brackets would end it. */
static void zsh_text(const char *text, struct buf *out)
{
	for (; *text; text++) {
		if (*text == '\'')
			buf_adds(out, "'\\''");
		else if (strchr("[]:\\", *text))
			buf_addf(out, "\\%c", *text);
		else
			buf_addc(out, *text);
	}
}

static void zsh_value(const struct option_row *o, struct buf *out)
{
	if (!o->arg)
		return;
	buf_addf(out, ":%s:", o->arg);
	if (o->kind == OPT_KIND_WORD) {
		buf_addc(out, '(');
		for (const char *p = o->words; *p; p++)
			buf_addc(out, *p == '|' ? ' ' : *p);
		buf_addc(out, ')');
	} else {
		const char *word = completion_value(o);
		if (strcmp(word, "file") == 0)
			buf_adds(out, strcmp(o->arg, "DIR") == 0 ? "_files -/" : "_files");
		else if (strcmp(word, "none") != 0)
			buf_addf(out, "_sandbox_what_%s", word);
	}
}

static void zsh_spec(const struct option_row *o, const char *dashes, const char *name, bool value, struct buf *out)
{
	buf_addf(out, " \\\n\t\t'%s%s%s%s[", o->kind == OPT_KIND_LIST ? "*" : "", dashes, name,
		 o->kind == OPT_KIND_OPTIONAL ? "=-" : o->arg && dashes[1] ? "=" : "");
	zsh_text(o->help, out);
	buf_addc(out, ']');
	if (value)
		zsh_value(o, out);
	buf_addc(out, '\'');
}

static void zsh_options(const struct option_row *rows, struct buf *out)
{
	for (const struct option_row *o = rows; o && o->name; o++) {
		char one[2] = { o->letter, '\0' };
		if (!help_option_shown(o))
			continue;
		zsh_spec(o, "--", o->name, true, out);
		if (o->letter)
			zsh_spec(o, "-", one, true, out);
		if (o->flags & OPT_NEGATABLE) {
			auto_free char *negated = xasprintf("no-%s", o->name);
			zsh_spec(o, "--", negated, false, out);
		}
	}
}

static void zsh_positionals(const struct verb *v, struct buf *out)
{
	int at = 1;
	for (const struct positional *p = v->positionals; p && p->name; p++, at++) {
		auto_free char *action = completion_asked(p->what)                                     ? xasprintf("_sandbox_what_%s", completion_what(p->what))
					 : p->what == WHAT_VERB                             ? xstrdup("_sandbox_verb")
					 : p->what == WHAT_FILE || p->what == WHAT_COMMAND ? xstrdup("_files")
											   : xstrdup("");
		if (completion_repeats(p))
			buf_addf(out, " \\\n\t\t'*:%s:%s'", p->name, action);
		else
			buf_addf(out, " \\\n\t\t'%d:%s:%s'", at, p->name, action);
	}
}

static void zsh_table(const char *name, const struct verb *const *table, struct buf *out)
{
	buf_addf(out, "%s() {\n\tlocal -a names\n\tnames=(", name);
	for (; *table; table++) {
		if (!completion_shown(*table))
			continue;
		buf_addf(out, "\n\t\t'%s:", (*table)->name);
		zsh_text((*table)->summary, out);
		buf_addc(out, '\'');
	}
	buf_adds(out, "\n\t)\n\t_describe command names\n}\n\n");
}

static void zsh_verb(const struct verb *v, const struct verb *parent, struct buf *out)
{
	auto_free char *name = parent ? xasprintf("%s_%s", parent->name, v->name) : xstrdup(v->name);
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		zsh_verb(*s, v, out);
	if (v->subverbs) {
		auto_free char *table = xasprintf("_sandbox_%s_commands", name);
		zsh_table(table, v->subverbs, out);
		buf_addf(out, "_sandbox_%s() {\n\tlocal line state\n\t_arguments -C '1: :_sandbox_%s_commands' '*:: :->rest'\n"
			      "\t[[ $state == rest ]] && (( $+functions[_sandbox_%s_$line[1]] )) && _sandbox_%s_$line[1]\n}\n\n",
			 name, name, name, name);
		return;
	}
	buf_addf(out, "_sandbox_%s() {\n\t_arguments -s", name);
	zsh_options(v->options, out);
	zsh_options(cli_globals, out);
	zsh_positionals(v, out);
	buf_adds(out, "\n}\n\n");
}

static const char zsh_main[] =
	"# The words the program itself knows; those that end in / or : go on.\n"
	"_sandbox_ask() {\n"
	"\tlocal -a all more\n"
	"\tall=(${(f)\"$(_call_program sandbox ${program:-sandbox} __complete $1 ${(q)PREFIX} 2>/dev/null </dev/null)\"})\n"
	"\tmore=(${(M)all:#*[/:]})\n"
	"\tall=(${all:#*[/:]})\n"
	"\tcompadd -a all\n"
	"\tcompadd -S '' -a more\n"
	"}\n"
	"_sandbox_what_sandbox() { _sandbox_ask sandbox }\n"
	"_sandbox_what_operation() { _sandbox_ask operation }\n"
	"_sandbox_what_image() { _sandbox_ask image }\n"
	"_sandbox_what_context() { _sandbox_ask context }\n"
	"_sandbox_what_tenant() { _sandbox_ask tenant }\n"
	"_sandbox_what_node() { _sandbox_ask node }\n"
	"_sandbox_what_secret() { _sandbox_ask secret }\n"
	"_sandbox_what_token() { _sandbox_ask token }\n"
	"_sandbox_what_tunnel() { _sandbox_ask tunnel }\n"
	"_sandbox_what_agent() { _sandbox_ask agent }\n"
	"_sandbox_what_client() { _sandbox_ask client }\n"
	"_sandbox_what_setting() { _sandbox_ask setting }\n"
	"_sandbox_what_signal() { _sandbox_ask signal }\n"
	"_sandbox_what_path() {\n"
	"\t[[ $PREFIX == *:* ]] || _files\n"
	"\t_sandbox_ask path\n"
	"}\n"
	"\n"
	"_sandbox() {\n"
	"\tlocal program=$words[1] line state\n"
	"\t_arguments -C '1: :_sandbox_verb' '*:: :->rest'\n"
	"\tif [[ $state == rest ]] && (( $+functions[_sandbox_$line[1]] )); then\n"
	"\t\t_sandbox_$line[1]\n"
	"\tfi\n"
	"}\n"
	"\n"
	"_sandbox \"$@\"\n";

int generate_zsh(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	buf_adds(&out, "#compdef sandbox\n" GENERATED "\n");
	zsh_table("_sandbox_verb", verbs, &out);
	for (const struct verb *const *v = verbs; *v; v++)
		if (completion_shown(*v))
			zsh_verb(*v, NULL, &out);
	buf_adds(&out, zsh_main);
	return generate_write(dir, "_sandbox", &out, err);
}

/* --- fish ------------------------------------------------------------------------------------------------------- */

static void fish_text(const char *text, struct buf *out)
{
	buf_addc(out, '\'');
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			buf_addc(out, '\\');
		buf_addc(out, *text);
	}
	buf_addc(out, '\'');
}

static void fish_option(const char *condition, const struct option_row *o, struct buf *out)
{
	buf_addf(out, "complete -c sandbox -n '%s' -l %s", condition, o->name);
	if (o->letter)
		buf_addf(out, " -s %c", o->letter);
	const char *word = o->arg && o->kind != OPT_KIND_OPTIONAL ? completion_value(o) : NULL;
	if (word)
		buf_adds(out, strcmp(word, "file") == 0 ? " -rF" : " -x");
	if (word && strcmp(word, "file") != 0 && strcmp(word, "none") != 0)
		buf_addf(out, " -a '(__sandbox_ask %s)'", word);
	if (o->kind == OPT_KIND_WORD) {
		buf_adds(out, " -a '");
		for (const char *p = o->words; *p; p++)
			buf_addc(out, *p == '|' ? ' ' : *p);
		buf_addc(out, '\'');
	}
	buf_adds(out, " -d ");
	fish_text(o->help, out);
	buf_addc(out, '\n');
	if (!(o->flags & OPT_NEGATABLE))
		return;
	buf_addf(out, "complete -c sandbox -n '%s' -l no-%s -d ", condition, o->name);
	fish_text(o->help, out);
	buf_addc(out, '\n');
}

/* The source of a positional's words; empty for those nobody can know. */
static void fish_source(const struct positional *p, int at, const char *condition, struct buf *out)
{
	const char *when = completion_repeats(p) ? "__sandbox_from" : "__sandbox_at";
	if (completion_asked(p->what))
		buf_addf(out, "complete -c sandbox -n '%s; and %s %d' %s -a '(__sandbox_ask %s)'\n", condition, when, at,
			 p->what == WHAT_PATH ? "-F" : "-f", completion_what(p->what));
	else if (p->what == WHAT_FILE)
		buf_addf(out, "complete -c sandbox -n '%s; and %s %d' -F\n", condition, when, at);
}

static void fish_verb(const struct verb *v, const struct verb *parent, struct buf *out)
{
	auto_buf condition = BUF_INIT;
	if (parent)
		buf_addf(&condition, "__fish_seen_subcommand_from %s; and ", parent->name);
	buf_addf(&condition, "__fish_seen_subcommand_from %s", v->name);
	if (v->alias)
		buf_addf(&condition, " %s", v->alias);
	for (const struct option_row *o = v->options; o && o->name; o++)
		if (help_option_shown(o))
			fish_option(condition.data, o, out);
	int at = parent ? 2 : 1;
	for (const struct positional *p = v->positionals; p && p->name; p++, at++)
		fish_source(p, at, condition.data, out);
	for (const struct verb *const *s = v->subverbs; s && *s; s++) {
		buf_addf(out, "complete -c sandbox -n '%s; and not __fish_seen_subcommand_from ", condition.data);
		completion_names(v->subverbs, out);
		buf_addf(out, "' -a %s -d ", (*s)->name);
		fish_text((*s)->summary, out);
		buf_addc(out, '\n');
		fish_verb(*s, v, out);
	}
}

static const char fish_functions[] =
	"# Words before the present one that are no options, the program not counted.\n"
	"function __sandbox_words\n"
	"\tset -l n 0\n"
	"\tfor w in (commandline -opc)[2..-1]\n"
	"\t\tstring match -q -- '-*' $w; or set n (math $n + 1)\n"
	"\tend\n"
	"\techo $n\n"
	"end\n"
	"\n"
	"function __sandbox_at\n"
	"\ttest (__sandbox_words) -eq $argv[1]\n"
	"end\n"
	"\n"
	"function __sandbox_from\n"
	"\ttest (__sandbox_words) -ge $argv[1]; and not contains -- -- (commandline -opc)\n"
	"end\n"
	"\n"
	"function __sandbox_ask\n"
	"\tset -l program (commandline -opc)[1]\n"
	"\t$program __complete $argv[1] (commandline -ct | string collect) 2>/dev/null </dev/null\n"
	"end\n"
	"\n";

int generate_fish(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	buf_adds(&out, "# fish completion for sandbox\n" GENERATED "\n"
		       "complete -c sandbox -f\n\n");
	buf_adds(&out, fish_functions);
	for (const struct option_row *o = cli_globals; o->name; o++)
		if (help_option_shown(o))
			fish_option("true", o, &out);
	for (const struct verb *const *v = verbs; *v; v++) {
		if (!completion_shown(*v))
			continue;
		buf_addf(&out, "complete -c sandbox -n '__sandbox_at 0' -a %s -d ", (*v)->name);
		fish_text((*v)->summary, &out);
		buf_addc(&out, '\n');
		fish_verb(*v, NULL, &out);
	}
	return generate_write(dir, "sandbox.fish", &out, err);
}
