/* sandbox config: every setting with its value and where it came from; changes to the current context. */
#include "cli/command.h"

#include "cli/home.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

#define FIRST_CONTEXT "default"

/* --- list ------------------------------------------------------------------------------------------------------- */

static void add(cJSON *list, const char *key, const char *value, const char *from)
{
	cJSON *o = cJSON_CreateObject();
	json_add_str(o, "key", key);
	json_add_str(o, "value", value);
	json_add_str(o, "from", from);
	cJSON_AddItemToArray(list, o);
}

static const char *origin_text(const struct cli *cli, enum origin o, const char *flag, const char *variable, char **ret)
{
	switch (o) {
	case ORIGIN_FLAG:
		return flag;
	case ORIGIN_ENVIRONMENT:
		return variable;
	case ORIGIN_CONTEXT:
		return *ret = xasprintf("context %s", cli->context_name);
	case ORIGIN_DEFAULT:
		break;
	}
	return "default";
}

static int add_server(struct cli *cli, cJSON *list, struct error *err)
{
	auto_free char *from = NULL;
	auto_free char *local = NULL;
	const char *value = cli->server && *cli->server ? cli->server : NULL;
	if (!value) {
		const char *socket;
		if (session_socket(cli, &socket, err) != 0)
			return -1;
		value = local = xasprintf("unix://%s", socket);
	}
	add(list, "url", value, origin_text(cli, cli->server_origin, "--server", "SANDBOX_URL", &from));
	return 0;
}

static int add_place(cJSON *list, struct error *err)
{
	auto_free char *sandbox = NULL;
	auto_free char *dir = NULL;
	auto_free char *path = NULL;
	auto_ini *project = NULL;
	struct ini_item item;
	struct error e = ERROR_INIT;
	if (place_sandbox(&sandbox, &dir, err) != 0)
		return -1;
	if (place_project(&project, &path, &e) != 0)
		add(list, PROJECT_FILE, NULL, e.message);
	auto_free char *from = dir ? xasprintf("sandbox use, in %s", dir) : NULL;
	if (sandbox)
		add(list, "sandbox", sandbox, from);
	for (size_t at = 0; project && ini_doc_next(project, &at, &item);) {
		auto_free char *key = item.key ? xasprintf("%s.%s", item.section, item.key) : NULL;
		auto_free char *where = xasprintf("%s:%u", path, item.line);
		if (key)
			add(list, key, item.value, where);
	}
	return 0;
}

