/* sandbox agent: coding agents in sandboxes of their own. */
#include "cli/agent.h"
#include "cli/command.h"

#include "cli/changes.h"
#include "cli/interrupt.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/transfer.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- list ---------------------------------------------------------------------------------------------------------------- */

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	auto_json *list = agents_json();
	auto_table *t = table_new(5);
	(void)opaque;
	if (cli->json)
		return out_json(cli, list, err);
	for (const struct agent_profile *p = agent_profiles; p->name; p++) {
		if (cli->quiet) {
			out_line("%s", p->name);
			continue;
		}
		table_cell(t, p->name);
		table_cell(t, p->title);
		table_cell(t, p->version ? p->version : "-");
		table_cell(t, p->image);
		table_cell(t, p->homepage);
	}
	table_print(t);
	return 0;
}

static const struct verb verb_agent_list = {
	.name = "list",
	.alias = "ls",
	.group = GROUP_RUN,
	.summary = "list the profiles of agents",
	.run = run_list,
};

/* --- run ----------------------------------------------------------------------------------------------------------------- */

struct options {
	struct create_options create;
	const char *profile, *upload;
	struct words arguments;
};

static const struct options defaults = { .create = { AGENT_DEFAULTS } };

static const struct option_row options[] = {
	CREATE_ROW_IMAGE(struct options, create, 'i'),
	OPT_TEXT('n', "name", struct options, create.name, "NAME", "a name to refer to it by"),
	OPT_DURATION(0, "ttl", struct options, create.ttl_ms, "TIME", LIMIT_TTL_MIN_SECONDS * 1000LL, LIMIT_TTL_MAX_SECONDS * 1000LL,
		     "lifetime, such as 30m (default 1h)"),
	OPT_WORD(0, "network", struct options, create.network, "MODE", "deny|restricted|open", "deny, restricted (the default) or open"),
	OPT_TEXT(0, "upload", struct options, upload, "DIR", "first copy the contents of DIR into /workspace"),
	OPT_SECRETS('e', "env", struct options, create.env, "KEY[=VALUE]", "variable for every command inside, repeatable"),
	OPT_LIST(0, "allow", struct options, create.allow, "RULE", "what else network restricted may reach"),
	OPT_LIST(0, "secret", struct options, create.secrets, "NAME[=ENV]", "give commands a secret, as a variable or file"),
	OPT_REST,
	OPT_CALL('c', "cpus", struct options, create.cpu_millis, "N", create_parse_cpus, "CPU cores (default 2)"),
	OPT_CALL('m', "memory", struct options, create.memory_mib, "SIZE", create_parse_memory, "memory (default 4g)"),
	OPT_CALL(0, "disk", struct options, create.disk_mib, "SIZE", create_parse_disk, "size of /workspace (default 4g)"),
	OPT_INT(0, "pids", struct options, create.pids, "N", 1, 1 << 22, "processes and threads at most (default 512)"),
	OPT_WORD(0, "sensitivity", struct options, create.sensitivity, "WORD", "public|internal|confidential|restricted",
		 "of the data (default confidential)"),
	OPT_SWITCH(0, "untrusted-repo", struct options, create.untrusted_repo, "code comes from a repository nobody vouches for (the default)"),
	OPT_SWITCH(0, "needs-secrets", struct options, create.needs_secrets, "secrets will be present inside (the default)"),
	OPT_DURATION(0, "wait-timeout", struct options, create.wait_timeout_ms, "TIME", 1000, 24 * 3600 * 1000LL, "wait at most this long (default 5m)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_AGENT, "AGENT", struct options, profile, "codex, claude, opencode, pi, aider, goose or commandcode"),
	POS(POS_COMMAND_DASHED, WHAT_TEXT, "ARG", struct options, arguments, "for the agent's program, which then runs at once"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox agent run opencode --upload . -- run 'fix the tests'", "work on a copy of this directory" },
	{ "sandbox agent run codex", "only provide the sandbox" },
	{ NULL, NULL },
};

static int provide(struct cli *cli, const struct options *o, const struct agent_profile *p, char **ret_id, struct error *err)
{
	auto_json *spec = NULL;
	auto_json *answer = NULL;
	auto_json *op = NULL;
	if (agent_spec(cli, p, &o->create, &spec, err) != 0)
		return -1;
	if (create_send(cli, &o->create, spec, &answer, err) != 0)
		return -1;
	*ret_id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	if (create_await(cli, &o->create, answer, NULL, &op, err) != 0)
		return -1;
	if (strcmp(json_text(op, "state"), "succeeded") == 0)
		return 0;
	json_operation_error(op, err);
	if (!o->create.image && p->package)
		cli_hint(cli, "`sandbox agent build %s` makes its image; --image names another with the program %s in it", p->name, p->program);
	else if (!o->create.image)
		cli_hint(cli, "give --image: one that this server has or may pull, with the program %s in it", p->program);
	return error_wrap(err, "the sandbox was not created");
}

/* Agents write their settings into a home that they take for granted; no program inside is needed to make it. */
static int make_home(struct cli *cli, const char *id, struct error *err)
{
	static const struct transfer_options plain = { .verify = false };
	struct transfer_stats stats = { .entries = 0 };
	char empty[] = "/tmp/sandbox-home.XXXXXX";
	if (!mkdtemp(empty))
		return error_errno(err, "making a directory in /tmp");
	int rc = transfer_put(cli, id, empty, AGENT_HOME, &plain, &stats, err);
	rmdir(empty);
	transfer_stats_done(&stats);
	return rc == 0 ? 0 : error_wrap(err, "making " AGENT_HOME);
}

/* The agent's program with the arguments given; it ends up with this verb's exit status. */
static int work(struct cli *cli, const struct options *o, const struct agent_profile *p, const char *id, struct error *err)
{
	static const struct launch_options plain = { LAUNCH_DEFAULTS, .cwd = "/workspace" };
	auto_free char **argv = xcalloc(o->arguments.len + 2, sizeof(*argv));
	argv[0] = (char *)(uintptr_t)p->program;
	for (size_t i = 0; i < o->arguments.len; i++)
		argv[i + 1] = o->arguments.items[i];
	struct words words = { .items = argv, .len = o->arguments.len + 1 };
	struct launch l = { .sandbox = id, .options = &plain, .argv = &words };
	return launch_run(cli, &l, err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_free char *id = NULL;
	const struct agent_profile *p = agent_find(o->profile, err);
	if (!p)
		return -1;
	interrupt_watch();
	int rc = provide(cli, o, p, &id, err);
	if (rc == 0)
		rc = make_home(cli, id, err);
	if (rc == 0)
		rc = changes_upload(cli, id, o->upload, err);
	if (rc != 0) {
		if (id && !cli->hint)
			cli_hint(cli, "`sandbox inspect %s` shows the sandbox, `sandbox delete %s` ends it", id, id);
		return -1;
	}
	if (o->create.secrets.len == 0 && strcmp(o->create.network, "deny") != 0)
		out_note(cli, "no secret was given; %s reads %s: `sandbox secret set %s`, then --secret %s", p->title, p->secret, p->secret, p->secret);
	if (o->arguments.len) {
		out_note(cli, "%s runs in sandbox %s, which stays until `sandbox delete %s` or its time is over", p->title, id, id);
		return work(cli, o, p, id, err);
	}
	out_note(cli, "start the agent with: sandbox exec -t %s -w /workspace -- %s", id, p->program);
	out_line("%s", id);
	return 0;
}

static const struct verb verb_agent_run = {
	.name = "run",
	.group = GROUP_RUN,
	.flags = VERB_STATUS_OF_COMMAND,
	.summary = "provide a sandbox for an agent, and run it there",
	.details = "Without ARG it prints the sandbox's id; with some, the agent runs with them.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};

static const struct verb *const subverbs[] = { &verb_agent_run, &verb_agent_build, &verb_agent_list, NULL };

const struct verb verb_agent = {
	.name = "agent",
	.group = GROUP_RUN,
	.summary = "run coding agents in sandboxes of their own",
	.details = "A profile holds an agent's program, image, resources and risk signals, and\nkeeps its home below /workspace. It holds no credentials.",
	.manual = "A profile is careful: an untrusted repository, generated code, secrets and confidential data, network restricted. The server decides from that "
		  "which isolation is needed; under the strict policy that is a microVM, and where no node offers one, or the network mode, run is refused "
		  "(no capacity) with each node's reason. Say otherwise only where it is true, as with --no-needs-secrets or --network deny.\n"
		  "\n"
		  "With network restricted the hosts that the agent itself needs are allowed, and what --allow adds; `sandbox agent list --json` shows them.\n"
		  "\n"
		  "The profiles' images that end in :local are made by `sandbox agent build`; --image names another one.",
	.examples = examples,
	.subverbs = subverbs,
};
