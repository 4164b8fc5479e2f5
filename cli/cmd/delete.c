/* sandbox delete: end sandboxes and everything in them. */
#include "cli/command.h"

#include "cli/changes.h"
#include "cli/create.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/select.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <errno.h>
#include <string.h>

struct options {
	struct strv refs, labels;
	bool wait, missing_ok, all, yes;
	int64_t wait_timeout_ms;
};

static const struct options defaults = { .wait = true, .wait_timeout_ms = 300 * 1000 };

static const struct option_row options[] = {
	OPT_FLAG('a', "all", struct options, all, "every sandbox, or with --label those that have it"),
	OPT_LIST('l', "label", struct options, labels, "KEY=VALUE", "those with this label, repeatable"),
	OPT_FLAG('y', "yes", struct options, yes, "do not ask before --all"),
	OPT_SWITCH('w', "wait", struct options, wait, "wait until it is gone (the default)"),
	OPT_FLAG(0, "missing-ok", struct options, missing_ok, "a sandbox that does not exist is no failure"),
	OPT_DURATION(0, "wait-timeout", struct options, wait_timeout_ms, "TIME", 1000, 24 * 3600 * 1000LL, "wait at most this long (default 5m)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ANY, WHAT_SANDBOX, "SANDBOX", struct options, refs, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox delete web", "by name; waits until it is gone" },
	{ "sandbox rm -l job=42", "those with a label" },
	{ "sandbox rm --all --yes", "every one, without asking" },
	{ NULL, NULL },
};

/* DELETE; *ret is the operation. */
static int send(struct cli *cli, const char *ref, cJSON **ret, struct error *err)
{
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s", ref);
	struct idem key = idem_new();
	struct call c = { .method = "DELETE", .target = target, .key = key.text };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	cJSON *op = cJSON_DetachItemFromObjectCaseSensitive(answer, "operation");
	if (!json_text(op, "id")[0]) {
		cJSON_Delete(op);
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no operation");
	}
	*ret = op;
	return 0;
}

static int await(struct cli *cli, const struct options *o, const char *ref, cJSON **op, struct error *err)
{
	auto_free char *id = xstrdup(json_text(*op, "id"));
	cJSON *end = NULL;
	if (operation_wait_near(cli, id, "deleting", o->wait_timeout_ms, &end, err) != 0) {
		if (err->sys == EINTR)
			cli_hint(cli, "the delete goes on; `sandbox wait %s` waits for it", id);
		return -1;
	}
	cJSON_Delete(*op);
	*op = end;
	if (strcmp(json_text(end, "state"), "succeeded") == 0)
		return 0;
	json_operation_error(end, err);
	return error_wrap(err, "deleting %s", ref);
}

/* One sandbox: -1 with err, else 0 and its operation (NULL when it was missing and may be). */
static int delete_one(struct cli *cli, const struct options *o, const char *ref, cJSON **ret, struct error *err)
{
	auto_json *op = NULL;
	if (send(cli, ref, &op, err) != 0)
		return o->missing_ok && err->code == ERR_NOT_FOUND ? 0 : -1;
	if (o->wait && await(cli, o, ref, &op, err) != 0)
		return -1;
	*ret = steal(&op);
	return 0;
}

static void say_done(struct cli *cli, const struct options *o, const char *ref, const cJSON *op)
{
	if (op)
		changes_forget(json_text(op, "sandbox_id"));
	if (!op)
		out_note(cli, "%s: does not exist", ref);
	else if (o->wait)
		out_note(cli, "%s: deleted", ref);
	else
		out_note(cli, "%s: being deleted; `sandbox wait %s` waits for it", ref, json_text(op, "id"));
	if (!cli->json && op && (cli->quiet || !o->wait))
		out_line("%s", json_text(op, o->wait ? "sandbox_id" : "id"));
}

/* --json: the operation of one, an array of several. */
static int print_json(struct cli *cli, const struct options *o, cJSON *ops, struct error *err)
{
	if (!cli->json)
		return 0;
	if (o->refs.len > 1 || o->all || o->labels.len)
		return out_json(cli, ops, err);
	auto_json *none = cJSON_CreateNull();
	const cJSON *first = cJSON_GetArrayItem(ops, 0);
	return out_json(cli, first ? first : none, err);
}

/* Fills refs from --all and --label. */
static int choose(struct cli *cli, struct options *o, struct error *err)
{
	auto_json *list = cJSON_CreateArray();
	const cJSON *sandbox;
	if (!o->all && !o->labels.len)
		return o->refs.len ? 0 : error_set(err, ERR_INVALID, "'delete' needs SANDBOX, --label or --all");
	if (o->refs.len)
		return error_set(err, ERR_INVALID, "--all and --label take no SANDBOX besides");
	if (select_sandboxes(cli, &o->labels, false, list, err) != 0)
		return -1;
	cJSON_ArrayForEach(sandbox, list) strv_add(&o->refs, json_text(sandbox, "id"));
	if (!o->refs.len)
		out_note(cli, "there is nothing to delete");
	if (!o->refs.len || o->labels.len || o->yes || cli->dry_run)
		return 0;
	auto_free char *question = xasprintf("Delete %zu sandboxes with everything in them?", o->refs.len);
	return confirm(cli, question, err);
}

static int interrupted(struct cli *cli, struct error *err)
{
	error_set(err, ERR_TIMEOUT, "interrupted; the outcome is unknown");
	out_error(cli, err);
	return 128 + interrupt_signal();
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	auto_json *ops = cJSON_CreateArray();
	struct error first = ERROR_INIT;
	bool failed = false;
	if (choose(cli, o, err) != 0)
		return -1;
	interrupt_watch();
	for (size_t i = 0; i < o->refs.len; i++) {
		cJSON *op = NULL;
		struct error e = ERROR_INIT;
		if (delete_one(cli, o, o->refs.items[i], &op, &e) == 0) {
			say_done(cli, o, o->refs.items[i], op);
			if (op)
				cJSON_AddItemToArray(ops, op);
			continue;
		}
		if (e.sys == EINTR)
			return interrupted(cli, err);
		/* The others are still tried; the last message is main's, the ones before are said here. */
		if (failed && first.code != ERR_NONE)
			out_warn(cli, "%s", first.message);
		first = e;
		failed = true;
	}
	if (!failed)
		return print_json(cli, o, ops, err);
	*err = first;
	return -1;
}

const struct verb verb_delete = {
	.name = "delete",
	.alias = "rm",
	.group = GROUP_SANDBOX,
	.summary = "delete sandboxes with everything in them",
	.manual = "A sandbox can be deleted in every state, also while it is being created and while commands run in it: they end with the "
		  "outcome deleted. Deleting one that has ended already succeeds. With several, all are tried, and the exit status is that of "
		  "the last failure. --all and --label take those that have not ended; those chosen by --label are not asked about, since they were named. "
		  "A sandbox whose worker is away is deleted when that is back: the delete is recorded, and the wait ends with exit status 7. "
		  "With --no-wait the ids of the delete operations are printed.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
