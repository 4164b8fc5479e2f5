/* The profiles of coding agents: see agent.h. */
#include "cli/agent.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

const struct agent_profile agent_profiles[] = {
#define AGENT(...) { __VA_ARGS__ },
#define NODE(node, npm)
#include "cli/agents.def"
#undef NODE
#undef AGENT
	{ .name = NULL },
};

#define AGENT(...)
#define NODE(node, npm) const char agent_node_version[] = node, agent_npm_version[] = npm;
#include "cli/agents.def"
#undef NODE
#undef AGENT

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

static void add_words(cJSON *j, const char *key, const char *words)
{
	auto_strv list = STRV_INIT;
	agent_words(words, &list);
	json_add_strv(j, key, &list);
}

void agent_words(const char *words, struct strv *out)
{
	for (const char *p = words; *p;) {
		size_t n = strcspn(p, " ");
		strv_take(out, xstrndup(p, n));
		p += n + (p[n] == ' ');
	}
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
		json_add_str(j, "package", p->package);
		json_add_str(j, "version", p->version);
		add_words(j, "egress", p->egress);
		add_words(j, "secrets", p->secret);
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
	auto_strv rules = STRV_INIT;
	cJSON *spec = NULL;
	if (!mine.image)
		mine.image = p->image;
	/* The user's come first: the first that matches decides. */
	if (mine.network && strcmp(mine.network, "restricted") == 0) {
		strv_copy(&rules, &o->allow);
		agent_words(p->egress, &rules);
		mine.allow = rules;
	}
	if (create_spec(cli, &mine, &no_start, &spec, err) != 0)
		return -1;
	json_add_str(spec, "agent", p->name);
	json_add_str(cJSON_GetObjectItemCaseSensitive(spec, "labels"), "sandbox.dev/agent", p->name);
	add_home(spec);
	*ret = spec;
	return 0;
}
