/* sandbox create: a new sandbox; waits until it runs unless told otherwise. */
#include "cli/command.h"

#include "cli/create.h"
#include "cli/explain.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/transfer.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>

struct options {
	struct create_options create;
	struct words start;
	bool wait, explain;
	const char *upload;
};

static const struct options defaults = { .create = { CREATE_DEFAULTS }, .wait = true };

static const struct option_row options[] = {
	CREATE_ROW_IMAGE(struct options, create, 'i'),
	CREATE_ROWS_MAIN(struct options, create),
	OPT_SECRETS('e', "env", struct options, create.env, "KEY[=VALUE]", "variable for every command inside, repeatable"),
	OPT_SWITCH('w', "wait", struct options, wait, "wait until it runs (the default)"),
	OPT_FLAG(0, "explain", struct options, explain, "show score, tier and placement; create nothing"),
	OPT_REST,
	OPT_TEXT(0, "upload", struct options, upload, "DIR", "then copy the contents of DIR into /workspace"),
	OPT_LIST(0, "env-file", struct options, create.env_file, "FILE", "variables, one KEY=VALUE a line, literal"),
	CREATE_ROWS_REST(struct options, create),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_COMMAND_DASHED, WHAT_COMMAND, "COMMAND", struct options, start, "the start command, run once the sandbox is up"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox create --name web --memory 2g --ttl 30m", "a named sandbox for half an hour" },
	{ "id=$(sandbox create -q --image alpine:3)", "for scripts: only the id" },
	{ NULL, NULL },
};

static int explain_only(struct cli *cli, const cJSON *spec, struct error *err)
{
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	cJSON_AddItemReferenceToObject(body, "spec", (cJSON *)spec);
	struct call c = { .method = "POST", .target = "/v1/sandboxes?explain=true", .body = body };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *decision = cJSON_GetObjectItemCaseSensitive(answer, "decision");
	if (!cJSON_IsObject(decision))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no decision");
	if (!cli->json)
		explain_print(decision, true, stdout);
	else if (out_json(cli, answer, err) != 0)
		return -1;
	return json_flag(decision, "placed") ? 0 : error_exit_status(ERR_NO_CAPACITY);
}

static void warn_profile(struct cli *cli, const cJSON *sandbox)
{
	const cJSON *decision = cJSON_GetObjectItemCaseSensitive(sandbox, "decision");
	const char *profile = json_text(decision, "profile");
	if (*profile && strcmp(profile, "strict") != 0)
		out_note(cli, "policy profile %s: isolation is not raised by risk on this server", profile);
}

static void note_running(struct cli *cli, const cJSON *sandbox)
{
	int64_t expires_us;
	char left[16] = "";
	const char *name = json_text(sandbox, "name");
	if (time_parse_rfc3339(json_text(sandbox, "expires_at"), &expires_us) == 0)
		span_text((expires_us - clock_wall_us()) / 1000 + 500, left);
	out_note(cli, "%s%srunning as %s%s%s", name, *name ? " is " : "", json_text(sandbox, "tier"), *left ? ", ends in " : "", left);
	warn_profile(cli, sandbox);
}

/* What is said when the wait did not end with an answer: the create itself goes on. */
static int wait_failed(struct cli *cli, const char *id, struct error *err)
{
	if (err->sys != EINTR)
		return -1;
	cli_hint(cli, "the create goes on: `sandbox inspect %s` shows it, `sandbox delete %s` ends it", id, id);
	error_set(err, ERR_TIMEOUT, "interrupted while sandbox %s was being created", id);
	out_error(cli, err);
	return 128 + interrupt_signal();
}

static int get_sandbox(struct cli *cli, const char *id, cJSON **ret, struct error *err)
{
	auto_free char *target = session_path("/v1/sandboxes/%s", id);
	struct call c = { .method = "GET", .target = target };
	return session_call(cli, &c, ret, err);
}

static int print_created(struct cli *cli, const cJSON *answer, const char *id, struct error *err)
{
	if (cli->json && out_json(cli, answer, err) != 0)
		return -1;
	if (!cli->json)
		out_line("%s", id);
	if (fflush(stdout) != 0)
		cli_hint(cli, "the sandbox is there all the same: `sandbox inspect %s` shows it, `sandbox delete %s` ends it", id, id);
	return 0;
}

