/* sandbox mcp: the bridge for coding agents, and how their programs learn about it. */
#include "cli/command.h"

#include "cli/mcp/clients.h"
#include "cli/mcp/mcp.h"
#include "cli/output.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* --- serve ------------------------------------------------------------------------------------------------------------- */

struct serve_options {
	int64_t wait_ms;
};

static const struct serve_options serve_defaults = { .wait_ms = MCP_WAIT_MS };

static const struct option_row serve_options[] = {
	OPT_DURATION(0, "wait", struct serve_options, wait_ms, "TIME", 1000, 3600 * 1000LL, "longest time one call waits (default 25s)"),
	OPT_END,
};

static int run_serve(struct cli *cli, void *opaque, struct error *err)
{
	const struct serve_options *o = opaque;
	(void)err;
	return mcp_serve_process(cli, o->wait_ms);
}

static const struct verb verb_mcp_serve = {
	.name = "serve",
	.group = GROUP_SYSTEM,
	.summary = "speak MCP on standard input and output",
	.details = "For a client that starts it; the program sandbox-mcp is the same.",
	.options = serve_options,
	.size = sizeof(struct serve_options),
	.defaults = &serve_defaults,
	.run = run_serve,
};

/* --- what clients are told ------------------------------------------------------------------------------------------------ */

/* The bridge beside this program, so that clients with a short PATH find it. */
static char *bridge_path(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return xstrdup("sandbox-mcp");
	auto_free char *path = xasprintf("%.*s/sandbox-mcp", (int)(slash - self), self);
	return access(path, X_OK) == 0 ? steal(&path) : xstrdup("sandbox-mcp");
}

/* The server or context that was named; what the configuration says counts at every start anyway. Clients may start the bridge without XDG_RUNTIME_DIR, and then it would look for another daemon. */
static void bridge_env(const struct cli *cli, struct map *env)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	if (cli->server && cli->server_origin != ORIGIN_CONTEXT)
		map_set(env, "SANDBOX_URL", cli->server);
	else if (cli->context)
		map_set(env, "SANDBOX_CONTEXT", cli->context);
	else if (!cli->server && runtime && *runtime && geteuid() != 0)
		map_set(env, "XDG_RUNTIME_DIR", runtime);
	if (cli->tenant && cli->tenant_origin != ORIGIN_CONTEXT)
		map_set(env, "SANDBOX_TENANT", cli->tenant);
}

static const struct mcp_client generic = { .name = "generic", .member = "mcpServers" };

static const struct mcp_client *find_client(const char *name, struct error *err)
{
	const struct mcp_client *c = mcp_client_find(name);
	auto_buf known = BUF_INIT;
	if (c)
		return c;
	for (c = mcp_clients; c->name; c++)
		buf_addf(&known, "%s%s", known.len ? ", " : "", c->name);
	error_set(err, ERR_INVALID, "'%.40s' is not one of the clients %s", name, buf_str(&known));
	return NULL;
}

struct config_options {
	const char *name;
};

static const struct positional config_positionals[] = {
	POS(POS_OPTIONAL, WHAT_CLIENT, "CLIENT", struct config_options, name, "claude, codex, gemini, opencode, vscode, cursor, goose or generic"),
	POS_END,
};

static int print_config(const struct mcp_client *c, const char *command, const struct map *env)
{
	auto_buf text = BUF_INIT;
	mcp_client_config(c, command, env, &text);
	fputs(buf_str(&text), stdout);
	return 0;
}

static int run_config(struct cli *cli, void *opaque, struct error *err)
{
	const struct config_options *o = opaque;
	struct mcp_client any = generic;
	const struct mcp_client *c = &any;
	auto_map env = MAP_INIT;
	auto_free char *command = bridge_path();
	any.entry = mcp_client_find("cursor")->entry;
	if (o->name && strcmp(o->name, "generic") != 0 && !(c = find_client(o->name, err)))
		return -1;
	bridge_env(cli, &env);
	return print_config(c, command, &env);
}

static const struct verb verb_mcp_print = {
	.name = "config",
	.group = GROUP_SYSTEM,
	.summary = "print a client's configuration for the bridge",
	.details = "Without CLIENT the envelope many clients share. Tokens never appear in it.",
	.positionals = config_positionals,
	.size = sizeof(struct config_options),
	.run = run_config,
};

/* --- install --------------------------------------------------------------------------------------------------------------- */

struct install_options {
	struct strv clients;
	bool all, dry_run;
};

static const struct option_row install_options[] = {
	OPT_LIST(0, "client", struct install_options, clients, "NAME", "only this client, repeatable"),
	OPT_FLAG(0, "all", struct install_options, all, "every client that is installed (the default)"),
	OPT_FLAG(0, "dry-run", struct install_options, dry_run, "say what would be done, change nothing"),
	OPT_END,
};

static const char *state_word(enum install_state s)
{
	switch (s) {
	case INSTALL_ADDED:
		return "added";
	case INSTALL_THERE:
		return "unchanged";
	case INSTALL_ABSENT:
		return "absent";
	case INSTALL_WOULD:
		return "would add";
	case INSTALL_REMOVED:
		return "removed";
	case INSTALL_WOULD_REMOVE:
		return "would remove";
	}
	return "";
}

