/* sandbox tunnel: public addresses of ports inside a sandbox: create, list, secret, delete. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 6 };

static const cJSON *tunnel_of(const cJSON *answer)
{
	return cJSON_GetObjectItemCaseSensitive(answer, "tunnel");
}

static void say_secret(struct cli *cli, const cJSON *answer)
{
	const char *secret = json_text(answer, "secret"), *auth = json_text(tunnel_of(answer), "auth");
	if (!*secret)
		return;
	out_line("%s", secret);
	if (strcmp(auth, "password") == 0)
		out_note(cli, "the second line is the password, shown this once; browsers ask for it, others send it by Basic");
	else
		out_note(cli, "the second line is the token, shown this once: Authorization: Bearer TOKEN, or once in a browser ?sandbox_token=TOKEN");
}

/* A call that answers with a tunnel: its address, and its secret when there is one. */
static int ask_and_say(struct cli *cli, struct call *c, struct error *err)
{
	auto_json *answer = NULL;
	if (session_call(cli, c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, answer, err);
	out_line("%s", json_text(tunnel_of(answer), "public_url"));
	say_secret(cli, answer);
	return 0;
}

/* --- create ----------------------------------------------------------------------------------------------------- */

struct create_options {
	const char *ref, *subdomain, *auth, *host_header;
	int64_t port, ttl_ms;
};

static const struct option_row create_options[] = {
	OPT_INT('p', "port", struct create_options, port, "PORT", 1, 65535, "port inside; required"),
	OPT_TEXT(0, "subdomain", struct create_options, subdomain, "NAME", "first part of the address (one nobody can guess)"),
	OPT_WORD(0, "auth", struct create_options, auth, "KIND", "none|token|password", "what visitors need (default none)"),
	OPT_DURATION(0, "ttl", struct create_options, ttl_ms, "TIME", LIMIT_TTL_MIN_SECONDS * 1000LL, LIMIT_TTL_MAX_SECONDS * 1000LL,
		     "ends then (with the sandbox)"),
	OPT_WORD(0, "host-header", struct create_options, host_header, "HOW", "rewrite|keep", "tell the server localhost, or the address (rewrite)"),
	OPT_END,
};

static const struct positional create_positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct create_options, ref, "id, name, or a unique start or end of the id"),
	POS_END,
};

static int run_create(struct cli *cli, void *opaque, struct error *err)
{
	const struct create_options *o = opaque;
	if (!o->port)
		return error_set(err, ERR_INVALID, "'tunnel create' needs --port: the port inside");
	auto_json *body = cJSON_CreateObject();
	auto_free char *target = session_path("/v1/sandboxes/%s/tunnels", o->ref);
	json_add_i64(body, "container_port", o->port);
	if (o->subdomain)
		json_add_str(body, "subdomain", o->subdomain);
	if (o->auth)
		json_add_str(body, "auth", o->auth);
	if (o->host_header)
		json_add_str(body, "host_header", o->host_header);
	if (o->ttl_ms)
		json_add_i64(body, "ttl_seconds", (o->ttl_ms + 999) / 1000);
	struct call c = { .method = "POST", .target = target, .body = body };
	return ask_and_say(cli, &c, err);
}

static const struct verb tunnel_create = {
	.name = "create",
	.summary = "give a port inside a public address, and print it",
	.manual = "The address is the server's. Whoever has it reaches the port, unless --auth asks visitors for a token or a password, which is printed on "
		  "a second line, once. A chosen NAME stays with your tenant for 30 days after its last use.\n"
		  "\n"
		  "With --host-header rewrite the server inside sees Host: localhost:PORT, which is what development servers insist on, and its redirects to "
		  "itself are turned back; with keep it sees the public name. X-Forwarded-Host, -Proto and -For tell the public side in both cases.",
	.options = create_options,
	.positionals = create_positionals,
	.size = sizeof(struct create_options),
	.run = run_create,
};

/* --- list ------------------------------------------------------------------------------------------------------- */

struct list_options {
	const char *ref;
};

static const struct positional list_positionals[] = {
	POS(POS_OPTIONAL, WHAT_SANDBOX, "SANDBOX", struct list_options, ref, "only those of this one"),
	POS_END,
};

