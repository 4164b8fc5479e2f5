/* The present directory's say: see place.h. */
#include "cli/place.h"

#include "cli/command.h"
#include "cli/home.h"
#include "cli/output.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/http/unix_client.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USE_FILE "directories"
#define USE_SECTION "use"

/* Shortens an absolute path to its parent; false at the root. */
static bool go_up(char *dir)
{
	char *slash = strrchr(dir, '/');
	if (!slash || !dir[1])
		return false;
	slash[slash == dir] = '\0';
	return true;
}

static char *here(void)
{
	return getcwd(NULL, 0);
}

/* --- the chosen sandbox ----------------------------------------------------------------------------------------- */

static int read_uses(const char *config_dir, struct ini_doc **ret, struct error *err)
{
	auto_free char *path = xasprintf("%s/" USE_FILE, config_dir);
	auto_buf text = BUF_INIT;
	struct error e = ERROR_INIT;
	if (io_read_file(path, INI_FILE_MAX, &text, &e) == 0)
		return ini_doc_parse(path, buf_str(&text), text.len, ret, err);
	if (e.code != ERR_NOT_FOUND)
		return error_set(err, e.code, "%s", e.message);
	*ret = ini_doc_new();
	return 0;
}

/* The nearest directory with a choice; *ret_dir is NULL when there is none. */
static const char *nearest_use(const struct ini_doc *d, char **ret_dir)
{
	auto_free char *dir = here();
	for (bool more = dir != NULL; more; more = go_up(dir)) {
		auto_free char *key = url_encode(dir);
		const char *sandbox = ini_doc_get(d, USE_SECTION, key);
		if (sandbox && *sandbox) {
			*ret_dir = steal(&dir);
			return sandbox;
		}
	}
	return NULL;
}

int place_sandbox(char **ret, char **ret_dir, struct error *err)
{
	auto_free char *config = home_config_dir();
	auto_ini *d = NULL;
	*ret = *ret_dir = NULL;
	if (!config)
		return 0;
	if (read_uses(config, &d, err) != 0)
		return -1;
	*ret = xstrdup0(nearest_use(d, ret_dir));
	return 0;
}

static int change_use(struct ini_doc *d, const char *sandbox, char **ret_dir, struct error *err)
{
	auto_free char *dir = NULL;
	if (sandbox)
		dir = here();
	else if (!nearest_use(d, &dir))
		return error_set(err, ERR_NOT_FOUND, "no sandbox was chosen for this directory");
	if (!dir)
		return error_errno(err, "finding the present directory");
	auto_free char *key = url_encode(dir);
	if (sandbox && ini_doc_set(d, USE_SECTION, key, sandbox, err) != 0)
		return -1;
	if (!sandbox)
		ini_doc_unset(d, USE_SECTION, key);
	*ret_dir = steal(&dir);
	return 0;
}

int place_use(const char *sandbox, char **ret_dir, struct error *err)
{
	auto_free char *config = home_config_dir();
	auto_free char *dir = NULL;
	auto_ini *d = NULL;
	auto_buf text = BUF_INIT;
	if (!config)
		return error_set(err, ERR_INVALID, "there is no place for settings: HOME is not set; set it or XDG_CONFIG_HOME");
	auto_close int lock = home_lock(config, err);
	if (lock < 0 || read_uses(config, &d, err) != 0 || change_use(d, sandbox, &dir, err) != 0)
		return -1;
	ini_doc_print(d, &text);
	if (home_write(config, USE_FILE, buf_str(&text), text.len, err) != 0)
		return -1;
	*ret_dir = steal(&dir);
	return 0;
}

/* --- the project file ------------------------------------------------------------------------------------------- */

bool project_section_known(const char *section)
{
	return strcmp(section, "defaults") == 0 || strcmp(section, "run") == 0 || strcmp(section, "create") == 0;
}

/* Names of options. Not among them is what would take values out of the user's own environment. */
bool project_key_known(const char *key)
{
	static const char *const keys[] = {
		"image", "cpus", "memory", "disk", "pids", "ttl", "network", "tier", "sensitivity", "label", "untrusted-repo",
		"generated-code", "needs-secrets", "writable-root", "upload",
	};
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (strcmp(keys[i], key) == 0)
			return true;
	return false;
}

