/* Reading the outbox: see controller.h. */
#include "daemon/controller/internal.h"

struct reading {
	const struct caller *who;
	event_view_fn fn;
	void *ctx;
	struct id last;
	int n;
};

static void pass_on(void *ctx, const struct event *e, int64_t created_us)
{
	struct reading *r = ctx;
	r->last = e->id;
	r->n++;
	const char *only = access_filter(r->who);
	if (!access_visible(r->who, e->tenant) || (only && strcmp(only, e->tenant) != 0))
		return;
	struct event_view v = { .id = e->id, .type = e->type, .tenant = e->tenant, .sandbox = *e->sandbox, .detail = e->detail,
				.actor = e->actor, .created_us = created_us };
	if (e->operation)
		v.operation = *e->operation;
	r->fn(r->ctx, &v);
}

int controller_events(struct controller *c, const struct caller *who, struct id *cursor, event_view_fn fn, void *ctx, struct error *err)
{
	auto_tx *tx = NULL;
	struct reading r = { .who = who, .fn = fn, .ctx = ctx };
	if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_event_each(tx, cursor->text, EVENTS_PAGE, pass_on, &r, err) != 0)
		return -1;
	if (r.n)
		*cursor = r.last;
	return r.n;
}

int controller_last_event(struct controller *c, struct id *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_event_last(tx, ret, err);
}

int controller_mark_get(struct controller *c, const char *name, struct id *ret, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_mark_get(tx, name, ret, err);
}

int controller_mark_put(struct controller *c, const char *name, const struct id *event, struct error *err)
{
	auto_tx *tx = NULL;
	if (store_begin(c->store, DB_WRITE, &tx, err) != 0 || store_mark_put(tx, name, event, store_now(c->store), err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

bool controller_leads(struct controller *c)
{
	return store_leads(c->store);
}
