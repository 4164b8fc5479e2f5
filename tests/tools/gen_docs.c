/*
 * Writes the documents that come from tables: `gen_docs limits | config | errors` prints docs/limits.md, docs/config.md or docs/errors.md.
 * The tables are headers, so this links nothing of the daemon.
 */
#include "shared/base/error.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <inttypes.h>

static const char GENERATED[] = "<!-- Generated from %s by `make generate`; edit that. -->\n\n";

/* A cell of a table: a bar would end it. */
static void cell(const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			putchar('\\');
		putchar(*text);
	}
}

static void limit_row(const char *name, int64_t value, const char *unit, const char *reason)
{
	char size[32];
	printf("| `%s` | %" PRId64 " %s", name, value, unit);
	if (strcmp(unit, "bytes") == 0 && value >= 1024 && value % 1024 == 0)
		printf(" (%s)", size_format(value, size));
	printf(" | ");
	cell(reason);
	printf(" |\n");
}

static int limits(void)
{
	printf("# Limits\n\n");
	printf(GENERATED, "`shared/base/limits.h`");
	printf("Everything that comes from outside is bounded. Passing a limit is an error that names it; nothing is cut silently.\n\n"
	       "| limit | value | what it bounds and why |\n|---|---|---|\n");
#define LIMIT(name, value, unit, reason) limit_row(#name, value, unit, reason);
	LIMITS(LIMIT)
#undef LIMIT
	return 0;
}

static void error_row(const char *wire, int http, int status, const char *summary)
{
	printf("| `%s` | %d | %d | ", wire, http, status);
	cell(summary);
	printf(" |\n");
}

static int errors(void)
{
	printf("# Errors\n\n");
	printf(GENERATED, "`shared/base/errors.def`");
	printf("Every failure has a code. The API answers `{\"code\", \"message\", \"request_id\"}` with the HTTP status of the row; the CLI prints the "
	       "message on standard error and ends with the exit status of the row. `sandbox exec` and `sandbox run` are different: they end with "
	       "the status of the command they ran, and with 125 when the tool itself failed.\n\n"
	       "| code | HTTP status | exit status | meaning |\n|---|---|---|---|\n");
#define X(id, wire, http, exit, summary) error_row(wire, http, exit, summary);
#include "shared/base/errors.def"
#undef X
	return 0;
}

static void config_key(const char *section, const char *key, const char *type)
{
	static const char *last = "";
	if (strcmp(section, last) != 0)
		printf("%s## [%s]\n\n| key | type | default | allowed | reload | meaning |\n|---|---|---|---|---|---|\n", *last ? "\n" : "", section);
	last = section;
	printf("| `%s` | %s | ", key, type);
}

static void config_end(bool reload, const char *help)
{
	printf(" | %s | ", reload ? "yes" : "restart");
	cell(help);
	printf(" |\n");
}

static void config_str(const char *section, const char *key, const char *def, bool reload, const char *help)
{
	config_key(section, key, "text");
	if (*def)
		printf("`%s`", def);
	printf(" | ");
	config_end(reload, help);
}

/* The table may hold no such key. */
__attribute__((unused)) static void config_bool(const char *section, const char *key, bool def, bool reload, const char *help)
{
	config_key(section, key, "yes or no");
	printf("%s | ", def ? "yes" : "no");
	config_end(reload, help);
}

static void config_int(const char *section, const char *key, int64_t def, int64_t min, int64_t max, bool reload, const char *help)
{
	config_key(section, key, "number");
	printf("%" PRId64 " | %" PRId64 " to %" PRId64, def, min, max);
	config_end(reload, help);
}

static void config_real(const char *section, const char *key, double def, double min, double max, bool reload, const char *help)
{
	config_key(section, key, "fraction");
	printf("%g | %g to %g", def, min, max);
	config_end(reload, help);
}

static void config_duration(const char *section, const char *key, int64_t def, int64_t min, int64_t max, bool reload, const char *help)
{
	char text[3][32];
	config_key(section, key, "duration");
	printf("%s | %s to %s", duration_format(def, text[0]), duration_format(min, text[1]), duration_format(max, text[2]));
	config_end(reload, help);
}

static void config_size(const char *section, const char *key, int64_t def, int64_t min, int64_t max, bool reload, const char *help)
{
	char text[3][32];
	config_key(section, key, "size");
	printf("%s | %s to %s", size_format(def, text[0]), size_format(min, text[1]), size_format(max, text[2]));
	config_end(reload, help);
}

static int config(void)
{
	printf("# Configuration of sandboxd\n\n");
	printf(GENERATED, "`daemon/config.def` and `daemon/pool.def`");
	printf("`sandboxd` reads `/etc/sandbox/sandboxd.conf` when root runs it, `$XDG_CONFIG_HOME/sandbox/sandboxd.conf` (`~/.config/sandbox/sandboxd.conf`) "
	       "otherwise, or the file given with `--config`. A missing file means the defaults.\n\n"
	       "```ini\n[daemon]\nlog_level = debug\n\n[policy]\n; one person's own machine\nprofile = trusted-workstation\n```\n\n"
	       "Lines beginning with `#` or `;` are comments, and so is ` ;` with what follows it on a line. A line has at most 198 bytes. Unknown "
	       "sections and keys, keys given twice and values out of range are refused with file and line; `sandboxd --check-config` only checks. "
	       "`--set section.key=value` overrides one key, and `sandboxd --print-config` shows what is in force.\n\n"
	       "Durations are `500ms`, `90s`, `30m`, `1.5h` or `2d`, plain numbers are seconds. Sizes are `64m`, `512MiB` or `1g`, powers of 1024, plain "
	       "numbers are bytes. Keys marked *yes* under reload are taken over on SIGHUP, the others at the next start.\n\n");
#define CONFIG_STR(s, k, f, def, r, h) config_str(s, k, def, r, h);
#define CONFIG_BOOL(s, k, f, def, r, h) config_bool(s, k, def, r, h);
#define CONFIG_INT(s, k, f, def, lo, hi, r, h) config_int(s, k, def, lo, hi, r, h);
#define CONFIG_REAL(s, k, f, def, lo, hi, r, h) config_real(s, k, def, lo, hi, r, h);
#define CONFIG_DURATION(s, k, f, def, lo, hi, r, h) config_duration(s, k, def, lo, hi, r, h);
#define CONFIG_SIZE(s, k, f, def, lo, hi, r, h) config_size(s, k, def, lo, hi, r, h);
#include "daemon/config.def"
#include "daemon/pool.def"
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*print)(void);
	} documents[] = { { "limits", limits }, { "config", config }, { "errors", errors } };
	for (size_t i = 0; argc == 2 && i < ARRAY_LEN(documents); i++)
		if (strcmp(argv[1], documents[i].name) == 0)
			return documents[i].print() != 0 || fflush(stdout) != 0 || ferror(stdout);
	fprintf(stderr, "usage: gen_docs limits | config | errors\n");
	return 2;
}
