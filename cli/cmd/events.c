/* sandbox events: what happened to sandboxes and operations, and what happens. */
#include "cli/command.h"

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_MS = 500, LOST_MS = 60 * 1000 };

struct options {
	bool follow;
	const char *since;
};

static const struct option_row options[] = {
	OPT_FLAG('f', "follow", struct options, follow, "go on with what happens from now on, until interrupted"),
	OPT_TEXT(0, "since", struct options, since, "ID", "those after this event; oldest: all that are kept"),
	OPT_END,
};

static const struct example examples[] = {
	{ "sandbox events", "what happened, as far back as records are kept" },
	{ "sandbox events -f", "what happens from now on" },
	{ "sandbox events -f --since oldest --json", "everything, one JSON object a line" },
	{ NULL, NULL },
};

struct reading {
	struct cli *cli;
	char last[ID_TEXT_LEN + 1];
	bool began; /* the server said from where */
	int64_t heard_ms;
};

static const char *or_dash(const char *text)
{
	return *text ? text : "-";
}

static void show(const struct reading *r, const cJSON *j)
{
	const char *sandbox = json_text(j, "sandbox_id"), *actor = json_text(j, "actor"), *detail = json_text(j, "detail");
	size_t n = strlen(sandbox);
	if (r->cli->quiet) {
		out_line("%s", json_text(j, "id"));
		return;
	}
	out_line("%.19sZ  %-20s  %s  %-16s  %s", json_text(j, "created_at"), json_text(j, "type"), n > ID_SHORT_LEN ? sandbox + n - ID_SHORT_LEN : sandbox,
		 or_dash(actor), or_dash(detail));
}

static int on_line(void *ctx, cJSON *j, struct error *err)
{
	struct reading *r = ctx;
	const char *id = json_text(j, "id");
	r->heard_ms = clock_mono_ms();
	if (!*id) {
		r->began = true;
		if (*json_text(j, "since"))
			snprintf(r->last, sizeof(r->last), "%s", json_text(j, "since"));
		return 0;
	}
	snprintf(r->last, sizeof(r->last), "%s", id);
	if (r->cli->json) {
		if (out_json(r->cli, j, err) != 0)
			return -1;
	} else {
		show(r, j);
	}
	return fflush(stdout) == 0 ? 0 : error_errno(err, "writing to stdout");
}

static bool pause_or_interrupt(void)
{
	struct pollfd p = { .fd = interrupt_fd(), .events = POLLIN };
	return poll(&p, 1, RETRY_MS) > 0;
}

/* A stream that broke is taken up behind the last event shown; a server that comes back is waited for. */
static int follow(struct reading *r, const char *since, struct error *err)
{
	for (;;) {
		struct error e = ERROR_INIT;
		auto_free char *from = session_path("%s", r->last[0] ? r->last : since);
		auto_free char *target = xasprintf("/v1/events?format=lines&follow=true&since=%s", from);
		int rc = session_lines(r->cli, &(struct line_call){ .method = "GET", .target = target, .body_fd = -1, .line = on_line, .ctx = r }, &e);
		bool mends = rc == 0 || e.code == ERR_UNREACHABLE || e.code == ERR_UNAVAILABLE || (e.code == ERR_PROTOCOL && r->began) ||
			     (e.code == ERR_TIMEOUT && e.sys == 0);
		if (rc != 0 && (!mends || !r->began || clock_mono_ms() - r->heard_ms > LOST_MS)) {
			*err = e;
			return -1;
		}
		session_close(r->cli);
		if (pause_or_interrupt())
			return 0;
	}
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	struct reading r = { .cli = cli, .heard_ms = clock_mono_ms() };
	const char *since = o->since ? o->since : "";
	struct id id;
	if (*since && strcmp(since, "oldest") != 0 && id_parse(since, &id) != 0)
		return error_set(err, ERR_INVALID, "--since: '%.80s' is not an event's id, nor oldest", since);
	if (o->follow)
		return follow(&r, since, err);
	auto_free char *target = xasprintf("/v1/events?format=lines&follow=false&since=%s", since);
	return session_lines(cli, &(struct line_call){ .method = "GET", .target = target, .body_fd = -1, .line = on_line, .ctx = &r }, err);
}

const struct verb verb_events = {
	.name = "events",
	.group = GROUP_SYSTEM,
	.summary = "show what happened to sandboxes and operations",
	.details = "One line an event: time, type, sandbox, who asked, detail.",
	.manual = "With --json each line is one object. Events are kept as long as records are (store.retention). They come in the order in which they became true. With --follow a connection that "
		  "breaks is taken up again behind the last event shown.",
	.options = options,
	.examples = examples,
	.size = sizeof(struct options),
	.run = run,
};
