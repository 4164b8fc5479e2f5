/* sandbox agent build: the image of an agent. */
#include "cli/command.h"

#include "cli/agent_build.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>

struct options {
	const char *profile, *base, *version, *tag;
};

static const struct options defaults = { .base = "debian:stable-slim" };

static const struct option_row options[] = {
	OPT_TEXT(0, "base", struct options, base, "IMAGE", "what it is built on (default debian:stable-slim)"),
	OPT_TEXT(0, "agent-version", struct options, version, "VERSION", "instead of the one tested with this release"),
	OPT_TEXT('t', "tag", struct options, tag, "NAME", "of the image made (default: the profile's)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "AGENT", struct options, profile, "codex, claude, opencode, pi or commandcode"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox agent build claude --base mydebian:12", "sandbox-agent-claude:local out of an image of yours" },
	{ NULL, NULL },
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	const struct agent_profile *p = agent_find(o->profile, err);
	auto_free char *version = NULL;
	if (!p)
		return -1;
	struct agent_build b = { .profile = p, .base = o->base, .version = o->version ? o->version : p->version, .tag = o->tag ? o->tag : p->image };
	interrupt_watch();
	if (agent_build(cli, &b, &version, err) != 0)
		return -1;
	if (!cli->json) {
		out_line("%s", b.tag);
		return 0;
	}
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "agent", p->name);
	json_add_str(j, "image", b.tag);
	json_add_str(j, "base", b.base);
	json_add_str(j, "package", p->package);
	json_add_str(j, "version", b.version);
	json_add_str(j, "says", version);
	return out_json(cli, j, err);
}

const struct verb verb_agent_build = {
	.name = "build",
	.group = GROUP_RUN,
	.summary = "make the image of an agent from npm packages",
	.details = "npm, which has to be here, downloads the packages without running anything of\nthem; their install scripts run in a sandbox without a network.",
	.manual = "The base image is any with /bin/sh and tar: one with glibc needs nothing else, since node and npm then come from the npm registry too; one with "
		  "musl needs a node of its own. npm's own settings (registry, proxy, credentials) count. The sandbox it is built in is deleted whatever happens, and the "
		  "agent's --version has to work before the image is imported. Importing images is an administrator's.\n"
		  "\n"
		  "Versions that this release was tested with are in `sandbox agent list`.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
