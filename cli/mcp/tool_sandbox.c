/* Tools for sandboxes themselves: health, create, list, inspect, extend, delete. Policy is the server's; only words are mapped here. */
#include "cli/mcp/mcp.h"

#include "cli/create.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/model/egress.h"
#include "shared/model/model.h"

#include <errno.h>
#include <string.h>

/* CAPACITY_WAIT: below what one request may take. */
enum { PAGE_DEFAULT = 50, CAPACITY_WAIT_MAX_S = 45 };

/* The member `key` of an answer, as the tool's only member of that name. */
static int pass_on(struct tool_result *ret, cJSON *take_answer, const char *key, struct error *err)
{
	const cJSON *inner = cJSON_GetObjectItemCaseSensitive(take_answer, key);
	if (!inner && json_text(take_answer, "id")[0]) {
		ret->value = cJSON_CreateObject();
		cJSON_AddItemToObject(ret->value, key, take_answer);
		return 0;
	}
	if (!inner) {
		cJSON_Delete(take_answer);
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no %s", key);
	}
	ret->value = take_answer;
	return 0;
}

/* --- health ----------------------------------------------------------------------------------------------------------- */

static int run_health(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	cJSON *answer = NULL;
	if (json_end(args) != 0)
		return -1;
	struct call_request q = { .method = "GET", .target = xstrdup("/readyz") };
	if (mcp_request(c, &q, &answer, err) != 0)
		return -1;
	ret->value = cJSON_CreateObject();
	cJSON_AddItemToObject(ret->value, "health", answer);
	return 0;
}

const struct tool tool_health = {
	.name = "sandbox_health", .title = "Check the server", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Check that the sandbox server answers, its version, clock and store. Call it once before starting work.",
	.properties = "", .required = "[]", .output = "\"health\":{\"type\":\"object\"}", .run = run_health,
};

/* --- create ----------------------------------------------------------------------------------------------------------- */

struct create {
	cJSON *spec;
	bool wait;
	int64_t wait_capacity_s;
};

static void copy_text(struct json_reader *args, cJSON *to, const char *key, size_t max)
{
	auto_free char *v = NULL;
	json_get_str(args, key, JSON_OPTIONAL, max, &v);
	if (v)
		json_add_str(to, key, v);
}

static void copy_number(struct json_reader *args, cJSON *to, const char *key, int64_t min, int64_t max)
{
	int64_t v = -1;
	json_get_i64(args, key, JSON_OPTIONAL, min, max, &v);
	if (v >= 0)
		json_add_i64(to, key, v);
}

static void copy_flag(struct json_reader *args, const char *from, cJSON *to, const char *key)
{
	bool v = false;
	json_get_bool(args, from, JSON_OPTIONAL, &v);
	if (v)
		json_add_bool(to, key, true);
}

static void copy_map(struct json_reader *args, cJSON *to, const char *key, size_t items, size_t max)
{
	auto_map v = MAP_INIT;
	json_get_map(args, key, JSON_OPTIONAL, items, max, &v);
	if (v.len)
		json_add_map(to, key, &v);
}

static void copy_list(struct json_reader *args, cJSON *to, const char *key, size_t items, size_t max)
{
	auto_strv v = STRV_INIT;
	json_get_strv(args, key, JSON_OPTIONAL, items, max, &v);
	if (v.len)
		json_add_strv(to, key, &v);
}

/* deny, restricted and open for people; the API's words are taken too. */
static void copy_network(struct json_reader *args, cJSON *spec)
{
	auto_free char *word = NULL;
	enum network mode = NETWORK_DENY;
	json_get_str(args, "network", JSON_OPTIONAL, 32, &word);
	if (!word)
		return;
	if (strcmp(word, "restricted") == 0)
		mode = NETWORK_RESTRICTED;
	else if (strcmp(word, "open") == 0)
		mode = NETWORK_OPEN;
	else if (network_parse(word, &mode) != 0)
		json_fail(args, "network", "'%.40s' is not one of deny, restricted, open", word);
	json_add_str(spec, "network", network_text(mode));
}

