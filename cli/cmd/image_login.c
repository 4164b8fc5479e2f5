/* sandbox image login, logout, logins: what a tenant shows to image registries. A password comes from standard input or the terminal. */
#include "cli/command.h"

#include "cli/image.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/token.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

enum { COLUMNS = 5 };

static char *target_of(struct cli *cli, const char *registry)
{
	if (cli->tenant && *cli->tenant)
		return session_path("/v1/registries/%s?tenant=%s", registry, cli->tenant);
	return session_path("/v1/registries/%s", registry);
}

/* --- login ------------------------------------------------------------------------------------------------------ */

struct login_options {
	const char *registry, *username;
	bool from_stdin;
};

static const struct option_row login_options[] = {
	OPT_TEXT('u', "username", struct login_options, username, "USER", "user name at the registry"),
	OPT_FLAG(0, "password-stdin", struct login_options, from_stdin, "read the password or token from standard input"),
	OPT_END,
};

static const struct positional login_positionals[] = {
	POS(POS_ONE, WHAT_TEXT, "REGISTRY", struct login_options, registry, "host[:port] that image names begin with; docker.io for Docker Hub"),
	POS_END,
};

static int read_password(struct secret *ret, struct error *err)
{
	auto_secret text = SECRET_INIT;
	static const char room[LIMIT_REGISTRY_PASSWORD_MAX + 3];
	secret_set(&text, room, sizeof(room));
	ssize_t n = io_read_full(STDIN_FILENO, text.bytes, text.n);
	if (n < 0)
		return error_errno(err, "reading the password from standard input");
	while (n > 0 && (text.bytes[n - 1] == '\n' || text.bytes[n - 1] == '\r'))
		n--;
	if (n > LIMIT_REGISTRY_PASSWORD_MAX)
		return error_set(err, ERR_TOO_LARGE, "the password is longer than %d bytes", LIMIT_REGISTRY_PASSWORD_MAX);
	secret_set(ret, text.bytes, (size_t)n);
	return 0;
}

static int get_password(struct cli *cli, const struct login_options *o, struct secret *ret, struct error *err)
{
	auto_free char *prompt = xasprintf("Password of %s at %s: ", o->username, o->registry);
	if (o->from_stdin)
		return read_password(ret, err);
	if (token_ask(prompt, ret, err) == 0)
		return 0;
	cli_hint(cli, "give it by --password-stdin: `sandbox image login %s -u %s --password-stdin <FILE`", o->registry, o->username);
	return -1;
}

/* The request that holds it is wiped before it is given back. */
static int send_login(struct cli *cli, const struct login_options *o, const struct secret *password, cJSON **ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_free char *target = target_of(cli, o->registry);
	struct call c = { .method = "PUT", .target = target, .body = body };
	json_add_str(body, "username", o->username);
	json_add_str(body, "password", (const char *)password->bytes);
	int rc = session_call(cli, &c, ret, err);
	char *held = cJSON_GetObjectItemCaseSensitive(body, "password")->valuestring;
	explicit_bzero(held, strlen(held));
	return rc;
}

static int run_login(struct cli *cli, void *opaque, struct error *err)
{
	const struct login_options *o = opaque;
	auto_secret password = SECRET_INIT;
	auto_json *answer = NULL;
	if (!o->username || !*o->username)
		return error_set(err, ERR_INVALID, "whose login? Give the user name: -u USER");
	if (cli->dry_run) /* would show the password */
		return error_set(err, ERR_INVALID, "image login has no dry run: the request is the password");
	if (get_password(cli, o, &password, err) != 0)
		return -1;
	if (password.n == 0)
		return error_set(err, ERR_INVALID, "the password is empty");
	if (memchr(password.bytes, 0, password.n))
		return error_set(err, ERR_INVALID, "the password holds a zero byte");
	if (send_login(cli, o, &password, &answer, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, cJSON_GetObjectItemCaseSensitive(answer, "registry"), err);
	out_note(cli, "kept on the server: %s at %s; the first pull shows whether it is right", o->username, o->registry);
	return 0;
}

const struct verb verb_image_login = {
	.name = "login",
	.summary = "keep a login to an image registry",
	.options = login_options,
	.positionals = login_positionals,
	.size = sizeof(struct login_options),
	.run = run_login,
};

/* --- logout ----------------------------------------------------------------------------------------------------- */

struct logout_options {
	struct strv registries;
};

static const struct positional logout_positionals[] = {
	POS(POS_MANY, WHAT_TEXT, "REGISTRY", struct logout_options, registries, "registries to forget the login of"),
	POS_END,
};

static int run_logout(struct cli *cli, void *opaque, struct error *err)
{
	const struct logout_options *o = opaque;
	auto_json *removed = cJSON_CreateArray();
	for (size_t i = 0; i < o->registries.len; i++) {
		const char *registry = o->registries.items[i];
		auto_free char *target = target_of(cli, registry);
		struct call c = { .method = "DELETE", .target = target };
		if (session_call(cli, &c, NULL, err) != 0)
			return -1;
		cJSON_AddItemToArray(removed, cJSON_CreateString(registry));
		out_note(cli, "forgotten: %s", registry);
	}
	return cli->json ? out_json(cli, removed, err) : 0;
}

const struct verb verb_image_logout = {
	.name = "logout",
	.summary = "forget the login to an image registry",
	.positionals = logout_positionals,
	.size = sizeof(struct logout_options),
	.run = run_logout,
};

/* --- logins ----------------------------------------------------------------------------------------------------- */

static void login_row(struct table *t, const cJSON *r)
{
	table_cell(t, json_text(r, "registry"));
	table_cell(t, json_text(r, "tenant"));
	table_cell(t, json_text(r, "username"));
	table_cellf(t, "%.16sZ", json_text(r, "updated_at"));
	table_cell(t, json_text(r, "updated_by"));
}

static int run_logins(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "REGISTRY", "TENANT", "USER", "SET", "BY" };
	(void)opaque;
	auto_json *answer = NULL;
	auto_free char *target = cli->tenant && *cli->tenant ? session_path("/v1/registries?tenant=%s", cli->tenant) : xstrdup("/v1/registries");
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *one, *list = cJSON_GetObjectItemCaseSensitive(answer, "registries");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of registries");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(one, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(one, "registry"));
		else
			login_row(t, one);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

const struct verb verb_image_logins = {
	.name = "logins",
	.summary = "list logins to image registries, never passwords",
	.run = run_logins,
};
