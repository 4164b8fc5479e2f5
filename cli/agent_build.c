/* Building an agent's image: see agent_build.h. */
#include "cli/agent_build.h"

#include "cli/interrupt.h"
#include "cli/muxconn.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stream.h"
#include "cli/transfer.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"
#include "shared/mux/kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* DISK: a writable root may grow as far as /workspace may. TOOL: one command inside. NODE_MIN: the oldest node that all of the agents take. */
enum { CREATE_MS = 300 * 1000, TOOL_S = 900, DELETE_MS = 60 * 1000, DISK_MIB = 3072, NODE_MIN = 22, TAIL = 400 };

#define PLACE "/opt/agent"

extern char **environ;

struct builder {
	struct cli *cli;
	const struct agent_build *how;
	char *id;   /* of the sandbox; NULL: none yet */
	char *dir;  /* of this machine, removed at the end */
	char *cpu;  /* as npm calls it */
	bool musl, node;
};

/* --- the sandbox --------------------------------------------------------------------------------------------------------------- */

static int start(struct builder *b, struct error *err)
{
	static const struct words no_start = { .len = 0 };
	struct create_options o = { .image = b->how->base, .network = "deny", .cpu_millis = 2000, .memory_mib = 2048, .disk_mib = DISK_MIB, .pids = 512,
				    .writable_root = true, .untrusted_repo = true };
	auto_json *spec = NULL;
	auto_json *answer = NULL;
	auto_json *op = NULL;
	if (create_spec(b->cli, &o, &no_start, &spec, err) != 0)
		return -1;
	json_add_str(cJSON_GetObjectItemCaseSensitive(spec, "labels"), "sandbox.dev/agent-build", b->how->profile->name);
	if (create_send(b->cli, &o, spec, &answer, err) != 0)
		return -1;
	b->id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	if (operation_wait(b->cli, json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id"), "starting the base image", CREATE_MS, &op, err) != 0)
		return -1;
	if (strcmp(json_text(op, "state"), "succeeded") == 0)
		return 0;
	json_operation_error(op, err);
	return error_wrap(err, "the base image %s could not be started", b->how->base);
}

static void stop(struct builder *b)
{
	auto_json *answer = NULL;
	auto_json *op = NULL;
	struct error err = ERROR_INIT;
	struct idem key = idem_new();
	if (!b->id)
		return;
	auto_free char *target = session_path("/v1/sandboxes/%s", b->id);
	struct call c = { .method = "DELETE", .target = target, .key = key.text };
	interrupt_clear();
	if (session_call(b->cli, &c, &answer, &err) != 0 ||
	    operation_wait(b->cli, json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id"), "cleaning up", DELETE_MS, &op, &err) != 0)
		out_warn(b->cli, "sandbox %s could not be deleted (%s); it ends with its lifetime", b->id, err.message);
}

/* What a failed command had to say last, safe to print. */
static int command_failed(const cJSON *op, const char *doing, struct error *err)
{
	const cJSON *output = cJSON_GetObjectItemCaseSensitive(op, "output");
	const char *text = json_text(output, "stderr")[0] ? json_text(output, "stderr") : json_text(output, "stdout");
	size_t n = strlen(text), from = n > TAIL ? n - TAIL : 0;
	char safe[TAIL * 2];
	text_escape(text + from, n - from, safe, sizeof(safe));
	if (!cJSON_IsObject(output))
		return json_operation_error(op, err);
	return error_set(err, ERR_SYSTEM, "%s failed in the base image: %s", doing, *safe ? safe : "it gave no reason");
}

/* A shell script as root inside. *ret (may be NULL): its standard output, caller frees. */
static int inside(struct builder *b, const char *doing, const char *script, char **ret, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	auto_json *op = NULL;
	cJSON *command = cJSON_AddObjectToObject(body, "command"), *argv = cJSON_AddArrayToObject(command, "argv");
	const char *words[] = { "/bin/sh", "-c", script };
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		cJSON_AddItemToArray(argv, cJSON_CreateString(words[i]));
	json_add_str(command, "user", "0");
	json_add_str(command, "cwd", "/");
	json_add_i64(command, "timeout_seconds", TOOL_S);
	struct idem key = idem_new();
	auto_free char *target = session_path("/v1/sandboxes/%s/exec", b->id);
	struct call c = { .method = "POST", .target = target, .body = body, .key = key.text };
	if (session_call(b->cli, &c, &answer, err) != 0)
		return -1;
	const char *id = json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id");
	if (operation_wait(b->cli, id, doing, (TOOL_S + 60) * 1000LL, &op, err) != 0)
		return -1;
	if (strcmp(json_text(op, "state"), "succeeded") != 0)
		return command_failed(op, doing, err);
	if (ret)
		*ret = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(op, "output"), "stdout"));
	return 0;
}

/* --- what the base is ------------------------------------------------------------------------------------------------------------ */

/* The value behind "key=" of a line; "" when there is none. Caller frees. */
static char *value_of(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *p = text; *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] != '\0'))
		if (strncmp(p, key, n) == 0 && p[n] == '=')
			return xstrndup(p + n + 1, strcspn(p + n + 1, "\n"));
	return xstrdup("");
}

