/* Rows of nodes and reservations: see store.h. The node's counters change only together with a reservation's row. */
#include "daemon/store/internal.h"

int store_node_put(struct db_tx *tx, const struct node_row *n, int64_t now, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_PUT);
	db_bind_text(s, 1, n->id.text);
	db_bind_text(s, 2, n->name);
	db_bind_text(s, 3, n->region);
	db_bind_i64(s, 4, n->total.cpu_millis);
	db_bind_i64(s, 5, n->total.memory_mib);
	db_bind_i64(s, 6, n->total.disk_mib);
	db_bind_i64(s, 7, n->total.pids);
	db_bind_i64(s, 8, n->max_sandboxes);
	db_bind_text(s, 9, n->offers);
	db_bind_i64(s, 10, now);
	return db_run(s, NULL, err);
}

static struct resources read_resources(struct db_stmt *s, int column)
{
	return (struct resources){
		.cpu_millis = (uint32_t)db_i64(s, column),
		.memory_mib = (uint32_t)db_i64(s, column + 1),
		.disk_mib = (uint32_t)db_i64(s, column + 2),
		.pids = (uint32_t)db_i64(s, column + 3),
	};
}

static void bind_resources(struct db_stmt *s, int n, const struct resources *r)
{
	db_bind_i64(s, n, r->cpu_millis);
	db_bind_i64(s, n + 1, r->memory_mib);
	db_bind_i64(s, n + 2, r->disk_mib);
	db_bind_i64(s, n + 3, r->pids);
}

int store_node_each(struct db_tx *tx, node_row_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_NODE_ALL);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct node_row n = { .total = read_resources(s, 3), .used = read_resources(s, 8) };
		copy_id(&n.id, db_text(s, 0));
		copy_text(n.name, sizeof(n.name), db_text(s, 1));
		copy_text(n.region, sizeof(n.region), db_text(s, 2));
		n.max_sandboxes = (uint32_t)db_i64(s, 7);
		n.sandboxes = (uint32_t)db_i64(s, 12);
		n.offers = db_text(s, 13);
		n.seen_us = db_i64(s, 14);
		n.draining = db_i64(s, 15);
		n.boot_id = db_text(s, 16);
		fn(ctx, &n);
	}
	return rc;
}

static void read_reservation(struct db_stmt *s, struct reservation *r)
{
	size_t n = 0;
	*r = (struct reservation){ .resources = read_resources(s, 2) };
	copy_id(&r->sandbox, db_text(s, 0));
	copy_id(&r->node, db_text(s, 1));
	const void *keys = db_bytes(s, 6, &n);
	store_unpack(keys, n, &r->anti_affinity);
}

void reservation_done(struct reservation *r)
{
	strv_done(&r->anti_affinity);
}

int store_reserve(struct db_tx *tx, const struct reservation *r, struct error *err)
{
	int64_t changed = 0;
	struct db_stmt *s = db_query(tx, Q_NODE_TAKE);
	db_bind_text(s, 1, r->node.text);
	bind_resources(s, 2, &r->resources);
	if (db_run(s, &changed, err) != 0)
		return -1;
	if (changed == 0)
		return 0;
	auto_buf keys = BUF_INIT;
	store_pack(&r->anti_affinity, &keys);
	s = db_query(tx, Q_RESERVATION_ADD);
	db_bind_text(s, 1, r->sandbox.text);
	db_bind_text(s, 2, r->node.text);
	bind_resources(s, 3, &r->resources);
	db_bind_bytes(s, 7, keys.data, keys.len);
	return db_run(s, NULL, err) == 0 ? 1 : -1;
}

static int give_back(struct db_tx *tx, const struct reservation *r, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_RESERVATION_DROP);
	db_bind_text(s, 1, r->sandbox.text);
	if (db_run(s, NULL, err) != 0)
		return -1;
	s = db_query(tx, Q_NODE_GIVE);
	db_bind_text(s, 1, r->node.text);
	bind_resources(s, 2, &r->resources);
	return db_run(s, NULL, err) == 0 ? 1 : -1;
}

int store_release(struct db_tx *tx, const struct id *sandbox, struct reservation *ret, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_RESERVATION_GET);
	db_bind_text(s, 1, sandbox->text);
	int rc = db_step(s, err);
	if (rc <= 0)
		return rc;
	struct reservation r;
	read_reservation(s, &r);
	db_reset(s);
	rc = give_back(tx, &r, err);
	if (rc == 1 && ret)
		*ret = r;
	else
		reservation_done(&r);
	return rc;
}

int store_reservation_each(struct db_tx *tx, reservation_fn fn, void *ctx, struct error *err)
{
	struct db_stmt *s = db_query(tx, Q_RESERVATION_ALL);
	int rc;
	while ((rc = db_step(s, err)) == 1) {
		struct reservation r;
		read_reservation(s, &r);
		fn(ctx, &r);
		reservation_done(&r);
	}
	return rc;
}
