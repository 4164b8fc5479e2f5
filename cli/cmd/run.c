/* sandbox run: create, exec, delete, in that order and whatever happens in between. */
#include "cli/command.h"

#include "cli/create.h"
#include "cli/ending.h"
#include "cli/interrupt.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/transfer.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#define WORKSPACE "/workspace"

enum { DELETE_TRIES_MS = 10 * 1000, DELETE_RETRY_MS = 100, DELETE_WAIT_MS = 60 * 1000 };

struct options {
	struct create_options create;
	struct launch_options launch;
	bool keep;
	const char *upload;
	struct strv download;
	struct words command;
};

static const struct options defaults = { .create = { CREATE_DEFAULTS }, .launch = { LAUNCH_DEFAULTS } };

static const struct option_row options[] = {
	CREATE_ROW_IMAGE(struct options, create, 0),
	LAUNCH_ROWS_MAIN(struct options, launch),
	OPT_TEXT(0, "upload", struct options, upload, "DIR", "first copy the contents of DIR into /workspace"),
	OPT_LIST(0, "download", struct options, download, "PATH", "afterwards copy PATH of /workspace here, repeatable"),
	OPT_FLAG(0, "keep", struct options, keep, "do not delete the sandbox afterwards"),
	OPT_REST,
	CREATE_ROWS_MAIN(struct options, create),
	CREATE_ROWS_REST(struct options, create),
	LAUNCH_ROWS_REST(struct options, launch),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_COMMAND, WHAT_COMMAND, "COMMAND", struct options, command, "program and arguments"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox run -- uname -a", "one command in a sandbox of its own" },
	{ "sandbox run --upload . --download out.txt -- make", "files in, a result out" },
	{ NULL, NULL },
};

/* What exists so far. */
struct run {
	struct cli *cli;
	struct options *o;
	struct idem key;
	char *id; /* of the sandbox, NULL: none */
};

static bool interrupted(const struct error *err)
{
	return err->sys == EINTR && interrupt_signal() != 0;
}

static void take_created(struct run *r, const cJSON *answer, char **ret_operation)
{
	r->id = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "sandbox"), "id"));
	*ret_operation = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id"));
}

static int create(struct run *r, struct error *err)
{
	auto_json *spec = NULL;
	auto_json *answer = NULL;
	auto_json *op = NULL;
	auto_free char *operation = NULL;
	static const struct words no_start = { .len = 0 };
	if (create_spec(r->cli, &r->o->create, &no_start, &spec, err) != 0)
		return -1;
	if (create_send(r->cli, &r->o->create, spec, &answer, err) != 0) {
		if (interrupted(err) && err->code != ERR_NO_CAPACITY)
			out_warn(r->cli, "%s; `sandbox list` shows it if so", err->message);
		return -1;
	}
	take_created(r, answer, &operation);
	if (create_await(r->cli, &r->o->create, answer, NULL, &op, err) != 0)
		return -1;
	if (strcmp(json_text(op, "state"), "succeeded") == 0)
		return 0;
	json_operation_error(op, err);
	return error_wrap(err, "the sandbox was not created");
}

/* One attempt. The key makes it safe to send again when the answer was lost. */
static int ask_delete(struct run *r, const struct idem *key, char **ret_operation, struct error *err)
{
	auto_free char *target = session_path("/v1/sandboxes/%s", r->id);
	auto_json *answer = NULL;
	struct call c = { .method = "DELETE", .target = target, .key = key->text, .no_start = true };
	interrupt_clear();
	if (session_call(r->cli, &c, &answer, err) != 0)
		return -1;
	*ret_operation = xstrdup(json_text(cJSON_GetObjectItemCaseSensitive(answer, "operation"), "id"));
	return 0;
}

static bool worth_another(const struct error *err, int64_t until_ms)
{
	bool away = err->code == ERR_UNREACHABLE || err->code == ERR_UNAVAILABLE;
	if (clock_mono_ms() >= until_ms || (!away && !interrupted(err)))
		return false;
	poll(NULL, 0, DELETE_RETRY_MS);
	return true;
}

