/* Coding agents that can be started in a sandbox, and the spec each starts from. No credentials: those are the user's to bring, by reference. */
#ifndef SANDBOX_CLI_AGENT_H
#define SANDBOX_CLI_AGENT_H

#include "cli/create.h"

#include <cjson/cJSON.h>

struct agent_profile {
	const char *name, *title, *program;
	const char *image; /* NULL: one has to be given */
	const char *homepage;
};

/* A NULL name ends it. */
extern const struct agent_profile agent_profiles[];
/* ERR_NOT_FOUND names those there are. */
const struct agent_profile *agent_find(const char *name, struct error *err);
/* [{name, display_name, executable, default_image, default_args, env_passthrough, homepage}]; caller frees. */
cJSON *agents_json(void);

#define AGENT_HOME "/workspace/.home"

/* What an agent's sandbox is until the user says otherwise: hostile until shown otherwise, room to build, the network it needs. */
#define AGENT_DEFAULTS \
	.cpu_millis = 2000, .memory_mib = 4096, .disk_mib = 4096, .pids = 512, .network = "restricted", .sensitivity = "confidential", \
	.untrusted_repo = true, .generated_code = true, .needs_secrets = true, .wait_timeout_ms = 300 * 1000

/* The spec of the API's JSON for p. *ret is the caller's. ERR_INVALID when the profile has no image and none was given. */
int agent_spec(struct cli *cli, const struct agent_profile *p, const struct create_options *o, cJSON **ret, struct error *err);

#endif
