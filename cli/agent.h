/* Coding agents that can be started in a sandbox, and the spec each starts from. No credentials: those are the user's to bring, by reference. */
#ifndef SANDBOX_CLI_AGENT_H
#define SANDBOX_CLI_AGENT_H

#include "cli/create.h"

#include <cjson/cJSON.h>

struct verb;
extern const struct verb verb_agent_build; /* cmd/agent_build.c */

/* The columns of agents.def. */
struct agent_profile {
	const char *name, *title, *program;
	const char *package, *version; /* NULL: not on the npm registry */
	const char *image;
	const char *homepage;
	const char *secret;
	const char *egress; /* rules between blanks */
};

/* A NULL name ends it. */
extern const struct agent_profile agent_profiles[];
extern const char agent_node_version[], agent_npm_version[];
/* Appends words between blanks. */
void agent_words(const char *words, struct strv *out);
/* ERR_NOT_FOUND names those there are. */
const struct agent_profile *agent_find(const char *name, struct error *err);
/* [{name, display_name, executable, default_image, default_args, env_passthrough, homepage, package, version, egress, secrets}]; caller frees. */
cJSON *agents_json(void);

#define AGENT_HOME "/workspace/.home"

/* What an agent's sandbox is until the user says otherwise: hostile until shown otherwise, room to build, the network it needs. */
#define AGENT_DEFAULTS \
	.cpu_millis = 2000, .memory_mib = 4096, .disk_mib = 4096, .pids = 512, .network = "restricted", .sensitivity = "confidential", \
	.untrusted_repo = true, .generated_code = true, .needs_secrets = true, .wait_timeout_ms = 300 * 1000

/* The spec of the API's JSON for p, with network restricted also its rules behind o's. *ret is the caller's. ERR_INVALID. */
int agent_spec(struct cli *cli, const struct agent_profile *p, const struct create_options *o, cJSON **ret, struct error *err);

#endif
