/* What other controllers ask about nodes whose links are here: each stream goes on to its node's link. See peers.h. */
#include "daemon/link/codec.h"
#include "daemon/link/peers_priv.h"
#include "daemon/link/refusal.h"
#include "daemon/link/splice.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>

enum { LOOK_S = 5 };

struct visitor {
	struct peers *all;
	struct visitor *prev, *next;
	struct muxconn *conn;
	char from[64];
	int64_t heard_ms;
};

/* A command is running by its record: refused, it ends there. */
static void not_started(struct peers *p, const struct node_stream *what, const struct error *why)
{
	struct error err = ERROR_INIT;
	if (what->kind == MUX_KIND_EXEC && controller_exec_end(p->o.controller, &what->grant->operation, NULL, why->code, why->message, &err) != 0)
		log_error("peers", "recording the end of operation=%s: %s", what->grant->operation.text, err.message);
}

static struct remote_node *find(struct peers *p, const struct tlv *fields, struct error *err)
{
	auto_free char *text = NULL;
	struct id node;
	if (tlv_str(fields, MUX_F_NODE, ID_TEXT_LEN, &text, err) != 0)
		return NULL;
	if (!text || id_parse(text, &node) != 0) {
		error_set(err, ERR_PROTOCOL, "a stream without a node");
		return NULL;
	}
	struct remote_node *n = remote_node_find(p->o.links, &node);
	if (!n || !n->current || !n->ready) {
		error_set(err, ERR_UNAVAILABLE, "the node's worker is not connected to this controller any more; try again");
		return NULL;
	}
	return n;
}

static int hand_on(struct peers *p, struct mux *m, uint32_t stream, const struct tlv *fields, struct error *err)
{
	struct node_stream what;
	struct remote_node *n = find(p, fields, err);
	if (tlv_u64(fields, MUX_F_KIND, 0) == MUX_KIND_CALL)
		return n ? splice_call(muxconn_mux(n->current->conn), m, stream, fields, err) : -1;
	struct error e = ERROR_INIT;
	if (node_stream_from_tlv(fields, &what, &e) != 0)
		return error_set(err, e.code, "%s", e.message);
	int rc = n ? splice_open(muxconn_mux(n->current->conn), m, stream, &what, err) : -1;
	if (rc != 0)
		not_started(p, &what, err);
	node_stream_done(&what);
	return rc;
}

static void on_opened(void *ctx, struct muxconn *conn, uint32_t stream, const struct tlv *fields)
{
	struct visitor *v = ctx;
	struct mux *m = muxconn_mux(conn);
	struct error err = ERROR_INIT;
	auto_tlv refusal = TLV_INIT;
	v->heard_ms = clock_mono_ms();
	/* A call about no node asks only whether this controller is there. */
	if (tlv_u64(fields, MUX_F_KIND, 0) == MUX_KIND_CALL && !tlv_has(fields, MUX_F_NODE)) {
		mux_close(m, stream, NULL);
		return;
	}
	if (hand_on(v->all, m, stream, fields, &err) == 0)
		return;
	refusal_fields(&refusal, mux_error_of_code(err.code), err.message);
	tlv_add_str(&refusal, MUX_F_CODE, error_wire(err.code));
	mux_close(m, stream, &refusal);
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct visitor *v = ctx;
	(void)conn;
	log_info("peers", "controller gone from=%s why=\"%s\"", v->from, why);
	if (v->prev)
		v->prev->next = v->next;
	else
		v->all->visitors = v->next;
	if (v->next)
		v->next->prev = v->prev;
	free(v);
}

static const struct muxconn_ops conn_ops = { .opened = on_opened, .gone = on_gone };

struct arrival {
	struct visitor *v;
	int fd;
};

static void do_accept(void *arg)
{
	struct arrival *a = arg;
	struct visitor *v = a->v;
	struct peers *p = v->all;
	auto_tlv hello = TLV_INIT;
	v->next = p->visitors;
	if (v->next)
		v->next->prev = v;
	p->visitors = v;
	v->heard_ms = clock_mono_ms();
	v->conn = muxconn_new(p->o.loop, a->fd, &conn_ops, v, false);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	mux_hello(muxconn_mux(v->conn), &hello);
	log_info("peers", "controller connected from=%s", v->from);
	if (!p->ev_silence)
		muxconn_close(v->conn, "the daemon stops");
	free(a);
}

void peers_accept(struct peers *p, const struct caller *who, int take_fd)
{
	struct visitor *v = xcalloc(1, sizeof(*v));
	struct arrival *a = xcalloc(1, sizeof(*a));
	v->all = p;
	snprintf(v->from, sizeof(v->from), "%s", who->from);
	*a = (struct arrival){ .v = v, .fd = take_fd };
	mailbox_post(p->o.mail, do_accept, a);
}

static void on_silence(evutil_socket_t fd, short what, void *ctx)
{
	struct peers *p = ctx;
	(void)fd;
	(void)what;
	for (struct visitor *v = p->visitors; v; v = v->next)
		if (clock_mono_ms() - v->heard_ms > LIMIT_LINK_SILENCE_MS)
			muxconn_close(v->conn, "nothing was heard for too long");
}

static void do_listen(void *arg)
{
	struct peers *p = arg;
	struct timeval every = { .tv_sec = LOOK_S };
	p->ev_silence = event_new(muxloop_base(p->o.loop), -1, EV_PERSIST, on_silence, p);
	if (!p->ev_silence)
		abort();
	event_add(p->ev_silence, &every);
}

void peers_listen(struct peers *p)
{
	mailbox_post(p->o.mail, do_listen, p);
}

static void do_deafen(void *arg)
{
	struct peers *p = arg;
	if (p->ev_silence)
		event_free(p->ev_silence);
	p->ev_silence = NULL;
	for (struct visitor *v = p->visitors; v; v = v->next)
		muxconn_close(v->conn, "the daemon stops");
}

void peers_deafen(struct peers *p)
{
	mailbox_call(p->o.mail, do_deafen, p, 1000, NULL);
}

void peers_hang_up(struct peers *p)
{
	mailbox_drain(p->o.mail);
	while (p->visitors)
		muxconn_drop(p->visitors->conn, "the daemon stops");
	if (p->ev_silence)
		event_free(p->ev_silence);
}
