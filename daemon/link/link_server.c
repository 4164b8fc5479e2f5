/* Connections of workers: see link_server.h. */
#include "daemon/link/link_priv.h"

#include "daemon/controller/fleet.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <event2/event.h>

enum { LOOK_S = 5 };

void link_unref(struct node_link *l)
{
	if (atomic_fetch_sub(&l->refs, 1) == 1)
		free(l);
}

static void hold(void *ctx)
{
	atomic_fetch_add(&((struct node_link *)ctx)->refs, 1);
}

static void release(void *ctx)
{
	link_unref(ctx);
}

/* --- nodes --- */

static void do_notify(void *arg)
{
	remote_node_notify(arg);
}

/* Under a lock of the controller: it only posts. */
static void on_work(void *ctx)
{
	struct remote_node *n = ctx;
	if (!atomic_exchange(&n->notified, true))
		mailbox_post(n->s->o.mail, do_notify, n);
}

struct remote_node *remote_node_get(struct link_server *s, const struct id *node, const char *name)
{
	pthread_mutex_lock(&s->lock);
	struct remote_node *n = idmap_get(&s->nodes, node);
	bool made = !n;
	if (made) {
		n = xcalloc(1, sizeof(*n));
		n->s = s;
		n->port.ops = &remote_node_ops;
		n->port.id = *node;
		snprintf(n->port.name, sizeof(n->port.name), "%s", name);
		n->calls = caller_link_new(s->o.mail);
		idmap_put(&s->nodes, node, n);
	}
	pthread_mutex_unlock(&s->lock);
	/* Also one that was removed and has joined again. */
	node_ports_add(s->o.ports, &n->port);
	if (made)
		controller_on_work(s->o.controller, node, on_work, n);
	return n;
}

/* Loop thread: the way to it changed. Its own link goes first. */
static void choose_way(struct remote_node *n)
{
	bool direct = n->current != NULL;
	caller_link_set(n->calls, direct ? muxconn_mux(n->current->conn) : n->via_mux);
	caller_link_for(n->calls, direct ? NULL : n->port.id.text);
	atomic_store(&n->reachable, direct ? n->ready : n->via_mux != NULL);
}

void remote_node_via(struct remote_node *n, struct mux *m)
{
	n->via_mux = m;
	choose_way(n);
}

