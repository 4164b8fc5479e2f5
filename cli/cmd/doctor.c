/* sandbox doctor: checks this side, then asks the daemon to check its own; every row says how to mend it. */
#include "cli/command.h"

#include "cli/local.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cli/session.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE_SOCKET "/var/run/docker.sock"

enum { STATUS_WIDTH = 5, ENGINE_TIMEOUT_MS = 5000, DOCTOR_TIMEOUT_MS = 60 * 1000, VERSION_TIMEOUT_MS = 5000 };

static void add_check(cJSON *checks, const char *part, const char *status, const char *detail, const char *remedy)
{
	cJSON *c = cJSON_CreateObject();
	json_add_str(c, "part", part);
	json_add_str(c, "status", status);
	json_add_str(c, "detail", detail);
	json_add_str(c, "remedy", remedy);
	cJSON_AddItemToArray(checks, c);
}

/* --- this side -------------------------------------------------------------------------------------------------- */

static void check_program(cJSON *checks)
{
	auto_free char *program = NULL;
	struct error e = ERROR_INIT;
	if (local_program(&program, &e) == 0)
		add_check(checks, "daemon program", "ok", program, NULL);
	else
		add_check(checks, "daemon program", "fail", e.message, "run ./setup.sh, or `make install`");
}

/* A folder only this user can write to; one that does not exist yet will be made. */
static void check_state(cJSON *checks)
{
	struct stat st;
	struct error e = ERROR_INIT;
	auto_paths p = { .state = NULL };
	if (local_paths_find(&p, &e) != 0) {
		add_check(checks, "state directory", "fail", e.message, "set HOME");
		return;
	}
	if (stat(p.state, &st) != 0 && errno == ENOENT) {
		add_check(checks, "state directory", "ok", p.state, NULL);
	} else if (access(p.state, W_OK | X_OK) != 0) {
		auto_free char *remedy = xasprintf("make %s writable for this user", p.state);
		add_check(checks, "state directory", "fail", strerror(errno), remedy);
	} else {
		add_check(checks, "state directory", "ok", p.state, NULL);
	}
}

static void engine_unreachable(cJSON *checks, const struct error *e)
{
	if (e->sys == EACCES || e->sys == EPERM)
		add_check(checks, "engine", "fail", e->message,
			  "let this user use Docker: `sudo usermod -aG docker $USER`, then log in again (the group equals root)");
	else
		add_check(checks, "engine", "fail", e->message,
			  "install and start Docker Engine: `sudo apt-get install docker.io && sudo systemctl start docker`");
}

static void check_engine(cJSON *checks)
{
	struct unix_client *client;
	struct http_answer a = { .status = 0 };
	struct error e = ERROR_INIT;
	if (unix_client_connect(ENGINE_SOCKET, &client, &e) != 0) {
		engine_unreachable(checks, &e);
		return;
	}
	if (unix_client_request(client, "GET", "/_ping", NULL, NULL, 0, ENGINE_TIMEOUT_MS, &a, &e) != 0)
		add_check(checks, "engine", "fail", e.message, "restart Docker Engine: `sudo systemctl restart docker`");
	else if (a.status != 200)
		add_check(checks, "engine", "fail", a.reason, "look at its log: `journalctl -u docker`");
	else
		add_check(checks, "engine", "ok", "answers at " ENGINE_SOCKET, NULL);
	http_answer_done(&a);
	unix_client_free(client);
}

/* --- the daemon ------------------------------------------------------------------------------------------------- */

static const char *server_remedy(const struct cli *cli, const struct error *e)
{
	if (e->code == ERR_FORBIDDEN || e->code == ERR_UNAUTHORIZED)
		return "join the daemon's group: `sudo groupadd -rf sandbox && sudo usermod -aG sandbox $USER`, then log in again";
	if (e->code == ERR_INVALID)
		return "give unix:///path, or unset SANDBOX_URL";
	if (e->code == ERR_PROTOCOL)
		return "another program listens there: give the socket of sandboxd";
	if (cli->server)
		return "start sandboxd with that socket, or unset SANDBOX_URL to use the local daemon";
	return "`sandbox daemon start`; if that fails, its message and `sandbox daemon logs` say why";
}

