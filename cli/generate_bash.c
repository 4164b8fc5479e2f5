/* Completion for bash from the command table. */
#include "cli/completion.h"

#include "cli/generate.h"
#include "cli/help.h"
#include "shared/base/mem.h"

#include <string.h>

#define GENERATED "# Generated from the command table: edit cli/, then `make generate`.\n"

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
		buf_addf(out, "\t'%s --%s'", key, o->name);
		if (o->letter)
			buf_addf(out, " | '%s -%c'", key, o->letter);
		buf_adds(out, ") echo '");
		if (o->kind == OPT_KIND_WORD)
			for (const char *p = o->words; *p; p++)
				buf_addc(out, *p == '|' ? ' ' : *p);
		else
			buf_addf(out, ":%s", completion_value(o));
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
	buf_addf(whats, "\t%s) echo '", pattern);
	if (v->subverbs)
		buf_adds(whats, "sub");
	for (const struct positional *p = v->positionals; p && p->name; p++)
		buf_addf(whats, "%s%s%s", p == v->positionals ? "" : " ", completion_what(p->what), completion_repeats(p) ? "*" : "");
	buf_adds(whats, "' ;;\n");
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		bash_verb(*s, v, options, values, whats);
}

static const char bash_main[] =
	"# The words of the line up to the cursor; those that the shell cut at : or = are put together again.\n"
	"_sandbox_words() {\n"
	"\tlocal line=${COMP_LINE-} i w\n"
	"\twords=(\"${COMP_WORDS[0]}\")\n"
	"\tline=${line#\"${COMP_WORDS[0]}\"}\n"
	"\tfor ((i = 1; i <= COMP_CWORD; i++)); do\n"
	"\t\tw=${COMP_WORDS[i]}\n"
	"\t\tcase $line in\n"
	"\t\t[[:blank:]]* | '')\n"
	"\t\t\tline=${line#\"${line%%[![:blank:]]*}\"}\n"
	"\t\t\twords+=(\"$w\")\n"
	"\t\t\t;;\n"
	"\t\t*) words[${#words[@]}-1]+=$w ;;\n"
	"\t\tesac\n"
	"\t\tline=${line#\"$w\"}\n"
	"\tdone\n"
	"}\n"
	"\n"
	"# Those lines of standard input that begin with the present word. What stands before its last colon is there already.\n"
	"_sandbox_reply() {\n"
	"\tlocal w head=''\n"
	"\tcase ${COMP_WORDBREAKS-} in *:*) case $cur in *:*) head=${cur%\"${cur##*:}\"} ;; esac ;; esac\n"
	"\twhile IFS= read -r w; do\n"
	"\t\tcase $w in \"$cur\"*) COMPREPLY+=(\"${w#\"$head\"}\") ;; esac\n"
	"\tdone\n"
	"}\n"
	"\n"
	"_sandbox_list() {\n"
	"\tlocal w\n"
	"\tfor w in $1; do echo \"$w\"; done\n"
	"}\n"
	"\n"
	"# Completes the present word with what $1 names.\n"
	"_sandbox_offer() {\n"
	"\tlocal nospace=''\n"
	"\tcase $1 in\n"
	"\tfile | path)\n"
	"\t\tcase $1:$cur in\n"
	"\t\tpath:*:*) nospace=1 ;;\n"
	"\t\t*)\n"
	"\t\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\t\t_sandbox_reply < <(compgen -f -- \"$cur\")\n"
	"\t\t\t[ \"$1\" = path ] || return 0\n"
	"\t\t\t;;\n"
	"\t\tesac\n"
	"\t\t;;\n"
	"\tsub) _sandbox_reply < <(_sandbox_list \"$(_sandbox_subs \"$verb\")\") ;;\n"
	"\tverb) _sandbox_reply < <(_sandbox_list \"$_sandbox_verbs\") ;;\n"
	"\tesac\n"
	"\tcase $1 in\n"
	"\t'' | none | file | sub | verb) ;;\n"
	"\t*)\n"
	"\t\t_sandbox_reply < <(\"${words[0]}\" __complete \"$1\" \"$cur\" 2>/dev/null </dev/null)\n"
	"\t\tcase \"${COMPREPLY[*]-}\" in *[:/]) nospace=1 ;; esac\n"
	"\t\t[ -z \"$nospace\" ] || compopt -o nospace 2>/dev/null\n"
	"\t\t;;\n"
	"\tesac\n"
	"\treturn 0\n"
	"}\n"
	"\n"
	"_sandbox() {\n"
	"\tlocal cur prev='' verb='' sub='' word what i n=0 skip='' words\n"
	"\tCOMPREPLY=()\n"
	"\t_sandbox_words\n"
	"\tcur=${words[${#words[@]}-1]}\n"
	"\tfor ((i = 1; i < ${#words[@]} - 1; i++)); do\n"
	"\t\tword=${words[i]}\n"
	"\t\tprev=$word\n"
	"\t\tif [ -n \"$skip\" ]; then\n"
	"\t\t\tskip=''\n"
	"\t\t\tcontinue\n"
	"\t\tfi\n"
	"\t\tcase $word in\n"
	"\t\t--) return 0 ;;\n"
	"\t\t-*)\n"
	"\t\t\t[ -z \"$(_sandbox_value \"${verb:-globals}${sub:+ $sub}\" \"$word\")\" ] || skip=1\n"
	"\t\t\tcontinue\n"
	"\t\t\t;;\n"
	"\t\tesac\n"
	"\t\tif [ -z \"$verb\" ]; then\n"
	"\t\t\tverb=$word\n"
	"\t\telif [ -z \"$sub\" ] && [ \"$(_sandbox_what \"$verb\")\" = sub ]; then\n"
	"\t\t\tsub=$word\n"
	"\t\telse\n"
	"\t\t\tn=$((n + 1))\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [ -n \"$skip\" ]; then\n"
	"\t\twhat=$(_sandbox_value \"${verb:-globals}${sub:+ $sub}\" \"$prev\")\n"
	"\t\tcase $what in\n"
	"\t\t:*) _sandbox_offer \"${what#:}\" ;;\n"
	"\t\t*) _sandbox_reply < <(_sandbox_list \"$what\") ;;\n"
	"\t\tesac\n"
	"\t\treturn 0\n"
	"\tfi\n"
	"\tcase $cur in\n"
	"\t-*)\n"
	"\t\t_sandbox_reply < <(_sandbox_list \"$_sandbox_globals${verb:+ $(_sandbox_options \"$verb${sub:+ $sub}\")}\")\n"
	"\t\treturn 0\n"
	"\t\t;;\n"
	"\tesac\n"
	"\tif [ -z \"$verb\" ]; then\n"
	"\t\t_sandbox_offer verb\n"
	"\t\treturn 0\n"
	"\tfi\n"
	"\twhat=\n"
	"\tfor word in $(_sandbox_what \"$verb${sub:+ $sub}\" | tr -d '*'); do\n"
	"\t\t[ \"$n\" -gt 0 ] || { what=$word; break; }\n"
	"\t\tn=$((n - 1))\n"
	"\tdone\n"
	"\tif [ -z \"$what\" ]; then\n"
	"\t\tcase $(_sandbox_what \"$verb${sub:+ $sub}\") in *\\*) what=${word-} ;; esac\n"
	"\tfi\n"
	"\t_sandbox_offer \"$what\"\n"
	"}\n"
	"\n"
	"complete -F _sandbox sandbox\n";

