/* sandbox extend: move a sandbox's deadline. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

struct options {
	const char *ref;
	int64_t ttl_ms;
};

static const struct option_row options[] = {
	OPT_DURATION(0, "ttl", struct options, ttl_ms, "TIME", LIMIT_TTL_MIN_SECONDS * 1000LL, LIMIT_TTL_MAX_SECONDS * 1000LL,
		     "time to live from now, such as 30m or 2h; required"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox extend web --ttl 2h", "two more hours from now" },
	{ NULL, NULL },
};

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	if (!o->ttl_ms)
		return error_set(err, ERR_INVALID, "'extend' needs --ttl: the time to live from now");
	auto_json *body = cJSON_CreateObject();
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s/extend", o->ref);
	json_add_i64(body, "ttl_seconds", (o->ttl_ms + 999) / 1000);
	struct idem key = idem_new();
	struct call c = { .method = "POST", .target = target, .body = body, .key = key.text };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *inner = cJSON_GetObjectItemCaseSensitive(answer, "sandbox");
	const cJSON *sandbox = inner ? inner : answer;
	if (cli->json)
		return out_json(cli, sandbox, err);
	out_line("%s", json_text(sandbox, cli->quiet ? "id" : "expires_at"));
	return 0;
}

const struct verb verb_extend = {
	.name = "extend",
	.group = GROUP_SANDBOX,
	.summary = "give a running sandbox another deadline",
	.details = "Prints the new deadline. This is the only command that moves one.",
	.manual = "The time counts from now, so a shorter one than what is left moves the deadline earlier.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