static void add_row(cJSON *rows, const char *client, const char *state, const char *detail)
{
	cJSON *row = cJSON_CreateObject();
	json_add_str(row, "client", client);
	json_add_str(row, "state", state);
	json_add_str(row, "detail", detail);
	cJSON_AddItemToArray(rows, row);
}

typedef int install_fn(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err);

/* One client; a failure is a row too, so that the others still get their turn. */
static bool one_client(install_fn *act, const struct mcp_client *c, const struct install *o, cJSON *rows)
{
	enum install_state state;
	auto_free char *detail = NULL;
	struct error e = ERROR_INIT;
	if (act(c, o, &state, &detail, &e) != 0) {
		add_row(rows, c->name, "failed", e.message);
		return false;
	}
	add_row(rows, c->name, state_word(state), detail);
	return true;
}

static int show_rows(struct cli *cli, const cJSON *rows, struct error *err)
{
	const cJSON *row;
	auto_table *t = table_new(3);
	if (cli->json)
		return out_json(cli, rows, err);
	cJSON_ArrayForEach(row, rows) {
		table_cell(t, json_text(row, "client"));
		table_cell(t, json_text(row, "state"));
		table_cell(t, json_text(row, "detail"));
	}
	table_print(t);
	return 0;
}

static int each_client(struct cli *cli, const struct install_options *o, install_fn *act, struct error *err)
{
	auto_map env = MAP_INIT;
	auto_free char *command = bridge_path();
	auto_json *rows = cJSON_CreateArray();
	struct install how = { .command = command, .env = &env, .dry_run = o->dry_run, .forced = o->clients.len > 0 };
	bool fine = true;
	if (o->all && o->clients.len)
		return error_set(err, ERR_INVALID, "give either --client or --all");
	for (size_t i = 0; i < o->clients.len; i++)
		if (!find_client(o->clients.items[i], err))
			return -1;
	bridge_env(cli, &env);
	for (const struct mcp_client *c = mcp_clients; c->name; c++)
		if (!o->clients.len || strv_has(&o->clients, c->name))
			fine &= one_client(act, c, &how, rows);
	if (show_rows(cli, rows, err) != 0)
		return -1;
	return fine ? 0 : 1;
}

static int run_install(struct cli *cli, void *opaque, struct error *err)
{
	return each_client(cli, opaque, mcp_install, err);
}

static int run_uninstall(struct cli *cli, void *opaque, struct error *err)
{
	return each_client(cli, opaque, mcp_uninstall, err);
}

static const struct example install_examples[] = {
	{ "sandbox mcp install", "tell every agent that is installed" },
	{ "sandbox mcp install --client claude --dry-run", "what would be done for one" },
	{ "sandbox mcp config cursor", "the text, to be put in place by hand" },
	{ NULL, NULL },
};

static const struct verb verb_mcp_install = {
	.name = "install",
	.group = GROUP_SYSTEM,
	.summary = "register the bridge with coding agents",
	.details = "Uses the client's own command where it has one, else adds one entry to its\nconfiguration. Other entries, and one that is there already, stay as they are.",
	.options = install_options,
	.size = sizeof(struct install_options),
	.run = run_install,
};

static const struct verb verb_mcp_uninstall = {
	.name = "uninstall",
	.group = GROUP_SYSTEM,
	.summary = "take the entry named sandbox out again",
	.details = "By the client's own command where it has one, else from its configuration.\nOther entries stay as they are.",
	.options = install_options,
	.size = sizeof(struct install_options),
	.run = run_uninstall,
};

/* --- the verbs ------------------------------------------------------------------------------------------------------------- */

static const struct verb *const subverbs[] = { &verb_mcp_install, &verb_mcp_uninstall, &verb_mcp_print, &verb_mcp_serve, NULL };

const struct verb verb_mcp = {
	.name = "mcp",
	.group = GROUP_SYSTEM,
	.summary = "connect coding agents over MCP",
	.details = "Agents that speak the Model Context Protocol get tools to create sandboxes,\nrun commands and move files in them.",
	.manual = "`sandbox mcp serve` and the program sandbox-mcp are the same bridge: JSON-RPC messages, one a line, on standard input and output, everything "
		  "else on standard error. sandbox-mcp takes --context, --server, --tenant, --wait, --help and --version, and needs nothing else but SANDBOX_URL when the server is not "
		  "the local daemon. It ends with its input, and so does the work its calls still wait for.\n"
		  "\n"
		  "The tools, and how each client is set up, are described in docs/mcp.md. Clients known: claude, codex, gemini, opencode, vscode, cursor, "
		  "goose. A server named by --server or SANDBOX_URL becomes part of the entry; a token never does.",
	.examples = install_examples,
	.subverbs = subverbs,
};

static int run_mcp_config(struct cli *cli, void *opaque, struct error *err)
{
	struct mcp_client any = generic;
	auto_map env = MAP_INIT;
	(void)opaque;
	(void)err;
	any.entry = mcp_client_find("cursor")->entry;
	if (cli->server && cli->server_origin != ORIGIN_CONTEXT)
		map_set(&env, "SANDBOX_URL", cli->server);
	return print_config(&any, "sandbox-mcp", &env);
}

const struct verb verb_mcp_config = {
	.name = "mcp-config",
	.group = GROUP_SYSTEM,
	.flags = VERB_HIDDEN,
	.summary = "print the envelope many clients share",
	.run = run_mcp_config,
};
