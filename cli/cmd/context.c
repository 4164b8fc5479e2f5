/* sandbox context: named servers, kept in the config file. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/settings.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

#define SECTION_PREFIX "context "

/* --- list and show ---------------------------------------------------------------------------------------------- */

static const char *section_name(const struct ini_item *item)
{
	size_t n = strlen(SECTION_PREFIX);
	return !item->key && strncmp(item->section, SECTION_PREFIX, n) == 0 ? item->section + n : NULL;
}

static cJSON *context_json(const struct ini_doc *d, const char *name)
{
	auto_free char *section = context_section(name);
	const char *current = context_current(d);
	cJSON *o = cJSON_CreateObject();
	json_add_str(o, "name", name);
	json_add_bool(o, "current", current && strcmp(current, name) == 0);
#define X(key, what) json_add_str(o, key, ini_doc_get(d, section, key));
	CONTEXT_KEYS(X)
#undef X
	return o;
}

static void print_list(const cJSON *list)
{
	static const char *const head[] = { "", "NAME", "SERVER", "TENANT" };
	auto_table *t = table_new(ARRAY_LEN(head));
	const cJSON *c;
	for (size_t i = 0; i < ARRAY_LEN(head); i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(c, list)
	{
		const char *url = json_text(c, "url"), *tenant = json_text(c, "tenant");
		table_cell(t, json_flag(c, "current") ? "*" : " ");
		table_cell(t, json_text(c, "name"));
		table_cell(t, *url ? url : "(the local daemon)");
		table_cell(t, *tenant ? tenant : "-");
	}
	table_print(t);
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	auto_ini *d = NULL;
	auto_json *list = cJSON_CreateArray();
	struct ini_item item;
	const cJSON *c;
	(void)opaque;
	if (settings_read(&d, err) != 0)
		return -1;
	for (size_t at = 0; ini_doc_next(d, &at, &item);)
		if (section_name(&item))
			cJSON_AddItemToArray(list, context_json(d, section_name(&item)));
	if (cli->json)
		return out_json(cli, list, err);
	if (!cli->quiet)
		print_list(list);
	else
		cJSON_ArrayForEach(c, list) out_line("%s", json_text(c, "name"));
	return 0;
}

static const struct verb context_list = {
	.name = "list",
	.alias = "ls",
	.flags = VERB_NO_SETTINGS,
	.summary = "list contexts; * marks the current one",
	.run = run_list,
};

struct name_options {
	const char *name;
};

static const struct positional optional_name[] = {
	POS(POS_OPTIONAL, WHAT_CONTEXT, "CONTEXT", struct name_options, name, "the context; the current one when left out"),
	POS_END,
};

static const struct positional one_name[] = {
	POS(POS_ONE, WHAT_CONTEXT, "CONTEXT", struct name_options, name, "the context"),
	POS_END,
};

static int must_exist(const struct ini_doc *d, const char *name, struct error *err)
{
	auto_free char *section = context_section(name);
	if (ini_doc_has_section(d, section))
		return 0;
	return context_name_check(name, err) == 0 ? error_set(err, ERR_NOT_FOUND, "there is no context '%s'", name) : -1;
}

static int run_show(struct cli *cli, void *opaque, struct error *err)
{
	const struct name_options *o = opaque;
	auto_ini *d = NULL;
	if (settings_read(&d, err) != 0)
		return -1;
	const char *name = o->name ? o->name : context_current(d);
	if (!name)
		return error_set(err, ERR_NOT_FOUND, "no context is current; `sandbox context use NAME` chooses one");
	if (must_exist(d, name, err) != 0)
		return -1;
	auto_json *c = context_json(d, name);
	if (cli->json)
		return out_json(cli, c, err);
	auto_table *t = table_new(2);
	const cJSON *field;
	cJSON_ArrayForEach(field, c)
	{
		if (cJSON_IsString(field)) {
			table_cell(t, field->string);
			table_cell(t, field->valuestring);
		}
	}
	table_print(t);
	return 0;
}

static const struct verb context_show = {
	.name = "show",
	.flags = VERB_NO_SETTINGS,
	.summary = "show one context",
	.positionals = optional_name,
	.size = sizeof(struct name_options),
	.run = run_show,
};

/* --- changes ---------------------------------------------------------------------------------------------------- */

struct create_options {
	const char *name, *url, *tenant, *helper;
	bool allow_http, use;
};

static const struct option_row create_options[] = {
	OPT_TEXT(0, "url", struct create_options, url, "URL", "https://host[:port][/prefix] or unix:///path"),
	OPT_TEXT(0, "token-helper", struct create_options, helper, "PROGRAM", "keeps the token (git-credential's protocol)"),
	OPT_FLAG(0, "allow-http", struct create_options, allow_http, "send the token without TLS, elsewhere too"),
	OPT_FLAG(0, "use", struct create_options, use, "make it the current one"),
	OPT_END,
};

static const struct positional create_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "NAME", struct create_options, name, "letters, digits, '.', '-' and '_'"),
	POS_END,
};

static int set_value(struct ini_doc *d, const char *section, const char *key, const char *text, struct error *err)
{
	auto_free char *value = NULL;
	if (!text)
		return 0;
	return context_value(key, text, &value, err) == 0 ? ini_doc_set(d, section, key, value, err) : -1;
}

static int change_create(struct ini_doc *d, void *ctx, struct error *err)
{
	const struct create_options *o = ctx;
	auto_free char *section = context_section(o->name);
	if (context_name_check(o->name, err) != 0)
		return -1;
	if (ini_doc_has_section(d, section))
		return error_set(err, ERR_CONFLICT, "there is a context '%s' already; `sandbox config set` changes the current one", o->name);
	if (ini_doc_add_section(d, section, err) != 0 || set_value(d, section, "url", o->url, err) != 0 ||
	    set_value(d, section, "tenant", o->tenant, err) != 0 || set_value(d, section, "token-helper", o->helper, err) != 0 ||
	    set_value(d, section, "allow-http", o->allow_http ? "yes" : NULL, err) != 0)
		return -1;
	return o->use ? ini_doc_set(d, "cli", "context", o->name, err) : 0;
}

