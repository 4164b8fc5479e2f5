/* Configuration of the CLI: see settings.h. */
#include "cli/settings.h"

#include "cli/home.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/config/server_url.h"

#include <ctype.h>
#include <string.h>

enum { CONTEXT_NAME_MAX = 63 };

static int read_from(const char *dir, struct ini_doc **ret, struct error *err)
{
	auto_free char *path = xasprintf("%s/" CONFIG_FILE, dir);
	auto_buf text = BUF_INIT;
	struct error e = ERROR_INIT;
	if (io_read_file(path, INI_FILE_MAX, &text, &e) == 0)
		return ini_doc_parse(path, buf_str(&text), text.len, ret, err);
	if (e.code != ERR_NOT_FOUND) {
		if (err)
			*err = e;
		return -1;
	}
	*ret = ini_doc_new();
	return 0;
}

int settings_read(struct ini_doc **ret, struct error *err)
{
	auto_free char *dir = home_config_dir();
	if (dir)
		return read_from(dir, ret, err);
	*ret = ini_doc_new();
	return 0;
}

int settings_change(int (*change)(struct ini_doc *d, void *ctx, struct error *err), void *ctx, struct error *err)
{
	auto_free char *dir = home_config_dir();
	auto_ini *d = NULL;
	auto_buf text = BUF_INIT;
	if (!dir)
		return error_set(err, ERR_INVALID, "there is no place for settings: HOME is not set; set it or XDG_CONFIG_HOME");
	auto_close int lock = home_lock(dir, err);
	if (lock < 0 || read_from(dir, &d, err) != 0 || change(d, ctx, err) != 0)
		return -1;
	ini_doc_print(d, &text);
	return home_write(dir, CONFIG_FILE, buf_str(&text), text.len, err);
}

/* --- contexts --------------------------------------------------------------------------------------------------- */

int context_name_check(const char *name, struct error *err)
{
	size_t n = strlen(name);
	bool good = n > 0 && n <= CONTEXT_NAME_MAX && isalnum((unsigned char)name[0]);
	for (size_t i = 0; good && i < n; i++)
		good = isalnum((unsigned char)name[i]) || strchr("._-", name[i]);
	char shown[80];
	return good ? 0 : error_set(err, ERR_INVALID, "'%s' is not a name for a context: letters, digits, '.', '-' and '_', a letter or digit "
				    "first, at most %d", text_escape(name, n, shown, sizeof(shown)), CONTEXT_NAME_MAX);
}

char *context_section(const char *name)
{
	return xasprintf("context %s", name);
}

const char *context_current(const struct ini_doc *d)
{
	const char *name = ini_doc_get(d, "cli", "context");
	return name && *name ? name : NULL;
}

static int url_value(const char *text, char **ret, struct error *err)
{
	auto_server_url u = { .url = NULL };
	if (server_url_parse(text, &u, err) != 0)
		return -1;
	*ret = xstrdup(u.url);
	return 0;
}

int context_value(const char *key, const char *text, char **ret, struct error *err)
{
	bool yes;
	if (strcmp(key, "url") == 0)
		return url_value(text, ret, err);
	if (strcmp(key, "tenant") == 0 && !tenant_valid(text))
		return error_set(err, ERR_INVALID, "tenant: '%.80s' is not a tenant's name", text);
	if (strcmp(key, "allow-http") == 0) {
		if (parse_bool(key, text, &yes, err) != 0)
			return -1;
		*ret = xstrdup(yes ? "yes" : "no");
		return 0;
	}
	*ret = xstrdup(text);
	return 0;
}

/* --- what counts ------------------------------------------------------------------------------------------------ */

static const char *env_text(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

/* Which context is meant, NULL: none. */
static const char *wanted_context(const struct cli *cli, const struct ini_doc *d, const char **ret_origin)
{
	const char *name;
	if (cli->context)
		return *ret_origin = "--context", cli->context;
	if (cli->server)
		return NULL;
	if ((name = env_text("SANDBOX_CONTEXT")))
		return *ret_origin = "SANDBOX_CONTEXT", name;
	return *ret_origin = "the config file", context_current(d);
}

static int take_context(struct cli *cli, const struct ini_doc *d, const char *name, const char *origin, struct error *err)
{
	auto_free char *section = context_section(name);
	if (!ini_doc_has_section(d, section)) {
		cli_hint(cli, "`sandbox context list` shows those there are, `sandbox context create` makes one");
		return error_set(err, ERR_NOT_FOUND, "there is no context '%.80s' (named by %s)", name, origin);
	}
	cli->context_name = xstrdup(name);
	cli->context_origin = origin;
	const char *url = ini_doc_get(d, section, "url"), *tenant = ini_doc_get(d, section, "tenant");
	if (!cli->server && url && *url) {
		cli->server = cli->context_url = xstrdup(url);
		cli->server_origin = ORIGIN_CONTEXT;
	}
	if (!cli->tenant && tenant && *tenant) {
		cli->tenant = cli->context_tenant = xstrdup(tenant);
		cli->tenant_origin = ORIGIN_CONTEXT;
	}
	return 0;
}

/* After the flags, which win: --context given without --server hides the environment's server as well. */
static void take_environment(struct cli *cli)
{
	cli->server_origin = cli->server ? ORIGIN_FLAG : ORIGIN_DEFAULT;
	cli->tenant_origin = cli->tenant ? ORIGIN_FLAG : ORIGIN_DEFAULT;
	if (!cli->server && !cli->context && (cli->server = env_text("SANDBOX_URL")))
		cli->server_origin = ORIGIN_ENVIRONMENT;
	if (!cli->tenant && (cli->tenant = env_text("SANDBOX_TENANT")))
		cli->tenant_origin = ORIGIN_ENVIRONMENT;
}

int settings_resolve(struct cli *cli, struct error *err)
{
	auto_ini *d = NULL;
	const char *origin = NULL;
	take_environment(cli);
	if (cli->server && !cli->context)
		return 0;
	if (settings_read(&d, err) != 0)
		return -1;
	const char *name = wanted_context(cli, d, &origin);
	return name ? take_context(cli, d, name, origin, err) : 0;
}
