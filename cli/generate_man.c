/* Manual pages: sandbox.1 and one page per verb, from the command table. The pages of the daemon are in generate_daemon.c. */
#include "cli/generate.h"

#include "cli/help.h"
#include "shared/base/mem.h"

#include <ctype.h>
#include <string.h>

void roff_text(const char *text, struct buf *out)
{
	bool line_start = true;
	for (const char *p = text; *p; p++) {
		if (line_start && (*p == '.' || *p == '\''))
			buf_adds(out, "\\&");
		line_start = *p == '\n';
		if (*p == '\\')
			buf_adds(out, "\\e");
		else if (*p == '-')
			buf_adds(out, "\\-");
		else if (*p == '~')
			buf_adds(out, "\\(ti");
		else if (*p == '^')
			buf_adds(out, "\\(ha");
		else if (*p == '`')
			buf_adds(out, "\\(ga");
		else if (*p == '\'')
			buf_adds(out, "\\(aq");
		else
			buf_addc(out, *p);
	}
}

/* Breaks after sentences, which is how manual sources are written and what mandoc wants. */
static void paragraph(const char *p, size_t n, struct buf *out)
{
	auto_buf lines = BUF_INIT;
	for (size_t i = 0; i < n; i++) {
		bool gap = p[i] == ' ' || p[i] == '\n';
		bool sentence = i > 1 && strchr(".:;?", p[i - 1]) && !(p[i - 1] == '.' && isupper((unsigned char)p[i - 2]));
		if (gap && (p[i] == '\n' || sentence))
			buf_addc(&lines, '\n');
		else
			buf_addc(&lines, p[i]);
	}
	roff_text(buf_str(&lines), out);
	buf_addc(out, '\n');
}

void roff_paragraphs(const char *text, struct buf *out)
{
	for (bool first = true; text && *text; first = false) {
		const char *end = strstr(text, "\n\n");
		size_t n = end ? (size_t)(end - text) : strlen(text);
		if (!first)
			buf_adds(out, ".PP\n");
		paragraph(text, n, out);
		text = end ? end + 2 : text + n;
	}
}

static void heading(const char *page, const char *summary, struct buf *out)
{
	auto_buf upper = BUF_INIT;
	for (const char *p = page; *p; p++)
		buf_addc(&upper, (char)toupper((unsigned char)*p));
	buf_adds(out, ".\\\" Generated from the command table: edit cli/, then `make generate`.\n.TH ");
	roff_text(buf_str(&upper), out);
	buf_adds(out, " 1 \"" MANUAL_DATE "\" \"sandbox\" \"Sandbox Manual\"\n.SH NAME\n");
	roff_text(page, out);
	buf_adds(out, " \\- ");
	roff_text(summary, out);
	buf_addc(out, '\n');
}

static void synopsis_line(const struct verb *v, const struct verb *parent, struct buf *out)
{
	auto_buf usage = BUF_INIT;
	help_usage(v, parent, &usage);
	buf_adds(out, ".B sandbox\n");
	roff_text(buf_str(&usage) + strlen("sandbox "), out);
	buf_addc(out, '\n');
}

static void option_rows(const struct option_row *rows, struct buf *out)
{
	for (const struct option_row *o = rows; o && o->name; o++) {
		auto_buf label = BUF_INIT;
		if (!help_option_shown(o))
			continue;
		help_option_label(o, &label);
		buf_adds(out, ".TP\n.B ");
		roff_text(buf_str(&label), out);
		buf_addc(out, '\n');
		roff_text(o->help, out);
		buf_adds(out, ".\n");
	}
}

static void positional_rows(const struct verb *v, struct buf *out)
{
	for (const struct positional *p = v->positionals; p && p->name; p++) {
		buf_adds(out, ".TP\n.I ");
		roff_text(p->name, out);
		buf_addc(out, '\n');
		roff_text(p->help, out);
		buf_adds(out, ".\n");
	}
}