static int run_create(struct cli *cli, void *opaque, struct error *err)
{
	struct create_options *o = opaque;
	/* The global options mean what is to be kept here. */
	o->url = o->url ? o->url : cli->server;
	o->tenant = cli->tenant;
	if (settings_change(change_create, o, err) != 0)
		return -1;
	if (cli->quiet)
		out_line("%s", o->name);
	out_note(cli, "created context %s%s", o->name, o->use ? ", which is now the current one" : "");
	return 0;
}

static const struct verb context_create = {
	.name = "create",
	.flags = VERB_NO_SETTINGS,
	.summary = "make a context",
	.options = create_options,
	.positionals = create_positionals,
	.size = sizeof(struct create_options),
	.run = run_create,
};

static int change_use(struct ini_doc *d, void *ctx, struct error *err)
{
	const struct name_options *o = ctx;
	return must_exist(d, o->name, err) == 0 ? ini_doc_set(d, "cli", "context", o->name, err) : -1;
}

static int run_use(struct cli *cli, void *opaque, struct error *err)
{
	struct name_options *o = opaque;
	if (settings_change(change_use, o, err) != 0)
		return -1;
	out_note(cli, "context %s is now the current one", o->name);
	if (getenv("SANDBOX_CONTEXT") || getenv("SANDBOX_URL"))
		out_warn(cli, "%s is set and wins over it", getenv("SANDBOX_URL") ? "SANDBOX_URL" : "SANDBOX_CONTEXT");
	return 0;
}

static const struct verb context_use = {
	.name = "use",
	.flags = VERB_NO_SETTINGS,
	.summary = "make a context the current one",
	.positionals = one_name,
	.size = sizeof(struct name_options),
	.run = run_use,
};

struct rename_options {
	const char *from, *to;
};

static const struct positional rename_positionals[] = {
	POS(POS_ONE, WHAT_CONTEXT, "CONTEXT", struct rename_options, from, "the context"),
	POS(POS_ONE, WHAT_TEXT, "NAME", struct rename_options, to, "its new name"),
	POS_END,
};

static int change_rename(struct ini_doc *d, void *ctx, struct error *err)
{
	const struct rename_options *o = ctx;
	auto_free char *from = context_section(o->from);
	auto_free char *to = context_section(o->to);
	const char *current = context_current(d);
	bool was_current = current && strcmp(current, o->from) == 0;
	if (must_exist(d, o->from, err) != 0 || context_name_check(o->to, err) != 0)
		return -1;
	if (ini_doc_has_section(d, to))
		return error_set(err, ERR_CONFLICT, "there is a context '%s' already", o->to);
	ini_doc_rename_section(d, from, to);
	return was_current ? ini_doc_set(d, "cli", "context", o->to, err) : 0;
}

static int run_rename(struct cli *cli, void *opaque, struct error *err)
{
	struct rename_options *o = opaque;
	if (settings_change(change_rename, o, err) != 0)
		return -1;
	out_note(cli, "context %s is now called %s", o->from, o->to);
	return 0;
}

static const struct verb context_rename = {
	.name = "rename",
	.flags = VERB_NO_SETTINGS,
	.summary = "give a context another name",
	.positionals = rename_positionals,
	.size = sizeof(struct rename_options),
	.run = run_rename,
};

static int change_delete(struct ini_doc *d, void *ctx, struct error *err)
{
	const struct name_options *o = ctx;
	auto_free char *section = context_section(o->name);
	const char *current = context_current(d);
	if (must_exist(d, o->name, err) != 0)
		return -1;
	if (current && strcmp(current, o->name) == 0)
		ini_doc_unset(d, "cli", "context");
	ini_doc_remove_section(d, section);
	return 0;
}

static int run_delete(struct cli *cli, void *opaque, struct error *err)
{
	struct name_options *o = opaque;
	if (settings_change(change_delete, o, err) != 0)
		return -1;
	out_note(cli, "deleted context %s", o->name);
	return 0;
}

static const struct verb context_delete = {
	.name = "delete",
	.alias = "rm",
	.flags = VERB_NO_SETTINGS,
	.summary = "forget a context",
	.positionals = one_name,
	.size = sizeof(struct name_options),
	.run = run_delete,
};

static const struct verb *const subverbs[] = {
	&context_list, &context_show, &context_create, &context_use, &context_rename, &context_delete, NULL,
};

static const struct example examples[] = {
	{ "sandbox context create work --url https://sandbox.example.com --use", "a server with a name; --tenant is kept too" },
	{ "sandbox --context work list", "for one command" },
	{ NULL, NULL },
};

const struct verb verb_context = {
	.name = "context",
	.alias = "ctx",
	.group = GROUP_SETTINGS,
	.flags = VERB_NO_SETTINGS,
	.summary = "keep servers and tenants under names",
	.manual = "A context is a server with a tenant, under a name. What counts is, in this order: --server and --tenant; --context; SANDBOX_URL and "
		  "SANDBOX_TENANT; SANDBOX_CONTEXT; the current context; the local daemon's socket. A server given by flag or environment sets the "
		  "context aside, with its tenant, unless --context asks for it. A context without a url means the local daemon.\n"
		  "\n"
		  "Contexts are in the file config in the settings directory, which may be edited by hand: comments survive. Tokens are not in it; "
		  "they are kept by `sandbox login`.",
	.examples = examples,
	.subverbs = subverbs,
};
