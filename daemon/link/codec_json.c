/* Records as JSON: see codec.h. */
#include "daemon/link/codec.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/json/model_json.h"

#include <string.h>

enum { TEXT_MAX = 64 * 1024, HELD_MAX = 4096, IMAGES_MAX = 65536, MILLI = 1000 };

static void get_id(struct json_reader *r, const char *key, struct id *ret)
{
	auto_free char *text = NULL;
	json_get_str(r, key, JSON_REQUIRED, ID_TEXT_LEN, &text);
	if (text && id_parse(text, ret) != 0)
		json_fail(r, key, "is not an id");
}

static void get_text(struct json_reader *r, const char *key, enum json_need need, char *ret, size_t n)
{
	auto_free char *text = NULL;
	json_get_str(r, key, need, n - 1, &text);
	if (text)
		memcpy(ret, text, strlen(text) + 1);
}

/* --- what a node offers --- */

static void add_offer(cJSON *list, const char *word, bool offered, const char *reason)
{
	cJSON *o = cJSON_AddObjectToObject(list, word);
	json_add_bool(o, "offered", offered);
	json_add_str(o, "reason", reason);
}

cJSON *report_to_json(const struct node_report *r)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "node", r->node.text);
	json_add_str(j, "name", r->name);
	json_add_str(j, "region", r->region);
	json_add_i64(j, "cpu_millis", r->total.cpu_millis);
	json_add_i64(j, "memory_mib", r->total.memory_mib);
	json_add_i64(j, "disk_mib", r->total.disk_mib);
	json_add_i64(j, "pids", r->total.pids);
	json_add_i64(j, "max_sandboxes", r->max_sandboxes);
	json_add_i64(j, "pressure_milli", (int64_t)(r->pressure * MILLI));
	json_add_map(j, "labels", &r->labels);
	cJSON *tiers = cJSON_AddObjectToObject(j, "tiers"), *network = cJSON_AddObjectToObject(j, "network");
	for (int i = 0; i < TIER_COUNT; i++)
		add_offer(tiers, tier_text((enum tier)i), r->tiers[i].offered, r->tiers[i].reason);
	for (int i = 0; i < NETWORK_COUNT; i++)
		add_offer(network, network_text((enum network)i), r->network[i], r->network_reason[i]);
	return j;
}

static void get_offer(struct json_reader *all, const char *word, bool *offered, char *reason, size_t n)
{
	struct json_reader one;
	*offered = false;
	if (!json_get_object(all, word, JSON_OPTIONAL, &one))
		return;
	json_get_bool(&one, "offered", JSON_REQUIRED, offered);
	get_text(&one, "reason", JSON_OPTIONAL, reason, n);
}

static void get_offers(struct json_reader *r, struct node_report *ret)
{
	struct json_reader part;
	if (json_get_object(r, "tiers", JSON_REQUIRED, &part))
		for (int i = 0; i < TIER_COUNT; i++)
			get_offer(&part, tier_text((enum tier)i), &ret->tiers[i].offered, ret->tiers[i].reason, sizeof(ret->tiers[i].reason));
	if (json_get_object(r, "network", JSON_REQUIRED, &part))
		for (int i = 0; i < NETWORK_COUNT; i++)
			get_offer(&part, network_text((enum network)i), &ret->network[i], ret->network_reason[i], sizeof(ret->network_reason[i]));
}

int report_from_json(const cJSON *j, struct node_report *ret, struct error *err)
{
	struct json_reader r;
	struct node_report n = { .pressure = 0 };
	int64_t pressure = 0;
	json_reader_init(&r, j, "", err);
	get_id(&r, "node", &n.node);
	get_text(&r, "name", JSON_REQUIRED, n.name, sizeof(n.name));
	get_text(&r, "region", JSON_REQUIRED, n.region, sizeof(n.region));
	json_get_u32(&r, "cpu_millis", JSON_REQUIRED, 0, UINT32_MAX, &n.total.cpu_millis);
	json_get_u32(&r, "memory_mib", JSON_REQUIRED, 0, UINT32_MAX, &n.total.memory_mib);
	json_get_u32(&r, "disk_mib", JSON_REQUIRED, 0, UINT32_MAX, &n.total.disk_mib);
	json_get_u32(&r, "pids", JSON_REQUIRED, 0, UINT32_MAX, &n.total.pids);
	json_get_u32(&r, "max_sandboxes", JSON_REQUIRED, 0, UINT32_MAX, &n.max_sandboxes);
	json_get_i64(&r, "pressure_milli", JSON_REQUIRED, 0, MILLI, &pressure);
	json_get_map(&r, "labels", JSON_REQUIRED, LIMIT_NODE_LABELS_MAX, TEXT_MAX, &n.labels);
	get_offers(&r, &n);
	if (!json_ok(&r)) {
		map_done(&n.labels);
		return -1;
	}
	n.pressure = (double)pressure / MILLI;
	*ret = n;
	return 0;
}