/* Behind any verb, and in front of it: those of one name with a verb's own come later and so do not count. */
static void bash_global_values(struct buf *out)
{
	for (const struct option_row *o = cli_globals; o->name; o++)
		if (o->arg && o->kind != OPT_KIND_OPTIONAL && help_option_shown(o))
			buf_addf(out, "\t*' --%s') echo ':%s' ;;\n", o->name, completion_value(o));
}

static void bash_function(const char *name, const struct buf *body, struct buf *out)
{
	buf_addf(out, "%s() {\n\tcase $1 in\n%s\tesac\n}\n\n", name, buf_str(body));
}

int generate_bash(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT, options = BUF_INIT, values = BUF_INIT, whats = BUF_INIT, subs = BUF_INIT;
	for (const struct verb *const *v = verbs; *v; v++) {
		if (!completion_shown(*v))
			continue;
		bash_verb(*v, NULL, &options, &values, &whats);
		if (!(*v)->subverbs)
			continue;
		buf_addf(&subs, (*v)->alias ? "\t'%s' | '%s') echo '" : "\t'%s') echo '", (*v)->name, (*v)->alias);
		completion_names((*v)->subverbs, &subs);
		buf_adds(&subs, "' ;;\n");
	}
	bash_global_values(&values);
	buf_adds(&out, "# bash completion for sandbox\n" GENERATED "# shellcheck shell=bash\n\n_sandbox_verbs='");
	completion_names(verbs, &out);
	buf_adds(&out, "'\n_sandbox_globals='--help --version");
	bash_options(cli_globals, &out);
	buf_adds(&out, "'\n\n");
	bash_function("_sandbox_options", &options, &out);
	buf_addf(&out, "_sandbox_value() {\n\tcase \"$1 $2\" in\n%s\tesac\n}\n\n", buf_str(&values));
	bash_function("_sandbox_what", &whats, &out);
	bash_function("_sandbox_subs", &subs, &out);
	buf_adds(&out, bash_main);
	return generate_write(dir, "sandbox.bash", &out, err);
}
