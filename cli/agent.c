/* The profiles of coding agents: see agent.h. */
#include "cli/agent.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

const struct agent_profile agent_profiles[] = {
	{ "codex", "OpenAI Codex", "codex", "sandbox-agent-codex:local", "https://github.com/openai/codex" },
	{ "claude", "Claude Code", "claude", "sandbox-agent-claude:local", "https://github.com/anthropics/claude-code" },
	{ "opencode", "OpenCode", "opencode", "sandbox-agent-opencode:local", "https://github.com/anomalyco/opencode" },
	{ "pi", "Pi", "pi", "sandbox-agent-pi:local", "https://github.com/badlogic/pi-mono" },
	{ "aider", "Aider", "aider", "paulgauthier/aider:latest", "https://github.com/Aider-AI/aider" },
	{ "goose", "Goose", "goose", "ghcr.io/block/goose:latest", "https://github.com/block/goose" },
	{ "commandcode", "CommandCode", "commandcode", NULL, "https://github.com/bas3line" },
	{ .name = NULL },
};

const struct agent_profile *agent_find(const char *name, struct error *err)
{
	auto_buf known = BUF_INIT;
	for (const struct agent_profile *p = agent_profiles; p->name; p++) {
		if (strcmp(p->name, name) == 0)
			return p;
		buf_addf(&known, "%s%s", known.len ? ", " : "", p->name);
	}
	error_set(err, ERR_NOT_FOUND, "no agent profile '%.40s'; there are %s", name, buf_str(&known));
	return NULL;
}

cJSON *agents_json(void)
{
	cJSON *list = cJSON_CreateArray();
	for (const struct agent_profile *p = agent_profiles; p->name; p++) {
		cJSON *j = cJSON_CreateObject();
		json_add_str(j, "name", p->name);
		json_add_str(j, "display_name", p->title);
		json_add_str(j, "executable", p->program);
		json_add_str(j, "default_image", p->image);
		cJSON_AddArrayToObject(j, "default_args");
		cJSON_AddArrayToObject(j, "env_passthrough");
		json_add_str(j, "homepage", p->homepage);
		cJSON_AddItemToArray(list, j);
	}
	return list;
}

/* The root file system is read-only: everything an agent keeps goes below /workspace, and with it when the sandbox goes. */
static void add_home(cJSON *spec)
{
	static const char *const rows[][2] = {
		{ "HOME", AGENT_HOME }, { "XDG_CACHE_HOME", AGENT_HOME "/.cache" },
		{ "XDG_CONFIG_HOME", AGENT_HOME "/.config" }, { "XDG_DATA_HOME", AGENT_HOME "/.local/share" },
		{ "XDG_STATE_HOME", AGENT_HOME "/.local/state" }, 
		{ "npm_config_cache", AGENT_HOME "/.cache/npm" }, { "PIP_CACHE_DIR", AGENT_HOME "/.cache/pip" },
	};
	cJSON *env = cJSON_GetObjectItemCaseSensitive(spec, "env");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!cJSON_GetObjectItemCaseSensitive(env, rows[i][0]))
			json_add_str(env, rows[i][0], rows[i][1]);
}

int agent_spec(struct cli *cli, const struct agent_profile *p, const struct create_options *o, cJSON **ret, struct error *err)
{
	static const struct words no_start = { .len = 0 };
	struct create_options mine = *o;
	cJSON *spec = NULL;
	if (!mine.image)
		mine.image = p->image;
	if (!mine.image)
		return error_set(err, ERR_INVALID, "the profile %s has no image of its own; give --image, one that has the program %s", p->name, p->program);
	if (create_spec(cli, &mine, &no_start, &spec, err) != 0)
		return -1;
	json_add_str(spec, "agent", p->name);
	json_add_str(cJSON_GetObjectItemCaseSensitive(spec, "labels"), "sandbox.dev/agent", p->name);
	add_home(spec);
	*ret = spec;
	return 0;
}