static int trust(const char *path, const struct stat *st, struct error *err)
{
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return error_set(err, ERR_FORBIDDEN, "%s belongs to another user (uid %d), so it is not used", path,
				 (int)st->st_uid);
	if (st->st_mode & S_IWOTH)
		return error_set(err, ERR_FORBIDDEN, "everybody may write %s, so it is not used; chmod o-w it", path);
	return 0;
}

static int read_project(const char *path, struct ini_doc **ret, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (io_read_file(path, INI_FILE_MAX, &text, err) != 0)
		return -1;
	return ini_doc_parse(path, buf_str(&text), text.len, ret, err);
}

int place_project(struct ini_doc **ret, char **ret_path, struct error *err)
{
	auto_free char *dir = here();
	*ret = NULL;
	*ret_path = NULL;
	for (bool more = dir != NULL; more; more = go_up(dir)) {
		struct stat st;
		auto_free char *path = xasprintf("%s/" PROJECT_FILE, dir[1] ? dir : "");
		if (stat(path, &st) != 0)
			continue;
		if (trust(path, &st, err) != 0 || read_project(path, ret, err) != 0)
			return -1;
		*ret_path = steal(&path);
		return 0;
	}
	return 0;
}

static int check_item(const struct ini_item *item, struct error *err)
{
	char shown[80];
	if (!project_section_known(item->section))
		return error_set(err, ERR_INVALID, "[%s] is not one of [defaults], [run], [create]",
				 text_escape(item->section, strlen(item->section), shown, sizeof(shown)));
	if (item->key && !project_key_known(item->key))
		return error_set(err, ERR_INVALID, "'%s' cannot be set here", text_escape(item->key, strlen(item->key), shown, sizeof(shown)));
	return 0;
}

/* A path in the file means one beside it, wherever the command is run. Owned by cli. */
static const char *from_project(struct cli *cli, const char *path)
{
	if (path[0] == '/')
		return path;
	free(cli->project_upload);
	cli->project_upload = xasprintf("%.*s%s", (int)(strlen(cli->project_path) - strlen(PROJECT_FILE)), cli->project_path, path);
	return cli->project_upload;
}

/* First what both verbs share, then the verb's own, so that it wins whatever the order in the file. */
static int apply_project(struct cli *cli, const struct verb *v, void *options, const char *section, struct buf *said, struct error *err)
{
	struct ini_item item;
	for (size_t at = 0; ini_doc_next(cli->project, &at, &item);) {
		if (check_item(&item, err) != 0)
			return error_wrap(err, "%s:%u", cli->project_path, item.line);
		if (!item.key || strcmp(item.section, section) != 0)
			continue;
		const char *value = strcmp(item.key, "upload") == 0 ? from_project(cli, item.value) : item.value;
		if (option_preset(v, options, item.key, value, err) != 0)
			return error_wrap(err, "%s:%u", cli->project_path, item.line);
		buf_addf(said, " %s=%s", item.key, item.value);
	}
	return 0;
}

/* --- hooks ------------------------------------------------------------------------------------------------------ */

static int on_chosen(void *ctx, const struct verb *v, void *options, struct error *err)
{
	struct cli *cli = ctx;
	auto_buf said = BUF_INIT;
	if (!(v->flags & VERB_PROJECT))
		return 0;
	struct error e = ERROR_INIT;
	if (place_project(&cli->project, &cli->project_path, &e) != 0) {
		if (e.code != ERR_FORBIDDEN)
			return error_set(err, e.code, "%s", e.message);
		/* Whoever may write to a directory above could otherwise stop all work below it. */
		cli->project_refused = xstrdup(e.message);
	}
	if (!cli->project)
		return 0;
	if (apply_project(cli, v, options, "defaults", &said, err) != 0 || apply_project(cli, v, options, v->name, &said, err) != 0)
		return -1;
	cli->project_said = buf_steal(&said);
	return 0;
}

static const char *on_sandbox(void *ctx)
{
	struct cli *cli = ctx;
	auto_free char *dir = NULL;
	if (!cli->default_sandbox && place_sandbox(&cli->default_sandbox, &dir, NULL) != 0)
		return NULL;
	return cli->default_sandbox;
}

struct parse_hooks place_hooks(struct cli *cli)
{
	return (struct parse_hooks){ .chosen = on_chosen, .sandbox = on_sandbox, .ctx = cli };
}