static void print_list(const cJSON *list)
{
	auto_table *t = table_new(3);
	const cJSON *row;
	table_cell(t, "KEY");
	table_cell(t, "VALUE");
	table_cell(t, "FROM");
	cJSON_ArrayForEach(row, list)
	{
		const char *value = json_text(row, "value");
		table_cell(t, json_text(row, "key"));
		table_cell(t, *value ? value : "-");
		table_cell(t, json_text(row, "from"));
	}
	table_print(t);
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	auto_json *list = cJSON_CreateArray();
	auto_free char *dir = home_config_dir();
	auto_free char *file = dir ? xasprintf("%s/" CONFIG_FILE, dir) : NULL;
	auto_free char *from = NULL;
	(void)opaque;
	add(list, "config", file, dir ? "default" : "HOME is not set");
	add(list, "context", cli->context_name, cli->context_name ? cli->context_origin : "default");
	if (add_server(cli, list, err) != 0)
		return -1;
	add(list, "tenant", cli->tenant, origin_text(cli, cli->tenant_origin, "--tenant", "SANDBOX_TENANT", &from));
	if (add_place(list, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, list, err);
	print_list(list);
	return 0;
}

static const struct verb config_list = {
	.name = "list",
	.alias = "ls",
	.summary = "show each value and where it came from",
	.run = run_list,
};

/* --- changes ---------------------------------------------------------------------------------------------------- */

struct set_options {
	const char *key, *value;
	const char *context;
};

static int check_key(const char *key, struct error *err)
{
	auto_buf known = BUF_INIT;
#define X(name, what) \
	buf_addf(&known, "%s%s", known.len ? ", " : "", name); \
	if (strcmp(key, name) == 0) \
		return 0;
	CONTEXT_KEYS(X)
#undef X
	return error_set(err, ERR_INVALID, "'%.60s' is not one of %s", key, buf_str(&known));
}

/* The context that is changed: the one named, else the current one, else a first one is made. */
static int change_set(struct ini_doc *d, void *ctx, struct error *err)
{
	struct set_options *o = ctx;
	auto_free char *value = NULL;
	const char *name = o->context ? o->context : context_current(d);
	if (check_key(o->key, err) != 0 || (o->value && context_value(o->key, o->value, &value, err) != 0))
		return -1;
	if (!name && o->value && ini_doc_set(d, "cli", "context", FIRST_CONTEXT, err) != 0)
		return -1;
	auto_free char *section = context_section(name ? name : FIRST_CONTEXT);
	if (o->context && !ini_doc_has_section(d, section))
		return error_set(err, ERR_NOT_FOUND, "there is no context '%.80s'", o->context);
	if (o->value)
		return ini_doc_set(d, section, o->key, value, err);
	if (!ini_doc_unset(d, section, o->key))
		return error_set(err, ERR_NOT_FOUND, "%s is not set in this context", o->key);
	return 0;
}

static int change(struct cli *cli, struct set_options *o, struct error *err)
{
	o->context = cli->context;
	return settings_change(change_set, o, err);
}

static int run_set(struct cli *cli, void *opaque, struct error *err)
{
	struct set_options *o = opaque;
	if (change(cli, o, err) != 0)
		return -1;
	out_note(cli, o->value ? "%s is set" : "%s is not set any more", o->key);
	return 0;
}

static const struct positional set_positionals[] = {
	POS(POS_ONE, WHAT_SETTING, "KEY", struct set_options, key, "url, tenant, token-helper or allow-http"),
	POS(POS_ONE, WHAT_TEXT, "VALUE", struct set_options, value, "its value"),
	POS_END,
};

static const struct verb config_set = {
	.name = "set",
	.flags = VERB_NO_SETTINGS,
	.summary = "set a value of the current context",
	.positionals = set_positionals,
	.size = sizeof(struct set_options),
	.run = run_set,
};

static const struct positional unset_positionals[] = {
	POS(POS_ONE, WHAT_SETTING, "KEY", struct set_options, key, "url, tenant, token-helper or allow-http"),
	POS_END,
};

static const struct verb config_unset = {
	.name = "unset",
	.flags = VERB_NO_SETTINGS,
	.summary = "forget a value of the current context",
	.positionals = unset_positionals,
	.size = sizeof(struct set_options),
	.run = run_set,
};

static int run_set_server(struct cli *cli, void *opaque, struct error *err)
{
	struct set_options *o = opaque;
	o->key = "url";
	if (change(cli, o, err) != 0)
		return -1;
	out_note(cli, "the server is set; `sandbox config list` shows what counts");
	return 0;
}

static const struct positional server_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "URL", struct set_options, value, "https://host[:port][/prefix] or unix:///path"),
	POS_END,
};

static const struct verb config_set_server = {
	.name = "set-server",
	.flags = VERB_NO_SETTINGS,
	.summary = "set the server of the current context",
	.positionals = server_positionals,
	.size = sizeof(struct set_options),
	.run = run_set_server,
};

static const struct verb *const subverbs[] = { &config_list, &config_set, &config_unset, &config_set_server, NULL };

static const struct example examples[] = {
	{ "sandbox config list", "which server, which tenant, and why" },
	{ "sandbox config set-server https://sandbox.example.com", "in the current context" },
	{ NULL, NULL },
};

const struct verb verb_config = {
	.name = "config",
	.group = GROUP_SETTINGS,
	.summary = "show settings and where each came from",
	.manual = "set, unset and set-server change the current context, or the one --context names; when there is none yet, one called default is made "
		  "and becomes current.\n"
		  "\n"
		  "A project file .sandbox.conf in this directory or one above it holds defaults for run and create: [defaults] for both, [run] and "
		  "[create] for one. Its keys are names of options without the dashes: image, cpus, memory, disk, pids, ttl, network, tier, sensitivity, "
		  "label, untrusted-repo, generated-code, needs-secrets, writable-root, upload (the last one is a directory, relative to the file, "
		  "whose contents are copied to /workspace). Options on the command line win. What was taken from the file is said on standard error. "
		  "A file of another user, or one that everybody may write, is left aside with a warning.",
	.examples = examples,
	.subverbs = subverbs,
};
