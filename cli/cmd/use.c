/* sandbox use: the sandbox that commands in this directory mean when none is named. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/place.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

struct options {
	const char *ref;
	bool clear;
};

static const struct option_row options[] = {
	OPT_FLAG(0, "clear", struct options, clear, "forget the choice"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_OPTIONAL, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox use web", "choose" },
	{ "sandbox exec -- make test", "in it, without naming it" },
	{ "sandbox use", "show the choice" },
	{ NULL, NULL },
};

static int print_choice(struct cli *cli, const char *sandbox, const char *dir, struct error *err)
{
	if (cli->json) {
		auto_json *j = cJSON_CreateObject();
		json_add_str(j, "sandbox", sandbox);
		json_add_str(j, "directory", dir);
		return out_json(cli, j, err);
	}
	out_line("%s", sandbox);
	out_note(cli, "chosen for %s", dir);
	return 0;
}

static int show(struct cli *cli, struct error *err)
{
	auto_free char *sandbox = NULL;
	auto_free char *dir = NULL;
	if (place_sandbox(&sandbox, &dir, err) != 0)
		return -1;
	if (!sandbox)
		return error_set(err, ERR_NOT_FOUND, "no sandbox was chosen for this directory; `sandbox use SANDBOX` chooses one");
	return print_choice(cli, sandbox, dir, err);
}

static int forget(struct cli *cli, struct error *err)
{
	auto_free char *dir = NULL;
	if (place_use(NULL, &dir, err) != 0)
		return -1;
	out_note(cli, "%s has no sandbox of its own any more", dir);
	return 0;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *s = NULL;
	auto_free char *dir = NULL;
	if (o->clear && o->ref)
		return error_set(err, ERR_INVALID, "--clear takes no SANDBOX");
	if (!o->ref)
		return o->clear ? forget(cli, err) : show(cli, err);
	auto_free char *target = session_path("/v1/sandboxes/%s", o->ref);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &s, err) != 0)
		return -1;
	const char *id = json_text(s, "id");
	if (!*id)
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no sandbox");
	if (place_use(id, &dir, err) != 0)
		return -1;
	return print_choice(cli, id, dir, err);
}

const struct verb verb_use = {
	.name = "use",
	.group = GROUP_SETTINGS,
	.summary = "choose the sandbox of this directory",
	.manual = "Where a command takes one SANDBOX, it may then be left out in this directory and those below it: exec, shell, attach, logs, inspect, "
		  "extend, ps, top. A command to run then stands behind --. delete is not among them: what is to go must be named. The id is "
		  "remembered, in the file directories in the settings directory, so another sandbox of the same name is not taken for it.\n"
		  "\n"
		  "Without SANDBOX the choice is shown; the exit status is 3 when there is none.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
