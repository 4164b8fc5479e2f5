/* sandbox node: list, inspect, token, drain, undrain, remove. */
#include "cli/command.h"

#include "cli/enroll/enroll.h"
#include "cli/enroll/verbs.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 7 };

/* --- list ------------------------------------------------------------------------------------------------------- */

static const char *state_of(const cJSON *node)
{
	bool up = strcmp(json_text(node, "state"), "up") == 0;
	if (json_flag(node, "draining"))
		return up ? "draining" : "draining, down";
	return up ? "up" : "down";
}

static void words(const cJSON *node, const char *key, struct buf *out)
{
	const cJSON *word;
	cJSON_ArrayForEach(word, cJSON_GetObjectItemCaseSensitive(node, key))
		buf_addf(out, "%s%s", out->len ? "," : "", cJSON_IsString(word) ? word->valuestring : "?");
}

static int64_t number(const cJSON *j, const char *group, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(group ? cJSON_GetObjectItemCaseSensitive(j, group) : j, key);
	return cJSON_IsNumber(v) ? (int64_t)v->valuedouble : 0;
}

static void list_row(struct table *t, const cJSON *node)
{
	auto_buf tiers = BUF_INIT;
	const char *region = json_text(node, "region"), *version = json_text(node, "version");
	words(node, "tiers", &tiers);
	table_cell(t, json_text(node, "name"));
	table_cell(t, state_of(node));
	table_cellf(t, "%lld/%lld", (long long)number(node, NULL, "sandboxes"), (long long)number(node, NULL, "max_sandboxes"));
	table_cellf(t, "%lld/%lld MiB", (long long)number(node, "used", "memory_mib"), (long long)number(node, "total", "memory_mib"));
	table_cell(t, tiers.len ? buf_str(&tiers) : "-");
	table_cell(t, *region ? region : "-");
	table_cell(t, *version ? version : "-");
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "NAME", "STATE", "SANDBOXES", "MEMORY", "TIERS", "REGION", "VERSION" };
	(void)opaque;
	auto_json *answer = NULL;
	struct call c = { .method = "GET", .target = "/v1/nodes" };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *node, *list = cJSON_GetObjectItemCaseSensitive(answer, "nodes");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of nodes");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(node, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(node, "id"));
		else
			list_row(t, node);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb node_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list nodes",
	.run = run_list,
};

/* --- one node --------------------------------------------------------------------------------------------------- */

struct node_options {
	const char *ref;
	bool force;
	struct host_options host; /* where: --purge */
};

static const struct positional node_positionals[] = {
	POS(POS_ONE, WHAT_NODE, "NODE", struct node_options, ref, "its name or id"),
	POS_END,
};

static void show(const cJSON *node)
{
	static const char *const texts[][2] = { { "id", "id" }, { "name", "name" }, { "region", "region" }, { "version", "version" },
						{ "seen", "seen_at" }, { "joined", "joined_at" }, { "linked", "linked_at" } };
	static const char *const kinds[] = { "cpu_millis", "memory_mib", "disk_mib", "pids" };
	auto_buf tiers = BUF_INIT, networks = BUF_INIT;
	words(node, "tiers", &tiers);
	words(node, "networks", &networks);
	out_line("%-12s %s", "state", state_of(node));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (*json_text(node, texts[i][1]))
			out_line("%-12s %s", texts[i][0], json_text(node, texts[i][1]));
	out_line("%-12s %s", "tiers", tiers.len ? buf_str(&tiers) : "none");
	out_line("%-12s %s", "networks", networks.len ? buf_str(&networks) : "none");
	out_line("%-12s %lld of %lld", "sandboxes", (long long)number(node, NULL, "sandboxes"), (long long)number(node, NULL, "max_sandboxes"));
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		out_line("%-12s %lld of %lld", kinds[i], (long long)number(node, "used", kinds[i]), (long long)number(node, "total", kinds[i]));
	out_line("%-12s %lld %%", "pressure", (long long)number(node, NULL, "pressure_percent"));
}