/* The sandbox goes in every case; only how sure we are of it differs. */
static void remove_sandbox(struct run *r)
{
	struct idem key = idem_new();
	struct error err = ERROR_INIT;
	auto_free char *operation = NULL;
	auto_json *op = NULL;
	int64_t until_ms = clock_mono_ms() + DELETE_TRIES_MS;
	while (ask_delete(r, &key, &operation, &err) != 0) {
		if (err.code == ERR_NOT_FOUND || err.code == ERR_EXPIRED)
			return;
		if (!worth_another(&err, until_ms)) {
			out_warn(r->cli, "sandbox %s could not be deleted (%s); it ends with its lifetime", r->id, err.message);
			return;
		}
	}
	if (operation_wait_near(r->cli, operation, "deleting", DELETE_WAIT_MS, &op, &err) != 0 && !interrupted(&err))
		out_warn(r->cli, "sandbox %s is being deleted, but that was not seen to end: %s", r->id, err.message);
}

static int upload(struct run *r, struct error *err)
{
	static const struct transfer_options plain = { .verify = false };
	struct transfer_stats stats;
	struct stat st;
	bool directory = stat(r->o->upload, &st) != 0 || S_ISDIR(st.st_mode);
	auto_free char *from = xasprintf("%s%s", r->o->upload, directory ? "/." : "");
	if (!*r->o->upload)
		return error_set(err, ERR_INVALID, "--upload: the path is empty");
	if (transfer_put(r->cli, r->id, from, WORKSPACE, &plain, &stats, err) != 0)
		return error_wrap(err, "--upload");
	if (stats.failed)
		return error_set(err, ERR_SYSTEM, "--upload: %llu entries could not be copied", (unsigned long long)stats.failed);
	return 0;
}

/* Results come out whatever the command's status was; a failure is the tool's only when the command had none. */
static int download(struct run *r, const char *path, int status)
{
	static const struct transfer_options plain = { .verify = false };
	struct transfer_stats stats;
	struct error err = ERROR_INIT;
	auto_free char *from = xasprintf("%s%s", path[0] == '/' ? "" : WORKSPACE "/", path);
	if (transfer_get(r->cli, r->id, from, ".", &plain, &stats, &err) == 0 && stats.failed == 0)
		return status;
	if (interrupted(&err))
		return 128 + interrupt_signal();
	out_warn(r->cli, "--download %s: %s", path, err.message[0] ? err.message : "not everything was copied");
	return status == 0 ? STATUS_TOOL : status;
}

static int in_sandbox(struct run *r, struct error *err)
{
	struct launch l = { .sandbox = r->id, .options = &r->o->launch, .argv = &r->o->command, .must_return = true };
	/* `run IMAGE COMMAND` is what other tools call it. */
	if (!r->o->create.image)
		l.no_program = "an image goes behind --image, as in  sandbox run --image NAME -- COMMAND";
	if (r->o->upload && upload(r, err) != 0)
		return -1;
	if (r->o->upload && !r->o->launch.cwd)
		r->o->launch.cwd = WORKSPACE;
	if (interrupt_signal())
		return 128 + interrupt_signal();
	int status = launch_run(r->cli, &l, err);
	for (size_t i = 0; i < r->o->download.len && status >= 0 && !interrupt_signal(); i++)
		status = download(r, r->o->download.items[i], status);
	return status;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct run r = { .cli = cli, .o = opaque, .key = idem_new() };
	interrupt_watch();
	if (!r.o->create.idempotency_key)
		r.o->create.idempotency_key = r.key.text;
	int status = create(&r, err);
	bool created = status == 0;
	if (created)
		status = in_sandbox(&r, err);
	if (status < 0 && interrupted(err))
		status = 128 + interrupt_signal();
	if (r.id && r.o->keep && created)
		out_note(cli, "kept sandbox %s", r.id);
	else if (r.id)
		remove_sandbox(&r);
	free(r.id);
	return status;
}

const struct verb verb_run = {
	.name = "run",
	.group = GROUP_RUN,
	.flags = VERB_STATUS_OF_COMMAND | VERB_PROJECT,
	.summary = "run a command in a new sandbox, then delete it",
	.manual = "Creates a sandbox, runs the command as exec does and deletes the sandbox, also when the command fails, when the connection "
		  "breaks and when INT, TERM or HUP arrive at any moment. What is killed with KILL cannot clean up: that sandbox ends with its --ttl.\n"
		  "\n"
		  "--upload copies a directory's contents (or a file) into /workspace, where the command then starts unless --cwd says otherwise; "
		  "when that fails, the command is not run. --download copies results into the current directory, whatever the command's status.\n"
		  "\n" LAUNCH_MANUAL "\n\n" LAUNCH_MANUAL_TTY,
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
