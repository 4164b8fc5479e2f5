/* sandbox top: what sandboxes use now, from the worker's view; redrawn on a terminal. */
#include "cli/command.h"

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <poll.h>
#include <string.h>

enum { COLUMNS = 6, FIRST_INTERVAL_MS = 300 };

struct options {
	const char *ref;
	bool once;
	int64_t interval_ms;
};

static const struct options defaults = { .interval_ms = 2000 };

static const struct option_row options[] = {
	OPT_FLAG('1', "once", struct options, once, "print once and end (the default without a terminal)"),
	OPT_DURATION('n', "interval", struct options, interval_ms, "TIME", 200, 3600 * 1000LL, "time between two looks (default 2s)"),
	OPT_END,
};

static const struct positional positionals[] = {
	POS(POS_OPTIONAL, WHAT_SANDBOX, "SANDBOX", struct options, ref, "only this one; without it all that run"),
	POS_END,
};

static const struct example examples[] = {
	{ "sandbox top", "all running sandboxes, until Ctrl-C" },
	{ "sandbox top web --once --json", "one sample" },
	{ NULL, NULL },
};

/* The running sandboxes to show, as an array of sandbox objects. */
static int get_targets(struct cli *cli, const struct options *o, cJSON **ret, struct error *err)
{
	auto_json *answer = NULL;
	auto_free char *target = o->ref ? session_path("/v1/sandboxes/%s", o->ref) : cli->tenant ? session_path("/v1/sandboxes?tenant=%s", cli->tenant) :
												    xstrdup("/v1/sandboxes");
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &answer, err) != 0)
		return -1;
	if (o->ref) {
		*ret = cJSON_CreateArray();
		cJSON_AddItemToArray(*ret, steal(&answer));
		return 0;
	}
	*ret = cJSON_DetachItemFromObjectCaseSensitive(answer, "sandboxes");
	return cJSON_IsArray(*ret) ? 0 : error_set(err, ERR_PROTOCOL, "the server's answer holds no list of sandboxes");
}

static int sample_one(struct cli *cli, const cJSON *sandbox, cJSON *out, struct error *err)
{
	auto_json *stats = NULL;
	const char *id = json_text(sandbox, "id");
	auto_free char *target = session_path("/v1/sandboxes/%s/stats", id);
	struct call c = { .method = "GET", .target = target };
	if (session_call(cli, &c, &stats, err) != 0)
		return -1;
	json_add_str(stats, "id", id);
	json_add_str(stats, "name", json_text(sandbox, "name")[0] ? json_text(sandbox, "name") : NULL);
	json_add_i64(stats, "sampled_us", clock_mono_us());
	cJSON_AddItemToArray(out, steal(&stats));
	return 0;
}

/* One sample of each. A sandbox that ended meanwhile is left out, unless it is the one asked for. */
static int sample(struct cli *cli, const struct options *o, cJSON **ret, struct error *err)
{
	auto_json *targets = NULL;
	auto_json *out = cJSON_CreateArray();
	const cJSON *sandbox;
	if (get_targets(cli, o, &targets, err) != 0)
		return -1;
	cJSON_ArrayForEach(sandbox, targets)
	{
		struct error e = ERROR_INIT;
		if (!o->ref && strcmp(json_text(sandbox, "state"), "running") != 0)
			continue;
		if (sample_one(cli, sandbox, out, &e) == 0 || (!o->ref && (e.code == ERR_NOT_FOUND || e.code == ERR_CONFLICT)))
			continue;
		*err = e;
		return -1;
	}
	*ret = steal(&out);
	return 0;
}

static const cJSON *find_id(const cJSON *list, const char *id)
{
	const cJSON *item;
	cJSON_ArrayForEach(item, list) if (strcmp(json_text(item, "id"), id) == 0) return item;
	return NULL;
}

/* Adds "cpu_percent" (of one core) to each of now, from the sample before. */
static void add_cpu(cJSON *now, const cJSON *before)
{
	cJSON *s;
	cJSON_ArrayForEach(s, now)
	{
		const cJSON *old = find_id(before, json_text(s, "id"));
		double span = json_number(s, "sampled_us", 0) - json_number(old, "sampled_us", 0);
		double used = json_number(s, "cpu_us", 0) - json_number(old, "cpu_us", 0);
		if (!old || span <= 0 || used < 0)
			cJSON_AddNullToObject(s, "cpu_percent");
		else
			cJSON_AddNumberToObject(s, "cpu_percent", (double)(int64_t)(used / span * 1000) / 10);
	}
}

