/*
 * Nodes: what they report, kept in memory for AEGIS, and what is taken of them. The store's guarded update decides who gets
 * the last slot; memory follows it, so that a decision needs no query.
 */
#include "daemon/controller/nodes_priv.h"

#include "daemon/controller/fleet.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/json/json.h"

enum {
	STORE_EVERY_MS = 60 * 1000, /* an unchanged report is written this often, for `seen_us` … */
	SHARE_EVERY_MS = 5 * 1000,  /* … and this often when other controllers want to know */
	FOLLOW_MS = 100,            /* in a shared store what is known of nodes is read again after this … */
	FOLLOW_SHARE = 20,          /* … and after so many times what reading took: thousands of rows cost creates little, too */
	OFFERS_MAX = 256 * 1024,
	REASON_MAX = 256,
};

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
	struct node_extra *x = node_find(n, &r->node, &v);
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
	bool tunnels = controller_tunnel_offer(c).enabled; /* every node can be dialled into */
	pthread_mutex_lock(&n->lock);
	nodes_age(n, clock_mono_ms());
	nodes_offer_tunnels(n, tunnels);
	aegis_place(spec, &settings.policy, n->views, n->len, d);
	if (r && d->placed) {
		struct node_view *v = NULL;
		struct node_extra *x = node_find(n, &d->node, &v);
		r->node = d->node;
		take(v, x, r);
	}
	pthread_mutex_unlock(&n->lock);
}

void nodes_each(struct controller *c, node_fn fn, void *ctx)
{
	struct nodes *n = &c->nodes;
	pthread_mutex_lock(&n->lock);
	nodes_age(n, clock_mono_ms());
	for (size_t i = 0; i < n->len; i++)
		fn(ctx, &n->views[i]);
	pthread_mutex_unlock(&n->lock);
}

bool nodes_reachable(struct controller *c, const struct id *node)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find(&c->nodes, node, &v);
	bool reachable = x && !node_is_stale(x, clock_mono_ms());
	pthread_mutex_unlock(&c->nodes.lock);
	return reachable;
}

/* Nodes that were not heard of since this daemon started are given the time to dial. */
static bool away_now(const struct nodes *n, const struct node_extra *x, int64_t now_ms)
{
	return node_is_stale(x, now_ms) && (x->closed_ms || now_ms - n->loaded_ms > LIMIT_NODE_STALE_MS);
}

bool nodes_away(struct controller *c, const struct id *node, char ret_name[static NAME_MAX_LEN + 1])
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find(&c->nodes, node, &v);
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
			read_offer(&part, tier_text((enum tier)i), &v->tiers[i], x->reasons.tier[i]);
	if (parsed && json_get_object(&r, "network", JSON_OPTIONAL, &part))
		for (int i = 0; i < NETWORK_COUNT; i++)
			read_offer(&part, network_text((enum network)i), &v->network[i], x->reasons.network[i]);
	if (parsed) {
		json_get_map(&r, "labels", JSON_OPTIONAL, LIMIT_LABELS_MAX, OFFERS_MAX, &x->labels);
		json_get_i64(&r, "pressure_percent", JSON_OPTIONAL, 0, 100, &pressure);
	}
	v->label_bits_absent = ~aegis_label_bits(&x->labels);
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
	int64_t seen_ms = clock_mono_ms() - (age_ms > 0 ? age_ms : 0);
	node_seen(n, v, x, seen_ms > 0 ? seen_ms : 1);
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
	struct node_extra *x = node_find_or_add(n, &row->id, &v);
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
	struct node_extra *x = node_find(ctx, &r->node, &v);
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
	c->nodes.follow_ms = (clock_mono_ms() - c->nodes.read_ms) * FOLLOW_SHARE;
	pthread_mutex_unlock(&c->nodes.lock);
	return rc;
}

int nodes_follow(struct controller *c, struct db_tx *tx, struct error *err)
{
	if (!store_shared(c->store))
		return 0;
	pthread_mutex_lock(&c->nodes.lock);
	int64_t every_ms = c->nodes.follow_ms > FOLLOW_MS ? c->nodes.follow_ms : FOLLOW_MS;
	bool fresh = clock_mono_ms() - c->nodes.read_ms < every_ms;
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

/* --- one node --- */

void nodes_describe(struct controller *c, const struct id *node, struct node_info *ret)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find(&c->nodes, node, &v);
	if (x) {
		ret->up = !node_is_stale(x, clock_mono_ms());
		ret->pressure = v->pressure;
		for (int i = 0; i < TIER_COUNT; i++) {
			ret->tiers[i].offered = v->tiers[i];
			snprintf(ret->tiers[i].reason, sizeof(ret->tiers[i].reason), "%s", x->reasons.tier[i]);
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
	if (node_find(&c->nodes, node, &v))
		v->draining = draining;
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_set_boot(struct controller *c, const struct id *node, const char *boot_id)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find_or_add(&c->nodes, node, &v);
	snprintf(x->boot, sizeof(x->boot), "%s", boot_id);
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_boot(struct controller *c, const struct id *node, char ret[static BOOT_TEXT_MAX])
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find(&c->nodes, node, &v);
	snprintf(ret, BOOT_TEXT_MAX, "%s", x ? x->boot : "");
	pthread_mutex_unlock(&c->nodes.lock);
}

void nodes_let_go(struct controller *c, const struct id *node)
{
	struct node_view *v = NULL;
	pthread_mutex_lock(&c->nodes.lock);
	struct node_extra *x = node_find(&c->nodes, node, &v);
	if (x && x->ours) {
		node_closed(&c->nodes, x, clock_mono_ms());
		x->closed_us = store_now(c->store);
	}
	if (x)
		x->ours = false;
	pthread_mutex_unlock(&c->nodes.lock);
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
	struct node_extra *x = node_find(&c->nodes, node, &v);
	int64_t every_ms = store_shared(c->store) ? SHARE_EVERY_MS : STORE_EVERY_MS;
	bool stored = x && x->stored && strcmp(x->stored, text) == 0 && clock_mono_ms() - x->stored_ms < every_ms;
	pthread_mutex_unlock(&c->nodes.lock);
	return stored;
}

static void apply_report(struct nodes *n, struct node_view *v, struct node_extra *x, const struct node_report *r)
{
	snprintf(v->name, sizeof(v->name), "%s", r->name);
	snprintf(v->region, sizeof(v->region), "%s", r->region);
	v->total = r->total;
	v->max_sandboxes = r->max_sandboxes;
	v->pressure = r->pressure;
	for (int i = 0; i < TIER_COUNT; i++) {
		v->tiers[i] = r->tiers[i].offered;
		snprintf(x->reasons.tier[i], sizeof(x->reasons.tier[i]), "%s", r->tiers[i].reason);
	}
	for (int i = 0; i < NETWORK_COUNT; i++) {
		v->network[i] = r->network[i];
		snprintf(x->reasons.network[i], sizeof(x->reasons.network[i]), "%s", r->network_reason[i]);
	}
	map_copy(&x->labels, &r->labels);
	v->label_bits_absent = ~aegis_label_bits(&x->labels);
	node_seen(n, v, x, clock_mono_ms());
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
	struct node_extra *x = node_find_or_add(&c->nodes, &r->node, &v);
	apply_report(&c->nodes, v, x, r);
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
