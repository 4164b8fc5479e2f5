/* sandbox login, logout and auth status. The token is read from standard input or the terminal, never from the command line. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "cli/token.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/config/server_url.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

/* The server that counts, which must be one that takes tokens. */
static int origin_of(struct cli *cli, struct server_url *ret, struct error *err)
{
	if (!cli->server || !*cli->server) {
		cli_hint(cli, "`sandbox context create NAME --url https://... --use` names a server, as does --server");
		return error_set(err, ERR_INVALID, "no server is chosen, and the local daemon needs no token");
	}
	if (server_url_parse(cli->server, ret, err) != 0)
		return -1;
	return ret->path ? error_set(err, ERR_INVALID, "%s is a socket of this machine and needs no token", ret->url) : 0;
}

/* --- login ------------------------------------------------------------------------------------------------------ */

struct login_options {
	bool token_stdin, passphrase;
};

static const struct option_row login_options[] = {
	OPT_FLAG(0, "token-stdin", struct login_options, token_stdin, "read the token from standard input"),
	OPT_FLAG(0, "passphrase", struct login_options, passphrase, "encrypt it by a passphrase, which is then asked for"),
	OPT_END,
};

static const struct example login_examples[] = {
	{ "sandbox login", "asks for the token" },
	{ "sandbox login --token-stdin <token.txt", "for scripts" },
	{ NULL, NULL },
};

static int read_stdin(struct secret *ret, struct error *err)
{
	char text[TOKEN_MAX + 3];
	ssize_t n = io_read_full(STDIN_FILENO, text, sizeof(text));
	if (n < 0)
		return error_errno(err, "reading the token from standard input");
	if (n > 0 && text[n - 1] == '\n')
		n--;
	if (n > 0 && text[n - 1] == '\r')
		n--;
	secret_set(ret, text, (size_t)n);
	explicit_bzero(text, sizeof(text));
	return 0;
}

static int get_token(struct cli *cli, const struct login_options *o, const char *origin, struct secret *ret, struct error *err)
{
	auto_free char *prompt = xasprintf("Token for %s: ", origin);
	if (o->token_stdin)
		return read_stdin(ret, err);
	if (token_ask(prompt, ret, err) == 0)
		return 0;
	cli_hint(cli, "give it by --token-stdin, or set SANDBOX_TOKEN instead of logging in");
	return -1;
}

static int get_passphrase(struct secret *ret, struct error *err)
{
	auto_secret again = SECRET_INIT;
	const char *own = getenv("SANDBOX_PASSPHRASE");
	if (own && *own) {
		secret_set(ret, own, strlen(own));
		return 0;
	}
	if (token_ask("Passphrase: ", ret, err) != 0 || token_ask("Once more: ", &again, err) != 0)
		return -1;
	if (!ret->n || !secret_equal(ret, &again))
		return error_set(err, ERR_INVALID, ret->n ? "the two passphrases differ" : "the passphrase is empty");
	return 0;
}

static int run_login(struct cli *cli, void *opaque, struct error *err)
{
	const struct login_options *o = opaque;
	auto_server_url u = { .url = NULL };
	auto_secret token = SECRET_INIT, passphrase = SECRET_INIT;
	if (origin_of(cli, &u, err) != 0 || get_token(cli, o, u.origin, &token, err) != 0 || token_check(&token, err) != 0)
		return -1;
	if (o->passphrase && get_passphrase(&passphrase, err) != 0)
		return -1;
	if (token_keep(u.origin, &token, o->passphrase ? &passphrase : NULL, err) != 0)
		return -1;
	out_note(cli, "the token for %s is kept", u.origin);
	if (getenv("SANDBOX_TOKEN"))
		out_warn(cli, "SANDBOX_TOKEN is set and wins over it");
	return 0;
}