static void copy_secrets(struct json_reader *args, cJSON *spec)
{
	auto_strv uses = STRV_INIT;
	struct error err = ERROR_INIT;
	json_get_strv(args, "secrets", JSON_OPTIONAL, LIMIT_SECRETS_PER_SANDBOX, 256, &uses);
	if (uses.len == 0)
		return;
	cJSON *list = cJSON_AddArrayToObject(spec, "secrets");
	for (size_t i = 0; i < uses.len; i++) {
		if (create_add_secret(list, uses.items[i], &err) != 0) {
			json_fail(args, "secrets", "%s", err.message);
			return;
		}
	}
}

static void copy_allow(struct json_reader *args, cJSON *spec)
{
	auto_strv rules = STRV_INIT;
	json_get_strv(args, "allow", JSON_OPTIONAL, LIMIT_EGRESS_RULES_MAX, EGRESS_RULE_TEXT_MAX, &rules);
	if (rules.len)
		json_add_strv(spec, "egress", &rules);
}

static void read_resources(struct json_reader *args, cJSON *spec)
{
	cJSON *r = cJSON_AddObjectToObject(spec, "resources");
	copy_number(args, r, "cpu_millis", LIMIT_CPU_MILLIS_MIN, LIMIT_CPU_MILLIS_MAX);
	copy_number(args, r, "memory_mib", LIMIT_MEMORY_MIB_MIN, LIMIT_MEMORY_MIB_MAX);
	copy_number(args, r, "disk_mib", LIMIT_DISK_MIB_MIN, LIMIT_DISK_MIB_MAX);
	copy_number(args, r, "pids", LIMIT_PIDS_MIN, LIMIT_PIDS_MAX);
}

static int read_create(struct json_reader *args, struct create *o)
{
	cJSON *spec = o->spec;
	auto_free char *image = NULL;
	json_get_str(args, "image", JSON_OPTIONAL, LIMIT_IMAGE_NAME_MAX, &image);
	json_add_str(spec, "image", image ? image : "sandbox-base:latest");
	copy_text(args, spec, "tenant", 64);
	copy_text(args, spec, "name", 64);
	copy_list(args, spec, "command", LIMIT_ARGS_MAX, LIMIT_ARG_ONE_MAX);
	copy_map(args, spec, "env", LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX);
	copy_map(args, spec, "labels", LIMIT_LABELS_MAX, 256);
	read_resources(args, spec);
	copy_number(args, spec, "ttl_seconds", LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS);
	copy_network(args, spec);
	copy_allow(args, spec);
	copy_secrets(args, spec);
	copy_text(args, spec, "isolation", 32);
	copy_text(args, spec, "sensitivity", 32);
	copy_flag(args, "writable_root", spec, "writable_root");
	cJSON *signals = cJSON_AddObjectToObject(spec, "signals");
	copy_flag(args, "untrusted_repo", signals, "untrusted_repository");
	copy_flag(args, "generated_code", signals, "executes_generated_code");
	copy_flag(args, "needs_secrets", signals, "needs_secrets");
	cJSON *placement = cJSON_AddObjectToObject(spec, "placement");
	copy_map(args, placement, "required_labels", LIMIT_LABELS_MAX, 256);
	copy_text(args, placement, "preferred_region", 64);
	copy_list(args, placement, "anti_affinity_keys", LIMIT_LABELS_MAX, 128);
	json_get_bool(args, "wait", JSON_OPTIONAL, &o->wait);
	json_get_i64(args, "wait_capacity_seconds", JSON_OPTIONAL, 0, CAPACITY_WAIT_MAX_S, &o->wait_capacity_s);
	return json_end(args);
}

/* Nobody will learn the id of what a cancelled call made. */
static void undo_create(struct tool_call *c, const char *id)
{
	struct call_request q = { .method = "DELETE", .target = session_path("/v1/sandboxes/%s", id), .keyed = true };
	mcp_request(c, &q, NULL, NULL);
}

static int read_back(struct tool_call *c, const char *id, cJSON **ret, struct error *err)
{
	struct call_request q = { .method = "GET", .target = session_path("/v1/sandboxes/%s", id) };
	return mcp_request(c, &q, ret, err);
}

