/* External keepers of tokens, spoken to as git speaks to its credential helpers: see token.h. */
#include "cli/token.h"

#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX = 64 * 1024, ANSWER_TIMEOUT_MS = 120 * 1000 };

extern char **environ;

/* "libsecret" is the program git-credential-libsecret; a text with a slash is a program with its arguments. No shell takes part. */
static void helper_argv(const char *program, const char *action, struct strv *argv)
{
	auto_free char *copy = xstrdup(program);
	char *rest = copy;
	for (char *word; (word = strsep(&rest, " ")) != NULL;) {
		if (!*word)
			continue;
		if (!argv->len && !strchr(word, '/'))
			strv_take(argv, xasprintf("git-credential-%s", word));
		else
			strv_add(argv, word);
	}
	strv_add(argv, action);
}

static void request_text(const char *origin, const struct secret *token, struct buf *out)
{
	const char *sep = strstr(origin, "://");
	buf_addf(out, "protocol=%.*s\nhost=%s\nusername=sandbox\n", (int)(sep - origin), origin, sep + 3);
	if (token)
		buf_addf(out, "password=%s\n", (const char *)token->bytes);
	buf_addc(out, '\n');
}

static int spawn(const struct strv *argv, int socket_fd, pid_t *ret, struct error *err)
{
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, socket_fd, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, socket_fd, STDOUT_FILENO);
	int rc = posix_spawnp(ret, argv->items[0], &actions, NULL, argv->items, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = rc;
	return rc ? error_errno(err, "running the token helper %s", argv->items[0]) : 0;
}

static int read_answer(int fd, struct buf *answer, struct error *err)
{
	int64_t deadline = clock_mono_ms() + ANSWER_TIMEOUT_MS;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = deadline - clock_mono_ms();
		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "the token helper has not answered within %d s", ANSWER_TIMEOUT_MS / 1000);
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		char *to = buf_reserve(answer, 1024);
		if (!to)
			return error_set(err, ERR_TOO_LARGE, "the token helper's answer is over %d bytes", ANSWER_MAX);
		ssize_t n = read(fd, to, 1024);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		buf_commit(answer, (size_t)n);
	}
}

static int take_password(const char *program, const struct buf *answer, struct secret *ret, struct error *err)
{
	for (const char *p = buf_str(answer); *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] != '\0')) {
		if (strncmp(p, "password=", 9) != 0)
			continue;
		secret_set(ret, p + 9, strcspn(p + 9, "\n"));
		return 0;
	}
	return error_set(err, ERR_NOT_FOUND, "the token helper %s knows no token", program);
}

int token_helper_run(const char *program, const char *action, const char *origin, const struct secret *token, struct secret *ret,
                     struct error *err)
{
	auto_strv argv = STRV_INIT;
	auto_buf request = BUF_INIT;
	auto_buf answer = BUF_INIT_MAX(ANSWER_MAX);
	int pair[2], status = 0;
	pid_t pid;
	helper_argv(program, action, &argv);
	if (argv.len < 2)
		return error_set(err, ERR_INVALID, "token-helper is empty");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return error_errno(err, "making a socket pair");
	auto_close int ours = pair[0];
	auto_close int theirs = pair[1];
	if (spawn(&argv, theirs, &pid, err) != 0)
		return -1;
	close_fdp(&theirs);
	request_text(origin, token, &request);
	send(ours, request.data, request.len, MSG_NOSIGNAL);
	shutdown(ours, SHUT_WR);
	int rc = read_answer(ours, &answer, err);
	if (rc != 0)
		kill(pid, SIGTERM);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (rc == 0 && status != 0)
		rc = error_set(err, ERR_SYSTEM, "the token helper %s failed at '%s'", argv.items[0], action);
	if (rc == 0 && ret)
		rc = take_password(program, &answer, ret, err);
	explicit_bzero(request.data, request.len);
	if (answer.data)
		explicit_bzero(answer.data, answer.len);
	return rc;
}
