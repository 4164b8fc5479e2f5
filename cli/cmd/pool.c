/* sandbox pool: list. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

enum { COLUMNS = 8 };

static void shape_text(const cJSON *pool, struct buf *out)
{
	const cJSON *r = cJSON_GetObjectItemCaseSensitive(pool, "resources");
	buf_addf(out, "%g CPU, %.0f MiB, %.0f MiB disk", json_number(r, "cpu_millis", 0) / 1000, json_number(r, "memory_mib", 0),
		 json_number(r, "disk_mib", 0));
}

static void list_row(struct table *t, const cJSON *pool)
{
	auto_buf shape = BUF_INIT;
	double claims = json_number(pool, "claims", 0), misses = json_number(pool, "misses", 0), starting = json_number(pool, "starting", 0);
	shape_text(pool, &shape);
	table_cell(t, json_text(pool, "name"));
	table_cell(t, json_text(pool, "image"));
	table_cell(t, json_text(pool, "tier"));
	table_cell(t, json_text(pool, "network"));
	table_cell(t, buf_str(&shape));
	if (starting > 0)
		table_cellf(t, "%.0f of %.0f (+%.0f)", json_number(pool, "ready", 0), json_number(pool, "size", 0), starting);
	else
		table_cellf(t, "%.0f of %.0f", json_number(pool, "ready", 0), json_number(pool, "size", 0));
	table_cellf(t, "%.0f of %.0f", claims, claims + misses);
	table_cell(t, json_text(pool, "why"));
}

static int run_list(struct cli *cli, void *opaque, struct error *err)
{
	static const char *const head[COLUMNS] = { "NAME", "IMAGE", "TIER", "NETWORK", "SHAPE", "READY", "SERVED", "WHY NOT FULL" };
	(void)opaque;
	auto_json *answer = NULL;
	struct call c = { .method = "GET", .target = "/v1/pools" };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	const cJSON *pool, *list = cJSON_GetObjectItemCaseSensitive(answer, "pools");
	if (!cJSON_IsArray(list))
		return error_set(err, ERR_PROTOCOL, "the server's answer holds no list of pools");
	if (cli->json)
		return out_json(cli, list, err);
	auto_table *t = table_new(COLUMNS);
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(pool, list)
	{
		if (cli->quiet)
			out_line("%s", json_text(pool, "name"));
		else
			list_row(t, pool);
	}
	if (!cli->quiet)
		table_print(t);
	return 0;
}

static const struct verb pool_list = {
	.name = "list",
	.alias = "ls",
	.summary = "list warm pools and what is ready in them",
	.run = run_list,
};

static const struct verb *const subverbs[] = { &pool_list, NULL };

static const struct example examples[] = {
	{ "sandbox pool list", "what is ready, and how many creates it served" },
	{ NULL, NULL },
};

const struct verb verb_pool = {
	.name = "pool",
	.group = GROUP_SERVER,
	.summary = "show sandboxes that are started ahead of requests",
	.manual = "A server may keep sandboxes running that nobody has asked for yet; a create that wants exactly such a one gets it within "
		  "milliseconds. Pools are sections of the server's configuration, see docs/pools.md. SERVED counts the creates that a pool's "
		  "sandboxes would have fitted, since the server started.",
	.examples = examples,
	.subverbs = subverbs,
};
