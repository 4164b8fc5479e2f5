/* Registering with a client, and taking that back: by its own command where it has one, else by one entry of its file. Nothing else is touched. */
#include "cli/mcp/clients.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_MAX = 4 * 1024 * 1024 };

static bool on_path(const char *program)
{
	const char *path = getenv("PATH");
	while (path && *path) {
		size_t n = strcspn(path, ":");
		auto_free char *file = xasprintf("%.*s/%s", (int)n, path, program);
		if (access(file, X_OK) == 0)
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

static const char *env_text(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

static char *config_file(const struct mcp_client *c)
{
	static const char prefix[] = "config:";
	const char *home = env_text("HOME"), *config = env_text("XDG_CONFIG_HOME");
	if (!c->file)
		return NULL;
	if (strncmp(c->file, prefix, strlen(prefix)) != 0)
		return home ? xasprintf("%s/%s", home, c->file) : NULL;
	if (config)
		return xasprintf("%s/%s", config, c->file + strlen(prefix));
	return home ? xasprintf("%s/.config/%s", home, c->file + strlen(prefix)) : NULL;
}

static char *as_json(const struct install *o)
{
	auto_json *j = cJSON_CreateObject();
	json_add_str(j, "name", "sandbox");
	json_add_str(j, "type", "stdio");
	json_add_str(j, "command", o->command);
	if (o->env->len)
		json_add_map(j, "env", o->env);
	return json_print(j);
}

/* The words of a client's command. */
static void words_of(const char *line, const struct mcp_client *c, const struct install *o, struct strv *ret)
{
	while (*line) {
		size_t n = strcspn(line, " ");
		if (n == 2 && strncmp(line, "%c", 2) == 0)
			strv_add(ret, o->command);
		else if (n == 2 && strncmp(line, "%j", 2) == 0)
			strv_take(ret, as_json(o));
		else if (n == 2 && strncmp(line, "%e", 2) == 0)
			for (size_t i = 0; i < o->env->len; i++) {
				strv_add(ret, c->env_flag);
				strv_take(ret, xasprintf("%s=%s", o->env->items[i].key, o->env->items[i].value));
			}
		else
			strv_take(ret, xstrndup(line, n));
		line += n;
		line += strspn(line, " ");
	}
}

/* Runs a program with standard output on ours for errors, or on nothing. Its exit status, -1 when it could not be started. */
static int run(const struct strv *argv, bool quiet)
{
	int status;
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, STDIN_FILENO);
		dup2(quiet ? null : STDERR_FILENO, STDOUT_FILENO);
		if (quiet)
			dup2(null, STDERR_FILENO);
		execvp(argv->items[0], argv->items);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static char *shown(const struct strv *argv)
{
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < argv->len; i++)
		buf_addf(&b, "%s%s", i ? " " : "", argv->items[i]);
	return buf_steal(&b);
}

static bool is_there(const struct mcp_client *c, const struct install *o)
{
	auto_strv look = STRV_INIT;
	auto_buf old = BUF_INIT, new = BUF_INIT;
	auto_free char *path = config_file(c);
	bool there = false;
	if (c->look) {
		words_of(c->look, c, o, &look);
		return run(&look, true) == 0;
	}
	return path && io_read_file(path, FILE_MAX, &old, NULL) == 0 &&
	       mcp_merge_json(buf_str(&old), old.len, c->member, "{}", &new, &there, NULL) == 0 && there;
}

static int by_command(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	auto_strv add = STRV_INIT;
	words_of(c->add, c, o, &add);
	if (is_there(c, o)) {
		*ret = INSTALL_THERE;
		*ret_detail = xasprintf("%s has an entry named sandbox; it was left as it is", c->title);
		return 0;
	}
	auto_free char *line = shown(&add);
	if (!o->dry_run) {
		int status = run(&add, false);
		if (status != 0)
			return error_set(err, ERR_SYSTEM, "`%s` failed with status %d", line, status);
	}
	*ret = o->dry_run ? INSTALL_WOULD : INSTALL_ADDED;
	*ret_detail = steal(&line);
	return 0;
}

/* The file itself where the path is a link to it: the link stays. */
static char *real_file(const char *path)
{
	char *real = realpath(path, NULL);
	return real ? real : xstrdup(path);
}

static int write_file(const char *path, const struct buf *text, struct error *err)
{
	struct stat st;
	auto_free char *dir = xstrdup(path);
	*strrchr(dir, '/') = '\0';
	mode_t mode = stat(path, &st) == 0 ? st.st_mode & 0777 : 0600;
	if (io_mkdirs(dir, 0700, err) != 0)
		return -1;
	return io_write_file_atomic(path, text->data, text->len, mode, true, err);
}

static int by_file(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	auto_free char *named = config_file(c);
	auto_buf old = BUF_INIT, new = BUF_INIT, entry = BUF_INIT;
	struct error e = ERROR_INIT;
	bool there;
	if (!named)
		return error_set(err, ERR_INVALID, "HOME is not set, so the file of %s cannot be found", c->title);
	auto_free char *path = real_file(named);
	if (io_read_file(path, FILE_MAX, &old, &e) != 0 && e.code != ERR_NOT_FOUND) {
		*err = e;
		return -1;
	}
	c->entry(o->command, o->env, &entry);
	int rc = c->member ? mcp_merge_json(buf_str(&old), old.len, c->member, buf_str(&entry), &new, &there, &e)
			   : mcp_merge_yaml(buf_str(&old), buf_str(&entry), &new, &there, &e);
	if (rc != 0)
		return error_set(err, ERR_CONFLICT, "%s was left as it is: %s; add what `sandbox mcp config %s` prints by hand", path, e.message, c->name);
	if (!there && !o->dry_run && write_file(path, &new, err) != 0)
		return -1;
	*ret = there ? INSTALL_THERE : o->dry_run ? INSTALL_WOULD : INSTALL_ADDED;
	*ret_detail = there ? xasprintf("%s has an entry named sandbox; it was left as it is", path) : xasprintf("entry sandbox in %s", path);
	return 0;
}

/* The configuration's directory is there. */
static bool has_directory(const struct mcp_client *c)
{
	auto_free char *path = config_file(c);
	if (!path)
		return false;
	*strrchr(path, '/') = '\0';
	return access(path, F_OK) == 0;
}

int mcp_install(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	bool program = on_path(c->program);
	if (c->add && program)
		return by_command(c, o, ret, ret_detail, err);
	if (c->file && (program || o->forced || has_directory(c)))
		return by_file(c, o, ret, ret_detail, err);
	if (o->forced)
		return error_set(err, ERR_NOT_FOUND, "%s is not installed: there is no program '%s' on the PATH", c->title, c->program);
	*ret = INSTALL_ABSENT;
	*ret_detail = xasprintf("%s is not installed here", c->title);
	return 0;
}

static int remove_by_command(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	auto_strv words = STRV_INIT;
	*ret = INSTALL_ABSENT;
	*ret_detail = xasprintf("%s has no entry named sandbox", c->title);
	if (!is_there(c, o))
		return 0;
	words_of(c->remove, c, o, &words);
	free(*ret_detail);
	*ret_detail = shown(&words);
	*ret = o->dry_run ? INSTALL_WOULD_REMOVE : INSTALL_REMOVED;
	int status = o->dry_run ? 0 : run(&words, false);
	if (status == 0)
		return 0;
	error_set(err, ERR_SYSTEM, "`%s` failed with status %d", *ret_detail, status);
	free(steal(ret_detail));
	return -1;
}

static int remove_from_file(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	auto_free char *named = config_file(c);
	auto_buf old = BUF_INIT, new = BUF_INIT;
	struct error e = ERROR_INIT;
	bool there = false;
	if (!named)
		return error_set(err, ERR_INVALID, "HOME is not set, so the file of %s cannot be found", c->title);
	auto_free char *path = real_file(named);
	if (io_read_file(path, FILE_MAX, &old, &e) != 0 && e.code != ERR_NOT_FOUND) {
		*err = e;
		return -1;
	}
	if (mcp_unmerge(buf_str(&old), old.len, c->member, &new, &there, &e) != 0)
		return error_set(err, ERR_CONFLICT, "%s was left as it is: %s", path, e.message);
	if (there && !o->dry_run && write_file(path, &new, err) != 0)
		return -1;
	*ret = !there ? INSTALL_ABSENT : o->dry_run ? INSTALL_WOULD_REMOVE : INSTALL_REMOVED;
	*ret_detail = there ? xasprintf("entry sandbox of %s", path) : xasprintf("%s has no entry named sandbox", c->title);
	return 0;
}

int mcp_uninstall(const struct mcp_client *c, const struct install *o, enum install_state *ret, char **ret_detail, struct error *err)
{
	if (c->remove && on_path(c->program))
		return remove_by_command(c, o, ret, ret_detail, err);
	if (c->file)
		return remove_from_file(c, o, ret, ret_detail, err);
	*ret = INSTALL_ABSENT;
	*ret_detail = xasprintf("%s is not installed here", c->title);
	return 0;
}
