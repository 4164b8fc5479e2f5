/* sandbox list: live sandboxes, or all that are remembered. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <string.h>

enum { COLUMNS = 7, PAGE = 500 };

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
	{ "sandbox delete $(sandbox list -q -l job=42)", "delete those with a label" },
	{ NULL, NULL },
};

static void add_query(struct buf *target, const char *key, const char *value)
{
	auto_free char *enc = url_encode(value);
	buf_addf(target, "%c%s=%s", strchr(buf_str(target), '?') ? '&' : '?', key, enc);
}

static char *first_target(const struct cli *cli, const struct options *o)
{
	struct buf target = BUF_INIT;
	buf_addf(&target, "/v1/sandboxes?limit=%d", PAGE);
	if (cli->tenant)
		add_query(&target, "tenant", cli->tenant);
	if (o->all)
		add_query(&target, "all", "true");
	for (size_t i = 0; i < o->labels.len; i++)
		add_query(&target, "label", o->labels.items[i]);
	return buf_steal(&target);
}

/* Moves one page's elements to the end of `all`; *ret_next is the cursor of the following one (NULL: none). */
static int get_page(struct cli *cli, const char *target, cJSON *all, char **ret_next, struct error *err)
{
	auto_json *page = NULL;
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &page, err) != 0)
		return -1;
	cJSON *list = cJSON_GetObjectItemCaseSensitive(page, "sandboxes");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of sandboxes");
	const char *next = json_text(page, "next");
	*ret_next = *next && list->child ? xstrdup(next) : NULL;
	/* One by one cJSON keeps the last element at hand, so this is linear. */
	while (list->child)
		cJSON_AddItemToArray(all, cJSON_DetachItemViaPointer(list, list->child));
	return 0;
}

static int get_all(struct cli *cli, const struct options *o, cJSON *all, struct error *err)
{
	auto_free char *first = first_target(cli, o);
	auto_free char *target = xstrdup(first);
	for (;;) {
		char *next = NULL;
		if (get_page(cli, target, all, &next, err) != 0)
			return -1;
		if (!next)
			return 0;
		auto_free char *enc = url_encode(next);
		free(next);
		free(target);
		target = xasprintf("%s&after=%s", first, enc);
	}
}

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
	if (get_all(cli, o, all, err) != 0)
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