/* step: "" or "/…" behind the node's path. */
static int call_node(struct cli *cli, const char *method, const char *ref, const char *step, const char *done, struct error *err)
{
	auto_json *answer = NULL;
	auto_free char *path = session_path("/v1/nodes/%s", ref);
	auto_free char *target = xasprintf("%s%s", path, step);
	struct call c = { .method = method, .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *node = cJSON_GetObjectItemCaseSensitive(answer, "node");
	if (cli->json)
		return out_json(cli, node, err);
	if (done)
		out_note(cli, "%s: %s", done, ref);
	else
		show(node);
	return 0;
}

static int run_inspect(struct cli *cli, void *opaque, struct error *err)
{
	const struct node_options *o = opaque;
	return call_node(cli, "GET", o->ref, "", NULL, err);
}

static const struct verb node_inspect = {
	.name = "inspect",
	.summary = "show one node",
	.positionals = node_positionals,
	.size = sizeof(struct node_options),
	.run = run_inspect,
};

static int run_drain(struct cli *cli, void *opaque, struct error *err)
{
	const struct node_options *o = opaque;
	return call_node(cli, "POST", o->ref, "/drain", "draining", err);
}

static const struct verb node_drain = {
	.name = "drain",
	.summary = "give a node no new sandboxes; those it has stay",
	.positionals = node_positionals,
	.size = sizeof(struct node_options),
	.run = run_drain,
};

static int run_undrain(struct cli *cli, void *opaque, struct error *err)
{
	const struct node_options *o = opaque;
	return call_node(cli, "POST", o->ref, "/undrain", "takes sandboxes again", err);
}

static const struct verb node_undrain = {
	.name = "undrain",
	.summary = "give a node sandboxes again",
	.positionals = node_positionals,
	.size = sizeof(struct node_options),
	.run = run_undrain,
};

/* --- remove ----------------------------------------------------------------------------------------------------- */

static const struct option_row remove_options[] = {
	OPT_FLAG(0, "force", struct node_options, force, "also with sandboxes: they fail"),
	OPT_TEXT(0, "purge", struct node_options, host.where, "HOST", "also clear its machine, over SSH"),
	HOST_ROWS(struct node_options, host),
	OPT_END,
};

static int run_remove(struct cli *cli, void *opaque, struct error *err)
{
	const struct node_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *path = session_path("/v1/nodes/%s", o->ref);
	auto_free char *target = xasprintf("%s%s", path, o->force ? "?force=true" : "");
	struct call c = { .method = "DELETE", .target = target };
	struct error e = ERROR_INIT;
	bool gone = session_call(cli, &c, &answer, &e) == 0;
	/* A machine that could not be cleared when its node was removed is cleared by the same line again. */
	if (!gone && (e.code != ERR_NOT_FOUND || !o->host.where)) {
		*err = e;
		return -1;
	}
	out_note(cli, gone ? "removed: %s" : "no node is called %s any more", o->ref);
	return o->host.where ? enroll_purge(cli, &o->host, gone ? NULL : o->ref, err) : 0;
}

static const struct verb node_remove = {
	.name = "remove",
	.alias = "rm",
	.summary = "forget a node and refuse its credential",
	.options = remove_options,
	.positionals = node_positionals,
	.size = sizeof(struct node_options),
	.run = run_remove,
};

/* --- token ------------------------------------------------------------------------------------------------------ */

struct token_options {
	const char *name, *pin;
	bool no_pin;
	int64_t lifetime_ms;
};

static const struct option_row token_options[] = {
	OPT_TEXT(0, "pin", struct token_options, pin, "PIN", "key the worker has to see (the server's own)"),
	OPT_FLAG(0, "no-pin", struct token_options, no_pin, "bind it to no key: a certificate decides"),
	OPT_DURATION(0, "expires", struct token_options, lifetime_ms, "TIME", 1000, 3600LL * 1000, "how long it is valid (1h, at most)"),
	OPT_END,
};

static const struct positional token_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "NAME", struct token_options, name, "what the node will be called"),
	POS_END,
};

static int run_token(struct cli *cli, void *opaque, struct error *err)
{
	const struct token_options *o = opaque;
	auto_json *body = cJSON_CreateObject(), *answer = NULL;
	if (o->pin && o->no_pin)
		return error_set(err, ERR_INVALID, "--pin and --no-pin exclude each other");
	json_add_str(body, "name", o->name);
	if (o->pin || o->no_pin)
		json_add_str(body, "pin", o->pin ? o->pin : "");
	if (o->lifetime_ms)
		json_add_i64(body, "lifetime_seconds", o->lifetime_ms / 1000);
	struct call c = { .method = "POST", .target = "/v1/nodes/tokens", .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, answer, err);
	out_line("%s", json_text(answer, "secret"));
	out_note(cli, "good once, until %.16sZ, for a worker with worker.name = %s; it reads SANDBOX_JOIN_TOKEN or worker.join_token_file",
		 json_text(answer, "expires_at"), o->name);
	return 0;
}

static const struct verb node_token = {
	.name = "token",
	.summary = "make a join token for one worker, printed once",
	.options = token_options,
	.positionals = token_positionals,
	.size = sizeof(struct token_options),
	.run = run_token,
};

static const struct verb *const subverbs[] = { &node_list, &node_inspect, &node_add, &node_upgrade, &node_rotate, &node_token, &node_drain, &node_undrain, &node_remove, NULL };

static const struct example examples[] = {
	{ "sandbox node add root@rack-1", "make a machine a worker, over SSH" },
	{ "sandbox node token rack-1", "a token for the worker that will be rack-1" },
	{ "sandbox node drain rack-1", "before its machine is taken down" },
	{ NULL, NULL },
};

const struct verb verb_node = {
	.name = "node",
	.group = GROUP_SERVER,
	.summary = "the machines that sandboxes run on",
	.manual = "A worker joins its controller once, with a join token, and has a credential of its own afterwards. A node whose worker is away keeps its "
		  "sandboxes and what is reserved for them, until it comes back or is removed. Admins only.",
	.examples = examples,
	.subverbs = subverbs,
};
