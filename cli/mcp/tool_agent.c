/* Tools for agent profiles: which there are, and a sandbox for one. Running one inside is sandbox_exec, which hands long work over. */
#include "cli/mcp/mcp.h"

#include "cli/agent.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/model/egress.h"

#include <errno.h>
#include <string.h>

static int run_agents(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	(void)c;
	(void)err;
	if (json_end(args) != 0)
		return -1;
	ret->value = cJSON_CreateObject();
	cJSON_AddItemToObject(ret->value, "agents", agents_json());
	return 0;
}

const struct tool tool_agent_list = {
	.name = "sandbox_agent_list", .title = "List coding agents", .hints = HINT_READ_ONLY | HINT_IDEMPOTENT,
	.description = "List the profiles of coding agents: name, program, default image, the secrets it reads, the hosts that network restricted lets it reach.",
	.properties = "", .required = "[]", .output = "\"agents\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}", .run = run_agents,
};

struct agent_run {
	char *agent, *tenant, *image, *network, *name;
	struct strv allow, secrets;
	bool needs_secrets, untrusted_repo;
	int64_t ttl;
};

static void agent_run_done(struct agent_run *a)
{
	free(a->agent);
	free(a->tenant);
	free(a->image);
	free(a->network);
	free(a->name);
	strv_done(&a->allow);
	strv_done(&a->secrets);
}

static int read_run(struct json_reader *args, struct agent_run *a)
{
	json_get_str(args, "agent", JSON_REQUIRED, 40, &a->agent);
	json_get_str(args, "tenant", JSON_OPTIONAL, 64, &a->tenant);
	json_get_str(args, "image", JSON_OPTIONAL, LIMIT_IMAGE_NAME_MAX, &a->image);
	json_get_str(args, "network", JSON_OPTIONAL, 16, &a->network);
	json_get_str(args, "name", JSON_OPTIONAL, 64, &a->name);
	json_get_strv(args, "allow", JSON_OPTIONAL, LIMIT_EGRESS_RULES_MAX, EGRESS_RULE_TEXT_MAX, &a->allow);
	json_get_strv(args, "secrets", JSON_OPTIONAL, LIMIT_SECRETS_PER_SANDBOX, 1024, &a->secrets);
	json_get_bool(args, "needs_secrets", JSON_OPTIONAL, &a->needs_secrets);
	json_get_bool(args, "untrusted_repo", JSON_OPTIONAL, &a->untrusted_repo);
	json_get_i64(args, "ttl_seconds", JSON_OPTIONAL, LIMIT_TTL_MIN_SECONDS, LIMIT_TTL_MAX_SECONDS, &a->ttl);
	if (json_ok(args) && a->network && strcmp(a->network, "deny") && strcmp(a->network, "restricted") && strcmp(a->network, "open"))
		json_fail(args, "network", "'%s' is not one of deny, restricted, open", a->network);
	return json_end(args);
}

/* Agents take their home for granted. Where there is no mkdir inside, the agent says what it lacks. */
static int make_home(struct tool_call *c, const cJSON *answer, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *started = NULL;
	cJSON *op = NULL, *argv = cJSON_AddArrayToObject(cJSON_AddObjectToObject(body, "command"), "argv");
	static const char *const words[] = { "mkdir", "-p", AGENT_HOME };
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		cJSON_AddItemToArray(argv, cJSON_CreateString(words[i]));
	const char *id = json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id");
	struct call_request q = { .method = "POST", .target = session_path("/v1/sandboxes/%s/exec", id), .body = body, .keyed = true };
	if (mcp_request(c, &q, &started, err) != 0)
		return -1;
	int rc = mcp_wait(c, json_text(cJSON_GetObjectItemCaseSensitive(started, "operation"), "id"), "preparing", c->wait_ms, &op, err);
	cJSON_Delete(op);
	return rc;
}

static int provide(struct tool_call *c, const struct agent_run *a, struct tool_result *ret, struct error *err)
{
	const struct agent_profile *p = agent_find(a->agent, err);
	struct create_options o = { AGENT_DEFAULTS, .image = a->image, .name = a->name, .ttl_ms = a->ttl * 1000, .allow = a->allow,
				    .secrets = a->secrets };
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	cJSON *spec = NULL;
	o.needs_secrets = a->needs_secrets;
	o.untrusted_repo = a->untrusted_repo;
	if (a->network)
		o.network = a->network;
	if (!p || agent_spec(&c->cli, p, &o, &spec, err) != 0)
		return -1;
	cJSON_AddItemToObject(body, "spec", spec);
	struct call_request q = { .method = "POST", .target = xstrdup("/v1/sandboxes"), .body = body, .keyed = true };
	if (mcp_request(c, &q, &answer, err) != 0 || mcp_await_create(c, answer, ret, err) != 0)
		return -1;
	const cJSON *op = cJSON_GetObjectItemCaseSensitive(answer, "operation");
	if (strcmp(json_text(op, "state"), "succeeded") == 0 && make_home(c, answer, err) != 0)
		return -1;
	cJSON *argv = cJSON_AddArrayToObject(answer, "agent_command");
	cJSON_AddItemToArray(argv, cJSON_CreateString(p->program));
	ret->value = steal(&answer);
	return 0;
}

static int run_agent(struct tool_call *c, struct json_reader *args, struct tool_result *ret, struct error *err)
{
	struct agent_run a = { .needs_secrets = true, .untrusted_repo = true };
	const char *tenant = c->cli.tenant;
	int rc = read_run(args, &a);
	if (rc == 0) {
		c->cli.tenant = a.tenant ? a.tenant : tenant;
		rc = provide(c, &a, ret, err);
		c->cli.tenant = tenant;
	}
	agent_run_done(&a);
	return rc;
}

const struct tool tool_agent_run = {
	.name = "sandbox_agent_run", .title = "Provide a sandbox for a coding agent", .hints = HINT_OPEN_WORLD,
	.description = "Create a sandbox from an agent's profile and wait until it runs; start the agent with sandbox_exec: agent_command and its arguments, cwd "
		       "/workspace. Profiles are careful, so the server may refuse with no_capacity; weaken what is said only where it is true.",
	.properties = "\"agent\":{\"type\":\"string\",\"enum\":[\"codex\",\"claude\",\"opencode\",\"pi\",\"aider\",\"goose\",\"commandcode\"]},"
		      "\"tenant\":{\"type\":\"string\"},\"image\":{\"type\":\"string\",\"description\":\"Instead of the profile's.\"},"
		      "\"name\":{\"type\":\"string\"},"
		      "\"network\":{\"type\":\"string\",\"enum\":[\"deny\",\"restricted\",\"open\"],\"default\":\"restricted\"},"
		      "\"allow\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"With network restricted: what may be reached besides "
		      "the agent's own hosts.\"},"
		      "\"secrets\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"Names of secrets on the server, as in "
		      "sandbox_create; sandbox_agent_list says which the agent reads.\"},"
		      "\"needs_secrets\":{\"type\":\"boolean\",\"default\":true},\"untrusted_repo\":{\"type\":\"boolean\",\"default\":true},"
		      "\"ttl_seconds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":604800,\"default\":3600}",
	.required = "[\"agent\"]", .output = OUT_SANDBOX "," OUT_OPERATION ",\"agent_command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
	.run = run_agent,
};
