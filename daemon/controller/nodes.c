/*
 * Nodes: what they report, kept in memory for AEGIS, and what is taken of them. The store's guarded update decides who gets
 * the last slot; memory follows it, so that a decision needs no query.
 */
#include "daemon/controller/fleet.h"
#include "daemon/controller/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/json/json.h"

struct node_extra {
	struct map labels;
	struct strv keys;      /* anti-affinity keys of the sandboxes there, one entry per sandbox that has it */
	struct resources used;
	int64_t seen_ms;       /* monotonic; 0: not since this daemon started */
	char *stored;          /* what was last written, so that an unchanged report costs no write */
	int64_t stored_ms;
	bool ours;             /* reports to this controller */
	int64_t closed_ms;     /* monotonic: since when its link is gone; 0: not known to be */
	int64_t closed_us;     /* the same by the store's clock */
	char boot[BOOT_TEXT_MAX]; /* of its machine; "": this one's */
	int64_t row_seen_us;   /* of another controller's node: the row's mark of life, and what it said */
	char *row_offers;
};

enum {
	STORE_EVERY_MS = 60 * 1000, /* an unchanged report is written this often, for `seen_us` … */
	SHARE_EVERY_MS = 5 * 1000,  /* … and this often when other controllers want to know */
	FOLLOW_MS = 100,            /* in a shared store what is known of nodes is read again after this */
	OFFERS_MAX = 256 * 1024,
	REASON_MAX = 256,
};

static struct node_extra *find(struct nodes *n, const struct id *id, struct node_view **ret_view)
{
	for (size_t i = 0; i < n->len; i++) {
		if (id_eq(&n->views[i].id, id)) {
			*ret_view = &n->views[i];
			return n->extra[i];
		}
	}
	return NULL;
}

static struct node_extra *find_or_add(struct nodes *n, const struct id *id, struct node_view **ret_view)
{
	struct node_extra *x = find(n, id, ret_view);
	if (x)
		return x;
	if (n->len == n->cap) {
		n->cap = n->cap ? n->cap * 2 : 8;
		n->views = xrealloc(n->views, n->cap, sizeof(*n->views));
		n->extra = xrealloc(n->extra, n->cap, sizeof(*n->extra));
	}
	x = xcalloc(1, sizeof(*x));
	n->extra[n->len] = x;
	*ret_view = &n->views[n->len++];
	**ret_view = (struct node_view){ .id = *id, .stale = true, .labels = &x->labels, .anti_affinity = &x->keys };
	return x;
}

static bool is_stale(const struct node_extra *x, int64_t now_ms)
{
	return x->seen_ms == 0 || now_ms - x->seen_ms > LIMIT_NODE_STALE_MS || (x->closed_ms && now_ms - x->closed_ms > LIMIT_NODE_AWAY_MS);
}

/* --- what is taken --- */

static uint32_t left(uint32_t total, uint32_t used)
{
	return total > used ? total - used : 0;
}

static void set_free(struct node_view *v, const struct node_extra *x)
{
	v->free = (struct resources){
		.cpu_millis = left(v->total.cpu_millis, x->used.cpu_millis),
		.memory_mib = left(v->total.memory_mib, x->used.memory_mib),
		.disk_mib = left(v->total.disk_mib, x->used.disk_mib),
		.pids = left(v->total.pids, x->used.pids),
	};
}

static void take(struct node_view *v, struct node_extra *x, const struct reservation *r)
{
	x->used.cpu_millis += r->resources.cpu_millis;
	x->used.memory_mib += r->resources.memory_mib;
	x->used.disk_mib += r->resources.disk_mib;
	x->used.pids += r->resources.pids;
	v->sandboxes++;
	for (size_t i = 0; i < r->anti_affinity.len; i++)
		strv_add(&x->keys, r->anti_affinity.items[i]);
	set_free(v, x);
}

static void drop_key(struct strv *keys, const char *key)
{
	for (size_t i = 0; i < keys->len; i++) {
		if (strcmp(keys->items[i], key) == 0) {
			free(keys->items[i]);
			keys->items[i] = keys->items[--keys->len];
			keys->items[keys->len] = NULL;
			return;
		}
	}
}

