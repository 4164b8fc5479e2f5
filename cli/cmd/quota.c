/* sandbox quota: what a tenant may hold. */
#include "cli/command.h"

#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

struct show_options {
	const char *name;
};

static const struct positional show_positionals[] = {
	POS(POS_ONE, WHAT_TENANT, "TENANT", struct show_options, name, "the tenant"),
	POS_END,
};

static void add_row(struct table *t, const char *label, const cJSON *quota, const char *key)
{
	const cJSON *limit = cJSON_GetObjectItemCaseSensitive(quota, key), *used = cJSON_GetObjectItemCaseSensitive(quota, "used");
	table_cell(t, label);
	if (cJSON_GetObjectItemCaseSensitive(used, key))
		table_cellf(t, "%.0f", json_number(used, key, 0));
	else
		table_cell(t, "-");
	if (cJSON_IsNumber(limit))
		table_cellf(t, "%.0f", limit->valuedouble);
	else
		table_cell(t, "no limit");
}

static int show(struct cli *cli, const cJSON *quota, struct error *err)
{
	if (cli->json)
		return out_json(cli, quota, err);
	auto_table *t = table_new(3);
	table_cell(t, "WHAT");
	table_cell(t, "USED");
	table_cell(t, "LIMIT");
	add_row(t, "sandboxes", quota, "sandboxes");
	add_row(t, "CPU, thousandths of a core", quota, "cpu_millis");
	add_row(t, "memory, MiB", quota, "memory_mib");
	add_row(t, "lifetime, seconds", quota, "ttl_seconds");
	table_print(t);
	return 0;
}

static int run_show(struct cli *cli, void *opaque, struct error *err)
{
	const struct show_options *o = opaque;
	auto_json *answer = NULL;
	auto_free char *target = session_path("/v1/tenants/%s/quota", o->name);
	struct call c = { .method = "GET", .target = target };
	return session_call(cli, &c, &answer, err) == 0 ? show(cli, answer, err) : -1;
}

static const struct verb quota_show = {
	.name = "show",
	.summary = "show what a tenant may hold and holds",
	.positionals = show_positionals,
	.size = sizeof(struct show_options),
	.run = run_show,
};

struct set_options {
	const char *name;
	int64_t sandboxes, cpu_millis, memory, ttl_ms;
};

static const struct set_options set_defaults = { .sandboxes = -1, .cpu_millis = -1, .memory = -1, .ttl_ms = -1 };

static const struct option_row set_options[] = {
	OPT_INT(0, "sandboxes", struct set_options, sandboxes, "N", 0, INT32_MAX, "at a time"),
	OPT_INT(0, "cpu-millis", struct set_options, cpu_millis, "N", 0, 1LL << 40, "of all together, thousandths of a core"),
	OPT_SIZE(0, "memory", struct set_options, memory, "SIZE", 0, 1LL << 55, "of all together"),
	OPT_DURATION(0, "ttl", struct set_options, ttl_ms, "TIME", 1000, 7LL * 24 * 3600 * 1000, "longest lifetime"),
	OPT_END,
};

static const struct positional set_positionals[] = {
	POS(POS_ONE, WHAT_TENANT, "TENANT", struct set_options, name, "the tenant"),
	POS_END,
};

static void add_limit(cJSON *body, const char *key, int64_t value)
{
	if (value >= 0)
		json_add_i64(body, key, value);
}

static int run_set(struct cli *cli, void *opaque, struct error *err)
{
	const struct set_options *o = opaque;
	auto_json *body = cJSON_CreateObject(), *answer = NULL;
	auto_free char *target = session_path("/v1/tenants/%s/quota", o->name);
	add_limit(body, "sandboxes", o->sandboxes);
	add_limit(body, "cpu_millis", o->cpu_millis);
	add_limit(body, "memory_mib", o->memory < 0 ? -1 : o->memory >> 20);
	add_limit(body, "ttl_seconds", o->ttl_ms < 0 ? -1 : o->ttl_ms / 1000);
	struct call c = { .method = "PUT", .target = target, .body = body };
	return session_call(cli, &c, &answer, err) == 0 ? show(cli, answer, err) : -1;
}

static const struct verb quota_set = {
	.name = "set",
	.summary = "set a tenant's limits",
	.options = set_options,
	.positionals = set_positionals,
	.size = sizeof(struct set_options),
	.defaults = &set_defaults,
	.run = run_set,
};

static const struct verb *const subverbs[] = { &quota_show, &quota_set, NULL };

static const struct example examples[] = {
	{ "sandbox quota set ci --sandboxes 10 --memory 16g --ttl 2h", "limit a tenant" },
	{ "sandbox quota show ci", "what it may hold, and holds" },
	{ NULL, NULL },
};

const struct verb verb_quota = {
	.name = "quota",
	.group = GROUP_SERVER,
	.summary = "limit what a tenant may hold",
	.manual = "A create that would pass a limit is refused with no_capacity; what exists already stays. Setting is for admins.",
	.examples = examples,
	.subverbs = subverbs,
};