void link_greeting_done(struct link_greeting *g)
{
	map_done(&g->report.labels);
	strv_done(&g->held);
}

cJSON *greeting_to_json(const struct link_greeting *g)
{
	cJSON *j = cJSON_CreateObject();
	cJSON_AddItemToObject(j, "report", report_to_json(&g->report));
	json_add_str(j, "boot_id", g->boot_id);
	json_add_str(j, "session", g->session);
	json_add_str(j, "version", g->version);
	json_add_strv(j, "held", &g->held);
	return j;
}

int greeting_from_json(const cJSON *j, struct link_greeting *ret, struct error *err)
{
	struct json_reader r, report;
	struct link_greeting g = { .boot_id = "" };
	json_reader_init(&r, j, "", err);
	get_text(&r, "boot_id", JSON_REQUIRED, g.boot_id, sizeof(g.boot_id));
	get_text(&r, "session", JSON_REQUIRED, g.session, sizeof(g.session));
	get_text(&r, "version", JSON_REQUIRED, g.version, sizeof(g.version));
	json_get_strv(&r, "held", JSON_REQUIRED, HELD_MAX, ID_TEXT_LEN, &g.held);
	if (!json_get_object(&r, "report", JSON_REQUIRED, &report) || !json_ok(&r) || report_from_json(report.object, &g.report, err) != 0) {
		link_greeting_done(&g);
		return -1;
	}
	*ret = g;
	return 0;
}

/* --- work --- */

cJSON *lease_to_json(const struct lease *l)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "operation", l->operation.text);
	json_add_str(j, "kind", op_kind_text(l->kind));
	json_add_i64(j, "attempt", l->attempt);
	cJSON_AddItemToObject(j, "sandbox", sandbox_to_json(&l->sandbox));
	return j;
}

int lease_from_json(const cJSON *j, struct lease *ret, struct error *err)
{
	struct json_reader r, sandbox;
	struct lease l = { .attempt = 0 };
	sandbox_init(&l.sandbox);
	json_reader_init(&r, j, "", err);
	get_id(&r, "operation", &l.operation);
	json_get_enum(&r, "kind", JSON_REQUIRED, op_kind, &l.kind);
	json_get_u32(&r, "attempt", JSON_REQUIRED, 1, UINT32_MAX, &l.attempt);
	if (!json_get_object(&r, "sandbox", JSON_REQUIRED, &sandbox) || !json_ok(&r) ||
	    sandbox_from_json(sandbox.object, "sandbox", &l.sandbox, err) != 0) {
		lease_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}

cJSON *completion_to_json(const struct completion *c)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "operation", c->operation.text);
	json_add_i64(j, "attempt", c->attempt);
	json_add_bool(j, "success", c->success);
	json_add_str(j, "code", c->code == ERR_NONE ? NULL : error_wire(c->code));
	json_add_str(j, "error", c->error);
	json_add_str(j, "image_digest", c->image_digest);
	return j;
}

void completion_done(struct completion *c)
{
	free((char *)(uintptr_t)c->error);
	free((char *)(uintptr_t)c->image_digest);
}

int completion_from_json(const cJSON *j, struct completion *ret, struct error *err)
{
	struct json_reader r;
	struct completion c = { .attempt = 0 };
	auto_free char *code = NULL, *text = NULL, *digest = NULL;
	json_reader_init(&r, j, "", err);
	get_id(&r, "operation", &c.operation);
	json_get_u32(&r, "attempt", JSON_REQUIRED, 1, UINT32_MAX, &c.attempt);
	json_get_bool(&r, "success", JSON_REQUIRED, &c.success);
	json_get_str(&r, "code", JSON_OPTIONAL, 64, &code);
	json_get_str(&r, "error", JSON_OPTIONAL, TEXT_MAX, &text);
	json_get_str(&r, "image_digest", JSON_OPTIONAL, LIMIT_IMAGE_NAME_MAX, &digest);
	if (!json_ok(&r))
		return -1;
	c.code = code ? error_from_wire(code) : ERR_NONE;
	c.error = steal(&text);
	c.image_digest = steal(&digest);
	*ret = c;
	return 0;
}

/* --- what a node should have --- */

static void add_line(struct buf *out, cJSON *take_j)
{
	auto_json *j = take_j;
	auto_free char *text = json_print(j);
	buf_adds(out, text);
	buf_addc(out, '\n');
}