int mcp_await_create(struct tool_call *c, cJSON *answer, struct tool_result *ret, struct error *err)
{
	const cJSON *op = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	auto_free char *id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	cJSON *ended = NULL, *sandbox = NULL;
	struct error e = ERROR_INIT;
	if (!*id)
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no sandbox");
	if (mcp_wait(c, json_text(op, "id"), "creating", c->wait_ms, &ended, &e) != 0) {
		if (e.sys == EINTR)
			undo_create(c, id);
		*err = e;
		return -1;
	}
	ret->failed = strcmp(json_text(ended, "state"), "failed") == 0;
	cJSON_ReplaceItemInObjectCaseSensitive(answer, "operation", ended);
	if (read_back(c, id, &sandbox, NULL) == 0)
		cJSON_ReplaceItemInObjectCaseSensitive(answer, "sandbox", sandbox);
	return 0;
}

static int run_create(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	struct create o = { .spec = cJSON_AddObjectToObject(body, "spec"), .wait = true };
	if (c->cli.tenant && *c->cli.tenant && !cJSON_GetObjectItemCaseSensitive(args->object, "tenant"))
		json_add_str(o.spec, "tenant", c->cli.tenant);
	if (read_create(args, &o) != 0)
		return -1;
	struct call_request q = { .method = "POST", .target = xstrdup("/v1/sandboxes"), .body = body, .keyed = true };
	if (o.wait_capacity_s) {
		free(q.target);
		q.target = xasprintf("/v1/sandboxes?wait_capacity=%lld", (long long)o.wait_capacity_s);
	}
	if (mcp_request(c, &q, &answer, err) != 0)
		return -1;
	if (o.wait && mcp_await_create(c, answer, ret, err) != 0)
		return -1;
	ret->value = steal(&answer);
	return 0;
}

#define STRING_MAP "\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}"
#define STRINGS "\"type\":\"array\",\"items\":{\"type\":\"string\"}"

const struct tool tool_create = {
	.name = "sandbox_create", .title = "Create a sandbox", .hints = HINT_OPEN_WORLD,
	.description = "Create an isolated, temporary machine and wait until it runs. Say honestly what will run in it: the server chooses the isolation from "
		       "that, and refuses (no_capacity) rather than weaken it. Files belong in /workspace.",
	.properties =
		"\"image\":{\"type\":\"string\",\"default\":\"sandbox-base:latest\"},"
		"\"name\":{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9-]{0,62}$\"},"
		"\"tenant\":{\"type\":\"string\"},"
		"\"command\":{" STRINGS ",\"description\":\"Start command; without one the sandbox waits for sandbox_exec.\"},"
		"\"env\":{" STRING_MAP ",\"description\":\"Environment of every command. No credentials.\"},"
		"\"cpu_millis\":{\"type\":\"integer\",\"minimum\":10},"
		"\"memory_mib\":{\"type\":\"integer\",\"minimum\":64},"
		"\"disk_mib\":{\"type\":\"integer\",\"minimum\":64},"
		"\"pids\":{\"type\":\"integer\",\"minimum\":8},"
		"\"ttl_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":604800,\"default\":3600},"
		"\"network\":{\"type\":\"string\",\"enum\":[\"deny\",\"restricted\",\"open\"],\"default\":\"deny\"},"
		"\"allow\":{" STRINGS ",\"description\":\"With network restricted: what may be reached, such as registry.npmjs.org:443 or *.example.com.\"},"
		"\"secrets\":{" STRINGS ",\"description\":\"Names of the tenant's secrets that commands are given as variables: NAME or NAME=VARIABLE.\"},"
		"\"isolation\":{\"type\":\"string\",\"enum\":[\"auto\",\"container\",\"microvm\"],\"default\":\"auto\"},"
		"\"sensitivity\":{\"type\":\"string\",\"enum\":[\"public\",\"internal\",\"confidential\",\"restricted\"],\"default\":\"internal\"},"
		"\"untrusted_repo\":{\"type\":\"boolean\",\"description\":\"Code from a repository nobody vouches for.\"},"
		"\"generated_code\":{\"type\":\"boolean\",\"description\":\"Code that a model wrote.\"},"
		"\"needs_secrets\":{\"type\":\"boolean\"},"
		"\"writable_root\":{\"type\":\"boolean\",\"description\":\"Let root change system files (package managers).\"},"
		"\"labels\":{" STRING_MAP "},"
		"\"required_labels\":{" STRING_MAP ",\"description\":\"Labels the node must have.\"},"
		"\"preferred_region\":{\"type\":\"string\"},"
		"\"anti_affinity_keys\":{" STRINGS "},"
		"\"wait_capacity_seconds\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":45,\"default\":0,"
		"\"description\":\"Queue this long for a place instead of failing with no_capacity at once.\"},"
		"\"wait\":{\"type\":\"boolean\",\"default\":true}",
	.required = "[]", .output = OUT_SANDBOX "," OUT_OPERATION, .run = run_create,
};

