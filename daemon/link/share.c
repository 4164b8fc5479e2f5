/* Ports of users' machines: see share.h. */
#include "daemon/link/share.h"

#include "daemon/controller/shares.h"
#include "daemon/worker/muxconn.h"
#include "daemon/worker/splice.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <string.h>

struct shared_port {
	struct stream stream; /* the client's SHARE */
	struct shared_ports *all;
	struct shared_port *next;
	struct tunnel t;
	struct event *end;
	struct relay *relays;
};

struct shared_ports {
	struct event_base *base;
	struct controller *controller;
	struct shared_port *first;
};

struct shared_ports *shared_ports_new(struct event_base *base, struct controller *c)
{
	struct shared_ports *all = xcalloc(1, sizeof(*all));
	all->base = base;
	all->controller = c;
	return all;
}

void shared_ports_free(struct shared_ports *all)
{
	free(all);
}

/* Its visitors hear of it; the stream is closed or gone. */
static void port_end(struct shared_port *p)
{
	struct shared_port **at = &p->all->first;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	controller_share_end(p->all->controller, &p->t.id);
	relay_close_all(&p->relays, MUX_ERR_NOT_FOUND, "the shared port is gone");
	event_free(p->end);
	free(p);
}

static void port_close(struct shared_port *p, enum mux_error why, const char *text)
{
	auto_tlv fields = TLV_INIT;
	tlv_add_u64(&fields, MUX_F_ERROR, why);
	tlv_add_str(&fields, MUX_F_MESSAGE, text);
	stream_close(&p->stream, &fields);
	port_end(p);
}

static void on_closed(struct stream *s, const struct tlv *fields)
{
	(void)fields;
	port_end(container_of(s, struct shared_port, stream));
}

static void on_lost(struct stream *s, enum mux_error why)
{
	(void)why;
	port_end(container_of(s, struct shared_port, stream));
}

static const struct stream_ops ops = { .closed = on_closed, .lost = on_lost };

static void on_end(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what;
	port_close(ctx, MUX_ERR_EXPIRED, "the time of this shared port is over (edge.share_ttl)");
}

static struct shared_port *find(struct shared_ports *all, const struct id *share)
{
	for (struct shared_port *p = all->first; p; p = p->next)
		if (strcmp(p->t.id.text, share->text) == 0)
			return p;
	return NULL;
}

/* "ADDRESS\nEND in microseconds". */
static void tell(const struct shared_port *p, struct mux *m, uint32_t stream)
{
	auto_tlv fields = TLV_INIT;
	auto_free char *text = xasprintf("%s\n%lld", p->t.url, (long long)p->t.expires_us);
	tlv_add_str(&fields, MUX_F_TEXT, text);
	mux_accept(m, stream, &fields, 0);
}

int shared_port_open(struct shared_ports *all, const struct caller *who, struct mux *m, uint32_t stream, const struct tlv *fields, struct error *err)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_WINDOW, MUX_F_PORT, MUX_F_NAME, MUX_F_ACTION, MUX_F_DEADLINE_US };
	auto_free char *label = NULL;
	uint64_t port = tlv_u64(fields, MUX_F_PORT, 0), until = tlv_u64(fields, MUX_F_DEADLINE_US, 0);
	struct tunnel t;
	struct id old;
	if (tlv_only(fields, allowed, ARRAY_LEN(allowed), err) != 0 || tlv_str(fields, MUX_F_NAME, TUNNEL_LABEL_MAX + 1, &label, err) != 0)
		return -1;
	if (port < 1 || port > UINT16_MAX)
		return error_set(err, ERR_INVALID, "a port is 1 to 65535");
	struct share_request q = { .port = (uint16_t)port, .label = label, .keep_host = tlv_u64(fields, MUX_F_ACTION, 0) == MUX_SHARE_KEEP_HOST,
				   .until_us = until < INT64_MAX / 2 ? (int64_t)until : 0 };
	if (controller_share_begin(all->controller, who, &q, &t, &old, err) != 0)
		return -1;
	struct shared_port *before = old.text[0] ? find(all, &old) : NULL;
	if (before)
		port_close(before, MUX_ERR_CONFLICT, "the same port is shared by another connection now");
	struct shared_port *p = xcalloc(1, sizeof(*p));
	int64_t left = t.expires_us - clock_wall_us();
	p->all = all;
	p->t = t;
	p->next = all->first;
	all->first = p;
	p->end = evtimer_new(all->base, on_end, p);
	if (!p->end)
		abort();
	event_add(p->end, &(struct timeval){ .tv_sec = left > 0 ? left / 1000000 : 0, .tv_usec = left > 0 ? left % 1000000 : 0 });
	stream_bind(&p->stream, &ops, m, stream);
	tell(p, m, stream);
	return 0;
}

bool shared_port_dial(struct shared_ports *all, const struct id *share, struct mux *edge, uint32_t stream)
{
	struct shared_port *p = find(all, share);
	auto_tlv fields = TLV_INIT;
	if (!p || !p->stream.m)
		return false;
	tlv_add_u64(&fields, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_u64(&fields, MUX_F_PORT, p->t.port);
	struct relay_owner owner = { .list = &p->relays };
	relay_splice(&owner, edge, stream, p->stream.m, &fields);
	return true;
}
