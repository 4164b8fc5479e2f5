/* sandbox gc: what is left over on the worker, removed or only listed. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

struct options {
	bool verify;
};

static const struct option_row options[] = {
	OPT_FLAG(0, "verify", struct options, verify, "only list, remove nothing"),
	OPT_END,
};

static const struct example examples[] = {
	{ "sandbox gc --verify", "is anything left over?" },
	{ "sandbox gc", "remove it now" },
	{ NULL, NULL },
};

static void print_leaks(const cJSON *leaks)
{
	const cJSON *one;
	auto_table *t = table_new(4);
	table_cell(t, "KIND");
	table_cell(t, "SANDBOX");
	table_cell(t, "NAME");
	table_cell(t, "EVIDENCE");
	cJSON_ArrayForEach(one, leaks)
	{
		table_cell(t, json_text(one, "kind"));
		table_cell(t, json_text(one, "sandbox_id"));
		table_cell(t, json_text(one, "name"));
		table_cell(t, json_text(one, "evidence"));
	}
	table_print(t);
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *answer = NULL;
	struct call c = { .method = o->verify ? "GET" : "POST", .target = "/v1/gc" };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *leaks = cJSON_GetObjectItemCaseSensitive(answer, "leaks");
	int n = cJSON_GetArraySize(leaks);
	if (cli->json) {
		if (out_json(cli, leaks, err) != 0)
			return -1;
	} else if (n > 0) {
		print_leaks(leaks);
	}
	if (n == 0)
		return 0;
	return error_set(err, ERR_SYSTEM, "%d left over%s", n, o->verify ? "; sandbox gc removes what is" : "");
}

const struct verb verb_gc = {
	.name = "gc",
	.group = GROUP_SYSTEM,
	.summary = "find and remove what sandboxes left on the worker",
	.details = "Lists each thing with its sandbox and evidence; exit 1 when there is any.",
	.manual = "The daemon does this by itself, at its start and from time to time.",
	.options = options,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
