/* Mux connections to the daemon, as many as the streams need, and the streams on them. */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/mux/kinds.h"

enum { IDLE_PER_ROUTE = 64, IDLE_MS = 30 * 1000, STREAMS_PER_LINK = LIMIT_MUX_STREAMS_MAX - 1 };

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct link *l = ctx, **at = &l->e->links;
	(void)conn;
	log_debug("edge", "a connection to the daemon ended: %s", why);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

static const struct muxconn_ops link_ops = { .gone = on_gone };

static struct link *link_new(struct edge *e, struct error *err)
{
	auto_tlv hello = TLV_INIT;
	int fd;
	if (e->o.connect(e->o.ctx, &fd, err) != 0)
		return NULL;
	struct link *l = xcalloc(1, sizeof(*l));
	l->e = e;
	l->next = e->links;
	e->links = l;
	l->conn = muxconn_new(e->muxloop, fd, &link_ops, l, true);
	tlv_add_str(&hello, MUX_F_PROGRAM, "edge " SANDBOX_VERSION);
	mux_hello(muxconn_mux(l->conn), &hello);
	return l;
}

static struct link *link_with_room(struct edge *e, struct error *err)
{
	for (struct link *l = e->links; l; l = l->next)
		if (l->streams < STREAMS_PER_LINK)
			return l;
	return link_new(e, err);
}

struct origin *origin_open(struct edge *e, struct route *r, struct error *err)
{
	struct link *l = link_with_room(e, err);
	auto_tlv open = TLV_INIT;
	if (!l)
		return NULL;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_str(&open, MUX_F_SANDBOX, r->r.target.text);
	tlv_add_u64(&open, MUX_F_PORT, r->r.port);
	uint32_t id = mux_open(muxconn_mux(l->conn), &open, EDGE_WINDOW, err);
	if (!id)
		return NULL;
	struct origin *o = xcalloc(1, sizeof(*o));
	o->e = e;
	o->link = l;
	o->route = r;
	r->users++;
	l->streams++;
	stream_bind(&o->stream, &origin_ops, muxconn_mux(l->conn), id);
	return o;
}

static void unlink_idle(struct origin *o)
{
	struct origin **at = &o->route->idle.first;
	while (*at && *at != o)
		at = &(*at)->next_idle;
	if (*at) {
		*at = o->next_idle;
		o->route->idle.n--;
	}
}

void origin_close(struct origin *o)
{
	if (!o)
		return;
	if (!o->v)
		unlink_idle(o);
	if (o->stream.m)
		stream_close(&o->stream, NULL);
	if (o->link)
		o->link->streams--;
	route_release(o->e, o->route);
	free(o);
}

struct origin *origin_take_idle(struct route *r)
{
	struct origin *o = r->idle.first;
	if (!o)
		return NULL;
	r->idle.first = o->next_idle;
	r->idle.n--;
	return o;
}

void origin_give_idle(struct origin *o)
{
	struct route *r = o->route;
	mux_consumed(o->stream.m, o->stream.id, MUX_STDIN, o->received);
	if (r->gone || r->idle.n >= IDLE_PER_ROUTE) {
		origin_close(o);
		return;
	}
	o->v = NULL;
	o->used = true;
	o->idle_ms = clock_mono_ms();
	o->next_idle = r->idle.first;
	r->idle.first = o;
	r->idle.n++;
}

void origin_reap_idle(struct route *r, int64_t now)
{
	struct origin *next;
	/* A route that goes with its last idle stream is the caller's to hold. */
	for (struct origin *o = r->idle.first; o; o = next) {
		next = o->next_idle;
		if (now == 0 || now - o->idle_ms > IDLE_MS)
			origin_close(o);
	}
}

void links_free(struct edge *e)
{
	while (e->links)
		muxconn_drop(e->links->conn, "the edge stops");
}