static void list_row(struct table *t, const cJSON *tunnel)
{
	const char *id = json_text(tunnel, "id"), *sandbox = json_text(tunnel, "sandbox_id"), *expires = json_text(tunnel, "expires_at");
	table_cell(t, strlen(id) > 8 ? id + strlen(id) - 8 : id);
	table_cell(t, strlen(sandbox) > 8 ? sandbox + strlen(sandbox) - 8 : sandbox);
	table_cellf(t, "%.0f", json_number(tunnel, "container_port", 0));
	table_cell(t, json_text(tunnel, "state"));
	table_cell(t, json_text(tunnel, "auth"));
	table_cellf(t, "%s%s%.16s%s", json_text(tunnel, "public_url"), *expires ? " until " : "", expires, *expires ? "Z" : "");
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "ID", "SANDBOX", "PORT", "STATE", "AUTH", "ADDRESS" };
	const struct list_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *target = o->ref ? session_path("/v1/sandboxes/%s/tunnels", o->ref) : xstrdup("/v1/tunnels");
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *tunnel, *list = cJSON_GetObjectItemCaseSensitive(answer, "tunnels");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of tunnels");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(tunnel, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(tunnel, "id"));
		else
			list_row(t, tunnel);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb tunnel_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list tunnels",
	.positionals = list_positionals,
	.size = sizeof(struct list_options),
	.run = run_list,
};

/* --- secret and delete ------------------------------------------------------------------------------------------ */

struct one_options {
	const char *ref, *tunnel;
	bool no_wait;
};

static const struct positional one_positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct one_options, ref, "id, name, or a unique start or end of the id"),
	POS(POS_ONE, WHAT_TUNNEL, "TUNNEL", struct one_options, tunnel, "its id or last digits, or the name in its address"),
	POS_END,
};

static int run_secret(struct cli *cli, void *opaque, struct error *err)
{
	const struct one_options *o = opaque;
	auto_free char *target = session_path("/v1/sandboxes/%s/tunnels/%s/secret", o->ref, o->tunnel);
	struct call c = { .method = "POST", .target = target };
	return ask_and_say(cli, &c, err);
}

static const struct verb tunnel_secret = {
	.name = "secret",
	.summary = "replace the visitors' token or password",
	.positionals = one_positionals,
	.size = sizeof(struct one_options),
	.run = run_secret,
};

static const struct option_row delete_options[] = {
	/* There is nothing to wait for; scripts of the original give it. */
	{ .name = "no-wait", .kind = OPT_KIND_FLAG, .flags = OPT_HIDDEN, .offset = OPT_OFFSET(struct one_options, no_wait, bool),
	  .help = "accepted; it never waits" },
	OPT_END,
};

static int run_delete(struct cli *cli, void *opaque, struct error *err)
{
	const struct one_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s/tunnels/%s", o->ref, o->tunnel);
	struct call c = { .method = "DELETE", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, o->no_wait ? answer : cJSON_GetObjectItemCaseSensitive(answer, "operation"), err);
	out_note(cli, "removed: %s", json_text(tunnel_of(answer), "public_url"));
	return 0;
}

static const struct verb tunnel_delete = {
	.name = "delete",
	.alias = "rm",
	.summary = "take the address away",
	.manual = "No request that comes after it reaches the sandbox; connections that are open are cut.",
	.options = delete_options,
	.positionals = one_positionals,
	.size = sizeof(struct one_options),
	.run = run_delete,
};

static const struct verb *const subverbs[] = { &tunnel_create, &tunnel_list, &tunnel_secret, &tunnel_delete, NULL };

static const struct example examples[] = {
	{ "sandbox tunnel create web --port 3000", "print a public address of port 3000" },
	{ "sandbox tunnel create web -p 8080 --auth password --ttl 1h", "for an hour, with a password" },
	{ "sandbox tunnel delete web 3fa85f64", "by the last digits that list shows" },
	{ NULL, NULL },
};

const struct verb verb_tunnel = {
	.name = "tunnel",
	.group = GROUP_SANDBOX,
	.summary = "give ports inside a sandbox public addresses",
	.manual = "Tunnels end with their sandbox, their --ttl, or `tunnel delete`. They carry http, with WebSockets and event streams; `sandbox forward` is the "
		  "private way for any TCP. Sandboxes with confidential or restricted data are not exposed.",
	.examples = examples,
	.subverbs = subverbs,
};