static int look(struct builder *b, struct error *err)
{
	auto_free char *text = NULL;
	if (inside(b, "looking at the base image",
		   "command -v tar >/dev/null || { echo 'it has no tar' >&2; exit 1; }\n"
		   "echo cpu=$(uname -m)\n"
		   "for f in /lib/ld-musl-*; do [ ! -e \"$f\" ] || echo musl=yes; done\n"
		   "! command -v node >/dev/null || echo node=$(node --version)\n",
		   &text, err) != 0)
		return -1;
	auto_free char *cpu = value_of(text, "cpu");
	auto_free char *musl = value_of(text, "musl");
	auto_free char *node = value_of(text, "node");
	if (strcmp(cpu, "x86_64") != 0 && strcmp(cpu, "aarch64") != 0)
		return error_set(err, ERR_INVALID, "agents are built for x86_64 and aarch64, and the base image says '%.20s'", cpu);
	b->cpu = xstrdup(strcmp(cpu, "x86_64") == 0 ? "x64" : "arm64");
	b->musl = *musl != '\0';
	b->node = node[0] == 'v' && strtol(node + 1, NULL, 10) >= NODE_MIN;
	if (b->musl && !b->node)
		return error_set(err, ERR_INVALID, "a base image with musl needs a node of its own, %d or newer; one with glibc (Debian) needs none", NODE_MIN);
	return 0;
}

/* --- npm here -------------------------------------------------------------------------------------------------------------------- */

/* Nothing of the packages runs: --ignore-scripts. The user's own registry and proxy settings count. */
static void npm_words(const struct builder *b, struct strv *argv)
{
	static const char *const fixed[] = { "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--omit=dev", "--loglevel=error",
					     "--os=linux" };
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		strv_add(argv, fixed[i]);
	strv_take(argv, xasprintf("--prefix=%s", b->dir));
	strv_take(argv, xasprintf("--cpu=%s", b->cpu));
	strv_add(argv, b->musl ? "--libc=musl" : "--libc=glibc");
	strv_take(argv, xasprintf("%s@%s", b->how->profile->package, b->how->version));
	if (!b->node) {
		strv_take(argv, xasprintf("node-linux-%s@%s", b->cpu, agent_node_version));
		strv_take(argv, xasprintf("npm@%s", agent_npm_version));
	}
}