void nodes_give(struct controller *c, const struct reservation *r)
{
	struct nodes *n = &c->nodes;
	struct node_view *v = NULL;
	pthread_mutex_lock(&n->lock);
	struct node_extra *x = find(n, &r->node, &v);
	if (x) {
		x->used.cpu_millis = left(x->used.cpu_millis, r->resources.cpu_millis);
		x->used.memory_mib = left(x->used.memory_mib, r->resources.memory_mib);
		x->used.disk_mib = left(x->used.disk_mib, r->resources.disk_mib);
		x->used.pids = left(x->used.pids, r->resources.pids);
		v->sandboxes = left(v->sandboxes, 1);
		for (size_t i = 0; i < r->anti_affinity.len; i++)
			drop_key(&x->keys, r->anti_affinity.items[i]);
		set_free(v, x);
	}
	pthread_mutex_unlock(&n->lock);
}

void nodes_place(struct controller *c, const struct spec *spec, struct decision *d, struct reservation *r)
{
	struct settings settings = controller_settings(c);
	struct nodes *n = &c->nodes;
	int64_t now_ms = clock_mono_ms();
	bool tunnels = controller_tunnel_offer(c).enabled; /* every node can be dialled into */
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->len; i++) {
		n->views[i].stale = is_stale(n->extra[i], now_ms);
		n->views[i].tunnels = tunnels;
	}
	aegis_place(spec, &settings.policy, n->views, n->len, d);
	if (r && d->placed) {
		struct node_view *v = NULL;
		struct node_extra *x = find(n, &d->node, &v);
		r->node = d->node;
		take(v, x, r);
	}
	pthread_mutex_unlock(&n->lock);
}

void nodes_each(struct controller *c, node_fn fn, void *ctx)
{
	struct nodes *n = &c->nodes;
	int64_t now_ms = clock_mono_ms();
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->len; i++) {
		n->views[i].stale = is_stale(n->extra[i], now_ms);
		fn(ctx, &n->views[i]);
	}
	pthread_mutex_unlock(&n->lock);
}

bool nodes_reachable(struct controller *c, const struct id *node)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	bool reachable = x && !is_stale(x, clock_mono_ms());
	pthread_mutex_unlock(&c->nodes.lock);
	return reachable;
}

/* Nodes that were not heard of since this daemon started are given the time to dial. */
static bool away_now(const struct nodes *n, const struct node_extra *x, int64_t now_ms)
{
	return is_stale(x, now_ms) && (x->closed_ms || now_ms - n->loaded_ms > LIMIT_NODE_STALE_MS);
}

bool nodes_away(struct controller *c, const struct id *node, char ret_name[static NAME_MAX_LEN + 1])
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	bool away = x && away_now(&c->nodes, x, clock_mono_ms());
	if (away)
		snprintf(ret_name, NAME_MAX_LEN + 1, "%s", v->name);
	pthread_mutex_unlock(&c->nodes.lock);
	return away;
}

bool nodes_several(struct controller *c)
{
	pthread_mutex_lock(&c->nodes.lock);
	bool several = c->nodes.len > 1;
	pthread_mutex_unlock(&c->nodes.lock);
	return several;
}

bool nodes_any_away(struct controller *c)
{
	int64_t now_ms = clock_mono_ms();
	bool any = false;
	pthread_mutex_lock(&c->nodes.lock);
	for (size_t i = 0; !any && i < c->nodes.len; i++)
		any = away_now(&c->nodes, c->nodes.extra[i], now_ms);
	pthread_mutex_unlock(&c->nodes.lock);
	return any;
}

/* --- from the store --- */

static void read_offer(struct json_reader *all, const char *word, bool *offered, char *reason)
{
	struct json_reader one;
	auto_free char *text = NULL;
	*offered = false;
	if (!json_get_object(all, word, JSON_OPTIONAL, &one))
		return;
	json_get_bool(&one, "offered", JSON_OPTIONAL, offered);
	json_get_str(&one, "reason", JSON_OPTIONAL, REASON_MAX, &text);
	snprintf(reason, REASON_MAX, "%s", text ? text : "");
}

/* What another controller wrote of its node. Damage makes the node offer nothing. */
static void read_offers(struct node_view *v, struct node_extra *x, const char *text)
{
	auto_json *tree = NULL;
	struct json_reader r, part;
	struct error err = ERROR_INIT;
	int64_t pressure = 0;
	bool parsed = json_parse(text, strlen(text), &tree, &err) == 0;
	if (parsed)
		json_reader_init(&r, tree, "", &err);
	if (parsed && json_get_object(&r, "tiers", JSON_OPTIONAL, &part))
		for (int i = 0; i < TIER_COUNT; i++)
			read_offer(&part, tier_text((enum tier)i), &v->tiers[i], v->tier_reason[i]);
	if (parsed && json_get_object(&r, "network", JSON_OPTIONAL, &part))
		for (int i = 0; i < NETWORK_COUNT; i++)
			read_offer(&part, network_text((enum network)i), &v->network[i], v->network_reason[i]);
	if (parsed) {
		json_get_map(&r, "labels", JSON_OPTIONAL, LIMIT_LABELS_MAX, OFFERS_MAX, &x->labels);
		json_get_i64(&r, "pressure_percent", JSON_OPTIONAL, 0, 100, &pressure);
	}
	v->pressure = (double)pressure / 100;
	if (!parsed || !json_ok(&r)) {
		memset(v->tiers, 0, sizeof(v->tiers));
		memset(v->network, 0, sizeof(v->network));
	}
}

