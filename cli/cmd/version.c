/* sandbox version: of this program and of the daemon, if one answers. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/json/json.h"

static int run(struct cli *cli, void *opaque, struct error *err)
{
	(void)opaque;
	auto_json *health = NULL;
	struct error e = ERROR_INIT;
	struct call c = { .method = "GET", .target = "/healthz", .timeout_ms = 5000, .no_start = true };
	int rc = session_call(cli, &c, &health, &e);
	const char *server = rc == 0 ? json_text(health, "version") : NULL;
	if (cli->json) {
		auto_json *j = cJSON_CreateObject();
		json_add_str(j, "version", SANDBOX_VERSION);
		json_add_str(j, "server_version", server);
		json_add_str(j, "server_error", server ? NULL : e.message);
		return out_json(cli, j, err);
	}
	out_line("sandbox  " SANDBOX_VERSION);
	if (server)
		out_line("sandboxd %s", server);
	else
		out_note(cli, "%s", e.message);
	return 0;
}

const struct verb verb_version = {
	.name = "version",
	.group = GROUP_SYSTEM,
	.summary = "show the versions of program and daemon",
	.manual = "Starts nothing: when no daemon answers, only the program's version is shown. `sandbox --version` asks no daemon at all.",
	.run = run,
};
