/* sandbox secret: set, list, delete. A value comes from standard input or the terminal, never from the command line. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "cli/token.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

enum { COLUMNS = 5 };

/* Callers of several tenants name one; the server refuses what is not theirs. */
static char *target_of(struct cli *cli, const char *name)
{
	if (cli->tenant && *cli->tenant)
		return session_path("/v1/secrets/%s?tenant=%s", name, cli->tenant);
	return session_path("/v1/secrets/%s", name);
}

static int check_name(const char *name, struct error *err)
{
	if (secret_name_valid(name))
		return 0;
	return error_set(err, ERR_INVALID, "'%.80s' is no name of a secret: letters, digits, '.', '_' and '-', beginning with a letter or '_'", name);
}

/* --- set -------------------------------------------------------------------------------------------------------- */

struct set_options {
	const char *name;
	bool from_stdin, exact;
};

static const struct option_row set_options[] = {
	OPT_FLAG(0, "stdin", struct set_options, from_stdin, "read the value from standard input"),
	OPT_FLAG(0, "exact", struct set_options, exact, "keep a final newline, which is otherwise dropped"),
	OPT_END,
};

static const struct positional set_positionals[] = {
	POS(POS_ONE, WHAT_SECRET, "NAME", struct set_options, name, "what the secret is called"),
	POS_END,
};

static int read_value(bool exact, struct secret *ret, struct error *err)
{
	auto_secret text = SECRET_INIT;
	static const char room[LIMIT_SECRET_BYTES_MAX + 2];
	secret_set(&text, room, sizeof(room));
	ssize_t n = io_read_full(STDIN_FILENO, text.bytes, text.n);
	if (n < 0)
		return error_errno(err, "reading the value from standard input");
	if (!exact && n > 0 && text.bytes[n - 1] == '\n')
		n--;
	if (n > LIMIT_SECRET_BYTES_MAX)
		return error_set(err, ERR_TOO_LARGE, "the value is longer than %d bytes", LIMIT_SECRET_BYTES_MAX);
	secret_set(ret, text.bytes, (size_t)n);
	return 0;
}

static int get_value(struct cli *cli, const struct set_options *o, struct secret *ret, struct error *err)
{
	auto_free char *prompt = xasprintf("Value of %s: ", o->name);
	if (o->from_stdin)
		return read_value(o->exact, ret, err);
	if (token_ask(prompt, ret, err) == 0)
		return 0;
	cli_hint(cli, "give it by --stdin: `sandbox secret set %s --stdin <FILE`", o->name);
	return -1;
}

/* The request that holds it is wiped before it is given back. */
static int send_value(struct cli *cli, const char *name, const struct secret *value, cJSON **ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_free char *target = target_of(cli, name);
	char *coded = base64_encode(value->bytes, value->n);
	struct call c = { .method = "PUT", .target = target, .body = body };
	json_add_str(body, "value_base64", coded);
	int rc = session_call(cli, &c, ret, err);
	char *held = cJSON_GetObjectItemCaseSensitive(body, "value_base64")->valuestring;
	explicit_bzero(held, strlen(held));
	explicit_bzero(coded, strlen(coded));
	free(coded);
	return rc;
}

static int run_set(struct cli *cli, void *opaque, struct error *err)
{
	const struct set_options *o = opaque;
	auto_secret value = SECRET_INIT;
	auto_json *answer = NULL;
	if (check_name(o->name, err) != 0)
		return -1;
	if (cli->dry_run) /* would show the value */
		return error_set(err, ERR_INVALID, "secret set has no dry run: the request is the secret");
	if (get_value(cli, o, &value, err) != 0)
		return -1;
	if (!value.n)
		return error_set(err, ERR_INVALID, "the value is empty");
	if (send_value(cli, o->name, &value, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, cJSON_GetObjectItemCaseSensitive(answer, "secret"), err);
	out_note(cli, "set: %s", o->name);
	return 0;
}

static const struct verb secret_set_verb = {
	.name = "set",
	.summary = "keep a value under a name, or replace it",
	.options = set_options,
	.positionals = set_positionals,
	.size = sizeof(struct set_options),
	.run = run_set,
};

/* --- list ------------------------------------------------------------------------------------------------------- */

static void list_row(struct table *t, const cJSON *s)
{
	table_cell(t, json_text(s, "name"));
	table_cell(t, json_text(s, "tenant"));
	table_cellf(t, "%.0f", json_number(s, "bytes", 0));
	table_cellf(t, "%.16sZ", json_text(s, "updated_at"));
	table_cell(t, json_text(s, "updated_by"));
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "NAME", "TENANT", "BYTES", "SET", "BY" };
	(void)opaque;
	auto_json *answer = NULL;
	auto_free char *target = cli->tenant && *cli->tenant ? session_path("/v1/secrets?tenant=%s", cli->tenant) : xstrdup("/v1/secrets");
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *one, *list = cJSON_GetObjectItemCaseSensitive(answer, "secrets");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of secrets");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(one, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(one, "name"));
		else
			list_row(t, one);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb secret_list_verb = {
	.name = "list",
	.alias = "ls",
	.summary = "list names and dates, never values",
	.run = run_list,
};

/* --- delete ----------------------------------------------------------------------------------------------------- */

struct delete_options {
	struct strv names;
};

static const struct positional delete_positionals[] = {
	POS(POS_MANY, WHAT_SECRET, "NAME", struct delete_options, names, "secrets to forget"),
	POS_END,
};

static int run_delete(struct cli *cli, void *opaque, struct error *err)
{
	const struct delete_options *o = opaque;
	auto_json *deleted = cJSON_CreateArray();
	for (size_t i = 0; i < o->names.len; i++) {
		const char *name = o->names.items[i];
		auto_free char *target = target_of(cli, name);
		struct call c = { .method = "DELETE", .target = target };
		if (check_name(name, err) != 0 || session_call(cli, &c, NULL, err) != 0)
			return -1;
		cJSON_AddItemToArray(deleted, cJSON_CreateString(name));
		out_note(cli, "deleted: %s", name);
	}
	return cli->json ? out_json(cli, deleted, err) : 0;
}

static const struct verb secret_delete_verb = {
	.name = "delete",
	.alias = "rm",
	.summary = "forget values; sandboxes that run keep theirs",
	.positionals = delete_positionals,
	.size = sizeof(struct delete_options),
	.run = run_delete,
};

static const struct verb *const subverbs[] = { &secret_set_verb, &secret_list_verb, &secret_delete_verb, NULL };

static const struct example examples[] = {
	{ "sandbox secret set NPM_TOKEN --stdin <token.txt", "keep it on the server, sealed" },
	{ "sandbox run --secret NPM_TOKEN -- npm publish", "as a variable of the same name" },
	{ "sandbox create --secret PEM:/run/secrets/key.pem", "as a file that its user may read" },
	{ NULL, NULL },
};

const struct verb verb_secret = {
	.name = "secret",
	.group = GROUP_SETTINGS,
	.summary = "keep secrets for sandboxes; values never come back",
	.manual = "A secret belongs to a tenant. Its value is sealed before it is stored and goes only to the worker that runs a sandbox which was created "
		  "with --secret; there it is kept in memory and given to the sandbox's commands as a variable, or as a file of /run/secrets. It is no "
		  "part of what inspect, logs, events or the audit log show. Sandboxes that run keep the value they were given; a worker that is "
		  "restarted asks again. A sandbox that is given a secret has the risk signal needs-secrets.",
	.examples = examples,
	.subverbs = subverbs,
};