/* --- list ------------------------------------------------------------------------------------------------------------- */

/* What helps to choose; sandbox_inspect has the rest. */
static cJSON *short_row(const cJSON *s)
{
	static const char *const own[] = { "id", "name", "state", "tier", "created_at", "expires_at", "failure" };
	static const char *const of_spec[] = { "tenant", "image", "network" };
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(s, "spec");
	cJSON *row = cJSON_CreateObject();
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		const char *text = json_text(s, own[i]);
		if (*text)
			json_add_str(row, own[i], text);
	}
	for (size_t i = 0; i < ARRAY_LEN(of_spec); i++)
		json_add_str(row, of_spec[i], json_text(spec, of_spec[i]));
	return row;
}

static void add_query(struct buf *target, const char *key, const char *value)
{
	auto_free char *encoded = session_path("%s", value);
	buf_addf(target, "%c%s=%s", strchr(buf_str(target), '?') ? '&' : '?', key, encoded);
}

static int read_list(struct tool_call *c, struct json_reader *args, struct buf *target)
{
	auto_free char *tenant = xstrdup0(c->cli.tenant), *cursor = NULL;
	auto_map labels = MAP_INIT;
	bool all = false;
	int64_t limit = PAGE_DEFAULT;
	char number[24];
	json_get_str(args, "tenant", JSON_OPTIONAL, 64, &tenant);
	json_get_str(args, "cursor", JSON_OPTIONAL, 256, &cursor);
	json_get_map(args, "labels", JSON_OPTIONAL, LIMIT_LABELS_MAX, 256, &labels);
	json_get_bool(args, "all", JSON_OPTIONAL, &all);
	json_get_i64(args, "limit", JSON_OPTIONAL, 1, LIMIT_LIST_PAGE_MAX, &limit);
	if (json_end(args) != 0)
		return -1;
	snprintf(number, sizeof(number), "%lld", (long long)limit);
	buf_adds(target, "/v1/sandboxes");
	add_query(target, "limit", number);
	if (tenant && *tenant)
		add_query(target, "tenant", tenant);
	if (cursor)
		add_query(target, "after", cursor);
	if (all)
		add_query(target, "all", "true");
	for (size_t i = 0; i < labels.len; i++) {
		auto_free char *pair = xasprintf("%s=%s", labels.items[i].key, labels.items[i].value);
		add_query(target, "label", pair);
	}
	return 0;
}

static int run_list(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_buf target = BUF_INIT;
	auto_json *answer = NULL;
	if (read_list(c, args, &target) != 0)
		return -1;
	struct call_request q = { .method = "GET", .target = buf_steal(&target) };
	if (mcp_request(c, &q, &answer, err) != 0)
		return -1;
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(answer, "sandboxes"), *s;
	ret->value = cJSON_CreateObject();
	cJSON *rows = cJSON_AddArrayToObject(ret->value, "sandboxes");
	cJSON_ArrayForEach(s, list)
		cJSON_AddItemToArray(rows, short_row(s));
	const char *next = json_text(answer, "next");
	if (*next)
		json_add_str(ret->value, "next_cursor", next);
	return 0;
}

