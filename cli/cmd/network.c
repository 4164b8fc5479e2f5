/* sandbox network: what leaves a sandbox with restricted egress: log, rules, check, set, tenant. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

static int get(struct cli *cli, const char *ref, cJSON **ret, struct error *err)
{
	auto_free char *target = session_path("/v1/sandboxes/%s/network", ref);
	struct call c = { .method = "GET", .target = target };
	return session_call(cli, &c, ret, err);
}

struct one_option {
	const char *ref;
};

static const struct positional one_positional[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct one_option, ref, "the sandbox"),
	POS_END,
};

static void head(struct table *t, const char *const *names)
{
	for (; *names; names++)
		table_cell(t, *names);
}

/* --- log -------------------------------------------------------------------------------------------------------- */

static int run_log(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const names[] = { "WHEN", "TARGET", "VERDICT", "OUT", "IN", "REASON", NULL };
	const struct one_option *o = opaque;
	auto_json *answer = NULL;
	const cJSON *one;
	char size[24];
	if (get(cli, o->ref, &answer, err) != 0)
		return -1;
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(answer, "attempts");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of attempts");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(6);
	head(t, names);
	cJSON_ArrayForEach(one, list)
	{
		table_cellf(t, "%.19sZ", json_text(one, "at"));
		table_cell(t, json_text(one, "target"));
		table_cell(t, json_flag(one, "allowed") ? "allowed" : "denied");
		table_cell(t, size_text(json_number(one, "bytes_out", 0), size));
		table_cell(t, size_text(json_number(one, "bytes_in", 0), size));
		table_cell(t, json_text(one, "reason"));
	}
	table_print(t);
	return 0;
}

static const struct verb network_log = {
	.name = "log",
	.summary = "show what was tried, and how it was judged",
	.manual = "The latest 200 attempts since the worker started, oldest first. With --json the list of attempts.",
	.positionals = one_positional,
	.size = sizeof(struct one_option),
	.run = run_log,
};

/* --- rules ------------------------------------------------------------------------------------------------------ */

static int run_rules(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const names[] = { "LEVEL", "RULE", "ALLOWED", "DENIED", NULL };
	const struct one_option *o = opaque;
	auto_json *answer = NULL;
	const cJSON *one;
	if (get(cli, o->ref, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, answer, err);
	cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(answer, "egress"))
		out_line("%s", cJSON_IsString(one) ? one->valuestring : "?");
	auto_table *t = table_new(4);
	head(t, names);
	cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(answer, "rules"))
	{
		table_cell(t, json_text(one, "level"));
		table_cell(t, json_text(one, "rule")[0] ? json_text(one, "rule") : "(none matched)");
		table_cellf(t, "%.0f", json_number(one, "allowed", 0));
		table_cellf(t, "%.0f", json_number(one, "denied", 0));
	}
	table_print(t);
	return 0;
}

static const struct verb network_rules = {
	.name = "rules",
	.summary = "show its rules and how often each decided",
	.positionals = one_positional,
	.size = sizeof(struct one_option),
	.run = run_rules,
};

/* --- check ------------------------------------------------------------------------------------------------------ */

struct check_options {
	const char *ref, *target;
};

static const struct positional check_positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct check_options, ref, "the sandbox"),
	POS(POS_ONE, WHAT_TEXT, "HOST:PORT", struct check_options, target, "where to; the port may be left out for 443"),
	POS_END,
};

static int run_check(struct cli *cli, void *opaque, struct error *err)
{
	const struct check_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s/network/check?target=%s", o->ref, o->target);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (!cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(answer, "allowed")))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no verdict");
	bool allowed = json_flag(answer, "allowed");
	if (cli->json && out_json(cli, answer, err) != 0)
		return -1;
	if (!cli->json && !cli->quiet)
		out_line("%s %s: %s", allowed ? "allowed" : "denied", json_text(answer, "target"), json_text(answer, "reason"));
	return allowed ? 0 : 1;
}

static const struct verb network_check = {
	.name = "check",
	.summary = "say what a connection would meet (exits 0, 1)",
	.positionals = check_positionals,
	.size = sizeof(struct check_options),
	.run = run_check,
};

/* --- set -------------------------------------------------------------------------------------------------------- */

struct set_options {
	const char *ref;
	struct strv allow;
	bool none, standard;
};

