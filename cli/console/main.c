/*
 * sandbox-console: the prompt of `sandbox console`. A program of its own, so that readline is loaded by nothing else. Each line runs as a
 * process of the program `sandbox`, exactly as a shell would run it; what completes comes from the same table of commands.
 */
#include "cli/console/console.h"

#include "cli/home.h"
#include "cli/place.h"
#include "cli/settings.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <readline/history.h>
#include <readline/readline.h>

enum { HISTORY_MAX = 1000 };

extern char **environ;

/* "work:web> ": the context that counts and the directory's sandbox, escaped: both may come from files. */
static char *prompt(void)
{
	struct cli cli = { .server = NULL };
	auto_free char *sandbox = NULL;
	auto_free char *dir = NULL;
	char where[80] = "local", box[80] = "";
	if (settings_resolve(&cli, NULL) == 0 && cli.context_name)
		text_escape(cli.context_name, strlen(cli.context_name), where, sizeof(where));
	else if (cli.server && *cli.server)
		snprintf(where, sizeof(where), "SANDBOX_URL");
	if (place_sandbox(&sandbox, &dir, NULL) == 0 && sandbox) {
		size_t n = strlen(sandbox);
		text_escape(n > 8 ? sandbox + n - 8 : sandbox, n > 8 ? 8 : n, box, sizeof(box));
	}
	free(cli.context_name);
	free(cli.context_url);
	free(cli.context_tenant);
	free(cli.hint);
	return xasprintf("%s%s%s> ", where, *box ? ":" : "", box);
}

static void run_line(const char *program, struct strv *words)
{
	struct strv argv = STRV_INIT;
	pid_t pid;
	int status;
	strv_add(&argv, "sandbox");
	/* A habit from the shell is no fault here. */
	for (size_t i = strcmp(words->items[0], "sandbox") == 0; i < words->len; i++)
		strv_add(&argv, words->items[i]);
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before_int, before_quit;
	sigaction(SIGINT, &ignore, &before_int);
	sigaction(SIGQUIT, &ignore, &before_quit);
	posix_spawnattr_t attr;
	sigset_t defaults;
	posix_spawnattr_init(&attr);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGINT);
	sigaddset(&defaults, SIGQUIT);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
	int rc = posix_spawn(&pid, program, NULL, &attr, argv.items, environ);
	posix_spawnattr_destroy(&attr);
	if (rc != 0)
		fprintf(stderr, "sandbox: cannot run %s: %s\n", program, strerror(rc));
	while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	sigaction(SIGINT, &before_int, NULL);
	sigaction(SIGQUIT, &before_quit, NULL);
	strv_done(&argv);
}

static bool is_word(const struct strv *words, const char *a, const char *b)
{
	return words->len == 1 && (strcmp(words->items[0], a) == 0 || strcmp(words->items[0], b) == 0);
}

/* False at the end. */
static bool one_line(const char *program, const char *line)
{
	auto_strv words = STRV_INIT;
	struct error err = ERROR_INIT;
	if (console_split(line, &words, &err) != 0) {
		fprintf(stderr, "sandbox: %s\n", err.message);
		return true;
	}
	if (!words.len)
		return true;
	if (is_word(&words, "exit", "quit"))
		return false;
	add_history(line);
	run_line(program, &words);
	return true;
}

static char *history_path(void)
{
	auto_free char *dir = home_state_dir();
	if (!dir || io_mkdirs(dir, 0700, NULL) != 0)
		return NULL;
	return xasprintf("%s/console_history", dir);
}

static void keep_history(const char *path)
{
	if (!path)
		return;
	mode_t before = umask(077);
	stifle_history(HISTORY_MAX);
	write_history(path);
	umask(before);
}

int main(int argc, char **argv)
{
	if (argc != 2 || argv[1][0] != '/') {
		fputs("sandbox-console is run by `sandbox console`\n", stderr);
		return 2;
	}
	auto_free char *history = history_path();
	rl_readline_name = "sandbox";
	console_complete_setup(argv[1]);
	using_history();
	if (history)
		read_history(history);
	puts("Commands without `sandbox` in front; help explains, exit or ^D leaves.");
	for (;;) {
		auto_free char *text = prompt();
		auto_free char *line = readline(text);
		if (!line)
			putchar('\n');
		if (!line || !one_line(argv[1], line))
			break;
	}
	keep_history(history);
	return 0;
}
