/* sandbox-mcp: the MCP bridge as a program of its own, which is what MCP clients start. `sandbox mcp serve` is the same. */
#include "cli/mcp/mcp.h"

#include "cli/settings.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const char usage[] =
	"usage: sandbox-mcp [--context NAME] [--server URL] [--tenant NAME] [--wait TIME]\n"
	"\n"
	"Speaks the Model Context Protocol on standard input and output, for a client that starts it. The server\n"
	"is found as `sandbox` finds it: --server, SANDBOX_URL, the context, else the local daemon, which is\n"
	"started when it does not run.\n"
	"\n"
	"  --context NAME  a context of `sandbox context list`\n"
	"  --server URL    unix:///path of the daemon\n"
	"  --tenant NAME   the tenant to act in (SANDBOX_TENANT)\n"
	"  --wait TIME     longest time one call waits before it hands over an operation (default 25s)\n"
	"  -h, --help      this text\n"
	"  -V, --version   print the version\n"
	"\n"
	"Register it with `sandbox mcp install`. See docs/mcp.md.\n";

enum { EXIT_USAGE = 2 };

static const char *env_text(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

/* The value of --name VALUE or --name=VALUE at argv[*i]; NULL when it is another option. */
static const char *value_of(char **argv, int *i, const char *name)
{
	size_t n = strlen(name);
	if (strncmp(argv[*i], name, n) != 0)
		return NULL;
	if (argv[*i][n] == '=')
		return argv[*i] + n + 1;
	return argv[*i][n] == '\0' && argv[*i + 1] ? argv[++*i] : NULL;
}

static bool is(const char *arg, const char *name, const char *letter)
{
	return strcmp(arg, name) == 0 || strcmp(arg, letter) == 0;
}

int main(int argc, char **argv)
{
	struct cli cli = { .debug = env_text("SANDBOX_DEBUG") != NULL };
	int64_t wait_ms = MCP_WAIT_MS;
	struct error err = ERROR_INIT;
	for (int i = 1; i < argc; i++) {
		const char *v;
		if (is(argv[i], "--help", "-h"))
			return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
		if (is(argv[i], "--version", "-V"))
			return puts("sandbox-mcp " SANDBOX_VERSION) < 0 || fflush(stdout) != 0;
		if ((v = value_of(argv, &i, "--server")) != NULL) {
			cli.server = v;
		} else if ((v = value_of(argv, &i, "--tenant")) != NULL) {
			cli.tenant = v;
		} else if ((v = value_of(argv, &i, "--context")) != NULL) {
			cli.context = v;
		} else if ((v = value_of(argv, &i, "--wait")) != NULL) {
			if (parse_duration_ms("--wait", v, 1000, 3600 * 1000LL, &wait_ms, &err) != 0) {
				fprintf(stderr, "sandbox-mcp: %s\n", err.message);
				return EXIT_USAGE;
			}
		} else {
			fprintf(stderr, "sandbox-mcp: unknown argument '%s'\n%s", argv[i], usage);
			return EXIT_USAGE;
		}
	}
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			return 1;
	if (settings_resolve(&cli, &err) != 0) {
		fprintf(stderr, "sandbox-mcp: %s\n", err.message);
		return EXIT_USAGE;
	}
	int status = mcp_serve_process(&cli, wait_ms);
	free(cli.context_name);
	free(cli.context_url);
	free(cli.context_tenant);
	return status;
}
