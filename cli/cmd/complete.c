/* sandbox __complete: the words a shell may complete, one a line. Starts nothing, says nothing, waits a moment at most. */
#include "cli/command.h"

#include "cli/agent.h"
#include "cli/mcp/clients.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "cli/transfer.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_TIMEOUT_MS = 900, WHOLE_SECONDS = 1 };

struct options {
	const char *what, *word;
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "WHAT", struct options, what, "sandbox, operation, image, path ...: as completion_what says"),
	POS(POS_OPTIONAL, WHAT_TEXT, "WORD", struct options, word, "what is there already"),
	POS_END,
};

struct source {
	const char *what, *target, *list, *inside, *keys[2];
};

/* A word that a shell or a terminal would read as something else is left out. */
static bool plain(const char *word)
{
	for (const char *p = word; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("'\"\\$`()<>|&;*?![]{}#~", *p))
			return false;
	return *word != '\0' && *word != '-';
}

static void print_word(struct strv *seen, const char *word, const char *end)
{
	if (!plain(word) || strv_has(seen, word))
		return;
	strv_add(seen, word);
	out_line("%s%s", word, end);
}

static void from_server(struct cli *cli, const struct source *s, const char *end)
{
	auto_json *answer = NULL;
	auto_strv seen = STRV_INIT;
	const cJSON *item;
	struct call c = { .method = "GET", .target = s->target, .timeout_ms = ANSWER_TIMEOUT_MS, .no_start = true };
	if (session_call(cli, &c, &answer, NULL) != 0)
		return;
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, s->list))
	{
		const cJSON *o = s->inside ? cJSON_GetObjectItemCaseSensitive(item, s->inside) : item;
		print_word(&seen, json_text(o, s->keys[0]), end);
		print_word(&seen, json_text(o, s->keys[1]), end);
	}
}

static void contexts(void)
{
	static const char prefix[] = "context ";
	auto_ini *d = NULL;
	auto_strv seen = STRV_INIT;
	struct ini_item item;
	if (settings_read(&d, NULL) != 0)
		return;
	for (size_t at = 0; ini_doc_next(d, &at, &item);)
		if (!item.key && strncmp(item.section, prefix, sizeof(prefix) - 1) == 0)
			print_word(&seen, item.section + sizeof(prefix) - 1, "");
}

static void settings_keys(void)
{
#define KEY(key, text) out_line("%s", key);
	CONTEXT_KEYS(KEY)
#undef KEY
}

/* Words that no server is asked for. */
static bool known_here(const char *what)
{
	static const char *const signals[] = { "TERM", "KILL", "INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT" };
	if (strcmp(what, "context") == 0)
		contexts();
	else if (strcmp(what, "agent") == 0)
		for (const struct agent_profile *p = agent_profiles; p->name; p++)
			out_line("%s", p->name);
	else if (strcmp(what, "client") == 0)
		for (const struct mcp_client *c = mcp_clients; c->name; c++)
			out_line("%s", c->name);
	else if (strcmp(what, "signal") == 0)
		for (size_t i = 0; i < ARRAY_LEN(signals); i++)
			out_line("%s", signals[i]);
	else if (strcmp(what, "setting") == 0)
		settings_keys();
	else
		return false;
	return true;
}

/* --- SANDBOX:PATH ----------------------------------------------------------------------------------------------- */

struct listing {
	const char *head;  /* "web:/etc/" */
	const char *begun; /* "pa" */
};

static void on_entry(void *ctx, const char *name, bool directory)
{
	const struct listing *l = ctx;
	size_t n = strlen(l->begun);
	if (strncmp(name, l->begun, n) == 0 && (n > 0 || name[0] != '.') && plain(name))
		out_line("%s%s%s", l->head, name, directory ? "/" : "");
}

static void remote_paths(struct cli *cli, const char *word)
{
	static const struct source sandboxes = { "sandbox", "/v1/sandboxes?limit=500", "sandboxes", NULL, { "name", "id" } };
	const char *colon = strchr(word, ':'), *slash = strrchr(word, '/');
	if (!colon) {
		if (!strchr(word, '/') && word[0] != '.')
			from_server(cli, &sandboxes, ":");
		return;
	}
	const char *begun = slash > colon ? slash + 1 : colon + 1;
	auto_free char *sandbox = xstrndup(word, (size_t)(colon - word));
	auto_free char *head = xstrndup(word, (size_t)(begun - word));
	struct listing l = { .head = head, .begun = begun };
	const char *dir = head + (colon - word) + 1;
	transfer_list(cli, sandbox, *dir ? dir : "./", on_entry, &l, NULL);
}

/* However long anything takes, a prompt does not wait for it. */
static void too_late(int sig)
{
	(void)sig;
	_exit(0);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	static const struct source sources[] = {
		{ "sandbox", "/v1/sandboxes?limit=500", "sandboxes", NULL, { "name", "id" } },
		{ "operation", "/v1/operations?limit=50", "operations", NULL, { "id", "" } },
		{ "image", "/v1/images", "images", NULL, { "name", "" } },
		{ "tenant", "/v1/sandboxes?limit=500", "sandboxes", "spec", { "tenant", "" } },
		{ "node", "/v1/nodes", "nodes", NULL, { "name", "" } },
		{ "secret", "/v1/secrets", "secrets", NULL, { "name", "" } },
		{ "token", "/v1/tokens", "tokens", NULL, { "name", "" } },
		{ "tunnel", "/v1/tunnels", "tunnels", NULL, { "id", "" } },
	};
	const struct options *o = opaque;
	(void)err;
	signal(SIGALRM, too_late);
	alarm(WHOLE_SECONDS);
	cli->no_start = cli->quiet = true;
	if (known_here(o->what))
		return 0;
	if (settings_resolve(cli, NULL) != 0)
		return 0;
	if (strcmp(o->what, "path") == 0)
		remote_paths(cli, o->word ? o->word : "");
	for (size_t i = 0; i < ARRAY_LEN(sources); i++)
		if (strcmp(sources[i].what, o->what) == 0)
			from_server(cli, &sources[i], "");
	return 0;
}

const struct verb verb_complete = {
	.name = "__complete",
	.group = GROUP_SYSTEM,
	.flags = VERB_HIDDEN | VERB_NO_SETTINGS,
	.summary = "list words for shell completion",
	.positionals = positionals,
	.size = sizeof(struct options),
	.run = run,
};