struct remote_node *remote_node_find(struct link_server *s, const struct id *node)
{
	pthread_mutex_lock(&s->lock);
	struct remote_node *n = idmap_get(&s->nodes, node);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* --- its state --- */

struct step {
	struct node_link *l;
	struct remote_node *n;
	bool ready;
};

static void do_step(void *arg)
{
	struct step *x = arg;
	struct node_link *l = x->l;
	struct remote_node *n = x->n;
	if (!l->conn || l->s->stopping) {
		/* it went meanwhile */
	} else if (x->ready) {
		bool before = n->ready;
		n->ready = n->current == l;
		choose_way(n);
		if (n->ready && !before)
			log_info("link", "node=%s ready epoch=%lld from=%s", n->port.name, (long long)l->epoch, l->from);
		remote_node_notify(n);
	} else if (!n->current || n->current->epoch < l->epoch) {
		if (n->current)
			muxconn_close(n->current->conn, "a newer link of the node came up");
		n->current = l;
		n->ready = false;
		choose_way(n);
	}
	link_unref(l);
	free(x);
}

static void post_step(struct node_link *l, struct remote_node *n, bool ready)
{
	struct step *x = xcalloc(1, sizeof(*x));
	atomic_fetch_add(&l->refs, 1);
	*x = (struct step){ .l = l, .n = n, .ready = ready };
	mailbox_post(l->s->o.mail, do_step, x);
}

void link_greeted(struct node_link *l, struct remote_node *n)
{
	post_step(l, n, false);
}

void link_ready(struct node_link *l, struct remote_node *n)
{
	post_step(l, n, true);
}

/* --- connections --- */

static void on_opened(void *ctx, struct muxconn *conn, uint32_t stream, const struct tlv *fields)
{
	struct node_link *l = ctx;
	struct call_service service = { .handle = link_answer, .hold = hold, .release = release, .ctx = l, .pool = l->s->pool, .mail = l->s->o.mail };
	auto_tlv refusal = TLV_INIT;
	l->heard_ms = clock_mono_ms();
	if (tlv_u64(fields, MUX_F_KIND, 0) == MUX_KIND_CALL) {
		call_take(&service, muxconn_mux(conn), stream, fields);
		return;
	}
	tlv_add_u64(&refusal, MUX_F_ERROR, MUX_ERR_REFUSED);
	tlv_add_str(&refusal, MUX_F_MESSAGE, "a worker opens calls alone");
	mux_close(muxconn_mux(conn), stream, &refusal);
}

static void unlink_link(struct node_link *l)
{
	if (l->prev)
		l->prev->next = l->next;
	else
		l->s->links = l->next;
	if (l->next)
		l->next->prev = l->prev;
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct node_link *l = ctx;
	struct remote_node *n = remote_node_find(l->s, &l->node);
	(void)conn;
	log_warn("link", "%s: link gone: %s", l->who, why);
	l->conn = NULL;
	unlink_link(l);
	if (n && n->current == l) {
		n->current = NULL;
		n->ready = false;
		choose_way(n);
		controller_link_closed(l->s->o.controller, &l->node, l->epoch);
	}
	link_unref(l);
}

static const struct muxconn_ops conn_ops = { .opened = on_opened, .gone = on_gone };

struct arrival {
	struct node_link *l;
	int fd;
	size_t n;
	uint8_t early[];
};

static void do_accept(void *arg)
{
	struct arrival *a = arg;
	struct node_link *l = a->l;
	auto_tlv hello = TLV_INIT;
	l->next = l->s->links;
	if (l->next)
		l->next->prev = l;
	l->s->links = l;
	l->heard_ms = clock_mono_ms();
	l->conn = muxconn_new(l->s->o.loop, a->fd, &conn_ops, l, false);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	mux_hello(muxconn_mux(l->conn), &hello);
	muxconn_early(l->conn, a->early, a->n);
	if (l->s->stopping)
		muxconn_close(l->conn, "the daemon stops");
	free(a);
}

void link_server_accept(struct link_server *s, const struct caller *who, int take_fd, const void *early, size_t n)
{
	struct node_link *l = xcalloc(1, sizeof(*l));
	struct arrival *a = xmalloc(sizeof(*a) + n);
	l->s = s;
	l->refs = 1;
	l->node = who->node;
	snprintf(l->who, sizeof(l->who), "%s", who->who);
	snprintf(l->from, sizeof(l->from), "%s", who->from);
	a->l = l;
	a->fd = take_fd;
	a->n = n;
	if (n > 0)
		memcpy(a->early, early, n);
	mailbox_post(s->o.mail, do_accept, a);
}

/* --- ending --- */

static void on_silence(evutil_socket_t fd, short what, void *ctx)
{
	struct link_server *s = ctx;
	(void)fd;
	(void)what;
	for (struct node_link *l = s->links; l; l = l->next)
		if (clock_mono_ms() - l->heard_ms > LIMIT_LINK_SILENCE_MS)
			muxconn_close(l->conn, "nothing was heard for too long");
}

struct dropping {
	struct link_server *s;
	struct id node;
};

static void do_drop(void *arg)
{
	struct dropping *d = arg;
	for (struct node_link *l = d->s->links; l; l = l->next)
		if (strcmp(l->node.text, d->node.text) == 0)
			muxconn_close(l->conn, "the node was removed");
	free(d);
}

void link_server_drop(struct link_server *s, const struct id *node)
{
	node_ports_remove(s->o.ports, node);
	struct dropping *d = xcalloc(1, sizeof(*d));
	d->s = s;
	d->node = *node;
	mailbox_post(s->o.mail, do_drop, d);
}

struct link_server *link_server_new(const struct link_server_options *o)
{
	struct link_server *s = xcalloc(1, sizeof(*s));
	struct timeval every = { .tv_sec = LOOK_S };
	s->o = *o;
	s->pool = call_pool_new();
	pthread_mutex_init(&s->lock, NULL);
	s->ev_silence = event_new(muxloop_base(o->loop), -1, EV_PERSIST, on_silence, s);
	if (!s->ev_silence)
		abort();
	event_add(s->ev_silence, &every);
	return s;
}

static void do_stop(void *arg)
{
	struct link_server *s = arg;
	s->stopping = true;
	for (struct node_link *l = s->links; l; l = l->next)
		muxconn_close(l->conn, "the daemon stops");
}

void link_server_stop(struct link_server *s)
{
	if (!s)
		return;
	size_t n = s->nodes.len;
	auto_free void **all = idmap_values(&s->nodes);
	for (size_t i = 0; i < n; i++)
		controller_on_work(s->o.controller, &((struct remote_node *)all[i])->port.id, NULL, NULL);
	mailbox_call(s->o.mail, do_stop, s, 1000, NULL);
}

void link_server_free(struct link_server *s)
{
	if (!s)
		return;
	call_pool_free(s->pool);
	mailbox_drain(s->o.mail);
	while (s->links)
		muxconn_drop(s->links->conn, "the daemon stops");
	mailbox_drain(s->o.mail);
	event_free(s->ev_silence);
	size_t n = s->nodes.len;
	auto_free void **all = idmap_values(&s->nodes);
	for (size_t i = 0; i < n; i++) {
		struct remote_node *node = all[i];
		caller_link_free(node->calls);
		free(node);
	}
	idmap_done(&s->nodes);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