/* A changed mark is a sign of life now, whatever the other machine's clock says. */
static void follow_row(struct nodes *n, struct node_view *v, struct node_extra *x, const struct node_row *row)
{
	/* What this controller wrote before the link ended says nothing of the time after. */
	if (x->ours || (x->closed_ms && row->seen_us <= x->closed_us))
		x->row_seen_us = row->seen_us;
	if (row->seen_us == x->row_seen_us)
		return;
	int64_t age_ms = x->row_seen_us ? 0 : (n->now_us - row->seen_us) / 1000;
	x->row_seen_us = row->seen_us;
	x->closed_ms = 0;
	x->seen_ms = clock_mono_ms() - (age_ms > 0 ? age_ms : 0);
	if (x->seen_ms <= 0)
		x->seen_ms = 1;
	if (!row->offers || (x->row_offers && strcmp(x->row_offers, row->offers) == 0))
		return;
	free(x->row_offers);
	x->row_offers = xstrdup(row->offers);
	read_offers(v, x, row->offers);
}

static void load_row(void *ctx, const struct node_row *row)
{
	struct nodes *n = ctx;
	struct node_view *v = NULL;
	struct node_extra *x = find_or_add(n, &row->id, &v);
	if (n->now_us)
		follow_row(n, v, x, row);
	snprintf(v->name, sizeof(v->name), "%s", row->name);
	snprintf(v->region, sizeof(v->region), "%s", row->region);
	v->total = row->total;
	v->max_sandboxes = row->max_sandboxes;
	v->sandboxes = row->sandboxes;
	v->draining = row->draining;
	snprintf(x->boot, sizeof(x->boot), "%s", row->boot_id ? row->boot_id : "");
	x->used = row->used;
	strv_done(&x->keys);
	set_free(v, x);
}

static void load_keys(void *ctx, const struct reservation *r)
{
	struct node_view *v = NULL;
	struct node_extra *x = find(ctx, &r->node, &v);
	for (size_t i = 0; x && i < r->anti_affinity.len; i++)
		strv_add(&x->keys, r->anti_affinity.items[i]);
}

int nodes_refresh(struct controller *c, struct db_tx *tx, struct error *err)
{
	pthread_mutex_lock(&c->nodes.lock);
	c->nodes.read_ms = clock_mono_ms();
	/* Alone on its store, a controller knows of its nodes only what they tell it. */
	c->nodes.now_us = store_shared(c->store) ? store_now(c->store) : 0;
	int rc = store_node_each(tx, load_row, &c->nodes, err);
	if (rc == 0)
		rc = store_reservation_each(tx, load_keys, &c->nodes, err);
	pthread_mutex_unlock(&c->nodes.lock);
	return rc;
}

int nodes_follow(struct controller *c, struct db_tx *tx, struct error *err)
{
	if (!store_shared(c->store))
		return 0;
	pthread_mutex_lock(&c->nodes.lock);
	bool fresh = clock_mono_ms() - c->nodes.read_ms < FOLLOW_MS;
	pthread_mutex_unlock(&c->nodes.lock);
	return fresh ? 0 : nodes_refresh(c, tx, err);
}

int nodes_load(struct controller *c, struct error *err)
{
	c->nodes.loaded_ms = clock_mono_ms();
	auto_tx *tx = NULL;
	pthread_mutex_init(&c->nodes.lock, NULL);
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return nodes_refresh(c, tx, err);
}

static void extra_free(struct node_extra *x)
{
	map_done(&x->labels);
	strv_done(&x->keys);
	free(x->stored);
	free(x->row_offers);
	free(x);
}

void nodes_done(struct controller *c)
{
	for (size_t i = 0; i < c->nodes.len; i++)
		extra_free(c->nodes.extra[i]);
	free(c->nodes.views);
	free(c->nodes.extra);
	pthread_mutex_destroy(&c->nodes.lock);
}

/* --- one node --- */

