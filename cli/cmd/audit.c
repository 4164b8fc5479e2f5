/* sandbox audit: who did what, when, from where. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

enum { COLUMNS = 7 };

struct options {
	int64_t limit;
	const char *who, *action, *target;
};

static const struct options defaults = { .limit = 50 };

static const struct option_row options[] = {
	OPT_INT('n', "limit", struct options, limit, "N", 1, 1000, "at most this many (default 50)"),
	OPT_TEXT(0, "who", struct options, who, "CALLER", "only this caller, as in the column WHO"),
	OPT_TEXT(0, "action", struct options, action, "ACTION", "only this action, as in the column ACTION"),
	OPT_TEXT(0, "target", struct options, target, "TARGET", "only what was named so"),
	OPT_END,
};

static const struct example examples[] = {
	{ "sandbox audit", "the latest entries" },
	{ "sandbox audit --who 'token ci' -n 200", "what one token did" },
	{ "sandbox audit --action stream.exec --json", "commands, for a script" },
	{ NULL, NULL },
};

static void add_query(struct buf *target, const char *name, const char *value)
{
	auto_free char *enc = value ? url_encode(value) : NULL;
	if (enc)
		buf_addf(target, "&%s=%s", name, enc);
}

static void add_row(struct table *t, const cJSON *e)
{
	const char *tenant = json_text(e, "tenant"), *who = json_text(e, "who");
	table_cellf(t, "%.19sZ", json_text(e, "at"));
	table_cell(t, who[0] ? who : "-");
	table_cell(t, json_text(e, "from"));
	table_cell(t, tenant[0] ? tenant : "-");
	table_cell(t, json_text(e, "action"));
	table_cell(t, json_text(e, "target")[0] ? json_text(e, "target") : "-");
	table_cell(t, json_text(e, "outcome"));
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "WHEN", "WHO", "FROM", "TENANT", "ACTION", "TARGET", "OUTCOME" };
	const struct options *o = opaque;
	auto_json *answer = NULL;
	auto_buf target = BUF_INIT;
	buf_addf(&target, "/v1/audit?limit=%lld", (long long)o->limit);
	add_query(&target, "who", o->who);
	add_query(&target, "action", o->action);
	add_query(&target, "target", o->target);
	struct call c = { .method = "GET", .target = buf_str(&target) };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *e, *list = cJSON_GetObjectItemCaseSensitive(answer, "entries");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of entries");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(e, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(e, "id"));
		else
			add_row(t, e);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

const struct verb verb_audit = {
	.name = "audit",
	.group = GROUP_SERVER,
	.summary = "show who did what, when and from where",
	.manual = "Every change, every stream that was opened (commands, terminals, copies) and every refusal is noted, the newest first. Arguments and "
		  "output are not: of a command the program's name is. Admins only.",
	.options = options,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
