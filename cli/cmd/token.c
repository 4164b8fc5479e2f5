/* sandbox token: create, list, revoke. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 6 };

/* --- create ----------------------------------------------------------------------------------------------------- */

struct create_options {
	const char *name, *role;
	struct strv tenants;
	int64_t lifetime_ms;
};

static const struct create_options create_defaults = { .role = "operator" };

static const struct option_row create_options[] = {
	OPT_WORD(0, "role", struct create_options, role, "ROLE", "viewer|operator|admin", "what it may do (default operator)"),
	OPT_LIST(0, "for", struct create_options, tenants, "TENANT", "a tenant it may act in, the first by default (all)"),
	OPT_DURATION(0, "expires", struct create_options, lifetime_ms, "TIME", 1000, 3650LL * 24 * 3600 * 1000, "how long it is valid"),
	OPT_END,
};

static const struct positional create_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "NAME", struct create_options, name, "what it is called in lists and in the audit log"),
	POS_END,
};

static int run_create(struct cli *cli, void *opaque, struct error *err)
{
	const struct create_options *o = opaque;
	auto_json *body = cJSON_CreateObject(), *answer = NULL;
	json_add_str(body, "name", o->name);
	json_add_str(body, "role", o->role);
	if (o->tenants.len)
		json_add_strv(body, "tenants", &o->tenants);
	if (o->lifetime_ms)
		json_add_i64(body, "lifetime_seconds", o->lifetime_ms / 1000);
	struct call c = { .method = "POST", .target = "/v1/tokens", .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, answer, err);
	out_line("%s", json_text(answer, "secret"));
	out_note(cli, "this is the only time it is shown; use it as SANDBOX_TOKEN");
	return 0;
}

static const struct verb token_create = {
	.name = "create",
	.summary = "make a token and print its secret, once",
	.options = create_options,
	.positionals = create_positionals,
	.size = sizeof(struct create_options),
	.defaults = &create_defaults,
	.run = run_create,
};

/* --- list ------------------------------------------------------------------------------------------------------- */

static const char *token_state(const cJSON *t, int64_t now_us)
{
	int64_t at;
	if (json_text(t, "revoked_at")[0])
		return "revoked";
	if (time_parse_rfc3339(json_text(t, "expires_at"), &at) == 0 && at <= now_us)
		return "expired";
	return "in use";
}

static void list_row(struct table *t, const cJSON *token, int64_t now_us)
{
	auto_buf tenants = BUF_INIT;
	const cJSON *name;
	cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(token, "tenants"))
		buf_addf(&tenants, "%s%s", tenants.len ? "," : "", cJSON_IsString(name) ? name->valuestring : "?");
	const char *expires = json_text(token, "expires_at"), *used = json_text(token, "last_used_at");
	table_cell(t, json_text(token, "name"));
	table_cell(t, json_text(token, "role"));
	table_cell(t, buf_str(&tenants));
	table_cell(t, token_state(token, now_us));
	table_cellf(t, "%.10s", expires[0] ? expires : "never");
	if (used[0])
		table_cellf(t, "%.16sZ from %s", used, json_text(token, "last_used_from"));
	else
		table_cell(t, "never");
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "NAME", "ROLE", "TENANTS", "STATE", "EXPIRES", "LAST USED" };
	(void)opaque;
	auto_json *answer = NULL;
	struct call c = { .method = "GET", .target = "/v1/tokens" };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *token, *list = cJSON_GetObjectItemCaseSensitive(answer, "tokens");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of tokens");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(token, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(token, "id"));
		else
			list_row(t, token, clock_wall_us());
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb token_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list tokens, the newest first",
	.run = run_list,
};

/* --- revoke ----------------------------------------------------------------------------------------------------- */

struct revoke_options {
	const char *ref;
};

static const struct positional revoke_positionals[] = {
	POS(POS_ONE, WHAT_TOKEN, "TOKEN", struct revoke_options, ref, "its name or id, never its secret"),
	POS_END,
};

static int run_revoke(struct cli *cli, void *opaque, struct error *err)
{
	const struct revoke_options *o = opaque;
	auto_json *answer = NULL;
	/* It would land in logs of addresses. */
	if (strncmp(o->ref, "sbx_", 4) == 0)
		return error_set(err, ERR_INVALID, "give the token's name or id; its secret belongs in no address");
	auto_free char *target = session_path("/v1/tokens/%s", o->ref);
	struct call c = { .method = "DELETE", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, cJSON_GetObjectItemCaseSensitive(answer, "token"), err);
	out_note(cli, "revoked: %s", o->ref);
	return 0;
}

static const struct verb token_revoke = {
	.name = "revoke",
	.alias = "rm",
	.summary = "refuse a token from now on",
	.positionals = revoke_positionals,
	.size = sizeof(struct revoke_options),
	.run = run_revoke,
};

static const struct verb *const subverbs[] = { &token_create, &token_list, &token_revoke, NULL };

static const struct example examples[] = {
	{ "sandbox token create ci --for ci --expires 30d", "one for a pipeline; prints the secret" },
	{ "sandbox token revoke ci", "no longer valid" },
	{ NULL, NULL },
};

const struct verb verb_token = {
	.name = "token",
	.group = GROUP_SERVER,
	.summary = "make, list and revoke tokens for remote use",
	.manual = "A token says who calls over https: it has a role (viewer looks, operator also changes, admin also administers) and the tenants it may "
		  "act in. The server keeps only a hash of it. Admins only.",
	.examples = examples,
	.subverbs = subverbs,
};
