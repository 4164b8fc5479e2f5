/* sandbox, the command-line program: parses, runs one verb, maps its end to the exit-status contract. */
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_TOOL_FAILED = 125 };

/*
 * A standard descriptor that is closed would be taken by the next file opened, and results written into it. In its place comes
 * /dev/null, opened so that writing still fails: results that reach nobody must not look delivered. But a closed standard error is what its
 * owner wants nothing of: what goes there is dropped, and no output beside it is lost for that.
 */
static int hold_standard_descriptors(void)
{
	for (int fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return -1;
	}
	return 0;
}

static const char *env_text(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

static void from_environment(struct cli *cli)
{
	cli->ca_file = env_text("SANDBOX_CA_FILE");
	cli->token = env_text("SANDBOX_TOKEN");
	cli->insecure_http = env_text("SANDBOX_INSECURE_HTTP") != NULL;
	cli->debug = env_text("SANDBOX_DEBUG") != NULL;
}

/* The line was not understood, but a reader of JSON still wants JSON. */
static void look_for_json(struct cli *cli, int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!cli->json && strncmp(argv[i], "--json", 6) == 0)
			cli->json = "";
}

static bool status_of_command(const struct parse_result *r)
{
	return r->verb && (r->verb->flags & VERB_STATUS_OF_COMMAND);
}

static int usage_error(struct cli *cli, const struct parse_result *r, const struct error *err)
{
	if (r->verb)
		cli_hint(cli, "sandbox %s%s%s --help", r->parent ? r->parent->name : "", r->parent ? " " : "", r->verb->name);
	else
		cli_hint(cli, "sandbox help");
	out_error(cli, err);
	return status_of_command(r) ? EXIT_TOOL_FAILED : error_exit_status(err->code);
}

static int print_help(const struct parse_result *r)
{
	auto_buf text = BUF_INIT;
	if (r->verb)
		help_verb(r->verb, r->parent, &text);
	else
		help_guide(&text);
	fputs(buf_str(&text), stdout);
	return 0;
}

static int run_verb(struct cli *cli, const struct parse_result *r)
{
	struct error err = ERROR_INIT;
	bool settled = (r->verb->flags & VERB_NO_SETTINGS) || settings_resolve(cli, &err) == 0;
	if (settled && cli->project_refused)
		out_warn(cli, "%s", cli->project_refused);
	if (settled && cli->project_said && *cli->project_said)
		out_note(cli, "defaults from %s:%s", cli->project_path, cli->project_said);
	int status = settled ? r->verb->run(cli, r->options, &err) : -1;
	if (status >= 0)
		return status;
	if (cli->dry_shown && err.code == ERR_NONE)
		return 0;
	out_error(cli, &err);
	return status_of_command(r) ? EXIT_TOOL_FAILED : error_exit_status(err.code);
}

static int dispatch(struct cli *cli, int argc, char **argv)
{
	struct parse_result r;
	struct error err = ERROR_INIT;
	int status;
	struct parse_hooks hooks = place_hooks(cli);
	int rc = parse_with_hooks(argc, argv, cli_globals, cli, &hooks, &r, &err);
	if (rc != 0)
		look_for_json(cli, argc, argv);
	out_setup(cli);
	if (rc != 0) {
		status = usage_error(cli, &r, &err);
	} else if (r.version) {
		out_line("sandbox " SANDBOX_VERSION);
		status = 0;
	} else if (cli->tree) {
		auto_buf text = BUF_INIT;
		help_tree(&text);
		fputs(buf_str(&text), stdout);
		status = 0;
	} else if (r.help || !r.verb || r.verb->subverbs) {
		status = print_help(&r);
	} else {
		status = run_verb(cli, &r);
	}
	if (out_finish(&err) != 0) {
		fprintf(stderr, "sandbox: %s\n", err.message);
		if (status == 0 && cli->hint)
			fprintf(stderr, "hint: %s\n", cli->hint);
		if (status == 0)
			status = status_of_command(&r) ? EXIT_TOOL_FAILED : error_exit_status(err.code);
	}
	parse_done(&r);
	return status;
}

int main(int argc, char **argv)
{
	struct cli cli = { .server = NULL };
	if (hold_standard_descriptors() != 0)
		return EXIT_TOOL_FAILED;
	from_environment(&cli);
	int status = dispatch(&cli, argc, argv);
	session_close(&cli);
	cJSON_Delete(cli.error_body);
	ini_doc_free(cli.project);
	free(cli.project_path);
	free(cli.project_said);
	free(cli.project_refused);
	free(cli.project_upload);
	free(cli.default_sandbox);
	free(cli.context_name);
	free(cli.context_url);
	free(cli.context_tenant);
	free(cli.hint);
	return status;
}
