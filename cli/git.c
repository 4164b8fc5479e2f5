/* Running git without anybody's settings: see git.h. */
#include "cli/git.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 4096, PIECE = 64 * 1024 };

/* Before every command: what a repository's or the user's settings could otherwise start or change. */
static const char *const settings[] = {
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.bare=false",
	"core.quotePath=true", "core.compression=1", "gc.auto=0", "maintenance.auto=false", "diff.renames=true", "diff.renameLimit=4000",
	"advice.detachedHead=false",
};

static void make_argv(const char *const *args, struct strv *argv)
{
	strv_add(argv, "git");
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		strv_add(argv, "-c");
		strv_add(argv, settings[i]);
	}
	for (; *args; args++)
		strv_add(argv, *args);
}

static void make_env(const struct git *g, struct strv *env)
{
	const char *path = getenv("PATH");
	strv_take(env, xasprintf("PATH=%s", path ? path : "/usr/bin:/bin"));
	strv_take(env, xasprintf("HOME=%s", g->dir));
	strv_take(env, xasprintf("GIT_DIR=%s", g->dir));
	if (g->objects)
		strv_take(env, xasprintf("GIT_ALTERNATE_OBJECT_DIRECTORIES=%s", g->objects));
	if (g->work_tree)
		strv_take(env, xasprintf("GIT_WORK_TREE=%s", g->work_tree));
	static const char *const rest[] = { "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
					    "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C", "TZ=UTC" };
	for (size_t i = 0; i < ARRAY_LEN(rest); i++)
		strv_add(env, rest[i]);
}

/* A file, not a pipe: nobody has to read it while git runs. */
static int open_errors(const struct git *g, int flags)
{
	auto_free char *path = xasprintf("%s/sandbox-errors", g->dir);
	return open(path, flags | O_CLOEXEC, 0600);
}

struct ends {
	int in[2], out[2], errors;
};

static void ends_done(struct ends *e)
{
	close_fdp(&e->in[0]);
	close_fdp(&e->in[1]);
	close_fdp(&e->out[0]);
	close_fdp(&e->out[1]);
	close_fdp(&e->errors);
}

static int ends_open(const struct git *g, unsigned pipes, struct ends *e, struct error *err)
{
	e->errors = open_errors(g, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
	if (pipes & GIT_IN ? pipe2(e->in, O_CLOEXEC) != 0 : (e->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		return error_errno(err, "making git's input");
	if (pipes & GIT_OUT ? pipe2(e->out, O_CLOEXEC) != 0 : (e->out[1] = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
		return error_errno(err, "making git's output");
	return e->errors < 0 ? error_errno(err, "making a file in %s", g->dir) : 0;
}

static int spawn(const struct git *g, const struct ends *e, const struct strv *argv, const struct strv *env, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t pipe;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_adddup2(&actions, e->in[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, e->out[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, e->errors, STDERR_FILENO);
	/* Paths are those of the work tree, not of where the caller stands. */
	posix_spawn_file_actions_addchdir_np(&actions, g->work_tree ? g->work_tree : g->dir);
	posix_spawnattr_setsigdefault(&attributes, &pipe);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
	int rc = posix_spawnp(ret, "git", &actions, &attributes, argv->items, env->items);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

int git_start(const struct git *g, const char *const *args, unsigned pipes, struct git_child *ret, struct error *err)
{
	auto_strv argv = STRV_INIT;
	auto_strv env = STRV_INIT;
	struct ends e = { { -1, -1 }, { -1, -1 }, -1 };
	struct git_child c = { .git = g, .what = args[0], .pid = -1, .in = -1, .out = -1 };
	make_argv(args, &argv);
	make_env(g, &env);
	int rc = ends_open(g, pipes, &e, err);
	if (rc == 0 && (errno = spawn(g, &e, &argv, &env, &c.pid)) != 0)
		rc = errno == ENOENT ? error_set(err, ERR_NOT_FOUND, "git is needed for this and is not installed here") : error_errno(err, "running git");
	if (rc == 0) {
		c.in = steal_fd(&e.in[1]);
		c.out = steal_fd(&e.out[0]);
		*ret = c;
	}
	ends_done(&e);
	return rc;
}

/* Its last words are the ones that count. */
static int failed(const struct git_child *c, struct error *err)
{
	char text[WORDS_MAX + 1], safe[ERROR_TEXT_MAX];
	auto_close int fd = open_errors(c->git, O_RDONLY);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	if (fd >= 0 && size >= 0)
		lseek(fd, size > WORDS_MAX ? size - WORDS_MAX : 0, SEEK_SET);
	ssize_t n = fd < 0 ? 0 : io_read_full(fd, text, WORDS_MAX);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = '\0';
	const char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	text_escape(line, strlen(line), safe, sizeof(safe) / 2);
	return error_set(err, ERR_SYSTEM, "git %s failed: %s", c->what, *safe ? safe : "it gave no reason");
}

int git_end(struct git_child *c, struct error *err)
{
	int status = 0;
	if (c->pid < 0)
		return 0;
	close_fdp(&c->in);
	close_fdp(&c->out);
	while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	c->pid = -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : failed(c, err);
}

int git_capture(const struct git *g, const char *const *args, struct buf *out, struct error *err)
{
	struct git_child c = GIT_CHILD_INIT;
	char piece[PIECE];
	ssize_t n;
	if (git_start(g, args, GIT_OUT, &c, err) != 0)
		return -1;
	while (!out->overflow && ((n = read(c.out, piece, PIECE)) > 0 || (n < 0 && errno == EINTR)))
		buf_add(out, piece, n > 0 ? (size_t)n : 0);
	if (out->overflow) {
		git_end(&c, NULL);
		return error_set(err, ERR_TOO_LARGE, "git %s has more to say than the %zu bytes kept of it", args[0], out->max);
	}
	return git_end(&c, err);
}

int git_init(const struct git *g, struct error *err)
{
	static const char *const args[] = { "init", "--quiet", "--bare", "--template=", "--object-format=sha1", NULL };
	struct git_child c = GIT_CHILD_INIT;
	if (io_mkdirs(g->dir, 0700, err) != 0 || git_start(g, args, 0, &c, err) != 0)
		return -1;
	return git_end(&c, err);
}
