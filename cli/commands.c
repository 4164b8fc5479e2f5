/* The table of verbs, expanded from commands.def, and the options all of them take. */
#include "cli/command.h"

#include <string.h>

const struct verb *const verbs[] = {
#define VERB(name) &verb_##name,
#include "cli/commands.def"
#undef VERB
	NULL
};

const struct option_row cli_globals[] = {
	OPT_OPTIONAL(0, "json", struct cli, json, "FIELDS", "one JSON value on standard output; with FIELDS only those"),
	OPT_FLAG('q', "quiet", struct cli, quiet, "only the result; of lists only the ids"),
	OPT_TEXT(0, "server", struct cli, server, "URL", "the daemon to use: https://host or unix:///path (SANDBOX_URL)"),
	{ .name = "ca-file", .kind = OPT_KIND_TEXT, .flags = OPT_RARE, .offset = OPT_OFFSET(struct cli, ca_file, const char *), .arg = "FILE",
	  .help = "trust the authorities in this PEM file alone (SANDBOX_CA_FILE)" },
	{ .name = "insecure-http", .kind = OPT_KIND_FLAG, .flags = OPT_RARE, .offset = OPT_OFFSET(struct cli, insecure_http, bool),
	  .help = "let the token go over plain http (SANDBOX_INSECURE_HTTP)" },
	OPT_TEXT(0, "context", struct cli, context, "NAME", "the context to use (SANDBOX_CONTEXT)"),
	OPT_TEXT(0, "tenant", struct cli, tenant, "NAME", "the tenant to act in (SANDBOX_TENANT)"),
	OPT_TEXT(0, "format", struct cli, format, "TEMPLATE", "print {{.field}} and text for each result; {{json .}} is all of it"),
	OPT_FLAG(0, "dry-run", struct cli, dry_run, "show requests that would change something; send none"),
	OPT_FLAG(0, "debug", struct cli, debug, "show requests on standard error (SANDBOX_DEBUG)"),
	{ .name = "tree", .kind = OPT_KIND_FLAG, .flags = OPT_HIDDEN, .offset = OPT_OFFSET(struct cli, tree, bool) },
	OPT_END,
};

const struct verb *verb_find(const struct verb *const *table, const char *name)
{
	for (; *table; table++)
		if (strcmp((*table)->name, name) == 0 || ((*table)->alias && strcmp((*table)->alias, name) == 0))
			return *table;
	return NULL;
}

const char *verb_group_title(enum verb_group g)
{
	switch (g) {
	case GROUP_RUN:
		return "Run code";
	case GROUP_SANDBOX:
		return "Sandboxes";
	case GROUP_INSIDE:
		return "Inside a sandbox";
	case GROUP_SETTINGS:
		return "Settings";
	case GROUP_SERVER:
		return "Server administration";
	case GROUP_SYSTEM:
		return "This machine";
	case GROUP_COUNT:
		break;
	}
	return "";
}