/* Its own words go to standard error, where a person sees them. */
static int npm(const struct builder *b, struct error *err)
{
	auto_strv argv = STRV_INIT;
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status = 0;
	npm_words(b, &argv);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	posix_spawn_file_actions_addchdir_np(&actions, b->dir);
	int rc = posix_spawnp(&pid, "npm", &actions, NULL, argv.items, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = rc;
	if (rc == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "npm is needed for this and is not installed here");
	if (rc != 0)
		return error_errno(err, "running npm");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return error_set(err, ERR_SYSTEM, "npm could not install %s@%s; its messages are above", b->how->profile->package, b->how->version);
	return 0;
}

/* --- into the sandbox, and out as an image --------------------------------------------------------------------------------------- */

static int put(const struct builder *b, struct error *err)
{
	static const struct transfer_options plain = { .verify = false };
	struct transfer_stats stats = { .entries = 0 };
	auto_free char *from = xasprintf("%s/node_modules", b->dir);
	int rc = transfer_put(b->cli, b->id, from, PLACE, &plain, &stats, err);
	if (rc == 0 && stats.failed)
		rc = error_set(err, ERR_SYSTEM, "%llu entries could not be copied into the base image", (unsigned long long)stats.failed);
	transfer_stats_done(&stats);
	return rc;
}

/* The packages' install scripts run here, where there is nothing to take and nowhere to send it. */
static int install(struct builder *b, char **ret_version, struct error *err)
{
	auto_free char *script = xasprintf(
		"set -e\n"
		"export HOME=/tmp PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin\n"
		"mkdir -p /usr/local/bin\n"
		"chown -R 0:0 " PLACE "\n"
		"for f in " PLACE "/node_modules/.bin/*; do ln -sf \"$f\" /usr/local/bin/; done\n"
		"cd " PLACE "\n"
		"npm rebuild --offline --loglevel=error --no-audit --no-fund >&2\n"
		"test -x /usr/local/bin/%s\n"
		"%s --version 2>&1\n",
		b->how->profile->program, b->how->profile->program);
	auto_free char *text = NULL;
	char safe[128];
	if (inside(b, "installing", script, &text, err) != 0)
		return -1;
	size_t n = strcspn(text, "\n");
	*ret_version = xstrdup(text_escape(text, n, safe, sizeof(safe)));
	return 0;
}

/* What tar complains of goes to a file of its own. */
static int tar_failed(const struct builder *b, int errors, struct error *err)
{
	char text[TAIL], safe[TAIL * 2];
	off_t size = lseek(errors, 0, SEEK_END);
	lseek(errors, size > TAIL ? size - TAIL : 0, SEEK_SET);
	ssize_t n = read(errors, text, sizeof(text));
	text_escape(text, n > 0 ? (size_t)n : 0, safe, sizeof(safe));
	return error_set(err, ERR_SYSTEM, "the file system of %s could not be read whole: %s", b->how->base, *safe ? safe : "tar gave no reason");
}

/* The root file system, without what the sandbox put there and what a running system mounts. Only options that every tar knows. */
static int archive(const struct builder *b, int fd, int errors, struct error *err)
{
	static const char script[] = "for f in /* /.[!.]*; do\n"
				     "case $f in /proc|/sys|/dev|/tmp|/run|/workspace|/.sandbox|/.dockerenv) continue ;; esac\n"
				     "if [ -e \"$f\" ] || [ -L \"$f\" ]; then set -- \"$@\" \"${f#/}\"; fi\n"
				     "done\n"
				     "cd / && exec tar -cf - \"$@\"\n";
	const char *words[] = { "/bin/sh", "-c", script };
	auto_tlv open_fields = TLV_INIT;
	struct stream_result r;
	tlv_add_u64(&open_fields, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&open_fields, MUX_F_SANDBOX, b->id);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		tlv_add_str(&open_fields, MUX_F_ARG, words[i]);
	tlv_add_str(&open_fields, MUX_F_USER, "0");
	struct stream_request rq = { .open = &open_fields, .dialler = session_dialler(b->cli), .must_return = true, .in = -1, .out = fd, .err = errors,
				     .escape = -1 };
	if (stream_run(&rq, &r, err) != 0)
		return -1;
	bool whole = r.closed && r.result.outcome == OUTCOME_EXITED && r.result.exit_code == 0 && !r.incomplete && r.left == LEFT_NOT;
	result_done(&r.result);
	return whole ? 0 : tar_failed(b, errors, err);
}

static int own_file(const struct builder *b, const char *name, struct error *err)
{
	auto_free char *path = xasprintf("%s/%s", b->dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		error_errno(err, "making %s", path);
	return fd;
}

static int on_line(void *ctx, cJSON *j, struct error *err)
{
	const cJSON *e = cJSON_GetObjectItemCaseSensitive(j, "error");
	bool *done = ctx;
	if (e)
		return error_set(err, error_from_wire(json_text(e, "code")), "%s", json_text(e, "message"));
	*done = *done || cJSON_GetObjectItemCaseSensitive(j, "image");
	return 0;
}

static int import(const struct builder *b, struct error *err)
{
	auto_free char *target = session_path("/v1/images/import?name=%s", b->how->tag);
	auto_close int fd = own_file(b, "image.tar", err);
	auto_close int errors = fd < 0 ? -1 : own_file(b, "errors", err);
	bool done = false;
	if (errors < 0 || archive(b, fd, errors, err) != 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) != 0)
		return error_errno(err, "reading the archive");
	struct line_call c = { .method = "POST", .target = target, .body_fd = fd, .line = on_line, .ctx = &done };
	if (session_lines(b->cli, &c, err) != 0)
		return error_wrap(err, "importing %s", b->how->tag);
	return done ? 0 : error_set(err, ERR_PROTOCOL, "the server did not say that %s was imported", b->how->tag);
}

/* --- all of it ------------------------------------------------------------------------------------------------------------------- */

static int build(struct builder *b, char **ret_version, struct error *err)
{
	if (start(b, err) != 0 || look(b, err) != 0)
		return -1;
	out_note(b->cli, "installing %s@%s by npm, without running it here", b->how->profile->package, b->how->version);
	if (npm(b, err) != 0 || inside(b, "making " PLACE, "mkdir -p " PLACE, NULL, err) != 0 || put(b, err) != 0)
		return -1;
	auto_free char *version = NULL;
	if (install(b, &version, err) != 0)
		return -1;
	out_note(b->cli, "%s says %s; importing %s", b->how->profile->program, version, b->how->tag);
	if (import(b, err) != 0)
		return -1;
	*ret_version = steal(&version);
	return 0;
}

int agent_build(struct cli *cli, const struct agent_build *how, char **ret_version, struct error *err)
{
	char dir[] = "/var/tmp/sandbox-agent.XXXXXX";
	struct builder b = { .cli = cli, .how = how };
	if (!how->profile->package)
		return error_set(err, ERR_INVALID, "%s is not on the npm registry; its own image is %s", how->profile->title, how->profile->image);
	if (!mkdtemp(dir))
		return error_errno(err, "making a directory in /var/tmp");
	b.dir = dir;
	int rc = build(&b, ret_version, err);
	stop(&b);
	io_remove_tree(dir, NULL);
	free(b.id);
	free(b.cpu);
	return rc;
}
