/* Shell completions from the command table. Ids, names and images are asked from the program itself, which starts no daemon for it. */
#include "cli/generate.h"

#include "cli/help.h"
#include "shared/base/mem.h"

#include <string.h>

#define GENERATED "# Generated from the command table: edit cli/, then `make generate`.\n"

static bool shown(const struct verb *v)
{
	return !(v->flags & VERB_HIDDEN);
}

/* What completes a positional: a word the shell code below knows. */
static const char *what_word(enum pos_what w)
{
	switch (w) {
	case WHAT_SANDBOX:
		return "sandbox";
	case WHAT_OPERATION:
		return "operation";
	case WHAT_IMAGE:
		return "image";
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

static enum pos_what first_what(const struct verb *v)
{
	return v->positionals ? v->positionals[0].what : WHAT_TEXT;
}

/* --- bash ------------------------------------------------------------------------------------------------------- */

static void bash_names(const struct verb *const *table, struct buf *out)
{
	bool any = false;
	for (; *table; table++) {
		if (!shown(*table))
			continue;
		buf_addf(out, "%s%s", any ? " " : "", (*table)->name);
		any = true;
	}
}

static void bash_options(const struct option_row *rows, struct buf *out)
{
	for (const struct option_row *o = rows; o && o->name; o++) {
		if (!help_option_shown(o))
			continue;
		buf_addf(out, " --%s", o->name);
		if (o->flags & OPT_NEGATABLE)
			buf_addf(out, " --no-%s", o->name);
		if (o->letter)
			buf_addf(out, " -%c", o->letter);
	}
}

static void bash_values(const char *key, const struct option_row *rows, struct buf *out)
{
	for (const struct option_row *o = rows; o && o->name; o++) {
		if (!o->arg || !help_option_shown(o) || o->kind == OPT_KIND_OPTIONAL)
			continue;
		buf_addf(out, "\t'%s:--%s'", key, o->name);
		if (o->letter)
			buf_addf(out, " | '%s:-%c'", key, o->letter);
		buf_adds(out, ") echo '");
		if (o->kind == OPT_KIND_WORD)
			for (const char *p = o->words; *p; p++)
				buf_addc(out, *p == '|' ? ' ' : *p);
		else
			buf_adds(out, strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "DIR") == 0 ? ":file" : strcmp(o->arg, "IMAGE") == 0 ? ":image" : ":none");
		buf_adds(out, "' ;;\n");
	}
}

static void bash_verb(const struct verb *v, const struct verb *parent, struct buf *options, struct buf *values, struct buf *whats)
{
	auto_free char *key = parent ? xasprintf("%s %s", parent->name, v->name) : xstrdup(v->name);
	auto_free char *pattern = v->alias && !parent ? xasprintf("'%s' | '%s'", key, v->alias) : xasprintf("'%s'", key);
	buf_addf(options, "\t%s) echo '", pattern);
	bash_options(v->options, options);
	buf_adds(options, "' ;;\n");
	bash_values(key, v->options, values);
	buf_addf(whats, "\t%s) echo '%s' ;;\n", pattern, v->subverbs ? "sub" : what_word(first_what(v)));
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		bash_verb(*s, v, options, values, whats);
}

static const char bash_main[] =
	"_sandbox() {\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} verb='' sub='' prev=${COMP_WORDS[COMP_CWORD - 1]} word what i\n"
	"\tCOMPREPLY=()\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tword=${COMP_WORDS[i]}\n"
	"\t\t[ \"$word\" = -- ] && { compopt -o default; return; }\n"
	"\t\tcase $word in -*) continue ;; esac\n"
	"\t\tif [ -z \"$verb\" ]; then\n"
	"\t\t\tverb=$word\n"
	"\t\telif [ -z \"$sub\" ] && [ \"$(_sandbox_what \"$verb\")\" = sub ]; then\n"
	"\t\t\tsub=$word\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [ -z \"$verb\" ]; then\n"
	"\t\tcase $cur in\n"
	"\t\t-*) mapfile -t COMPREPLY < <(compgen -W \"$_sandbox_globals\" -- \"$cur\") ;;\n"
	"\t\t*) mapfile -t COMPREPLY < <(compgen -W \"$_sandbox_verbs\" -- \"$cur\") ;;\n"
	"\t\tesac\n"
	"\t\treturn\n"
	"\tfi\n"
	"\twhat=$(_sandbox_value \"$verb${sub:+ $sub}:$prev\")\n"
	"\tif [ -z \"$what\" ]; then\n"
	"\t\tcase $cur in\n"
	"\t\t-*)\n"
	"\t\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_sandbox_options \"$verb${sub:+ $sub}\") $_sandbox_globals\" -- \"$cur\")\n"
	"\t\t\treturn\n"
	"\t\t\t;;\n"
	"\t\tesac\n"
	"\t\twhat=:$(_sandbox_what \"$verb${sub:+ $sub}\")\n"
	"\tfi\n"
	"\tcase $what in\n"
	"\t:file) compopt -o default ;;\n"
	"\t:sub) mapfile -t COMPREPLY < <(compgen -W \"$(_sandbox_subs \"$verb\")\" -- \"$cur\") ;;\n"
	"\t:verb) mapfile -t COMPREPLY < <(compgen -W \"$_sandbox_verbs\" -- \"$cur\") ;;\n"
	"\t:sandbox | :operation | :image)\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(sandbox __complete \"${what#:}\" 2>/dev/null)\" -- \"$cur\")\n"
	"\t\t;;\n"
	"\t:*) ;;\n"
	"\t*) mapfile -t COMPREPLY < <(compgen -W \"$what\" -- \"$cur\") ;;\n"
	"\tesac\n"
	"}\n"
	"\n"
	"complete -F _sandbox sandbox\n";

static void bash_function(const char *name, const struct buf *body, struct buf *out)
{
	buf_addf(out, "%s() {\n\tcase $1 in\n%s\tesac\n}\n\n", name, buf_str(body));
}

int generate_bash(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT, options = BUF_INIT, values = BUF_INIT, whats = BUF_INIT, subs = BUF_INIT;
	for (const struct verb *const *v = verbs; *v; v++) {
		if (!shown(*v))
			continue;
		bash_verb(*v, NULL, &options, &values, &whats);
		if (!(*v)->subverbs)
			continue;
		buf_addf(&subs, (*v)->alias ? "\t'%s' | '%s') echo '" : "\t'%s') echo '", (*v)->name, (*v)->alias);
		bash_names((*v)->subverbs, &subs);
		buf_adds(&subs, "' ;;\n");
	}
	buf_adds(&out, "# bash completion for sandbox\n" GENERATED "# shellcheck shell=bash\n\n_sandbox_verbs='");
	bash_names(verbs, &out);
	buf_adds(&out, "'\n_sandbox_globals='--help --version");
	bash_options(cli_globals, &out);
	buf_adds(&out, "'\n\n");
	bash_function("_sandbox_options", &options, &out);
	bash_function("_sandbox_value", &values, &out);
	bash_function("_sandbox_what", &whats, &out);
	bash_function("_sandbox_subs", &subs, &out);
	buf_adds(&out, bash_main);
	return generate_write(dir, "sandbox.bash", &out, err);
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
	} else if (strcmp(o->arg, "FILE") == 0) {
		buf_adds(out, "_files");
	} else if (strcmp(o->arg, "IMAGE") == 0) {
		buf_adds(out, "_sandbox_image");
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
		static const char *const actions[] = {
			[WHAT_TEXT] = "", [WHAT_SANDBOX] = "_sandbox_sandbox", [WHAT_OPERATION] = "_sandbox_operation",
			[WHAT_IMAGE] = "_sandbox_image", [WHAT_FILE] = "_files", [WHAT_VERB] = "_sandbox_verb", [WHAT_COMMAND] = "_files",
		};
		bool many = p->kind == POS_MANY || p->kind == POS_ANY || p->kind == POS_COMMAND || p->kind == POS_COMMAND_OPTIONAL ||
			    p->kind == POS_COMMAND_DASHED;
		if (many)
			buf_addf(out, " \\\n\t\t'*:%s:%s'", p->name, actions[p->what]);
		else
			buf_addf(out, " \\\n\t\t'%d:%s:%s'", at, p->name, actions[p->what]);
	}
}

