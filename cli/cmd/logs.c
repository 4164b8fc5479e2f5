/* sandbox logs: what a start command or an operation wrote, now or as it comes. */
#include "cli/command.h"

#include "cli/ending.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <string.h>

struct options {
	struct follow_options follow;
	int64_t tail;
	bool going;
	const char *what;
};

static const struct options defaults = { .tail = -1 };

static const struct option_row options[] = {
	OPT_FLAG('f', "follow", struct options, going, "go on until the command ends"),
	OPT_INT('n', "tail", struct options, tail, "LINES", 0, INT64_MAX, "of what is there, only the last LINES"),
	OPT_CALL(0, "since", struct options, follow, "WHEN", follow_parse_since, "a time, how long ago, or bytes to skip: OUT[,ERR]"),
	OPT_FLAG('t', "timestamps", struct options, follow.stamps, "begin each line with its arrival time"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX|OPERATION", struct options, what, "its start command, or one operation"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox logs -f web", "the start command's output as it comes" },
	{ "sandbox logs --tail 20 $op", "the end of what an operation wrote" },
	{ "sandbox logs -t --since 10m web", "the last ten minutes, with times" },
	{ NULL, NULL },
};

/* A whole id may be either; an operation's output is what people ask for by id. */
static int show(struct cli *cli, struct options *o, struct stream_result *r, struct error *err)
{
	struct error e = ERROR_INIT;
	if (id_valid(o->what)) {
		o->follow.operation = o->what;
		if (follow_run(cli, &o->follow, r, &e) == 0)
			return 0;
		if (e.code != ERR_NOT_FOUND) {
			*err = e;
			return -1;
		}
		o->follow.operation = NULL;
	}
	o->follow.sandbox = o->what;
	return follow_run(cli, &o->follow, r, err);
}

static void note_end(struct cli *cli, const struct stream_result *r)
{
	auto_free char *text = ending_text(r, 0);
	if (text)
		out_note(cli, "%s", text);
	else if (r->closed && r->result.outcome == OUTCOME_EXITED)
		out_note(cli, "the command exited with status %d", r->result.exit_code);
	else if (r->closed && r->result.outcome == OUTCOME_SIGNALED)
		out_note(cli, "the command was ended by signal %d", r->result.signal);
}

/* Logs were shown: only what kept them from being shown is a failure, not how the command ended. */
static int status_of(const struct stream_result *r)
{
	if (r->left == LEFT_NOT && (r->closed || r->caught_up) && !r->incomplete)
		return 0;
	int status = ending_status(r);
	return status == STATUS_TOOL || status == 0 ? 1 : status;
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	struct options *o = opaque;
	struct stream_result r;
	if (cli->json)
		return error_set(err, ERR_INVALID, "logs has no JSON output; use `sandbox operation inspect`");
	o->follow.until_now = !o->going;
	o->follow.tail = o->tail >= 0;
	o->follow.tail_lines = o->tail;
	if (!o->what[0])
		return error_set(err, ERR_INVALID, "the sandbox's name is empty");
	if (show(cli, o, &r, err) != 0)
		return -1;
	if (o->going || r.left == LEFT_WRITE_FAILED)
		note_end(cli, &r);
	int status = status_of(&r);
	result_done(&r.result);
	return status;
}

const struct verb verb_logs = {
	.name = "logs",
	.group = GROUP_INSIDE,
	.summary = "show the output of a start command or operation",
	.manual = "Without --follow, what is kept now is shown; with it, output follows until the command ends, and how it ended is said on "
		  "standard error. Standard output and error come out apart; --tail counts lines in each. What a command wrote is kept in a "
		  "bounded spool: its first 64 KiB and its last MiB per stream; missing bytes are counted on standard error.\n"
		  "\n"
		  "--since takes a time (2026-01-02T15:04:05Z), how long ago with its unit (90s, 10m, 2h), or byte offsets. Times are those at which "
		  "output reached the daemon, to the millisecond; a line has that of its first byte, or - where it is no longer known. A part of a "
		  "line that was there before WHEN is not shown.\n"
		  "\n"
		  "Exit status: 0 when the output was shown, whatever the command's own status.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