void desired_to_lines(const struct sandbox_list *s, const struct operation_list *execs, struct buf *out)
{
	for (size_t i = 0; i < s->len; i++) {
		cJSON *j = cJSON_CreateObject();
		cJSON_AddItemToObject(j, "sandbox", sandbox_to_json(&s->items[i]));
		add_line(out, j);
	}
	for (size_t i = 0; i < execs->len; i++) {
		cJSON *j = cJSON_CreateObject();
		json_add_str(j, "exec", execs->items[i].id.text);
		json_add_str(j, "of", execs->items[i].sandbox_id.text);
		json_add_bool(j, "detached", execs->items[i].detached);
		add_line(out, j);
	}
}

static void take_exec(struct json_reader *r, struct operation_list *l)
{
	struct operation op;
	operation_init(&op);
	op.kind = OPK_EXEC;
	op.state = OP_RUNNING;
	get_id(r, "exec", &op.id);
	get_id(r, "of", &op.sandbox_id);
	json_get_bool(r, "detached", JSON_REQUIRED, &op.detached);
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = op;
}

static int take_line(const char *p, size_t n, struct sandbox_list *s, struct operation_list *execs, struct error *err)
{
	auto_json *j = NULL;
	struct json_reader r, sandbox;
	if (json_parse(p, n, &j, err) != 0)
		return -1;
	json_reader_init(&r, j, "", err);
	if (!json_get_object(&r, "sandbox", JSON_OPTIONAL, &sandbox)) {
		take_exec(&r, execs);
		return json_ok(&r) ? 0 : -1;
	}
	s->items = xrealloc(s->items, s->len + 1, sizeof(*s->items));
	sandbox_init(&s->items[s->len]);
	return sandbox_from_json(sandbox.object, "sandbox", &s->items[s->len++], err);
}

int desired_from_lines(const char *p, size_t n, struct sandbox_list *ret_s, struct operation_list *ret_execs, struct error *err)
{
	struct sandbox_list s = { .len = 0 };
	struct operation_list execs = { .len = 0 };
	for (const char *end; n > 0 && (end = memchr(p, '\n', n)); n -= (size_t)(end - p) + 1, p = end + 1) {
		if (take_line(p, (size_t)(end - p), &s, &execs, err) != 0) {
			sandbox_list_done(&s);
			operation_list_done(&execs);
			return -1;
		}
	}
	*ret_s = s;
	if (ret_execs)
		*ret_execs = execs;
	else
		operation_list_done(&execs);
	return 0;
}

/* --- images --- */

cJSON *images_to_json(const struct image_list *l)
{
	cJSON *j = cJSON_CreateObject();
	cJSON *rows = cJSON_AddArrayToObject(j, "images");
	for (size_t i = 0; i < l->len; i++) {
		cJSON *one = cJSON_CreateObject();
		json_add_str(one, "name", l->items[i].name);
		json_add_str(one, "digest", l->items[i].digest);
		json_add_i64(one, "size_bytes", l->items[i].size_bytes);
		json_add_i64(one, "created_us", l->items[i].created_us);
		json_add_bool(one, "private", l->items[i].private);
		cJSON_AddItemToArray(rows, one);
	}
	return j;
}

static void take_image(struct json_reader *r, struct image_list *l)
{
	struct image_info i = { .name = NULL };
	json_get_str(r, "name", JSON_REQUIRED, TEXT_MAX, &i.name);
	json_get_str(r, "digest", JSON_REQUIRED, TEXT_MAX, &i.digest);
	json_get_i64(r, "size_bytes", JSON_REQUIRED, 0, INT64_MAX, &i.size_bytes);
	json_get_i64(r, "created_us", JSON_REQUIRED, 0, INT64_MAX, &i.created_us);
	json_get_bool(r, "private", JSON_OPTIONAL, &i.private);
	l->items = xrealloc(l->items, l->len + 1, sizeof(*l->items));
	l->items[l->len++] = i;
}

int images_from_json(const cJSON *j, struct image_list *ret, struct error *err)
{
	struct json_reader r, one;
	struct image_list l = { .len = 0 };
	const cJSON *rows;
	json_reader_init(&r, j, "", err);
	size_t n = json_get_array(&r, "images", JSON_REQUIRED, IMAGES_MAX, &rows);
	for (size_t i = 0; i < n && json_element(&r, "images", rows, i, &one); i++)
		take_image(&one, &l);
	if (!json_ok(&r)) {
		image_list_done(&l);
		return -1;
	}
	*ret = l;
	return 0;
}