static const struct option_row set_options[] = {
	OPT_LIST(0, "allow", struct set_options, allow, "RULE", "a rule, in order; with ! in front it refuses"),
	OPT_FLAG(0, "none", struct set_options, none, "nothing may be reached"),
	OPT_FLAG(0, "default", struct set_options, standard, "the server's default again"),
	OPT_END,
};

static const struct positional set_positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct set_options, ref, "the sandbox"),
	POS_END,
};

static int check_choice(const struct set_options *o, struct error *err)
{
	if ((o->allow.len > 0) + o->none + o->standard == 1)
		return 0;
	return error_set(err, ERR_INVALID, "give --allow RULE (repeatable), --none, or --default");
}

static int run_set(struct cli *cli, void *opaque, struct error *err)
{
	const struct set_options *o = opaque;
	auto_json *body = cJSON_CreateObject(), *answer = NULL;
	auto_strv none = STRV_INIT;
	auto_free char *target = session_path("/v1/sandboxes/%s/network", o->ref);
	struct call c = { .method = "PUT", .target = target, .body = body };
	if (check_choice(o, err) != 0)
		return -1;
	if (o->none)
		strv_add(&none, "!*");
	json_add_strv(body, "rules", o->none ? &none : &o->allow);
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), err);
	out_note(cli, "the rules of %s are in force; what they no longer allow was closed", o->ref);
	return 0;
}

static const struct verb network_set = {
	.name = "set",
	.summary = "replace the rules of a running sandbox",
	.options = set_options,
	.positionals = set_positionals,
	.size = sizeof(struct set_options),
	.run = run_set,
};

/* --- tenant ----------------------------------------------------------------------------------------------------- */

static const struct positional tenant_positionals[] = {
	POS(POS_ONE, WHAT_TENANT, "TENANT", struct set_options, ref, "the tenant"),
	POS_END,
};

static void add_tenant_rules(cJSON *body, const struct set_options *o)
{
	if (o->standard)
		json_add_str(body, "rules", NULL);
	else
		json_add_strv(body, "rules", &o->allow);
}

static int run_tenant(struct cli *cli, void *opaque, struct error *err)
{
	const struct set_options *o = opaque;
	bool change = o->allow.len > 0 || o->none || o->standard;
	auto_json *body = change ? cJSON_CreateObject() : NULL, *answer = NULL;
	const cJSON *one;
	auto_free char *target = session_path("/v1/tenants/%s/egress", o->ref);
	struct call c = { .method = change ? "PUT" : "GET", .target = target, .body = body };
	if (change && check_choice(o, err) != 0)
		return -1;
	if (change)
		add_tenant_rules(body, o);
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *rules = cJSON_GetObjectItemCaseSensitive(answer, "rules");
	if (cli->json)
		return out_json(cli, answer, err);
	cJSON_ArrayForEach(one, rules)
		out_line("%s", cJSON_IsString(one) ? one->valuestring : "?");
	if (!cJSON_IsArray(rules))
		out_note(cli, "tenant %s has no rules of its own", o->ref);
	else if (cJSON_GetArraySize(rules) == 0)
		out_note(cli, "tenant %s may reach nothing", o->ref);
	return 0;
}

static const struct verb network_tenant = {
	.name = "tenant",
	.summary = "show or set what a tenant's sandboxes may reach",
	.manual = "Setting is for admins, and is in force at once for sandboxes that run. --default takes the tenant's rules away.",
	.options = set_options,
	.positionals = tenant_positionals,
	.size = sizeof(struct set_options),
	.run = run_tenant,
};

static const struct verb *const subverbs[] = { &network_log, &network_rules, &network_check, &network_set, &network_tenant, NULL };

static const struct example examples[] = {
	{ "sandbox network check dev registry.npmjs.org:443", "would it be let through, and by which rule" },
	{ "sandbox network set dev --allow '*.example.com'", "from now on" },
	{ "sandbox network log dev", "what was tried" },
	{ NULL, NULL },
};

const struct verb verb_network = {
	.name = "network",
	.group = GROUP_INSIDE,
	.summary = "see and change what leaves a sandbox",
	.manual = "A sandbox created with --network restricted has no interface but loopback; programs reach the outside through a proxy that they find in their "
		  "environment. Each connection is judged by rules of the server, of the tenant and of the sandbox: all must allow it, the first rule that "
		  "matches decides, and what no rule matches is denied. Then the name is resolved and every address must be public. A rule is a name, "
		  "*.name, *, an address or a network, with :PORT, :FROM-TO or :* behind it (443 without one); ! in front refuses.",
	.examples = examples,
	.subverbs = subverbs,
};
