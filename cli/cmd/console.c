/* sandbox console: hands over to sandbox-console, the program that has the prompt. */
#include "cli/command.h"

#include "cli/output.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int run(struct cli *cli, void *opaque, struct error *err)
{
	/* Beside this program as it is built, or where it is installed. */
	static const char *const places[] = { "sandbox-console", "../libexec/sandbox/sandbox-console" };
	char self[PATH_MAX];
	(void)opaque;
	if (isatty(STDIN_FILENO) != 1 || !cli->out_tty)
		return error_set(err, ERR_INVALID, "the console needs a terminal; in scripts run one command after another");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return error_errno(err, "finding this program");
	self[n] = '\0';
	if (cli->context)
		setenv("SANDBOX_CONTEXT", cli->context, 1);
	if (cli->server && cli->server_origin == ORIGIN_FLAG)
		setenv("SANDBOX_URL", cli->server, 1);
	else if (cli->context)
		unsetenv("SANDBOX_URL");
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		auto_free char *path = xasprintf("%.*s/%s", (int)(strrchr(self, '/') - self), self, places[i]);
		char *argv[] = { (char *)"sandbox-console", self, NULL };
		execv(path, argv);
		if (errno != ENOENT)
			return error_errno(err, "running %s", path);
	}
	return error_set(err, ERR_NOT_FOUND, "the program sandbox-console is not installed beside this one");
}

static const struct example examples[] = {
	{ "sandbox --context work console", "a prompt for one server" },
	{ NULL, NULL },
};

const struct verb verb_console = {
	.name = "console",
	.group = GROUP_SYSTEM,
	.summary = "open a prompt that takes these commands",
	.manual = "Commands are typed without sandbox in front. The prompt shows the context and the sandbox of the directory (see sandbox-use(1)). The tab "
		  "key completes commands, options, sandboxes, images, contexts and paths inside; lines are kept from one time to the next. Quotes and "
		  "backslashes are as in a shell, but nothing is expanded and there are no pipes. exit, quit or ^D leaves.",
	.examples = examples,
	.run = run,
};