void nodes_describe(struct controller *c, const struct id *node, struct node_info *ret)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	if (x) {
		ret->up = !is_stale(x, clock_mono_ms());
		ret->pressure = v->pressure;
		for (int i = 0; i < TIER_COUNT; i++) {
			ret->tiers[i].offered = v->tiers[i];
			snprintf(ret->tiers[i].reason, sizeof(ret->tiers[i].reason), "%s", v->tier_reason[i]);
		}
		memcpy(ret->network, v->network, sizeof(ret->network));
		map_copy(&ret->labels, &x->labels);
	}
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_set_draining(struct controller *c, const struct id *node, bool draining)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	if (find(&c->nodes, node, &v))
		v->draining = draining;
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_set_boot(struct controller *c, const struct id *node, const char *boot_id)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find_or_add(&c->nodes, node, &v);
	snprintf(x->boot, sizeof(x->boot), "%s", boot_id);
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_boot(struct controller *c, const struct id *node, char ret[static BOOT_TEXT_MAX])
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	snprintf(ret, BOOT_TEXT_MAX, "%s", x ? x->boot : "");
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_let_go(struct controller *c, const struct id *node)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	if (x && x->ours) {
		x->closed_ms = clock_mono_ms();
		x->closed_us = store_now(c->store);
	}
	if (x)
		x->ours = false;
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_forget(struct controller *c, const struct id *node)
{
	struct nodes *n = &c->nodes;
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->len; i++) {
		if (!id_eq(&n->views[i].id, node))
			continue;
		extra_free(n->extra[i]);
		n->len--;
		/* views point into their own extra alone, so the last may move. */
		n->views[i] = n->views[n->len];
		n->extra[i] = n->extra[n->len];
		break;
	}
	pthread_mutex_unlock(&n->lock);
}

/* --- metrics --- */

/* A label's value between quotes. */
static char *quoted(const char *text)
{
	struct buf out = BUF_INIT;
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_addc(&out, '\\');
		buf_addc(&out, *text == '\n' ? ' ' : *text);
	}
	return buf_steal(&out);
}

static void add_resources(struct buf *out, const char *metric, const char *node, const struct resources *r)
{
	buf_addf(out, "%s{node=\"%s\",resource=\"cpu_cores\"} %g\n", metric, node, (double)r->cpu_millis / 1000);
	buf_addf(out, "%s{node=\"%s\",resource=\"memory_bytes\"} %.0f\n", metric, node, (double)r->memory_mib * 1048576);
	buf_addf(out, "%s{node=\"%s\",resource=\"disk_bytes\"} %.0f\n", metric, node, (double)r->disk_mib * 1048576);
	buf_addf(out, "%s{node=\"%s\",resource=\"pids\"} %u\n", metric, node, r->pids);
}

enum node_metric { NODE_UP, NODE_SANDBOXES, NODE_SLOTS, NODE_PRESSURE, NODE_TOTAL, NODE_FREE, NODE_METRICS };
static const char *const node_metrics[NODE_METRICS][2] = {
	[NODE_UP] = { "sandbox_node_up", "1 when the node has been heard of lately." },
	[NODE_SANDBOXES] = { "sandbox_node_sandboxes", "Sandboxes placed on the node." },
	[NODE_SLOTS] = { "sandbox_node_max_sandboxes", "Sandboxes the node takes; 0: no limit." },
	[NODE_PRESSURE] = { "sandbox_node_pressure", "How pressed the node is, 0 to 1." },
	[NODE_TOTAL] = { "sandbox_node_total", "What the node offers." },
	[NODE_FREE] = { "sandbox_node_free", "What is left of it after reservations." },
};

static void add_node(struct buf *out, enum node_metric m, const struct node_view *v, bool up)
{
	auto_free char *name = quoted(v->name);
	const char *metric = node_metrics[m][0];
	switch (m) {
	case NODE_UP:
		buf_addf(out, "%s{node=\"%s\"} %d\n", metric, name, up);
		break;
	case NODE_SANDBOXES:
		buf_addf(out, "%s{node=\"%s\"} %u\n", metric, name, v->sandboxes);
		break;
	case NODE_SLOTS:
		buf_addf(out, "%s{node=\"%s\"} %u\n", metric, name, v->max_sandboxes);
		break;
	case NODE_PRESSURE:
		buf_addf(out, "%s{node=\"%s\"} %g\n", metric, name, v->pressure);
		break;
	case NODE_TOTAL:
		add_resources(out, metric, name, &v->total);
		break;
	case NODE_FREE:
		add_resources(out, metric, name, &v->free);
		break;
	case NODE_METRICS:
		break;
	}
}