static void limit_cell(struct table *t, double value, double limit, bool bytes)
{
	char a[24], b[24];
	if (!bytes)
		table_cellf(t, limit > 0 ? "%.0f / %.0f" : "%.0f", value, limit);
	else if (limit > 0)
		table_cellf(t, "%s / %s", size_text(value, a), size_text(limit, b));
	else
		table_cell(t, size_text(value, a));
}

static void print_table(const cJSON *list)
{
	static const char *const head[COLUMNS] = { "ID", "NAME", "CPU", "MEMORY", "PIDS", "CPU TIME" };
	auto_table *t = table_new(COLUMNS);
	const cJSON *s;
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(t, head[i]);
	cJSON_ArrayForEach(s, list)
	{
		const char *id = json_text(s, "id"), *name = json_text(s, "name");
		size_t n = strlen(id);
		table_cell(t, n > ID_SHORT_LEN ? id + n - ID_SHORT_LEN : id);
		table_cell(t, *name ? name : "-");
		if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(s, "cpu_percent")))
			table_cellf(t, "%.1f%%", json_number(s, "cpu_percent", 0));
		else
			table_cell(t, "-");
		limit_cell(t, json_number(s, "memory_bytes", 0), json_number(s, "memory_limit_bytes", 0), true);
		limit_cell(t, json_number(s, "pids", 0), json_number(s, "pids_limit", 0), false);
		table_cellf(t, "%.2fs", json_number(s, "cpu_us", 0) / 1e6);
	}
	table_print(t);
}

/* Waits; false when it is time to leave. */
static bool pause_for(int64_t ms)
{
	struct pollfd p = { .fd = interrupt_fd(), .events = POLLIN };
	return poll(&p, 1, (int)ms) == 0;
}

static int once(struct cli *cli, const struct options *o, struct error *err)
{
	auto_json *before = NULL;
	auto_json *now = NULL;
	cJSON *s;
	if (sample(cli, o, &before, err) != 0)
		return -1;
	if (cJSON_GetArraySize(before) && !pause_for(FIRST_INTERVAL_MS))
		return 128 + interrupt_signal();
	if (sample(cli, o, &now, err) != 0)
		return -1;
	add_cpu(now, before);
	cJSON_ArrayForEach(s, now) cJSON_DeleteItemFromObjectCaseSensitive(s, "sampled_us");
	if (cli->json)
		return out_json(cli, o->ref ? now->child : now, err);
	print_table(now);
	return 0;
}

static int repeat(struct cli *cli, const struct options *o, struct error *err)
{
	auto_json *before = cJSON_CreateArray();
	int64_t wait_ms = FIRST_INTERVAL_MS;
	for (;;) {
		cJSON *now = NULL;
		if (sample(cli, o, &now, err) != 0)
			return interrupt_signal() ? 0 : -1;
		add_cpu(now, before);
		cJSON_Delete(before);
		before = now;
		fputs("\033[H\033[2J", stdout);
		print_table(now);
		if (fflush(stdout) != 0)
			return error_errno(err, "writing to standard output");
		if (!pause_for(wait_ms))
			return 0;
		wait_ms = o->interval_ms;
	}
}

static int run(struct cli *cli, void *opaque, struct error *err)
{
	const struct options *o = opaque;
	interrupt_watch();
	if (o->once || cli->json || !cli->out_tty)
		return once(cli, o, err);
	return repeat(cli, o, err);
}

const struct verb verb_top = {
	.name = "top",
	.alias = "stats",
	.group = GROUP_INSIDE,
	.summary = "show CPU, memory and processes of sandboxes",
	.manual = "CPU is in percent of one core, measured between two looks; memory and processes stand before their limits. On a terminal the "
		  "table is redrawn until Ctrl-C; elsewhere, and with --json, it is printed once.",
	.options = options,
	.positionals = positionals,
	.size = sizeof(struct options),
	.defaults = &defaults,
	.examples = examples,
	.run = run,
};
