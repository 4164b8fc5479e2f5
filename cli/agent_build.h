/*
 * An image with a coding agent in it, out of any base image and packages of the npm registry. npm downloads here without running anything of
 * theirs; their install scripts run in a sandbox without a network, whose file system then becomes the image.
 */
#ifndef SANDBOX_CLI_AGENT_BUILD_H
#define SANDBOX_CLI_AGENT_BUILD_H

#include "cli/agent.h"

struct agent_build {
	const struct agent_profile *profile;
	const char *base;    /* image */
	const char *version; /* of the package */
	const char *tag;     /* name of the image made */
};

/* ret_version: what the program itself says (caller frees). ERR_NOT_FOUND: no npm here. ERR_INVALID: the base lacks what is needed. */
int agent_build(struct cli *cli, const struct agent_build *b, char **ret_version, struct error *err);

#endif
