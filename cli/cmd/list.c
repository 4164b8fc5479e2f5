/* sandbox list: live sandboxes, or all that are remembered. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/select.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 7 };

struct options {
	bool all;
	struct strv labels;
};

static const struct option_row options[] = {
	OPT_FLAG('a', "all", struct options, all, "also those that ended or failed"),
	OPT_LIST('l', "label", struct options, labels, "KEY=VALUE", "only those with this label, repeatable"),
	OPT_END,
};

static const struct example examples[] = {
	{ "sandbox list --json=id,name,state", "three fields of each, as JSON" },
	{ "sandbox list -l job=42 --format '{{.name}} {{.state}}'", "those with a label, in a form of your own" },
	{ NULL, NULL },
};

static void cell_span(struct table *t, int64_t now_us, const char *from, int sign)
{
	int64_t us;
	char text[16];
	if (time_parse_rfc3339(from, &us) != 0)
		table_cell(t, "-");
	else
		table_cell(t, span_text(sign * (now_us - us) / 1000, text));
}

static void add_row(struct table *t, const cJSON *sandbox, int64_t now_us)
{
	const char *id = json_text(sandbox, "id"), *state = json_text(sandbox, "state"), *name = json_text(sandbox, "name");
	size_t n = strlen(id);
	bool ended = strcmp(state, "stopped") == 0 || strcmp(state, "failed") == 0;
	table_cell(t, n > ID_SHORT_LEN ? id + n - ID_SHORT_LEN : id);
	table_cell(t, *name ? name : "-");
	table_cellf(t, "%s%s", state, json_flag(sandbox, "unreachable") ? " (unreachable)" : "");
	table_cell(t, json_text(sandbox, "tier"));
	table_cell(t, json_text(cJSON_GetObjectItemCaseSensitive(sandbox, "spec"), "image"));
	cell_span(t, now_us, json_text(sandbox, "created_at"), 1);
	if (ended)
		table_cell(t, "-");
	else
		cell_span(t, now_us, json_text(sandbox, "expires_at"), -1);
}

static void print_table(const cJSON *all)
{
	static const char *const head[COLUMNS] = { "ID", "NAME", "STATE", "TIER", "IMAGE", "AGE", "EXPIRES" };
	auto_table *t = table_new(COLUMNS);
	const cJSON *sandbox;
	int64_t now_us = clock_wall_us();
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(sandbox, all) add_row(t, sandbox, now_us);
	table_print(t);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *all = cJSON_CreateArray();
	const cJSON *sandbox;
	if (select_sandboxes(cli, &o->labels, o->all, all, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, all, err);
	if (!cli->quiet) {
		print_table(all);
		return 0;
	}
	cJSON_ArrayForEach(sandbox, all) out_line("%s", json_text(sandbox, "id"));
	return 0;
}

const struct verb verb_list = {
	.name = "list",
	.alias = "ls",
	.group = GROUP_SANDBOX,
	.summary = "list sandboxes",
	.manual = "The id column shows the last 8 digits, which every command accepts in place of the whole id. EXPIRES is the time left until "
		  "the server ends the sandbox. With --quiet only whole ids are printed, with --json an array.",
	.options = options,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
