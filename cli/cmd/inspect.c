/* sandbox inspect: everything known about one sandbox. */
#include "cli/command.h"

#include "cli/explain.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>

struct options {
	const char *ref;
};

static const struct positional positionals[] = {
	POS(POS_ONE, WHAT_SANDBOX, "SANDBOX", struct options, ref, "id, name, or a unique start or end of the id"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox inspect web", "for people" },
	{ "sandbox inspect web --json=state,expires_at", "two fields, as JSON" },
	{ NULL, NULL },
};

static void row(struct table *t, const char *label, const char *value)
{
	if (!*value)
		return;
	table_cell(t, label);
	table_cell(t, value);
}

static void time_row(struct table *t, const char *label, const char *text)
{
	int64_t us;
	char span[16];
	if (time_parse_rfc3339(text, &us) != 0)
		return;
	int64_t ms = (us - clock_wall_us()) / 1000;
	table_cell(t, label);
	if (ms >= 0)
		table_cellf(t, "%s (in %s)", text, span_text(ms, span));
	else
		table_cellf(t, "%s (%s ago)", text, span_text(-ms, span));
}

static void map_row(struct table *t, const char *label, const cJSON *map)
{
	auto_buf text = BUF_INIT;
	const cJSON *item;
	cJSON_ArrayForEach(item, map)
	{
		const char *value = cJSON_GetStringValue(item);
		buf_addf(&text, "%s%s=%s", text.len ? ", " : "", item->string, value ? value : "");
	}
	row(t, label, buf_str(&text));
}

static void command_row(struct table *t, const cJSON *argv)
{
	auto_free char *text = cJSON_GetArraySize(argv) ? json_print(argv) : NULL;
	if (text)
		row(t, "command", text);
}

static void resources_row(struct table *t, const cJSON *r)
{
	char memory[24], disk[24];
	double mib = 1024.0 * 1024.0, cores = json_number(r, "cpu_millis", 0) / 1000;
	if (!r)
		return;
	table_cell(t, "resources");
	table_cellf(t, "%.3g %s, %s memory, %s /workspace, %.0f pids", cores, cores > 1 ? "cores" : "core",
		    size_text(json_number(r, "memory_mib", 0) * mib, memory), size_text(json_number(r, "disk_mib", 0) * mib, disk),
		    json_number(r, "pids", 0));
}

static void fill(struct table *t, const cJSON *s)
{
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(s, "spec");
	row(t, "id", json_text(s, "id"));
	row(t, "name", json_text(s, "name"));
	row(t, "state", json_text(s, "state"));
	if (json_flag(s, "unreachable"))
		row(t, "", "its node does not answer");
	row(t, "ended because", json_text(s, "end_reason"));
	row(t, "failure", json_text(s, "failure"));
	row(t, "image", json_text(spec, "image"));
	row(t, "digest", json_text(s, "image_digest"));
	row(t, "tenant", json_text(spec, "tenant"));
	row(t, "tier", json_text(s, "tier"));
	row(t, "network", json_text(spec, "network"));
	resources_row(t, cJSON_GetObjectItemCaseSensitive(spec, "resources"));
	row(t, "node", json_text(s, "node_name"));
	command_row(t, cJSON_GetObjectItemCaseSensitive(spec, "command"));
	map_row(t, "labels", cJSON_GetObjectItemCaseSensitive(spec, "labels"));
	time_row(t, "created", json_text(s, "created_at"));
	time_row(t, json_text(s, "ended_at")[0] ? "would expire" : "expires", json_text(s, "expires_at"));
	time_row(t, "ended", json_text(s, "ended_at"));
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	auto_json *s = NULL;
	auto_free char *target = session_path("/v1/sandboxes/%s", o->ref);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &s, err) != 0)
		return -1;
	if (cli->json)
		return out_json(cli, s, err);
	if (cli->quiet) {
		out_line("%s", json_text(s, "id"));
		return 0;
	}
	auto_table *t = table_new(2);
	fill(t, s);
	table_print(t);
	explain_print(cJSON_GetObjectItemCaseSensitive(s, "decision"), false, stdout);
	return 0;
}

const struct verb verb_inspect = {
	.name = "inspect",
	.alias = "show",
	.group = GROUP_SANDBOX,
	.summary = "show one sandbox with its limits and its deadline",
	.manual = "A sandbox that ended stays visible for the server's retention time, with the reason it ended.",
	.positionals = positionals,
	.size = sizeof(struct options),
	.examples = examples,
	.run = run,
};