static void check_versions(struct cli *cli, cJSON *checks)
{
	auto_json *health = NULL;
	struct call c = { .method = "GET", .target = "/healthz", .timeout_ms = VERSION_TIMEOUT_MS, .no_start = true };
	if (session_call(cli, &c, &health, NULL) != 0)
		return;
	const char *version = json_text(health, "version");
	auto_free char *detail = xasprintf("sandbox " SANDBOX_VERSION ", sandboxd %s", version);
	bool same = strcmp(version, SANDBOX_VERSION) == 0;
	add_check(checks, "version", same ? "ok" : "warn", detail, same ? NULL : "`sandbox daemon stop`; the next command starts the new one");
}

/* Appends the daemon's own rows; false when it did not answer. */
static bool check_server(struct cli *cli, cJSON *checks)
{
	auto_json *answer = NULL;
	struct error e = ERROR_INIT;
	const char *socket = NULL;
	struct call c = { .method = "GET", .target = "/v1/doctor", .timeout_ms = DOCTOR_TIMEOUT_MS, .no_start = true };
	if (session_call(cli, &c, &answer, &e) != 0) {
		bool idle = e.code == ERR_UNREACHABLE && !cli->server;
		add_check(checks, "daemon", idle ? "warn" : "fail", e.message, server_remedy(cli, &e));
		return false;
	}
	session_socket(cli, &socket, NULL);
	add_check(checks, "daemon", "ok", socket, NULL);
	check_versions(cli, checks);
	cJSON *list = cJSON_GetObjectItemCaseSensitive(answer, "checks");
	while (list && list->child)
		cJSON_AddItemToArray(checks, cJSON_DetachItemViaPointer(list, list->child));
	return true;
}

/* --- the answer ------------------------------------------------------------------------------------------------- */

static const char *worst(const cJSON *checks)
{
	const char *status = "ok";
	const cJSON *c;
	cJSON_ArrayForEach(c, checks)
	{
		if (strcmp(json_text(c, "status"), "fail") == 0)
			return "fail";
		if (strcmp(json_text(c, "status"), "warn") == 0)
			status = "warn";
	}
	return status;
}

static const char *colour_of(const struct cli *cli, const char *status)
{
	if (!cli->colour)
		return "";
	if (strcmp(status, "ok") == 0)
		return "\033[32m";
	return strcmp(status, "fail") == 0 ? "\033[31m" : "\033[33m";
}

static void print_check(const struct cli *cli, const cJSON *c)
{
	const char *status = json_text(c, "status"), *remedy = json_text(c, "remedy");
	auto_table *t = table_new(2);
	fputs(colour_of(cli, status), stdout);
	for (size_t i = 0, n = strnlen(status, STATUS_WIDTH); i < STATUS_WIDTH; i++)
		fputc(i < n ? status[i] : ' ', stdout);
	fputs(cli->colour ? "\033[0m" : "", stdout);
	table_cellf(t, "%-15s", json_text(c, "part"));
	table_cell(t, json_text(c, "detail"));
	if (*remedy && strcmp(status, "ok") != 0) {
		table_cellf(t, "     %-15s", "");
		table_cellf(t, "mend: %s", remedy);
	}
	table_print(t);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	(void)opaque;
	auto_json *answer = cJSON_CreateObject();
	cJSON *checks = cJSON_AddArrayToObject(answer, "checks");
	if (!cli->server) {
		check_program(checks);
		check_state(checks);
	}
	if (!check_server(cli, checks) && !cli->server)
		check_engine(checks);
	const char *status = worst(checks);
	cJSON_AddItemToObject(answer, "status", cJSON_CreateString(status));
	if (cli->json && out_json(cli, answer, err) != 0)
		return -1;
	const cJSON *c;
	if (!cli->json && !cli->quiet)
		cJSON_ArrayForEach(c, checks) print_check(cli, c);
	if (!cli->json)
		out_line("%s", status);
	return strcmp(status, "fail") == 0 ? 1 : 0;
}

static const struct example examples[] = {
	{ "sandbox doctor", "what works here, what does not, and how to mend it" },
	{ "sandbox doctor --json=status", "for scripts" },
	{ NULL, NULL },
};

const struct verb verb_doctor = {
	.name = "doctor",
	.group = GROUP_SYSTEM,
	.summary = "check every part and say how to mend it",
	.details = "The last line is ok, warn or fail; the exit status is 1 for fail.",
	.manual = "Starts nothing. Without a daemon it checks what the daemon will need: the program, the state directory and the engine. With one, "
		  "the daemon checks its store, the engine, the base image, whether limits really hold, which isolation tiers it offers and why "
		  "not the others, and names the policy profile.",
	.examples = examples,
	.run = run,
};