static int upload(struct cli *cli, const struct options *o, const char *sandbox, struct error *err)
{
	struct transfer_options how = { .dry_run = false };
	struct transfer_stats stats = { .entries = 0 };
	if (!o->upload)
		return 0;
	auto_free char *contents = xasprintf("%s/.", o->upload);
	int rc = transfer_put(cli, sandbox, contents, "/workspace/", &how, &stats, err);
	if (rc != 0)
		error_wrap(err, "uploading %s", o->upload);
	else if (stats.failed)
		rc = error_set(err, ERR_SYSTEM, "%llu entries of %s could not be uploaded", (unsigned long long)stats.failed, o->upload);
	else
		out_note(cli, "uploaded %llu files of %s to /workspace", (unsigned long long)stats.files, o->upload);
	transfer_stats_done(&stats);
	return rc;
}

static int wait_created(struct cli *cli, const struct options *o, cJSON *answer, const char *id, struct error *err)
{
	auto_json *op = NULL;
	auto_json *sandbox = NULL;
	bool fresh = false;
	if (create_await(cli, &o->create, answer, &fresh, &op, err) != 0)
		return wait_failed(cli, id, err);
	if (strcmp(json_text(op, "state"), "succeeded") != 0) {
		json_operation_error(op, err);
		return error_wrap(err, "sandbox %s was not created", id);
	}
	if (upload(cli, o, id, err) != 0) {
		cli_hint(cli, "the sandbox runs: `sandbox cp` copies into it, `sandbox delete %s` ends it", id);
		return -1;
	}
	if (!fresh) {
		if (get_sandbox(cli, id, &sandbox, err) != 0)
			return -1;
		cJSON_ReplaceItemInObjectCaseSensitive(answer, "sandbox", steal(&sandbox));
		cJSON_ReplaceItemInObjectCaseSensitive(answer, "operation", steal(&op));
	}
	note_running(cli, cJSON_GetObjectItemCaseSensitive(answer, "sandbox"));
	return print_created(cli, answer, id, err);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	auto_json *spec = NULL;
	auto_json *answer = NULL;
	if (o->upload && !o->wait)
		return error_set(err, ERR_INVALID, "--upload needs the sandbox to run, so it excludes --no-wait");
	if (create_spec(cli, &o->create, &o->start, &spec, err) != 0)
		return -1;
	if (o->explain)
		return explain_only(cli, spec, err);
	interrupt_watch();
	o->create.no_wait = !o->wait;
	if (create_send(cli, &o->create, spec, &answer, err) != 0) {
		if (err->sys != EINTR)
			return -1;
		if (err->code != ERR_NO_CAPACITY)
			cli_hint(cli, "`sandbox list` shows it if so");
		out_error(cli, err);
		return 128 + interrupt_signal();
	}
	auto_free char *id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	if (o->wait)
		return wait_created(cli, o, answer, id, err);
	out_note(cli, "scheduled; wait with `sandbox wait %s`", json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id"));
	return print_created(cli, answer, id, err);
}

const struct verb verb_create = {
	.name = "create",
	.group = GROUP_SANDBOX,
	.flags = VERB_PROJECT,
	.summary = "create a sandbox and print its id",
	.manual = "Waits until the sandbox runs. When the wait is interrupted or times out, the create goes on and the message says how to look "
		  "at it. A create that fails prints the reason and exits by its kind; when no node may run it (exit status 6), that names the "
		  "score, the tier it needs, each node's reason and what would do. --explain shows the whole decision.\n"
		  "\n"
		  "A start command runs once the sandbox is up; its output is shown by `sandbox logs`. Without one, the sandbox idles until "
		  "commands are run in it. Resources that are not given have the server's defaults.\n"
		  "\n"
		  "A label, a name or a start command must be text. An environment variable given without a value takes the value of your own "
		  "environment and is left out when it has none there. An environment file has one KEY=VALUE a line; the value is "
		  "everything behind the first =, without any quoting; blank lines and lines starting with # are skipped.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