void nodes_metrics(struct controller *c, struct buf *out)
{
	struct nodes *n = &c->nodes;
	int64_t now_ms = clock_mono_ms();
	pthread_mutex_lock(&n->lock);
	for (int m = 0; m < NODE_METRICS; m++) {
		buf_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", node_metrics[m][0], node_metrics[m][1], node_metrics[m][0]);
		for (size_t i = 0; i < n->len; i++)
			add_node(out, (enum node_metric)m, &n->views[i], !is_stale(n->extra[i], now_ms));
	}
	pthread_mutex_unlock(&n->lock);
}

/* --- heartbeats --- */

static void add_offer(cJSON *list, const char *word, bool offered, const char *reason)
{
	cJSON *o = cJSON_AddObjectToObject(list, word);
	json_add_bool(o, "offered", offered);
	json_add_str(o, "reason", reason);
}

/* What the record keeps of a report. The pressure changes all the time: it is kept, roughly, only for other controllers. */
static char *offers_text(const struct node_report *r, bool shared)
{
	auto_json *j = cJSON_CreateObject();
	cJSON *tiers = cJSON_AddObjectToObject(j, "tiers"), *network = cJSON_AddObjectToObject(j, "network");
	for (int i = 0; i < TIER_COUNT; i++)
		add_offer(tiers, tier_text((enum tier)i), r->tiers[i].offered, r->tiers[i].reason);
	for (int i = 0; i < NETWORK_COUNT; i++)
		add_offer(network, network_text((enum network)i), r->network[i], r->network_reason[i]);
	json_add_map(j, "labels", &r->labels);
	if (shared)
		json_add_i64(j, "pressure_percent", (int64_t)(r->pressure * 20 + 0.5) * 5);
	return json_print(j);
}

static int store_report(struct controller *c, const struct node_report *r, const char *offers, struct error *err)
{
	auto_tx *tx = NULL;
	struct node_row row = { .id = r->node, .total = r->total, .max_sandboxes = r->max_sandboxes, .offers = offers };
	snprintf(row.name, sizeof(row.name), "%s", r->name);
	snprintf(row.region, sizeof(row.region), "%s", r->region);
	if (store_begin(c->store, DB_WRITE, &tx, err) != 0 || store_node_put(tx, &row, store_now(c->store), err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

/* Whether this text was written lately. */
static bool is_stored(struct controller *c, const struct id *node, const char *text)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find(&c->nodes, node, &v);
	int64_t every_ms = store_shared(c->store) ? SHARE_EVERY_MS : STORE_EVERY_MS;
	bool stored = x && x->stored && strcmp(x->stored, text) == 0 && clock_mono_ms() - x->stored_ms < every_ms;
	pthread_mutex_unlock(&c->nodes.lock);
	return stored;
}

static void apply_report(struct node_view *v, struct node_extra *x, const struct node_report *r)
{
	snprintf(v->name, sizeof(v->name), "%s", r->name);
	snprintf(v->region, sizeof(v->region), "%s", r->region);
	v->total = r->total;
	v->max_sandboxes = r->max_sandboxes;
	v->pressure = r->pressure;
	for (int i = 0; i < TIER_COUNT; i++) {
		v->tiers[i] = r->tiers[i].offered;
		snprintf(v->tier_reason[i], sizeof(v->tier_reason[i]), "%s", r->tiers[i].reason);
	}
	for (int i = 0; i < NETWORK_COUNT; i++) {
		v->network[i] = r->network[i];
		snprintf(v->network_reason[i], sizeof(v->network_reason[i]), "%s", r->network_reason[i]);
	}
	map_copy(&x->labels, &r->labels);
	x->seen_ms = clock_mono_ms();
	x->closed_ms = 0;
	x->ours = true;
	set_free(v, x);
}

int controller_heartbeat(struct controller *c, const struct node_report *r, struct error *err)
{
	auto_free char *offers = offers_text(r, store_shared(c->store));
	auto_free char *text = xasprintf("%s %s %s %u %u %u %u %u", r->name, r->region, offers, r->total.cpu_millis, r->total.memory_mib,
					 r->total.disk_mib, r->total.pids, r->max_sandboxes);
	bool stored = is_stored(c, &r->node, text);
	/* The row first: a reservation needs it. */
	if (!stored && store_report(c, r, offers, err) != 0)
		return -1;
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = find_or_add(&c->nodes, &r->node, &v);
	apply_report(v, x, r);
	if (!stored) {
		free(x->stored);
		x->stored = steal(&text);
		x->stored_ms = clock_mono_ms();
	}
	pthread_mutex_unlock(&c->nodes.lock);
	if (queue_len(c) > 0)
		hooks_wake(c->hooks, store_now(c->store), 0);
	return 0;
}