const struct tool tool_list = {
	.name = "sandbox_list", .title = "List sandboxes", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "List your sandboxes, newest first: id, name, state, image and deadline of each. next_cursor is there when more follow.",
	.properties = "\"tenant\":{\"type\":\"string\"},"
		      "\"all\":{\"type\":\"boolean\",\"description\":\"Also those that ended.\"},"
		      "\"labels\":{" STRING_MAP "},"
		      "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"default\":50},"
		      "\"cursor\":{\"type\":\"string\"}",
	.required = "[]",
	.output = "\"sandboxes\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"next_cursor\":{\"type\":\"string\"}",
	.run = run_list,
};

/* --- inspect, extend, delete -------------------------------------------------------------------------------------------- */

static int run_inspect(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *ref = NULL;
	cJSON *answer = NULL;
	if (arg_sandbox(args, &ref) != 0 || json_end(args) != 0)
		return -1;
	struct call_request q = { .method = "GET", .target = session_path("/v1/sandboxes/%s", ref) };
	return mcp_request(c, &q, &answer, err) == 0 ? pass_on(ret, answer, "sandbox", err) : -1;
}

const struct tool tool_inspect = {
	.name = "sandbox_inspect", .title = "Inspect a sandbox", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "Everything known about one sandbox: state, spec, placement and why, isolation, deadline, failure.",
	.properties = PROP_SANDBOX, .required = "[\"sandbox_id\"]", .output = OUT_SANDBOX, .run = run_inspect,
};

static int run_extend(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *ref = NULL;
	auto_json *body = cJSON_CreateObject();
	cJSON *answer = NULL;
	int64_t ttl = 0;
	arg_sandbox(args, &ref);
	json_get_i64(args, "ttl_seconds", JSON_REQUIRED, LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS, &ttl);
	if (json_end(args) != 0)
		return -1;
	json_add_i64(body, "ttl_seconds", ttl);
	struct call_request q = { .method = "POST", .target = session_path("/v1/sandboxes/%s/extend", ref), .body = body, .keyed = true };
	return mcp_request(c, &q, &answer, err) == 0 ? pass_on(ret, answer, "sandbox", err) : -1;
}

const struct tool tool_extend = {
	.name = "sandbox_extend", .title = "Set a new deadline",
	.description = "Set how long a sandbox lives, counted from now. Work that outlasts the deadline is lost.",
	.properties = PROP_SANDBOX ",\"ttl_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":604800}",
	.required = "[\"sandbox_id\",\"ttl_seconds\"]", .output = OUT_SANDBOX, .run = run_extend,
};

static int run_delete(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	auto_free char *ref = NULL;
	auto_json *answer = NULL;
	cJSON *ended = NULL;
	bool wait = true;
	arg_sandbox(args, &ref);
	json_get_bool(args, "wait", JSON_OPTIONAL, &wait);
	if (json_end(args) != 0)
		return -1;
	struct call_request q = { .method = "DELETE", .target = session_path("/v1/sandboxes/%s", ref), .keyed = true };
	if (mcp_request(c, &q, &answer, err) != 0)
		return -1;
	const char *id = json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id");
	if (wait && mcp_wait(c, id, "deleting", c->wait_ms, &ended, err) != 0)
		return -1;
	if (ended) {
		ret->failed = strcmp(json_text(ended, "state"), "failed") == 0;
		cJSON_ReplaceItemInObjectCaseSensitive(answer, "operation", ended);
	}
	return pass_on(ret, steal(&answer), "operation", err);
}

const struct tool tool_delete = {
	.name = "sandbox_delete", .title = "Delete a sandbox", .hints = HINT_DESTRUCTIVE | HINT_IDEMPOTENT,
	.description = "Stop a sandbox and remove everything in it, for good. Fetch what you need first. Do it when the task is complete.",
	.properties = PROP_SANDBOX ",\"wait\":{\"type\":\"boolean\",\"default\":true}", .required = "[\"sandbox_id\"]", .output = OUT_OPERATION,
	.run = run_delete,
};