const struct verb verb_login = {
	.name = "login",
	.group = GROUP_SETTINGS,
	.summary = "keep a token for a server",
	.manual = "The token belongs to the origin (scheme, host and port) of the server that counts, and is sent nowhere else. It is stored encrypted in the "
		  "settings directory, the key in a file outside of it; with --passphrase the key is derived from a passphrase by Argon2id instead, and "
		  "asked for (or taken from SANDBOX_PASSPHRASE) each time. A context with a token-helper leaves the token to that program: libsecret "
		  "means git-credential-libsecret, a text with a slash is a program with arguments.\n"
		  "\n"
		  "There is no option that takes the token itself, since command lines are seen by everybody on the machine. SANDBOX_TOKEN wins over "
		  "what is kept and needs no login; it is meant for CI.",
	.options = login_options,
	.size = sizeof(struct login_options),
	.examples = login_examples,
	.run = run_login,
};

/* --- logout ----------------------------------------------------------------------------------------------------- */

static int run_logout(struct cli *cli, void *opaque, struct error *err)
{
	auto_server_url u = { .url = NULL };
	(void)opaque;
	if (origin_of(cli, &u, err) != 0 || token_forget(u.origin, err) != 0)
		return -1;
	out_note(cli, "the token for %s is forgotten here; the server still takes it until it is revoked there", u.origin);
	if (getenv("SANDBOX_TOKEN"))
		out_warn(cli, "SANDBOX_TOKEN is still set");
	return 0;
}

const struct verb verb_logout = {
	.name = "logout",
	.group = GROUP_SETTINGS,
	.summary = "forget the token of a server",
	.manual = "Exit status 3 when none was kept.",
	.run = run_logout,
};

/* --- auth status ------------------------------------------------------------------------------------------------ */

struct status_options {
	bool check;
};

static const struct option_row status_options[] = {
	OPT_FLAG(0, "check", struct status_options, check, "ask the server whether it takes the token"),
	OPT_END,
};

static const char *source_text(enum token_source s)
{
	switch (s) {
	case TOKEN_ENVIRONMENT:
		return "SANDBOX_TOKEN";
	case TOKEN_HELPER:
		return "token-helper";
	case TOKEN_STORE:
		return "store, by key file";
	case TOKEN_STORE_PASSPHRASE:
		return "store, by passphrase";
	case TOKEN_NONE:
		break;
	}
	return NULL;
}

static int check_server(struct cli *cli, struct error *err)
{
	struct call c = { .method = "GET", .target = "/v1/sandboxes?limit=1", .no_start = true };
	return session_call(cli, &c, NULL, err);
}

static int run_status(struct cli *cli, void *opaque, struct error *err)
{
	const struct status_options *o = opaque;
	auto_server_url u = { .url = NULL };
	if (origin_of(cli, &u, err) != 0)
		return -1;
	const char *source = source_text(token_source(u.origin));
	if (!source)
		return error_set(err, ERR_UNAUTHORIZED, "there is no token for %s; `sandbox login` takes one", u.origin);
	if (o->check && check_server(cli, err) != 0)
		return -1;
	if (cli->json) {
		auto_json *j = cJSON_CreateObject();
		json_add_str(j, "origin", u.origin);
		json_add_str(j, "source", source);
		json_add_bool(j, "checked", o->check);
		return out_json(cli, j, err);
	}
	out_line("%s: a token from %s%s", u.origin, source, o->check ? ", which the server takes" : "");
	return 0;
}

static const struct verb auth_status = {
	.name = "status",
	.summary = "say which token would be sent (status 4: none)",
	.options = status_options,
	.size = sizeof(struct status_options),
	.run = run_status,
};

static const struct verb *const auth_subverbs[] = { &auth_status, NULL };

static const struct example auth_examples[] = {
	{ "sandbox auth status --check", "whether the server takes it" },
	{ NULL, NULL },
};

const struct verb verb_auth = {
	.name = "auth",
	.group = GROUP_SETTINGS,
	.summary = "say where the token comes from",
	.manual = "The token itself is never shown.",
	.examples = auth_examples,
	.subverbs = auth_subverbs,
};