static void zsh_table(const char *name, const struct verb *const *table, struct buf *out)
{
	buf_addf(out, "%s() {\n\tlocal -a names\n\tnames=(", name);
	for (; *table; table++) {
		if (!shown(*table))
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
	"_sandbox_lines() {\n"
	"\tlocal -a lines\n"
	"\tlines=(${(f)\"$(sandbox __complete $1 2>/dev/null)\"})\n"
	"\tcompadd -a lines\n"
	"}\n"
	"_sandbox_sandbox() { _sandbox_lines sandbox }\n"
	"_sandbox_operation() { _sandbox_lines operation }\n"
	"_sandbox_image() { _sandbox_lines image }\n"
	"\n"
	"_sandbox() {\n"
	"\tlocal line state\n"
	"\t_arguments -C '1: :_sandbox_verb' '*:: :->rest'\n"
	"\t[[ $state == rest ]] && (( $+functions[_sandbox_$line[1]] )) && _sandbox_$line[1]\n"
	"}\n"
	"\n"
	"_sandbox \"$@\"\n";

int generate_zsh(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	buf_adds(&out, "#compdef sandbox\n" GENERATED "\n");
	zsh_table("_sandbox_verb", verbs, &out);
	for (const struct verb *const *v = verbs; *v; v++)
		if (shown(*v))
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
	if (o->arg && o->kind != OPT_KIND_OPTIONAL)
		buf_adds(out, strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "DIR") == 0 ? " -rF" : " -x");
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

static const char *fish_source(enum pos_what w)
{
	switch (w) {
	case WHAT_SANDBOX:
		return "(sandbox __complete sandbox 2>/dev/null)";
	case WHAT_OPERATION:
		return "(sandbox __complete operation 2>/dev/null)";
	case WHAT_IMAGE:
		return "(sandbox __complete image 2>/dev/null)";
	case WHAT_VERB:
	case WHAT_FILE:
	case WHAT_COMMAND:
	case WHAT_TEXT:
		break;
	}
	return NULL;
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
	const char *source = fish_source(first_what(v));
	if (source)
		buf_addf(out, "complete -c sandbox -n '%s' -a '%s'\n", condition.data, source);
	else if (first_what(v) == WHAT_FILE)
		buf_addf(out, "complete -c sandbox -n '%s' -F\n", condition.data);
	for (const struct verb *const *s = v->subverbs; s && *s; s++) {
		buf_addf(out, "complete -c sandbox -n '%s; and not __fish_seen_subcommand_from ", condition.data);
		bash_names(v->subverbs, out);
		buf_addf(out, "' -a %s -d ", (*s)->name);
		fish_text((*s)->summary, out);
		buf_addc(out, '\n');
		fish_verb(*s, v, out);
	}
}

int generate_fish(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	buf_adds(&out, "# fish completion for sandbox\n" GENERATED "\n"
		       "complete -c sandbox -f\n");
	for (const struct option_row *o = cli_globals; o->name; o++)
		if (help_option_shown(o))
			fish_option("true", o, &out);
	for (const struct verb *const *v = verbs; *v; v++) {
		if (!shown(*v))
			continue;
		buf_addf(&out, "complete -c sandbox -n __fish_use_subcommand -a %s -d ", (*v)->name);
		fish_text((*v)->summary, &out);
		buf_addc(&out, '\n');
		fish_verb(*v, NULL, &out);
	}
	return generate_write(dir, "sandbox.fish", &out, err);
}