static void examples(const struct verb *v, struct buf *out)
{
	if (!v->examples)
		return;
	buf_adds(out, ".SH EXAMPLES\n");
	for (const struct example *e = v->examples; e->line; e++) {
		buf_adds(out, ".TP\n.B ");
		roff_text(e->line, out);
		buf_addc(out, '\n');
		if (e->text) {
			roff_text(e->text, out);
			buf_adds(out, ".\n");
		} else {
			buf_adds(out, "\\&\n");
		}
	}
}

static void exit_status(bool of_command, struct buf *out)
{
	buf_adds(out, ".SH EXIT STATUS\n");
	if (of_command) {
		roff_paragraphs("The status of the command itself. Besides: 128 + n when signal n ended it, 124 when its time-out did, 125 when the "
				"tool itself failed or the outcome is unknown, 126 when the program cannot be run, 127 when there is no such program.",
				out);
		return;
	}
	static const struct {
		int status;
		const char *text;
	} rows[] = {
		{ 0, "it worked" }, { 1, "it failed" }, { 2, "the command line or the request is wrong" }, { 3, "not found, or expired" },
		{ 4, "not allowed" }, { 5, "in conflict with the present state" }, { 6, "no capacity: nothing may run it now" },
		{ 7, "timed out waiting; the outcome is unknown" }, { 8, "the server cannot be reached" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		buf_addf(out, ".TP\n.B %d\n%s.\n", rows[i].status, rows[i].text);
	buf_adds(out, ".PP\n128 + n when signal n ended the wait.\n");
}

static void see_also(const char *page, struct buf *out)
{
	buf_adds(out, ".SH SEE ALSO\n");
	if (strcmp(page, "sandbox") != 0)
		buf_adds(out, ".BR sandbox (1),\n");
	buf_adds(out, ".BR sandboxd (8)\n");
}

static void subverb(const struct verb *v, const struct verb *parent, struct buf *out)
{
	buf_adds(out, ".SS ");
	roff_text(v->name, out);
	buf_addc(out, '\n');
	synopsis_line(v, parent, out);
	buf_adds(out, ".PP\n");
	buf_addf(out, "%c", toupper((unsigned char)v->summary[0]));
	roff_text(v->summary + 1, out);
	buf_adds(out, ".\n");
	if (v->details) {
		buf_adds(out, ".PP\n");
		roff_paragraphs(v->details, out);
	}
	positional_rows(v, out);
	option_rows(v->options, out);
}

static void description(const struct verb *v, struct buf *out)
{
	buf_adds(out, ".SH DESCRIPTION\n");
	if (v->details)
		roff_paragraphs(v->details, out);
	if (v->details && v->manual)
		buf_adds(out, ".PP\n");
	if (v->manual)
		roff_paragraphs(v->manual, out);
	if (!v->details && !v->manual) {
		buf_addf(out, "%c", toupper((unsigned char)v->summary[0]));
		roff_text(v->summary + 1, out);
		buf_adds(out, ".\n");
	}
	if (v->alias) {
		buf_adds(out, ".PP\nAlso called\n.BR ");
		roff_text(v->alias, out);
		buf_adds(out, " .\n");
	}
}

static int verb_page(const char *dir, const struct verb *v, struct error *err)
{
	auto_buf out = BUF_INIT;
	auto_free char *page = xasprintf("sandbox-%s", v->name);
	auto_free char *file = xasprintf("%s.1", page);
	heading(page, v->summary, &out);
	buf_adds(&out, ".SH SYNOPSIS\n");
	if (!v->subverbs)
		synopsis_line(v, NULL, &out);
	for (const struct verb *const *s = v->subverbs; s && *s; s++) {
		if (s != v->subverbs)
			buf_adds(&out, ".br\n");
		synopsis_line(*s, v, &out);
	}
	description(v, &out);
	if (v->positionals || help_has_options(v)) {
		buf_adds(&out, ".SH OPTIONS\n");
		positional_rows(v, &out);
		option_rows(v->options, &out);
	}
	if (v->subverbs)
		buf_adds(&out, ".SH COMMANDS\n");
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		subverb(*s, v, &out);
	buf_adds(&out, ".PP\nThe options every command takes are in\n.BR sandbox (1).\n");
	exit_status(v->flags & VERB_STATUS_OF_COMMAND, &out);
	examples(v, &out);
	see_also(page, &out);
	return generate_write(dir, file, &out, err);
}

static void all_verbs(struct buf *out)
{
	for (int g = 0; g < GROUP_COUNT; g++) {
		buf_addf(out, ".SS %s\n", verb_group_title((enum verb_group)g));
		for (const struct verb *const *v = verbs; *v; v++) {
			if ((*v)->group != (enum verb_group)g || ((*v)->flags & VERB_HIDDEN))
				continue;
			buf_adds(out, ".TP\n.BR sandbox\\-");
			roff_text((*v)->name, out);
			buf_adds(out, " (1)\n");
			roff_text((*v)->summary, out);
			buf_adds(out, ".\n");
		}
	}
}

static const char about[] =
	"sandbox gives code a temporary machine without handing it the host. It creates a bounded environment, runs work in it, collects the "
	"result and destroys it. What may run, with which isolation and for how long, is decided by the daemon sandboxd, not by this program.\n"
	"\n"
	"Results are on standard output, everything meant for people on standard error. With --json standard output holds exactly one JSON "
	"value; of a failure it is an object with the member error, which has code, message and request_id. Progress is drawn on a terminal "
	"alone, and never when CI is set.\n"
	"\n"
	"A sandbox is named by its id, by its name, or by a unique start or end of its id of at least four digits; lists show the last eight. "
	"An exact name wins.\n"
	"\n"
	"Options may stand before and behind the command and its arguments; -- ends them. A time is a number of seconds or a number with a unit "
	"(500ms, 90s, 30m, 1.5h, 2d), a size a number of bytes or one with a unit (512m, 4g).\n"
	"\n"
	"Where a command takes one SANDBOX it may be left out once sandbox-use(1) chose one for the directory.\n"
	"\n"
	"--format prints a template for each result: {{.name}} stands for a field, {{.spec.image}} for one inside another, {{json .spec}} for its "
	"JSON, \\t and \\n for a tab and a newline. --dry-run shows each request that would change something in place of sending it.\n"
	"\n"
	"When no server is given and none answers, the user's own daemon is started, which is said on standard error.";

static void environment(struct buf *out)
{
	static const struct {
		const char *name, *text;
	} rows[] = {
		{ "SANDBOX_URL", "the server, as --server" },
		{ "SANDBOX_CONTEXT", "the context, as --context; without effect beside SANDBOX_URL" },
		{ "SANDBOX_CA_FILE", "authorities to trust, as --ca-file" },
		{ "SSH_AUTH_SOCK", "the agent whose keys `sandbox node add` and its kin try" },
		{ "SANDBOX_INSECURE_HTTP", "when not empty, as --insecure-http" },
		{ "https_proxy, http_proxy, all_proxy, no_proxy", "proxies for servers that are not on this machine, as libcurl reads them" },
		{ "SANDBOX_TENANT", "the tenant, as --tenant" },
		{ "SANDBOX_TOKEN", "the token to send, in place of a kept one; see sandbox-login(1)" },
		{ "SANDBOX_PASSPHRASE", "opens a token that was stored with a passphrase, where nobody can be asked" },
		{ "SANDBOX_DEBUG", "when not empty, as --debug" },
		{ "XDG_CONFIG_HOME", "where settings are kept; ~/.config when unset" },
		{ "XDG_DATA_HOME", "where the key of stored tokens is kept; ~/.local/share when unset" },
		{ "XDG_STATE_HOME, XDG_RUNTIME_DIR", "where the user's daemon keeps its state and its socket" },
		{ "HOME", "where the directories above are, when their own variable is not set" },
		{ "PATH", "where sandboxd, ssh and token helpers are looked for" },
		{ "TERM", "with dumb, or unset, no colour and no progress line; given to commands that have a terminal" },
		{ "NO_COLOR, CI", "when not empty: no colour; with CI no progress line either" },
	};
	buf_adds(out, ".SH ENVIRONMENT\n");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		buf_addf(out, ".TP\n.B %s\n%s.\n", rows[i].name, rows[i].text);
}

static void files(struct buf *out)
{
	static const struct {
		const char *path, *text;
	} rows[] = {
		{ "/run/sandbox/sandboxd.sock", "the socket of root's, or the system's, daemon" },
		{ "$XDG_RUNTIME_DIR/sandbox/sandboxd.sock", "the socket of a user's daemon; without XDG_RUNTIME_DIR it is in the state directory" },
		{ "$XDG_CONFIG_HOME/sandbox/config", "contexts; see sandbox-context(1)" },
		{ "$XDG_CONFIG_HOME/sandbox/directories", "the sandboxes chosen by sandbox-use(1)" },
		{ "$XDG_CONFIG_HOME/sandbox/tokens", "tokens, encrypted, one file a server; see sandbox-login(1)" },
		{ "$XDG_DATA_HOME/sandbox/token.key", "the key they are encrypted with, unless a passphrase was asked for" },
		{ ".sandbox.conf", "defaults for run and create, here or in a directory above; see sandbox-config(1)" },
		{ "$XDG_STATE_HOME/sandbox/console_history", "lines typed at the prompt of sandbox-console(1)" },
		{ "$XDG_STATE_HOME/sandbox/baselines", "what was uploaded to agents' sandboxes, for sandbox-diff(1) and sandbox-collect(1)" },
		{ "$XDG_STATE_HOME/sandbox", "state of a user's daemon, sandboxd.log among it; ~/.local/state/sandbox when unset" },
	};
	buf_adds(out, ".SH FILES\n");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		buf_adds(out, ".TP\n.I ");
		roff_text(rows[i].path, out);
		buf_addc(out, '\n');
		roff_text(rows[i].text, out);
		buf_adds(out, ".\n");
	}
}

static int main_page(const char *dir, struct error *err)
{
	auto_buf out = BUF_INIT;
	heading("sandbox", "temporary, bounded machines for code", &out);
	buf_adds(&out, ".SH SYNOPSIS\n.B sandbox\n[OPTIONS] COMMAND [ARG...]\n.SH DESCRIPTION\n");
	roff_paragraphs(about, &out);
	buf_adds(&out, ".SH OPTIONS\n");
	option_rows(cli_globals, &out);
	buf_adds(&out, ".TP\n.B \\-h, \\-\\-help\nexplain the command.\n.TP\n.B \\-V, \\-\\-version\nprint this program's version.\n.TP\n.B \\-\\-tree\nlist every command with its subcommands.\n.SH COMMANDS\n");
	all_verbs(&out);
	exit_status(false, &out);
	buf_adds(&out, ".PP\nrun, exec, shell and attach exit with the status of the command they ran, and with 125 when they fail themselves.\n");
	environment(&out);
	files(&out);
	buf_adds(&out, ".SH EXAMPLES\n.TP\n.B sandbox run \\-\\- uname \\-a\ncreate, run, delete: in one step.\n"
		       ".TP\n.B sandbox create \\-\\-name web && sandbox exec web \\-\\- ls \\-l\na sandbox that stays until it is deleted or expires.\n");
	see_also("sandbox", &out);
	return generate_write(dir, "sandbox.1", &out, err);
}

int generate_man(const char *dir, struct error *err)
{
	for (const struct verb *const *v = verbs; *v; v++)
		if (!((*v)->flags & VERB_HIDDEN) && verb_page(dir, *v, err) != 0)
			return -1;
	return main_page(dir, err) == 0 ? generate_man_daemon(dir, err) : -1;
}
