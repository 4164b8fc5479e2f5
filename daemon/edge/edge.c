/* The edge's thread: listeners, the number of connections, the clock. */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/thread.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 511, ACCEPTS_PER_EVENT = 64, TICK_S = 1 };

/* --- accepting --- */

/* Those whose request has not come yet make room: many half-open connections keep nobody out. */
static bool make_room(struct edge *e)
{
	if (e->n_visitors < LIMIT_EDGE_CONNECTIONS)
		return true;
	struct visitor *oldest = TAILQ_FIRST(&e->waiting);
	if (!oldest)
		return false;
	visitor_abort(oldest);
	return true;
}

static void on_connection(evutil_socket_t fd, short what, void *ctx)
{
	struct listener *l = ctx;
	(void)what;
	for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
		struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
		socklen_t n = sizeof(from);
		char peer[ADDRESS_TEXT_MAX] = "127.0.0.1";
		int conn = accept4(fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (conn < 0) {
			if (errno == EMFILE || errno == ENFILE)
				log_warn("edge", "no descriptor left for a connection");
			return;
		}
		if (!make_room(l->e)) {
			close(conn);
			continue;
		}
		if (!l->local)
			address_host((struct sockaddr *)&from, peer);
		visitor_new(l->e, conn, peer, l->local || subnets_hold(&l->e->trusted, peer));
	}
}

/* --- the clock --- */

static void tick_list(struct visitors *list, int64_t now)
{
	struct visitor *next;
	for (struct visitor *v = TAILQ_FIRST(list); v; v = next) {
		next = TAILQ_NEXT(v, link);
		visitor_tick(v, now);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct edge *e = ctx;
	int64_t now = clock_mono_ms();
	(void)fd, (void)what;
	tick_list(&e->waiting, now);
	tick_list(&e->busy, now);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct route *r = e->buckets[i]; r; r = r->next)
			origin_reap_idle(r, now);
	edge_table_refresh(e);
}

static void on_notify(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what;
	edge_table_refresh(ctx);
}

void edge_changed(struct edge *e)
{
	atomic_store(&e->stale, true);
	event_active(e->notify, EV_TIMEOUT, 0);
}

/* --- listening --- */

static int listen_tcp(struct edge *e, const char *text, struct listener *l, struct error *err)
{
	struct address a;
	if (address_parse("edge.listen", text, &a, err) != 0)
		return -1;
	auto_close int fd = socket(a.sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(err, "making a socket for edge.listen");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, &a.sa.any, a.len) != 0 || listen(fd, BACKLOG) != 0) {
		if (errno == EADDRINUSE)
			return error_set(err, ERR_CONFLICT, "edge.listen: %s is taken by another program", text);
		return error_errno(err, "edge.listen: listening on %s", text);
	}
	socklen_t n = sizeof(a.sa);
	if (e->port == 0 && getsockname(fd, &a.sa.any, &n) == 0)
		e->port = ntohs(a.sa.any.sa_family == AF_INET ? a.sa.v4.sin_port : a.sa.v6.sin6_port);
	l->fd = steal_fd(&fd);
	return 0;
}

static int listen_unix(const char *path, struct listener *l, struct error *err)
{
	/* Who may connect is for the directory to say. */
	l->fd = io_listen_unix(path, 0666, BACKLOG, err);
	if (l->fd < 0)
		return error_wrap(err, "edge.listen");
	io_set_nonblock(l->fd, true);
	l->local = true;
	l->path = xstrdup(path);
	return 0;
}

static int listen_one(struct edge *e, const char *text, struct error *err)
{
	if (e->n_listeners == EDGE_LISTENERS_MAX)
		return error_set(err, ERR_INVALID, "edge.listen: at most %d addresses", EDGE_LISTENERS_MAX);
	struct listener *l = &e->listeners[e->n_listeners];
	l->e = e;
	l->fd = -1;
	int rc = strncmp(text, "unix:", 5) == 0 ? listen_unix(text + 5, l, err) : listen_tcp(e, text, l, err);
	if (rc != 0)
		return -1;
	e->n_listeners++;
	l->ev = event_new(e->base, l->fd, EV_READ | EV_PERSIST, on_connection, l);
	if (!l->ev || event_add(l->ev, NULL) != 0)
		return error_set(err, ERR_INTERNAL, "no event for a listener");
	return 0;
}

static int listen_all(struct edge *e, const char *list, struct error *err)
{
	for (const char *p = list; *p;) {
		p += strspn(p, ", ");
		size_t n = strcspn(p, ", ");
		auto_free char *one = xstrndup(p, n);
		if (n > 0 && listen_one(e, one, err) != 0)
			return -1;
		p += n;
	}
	return e->n_listeners ? 0 : error_set(err, ERR_INVALID, "edge.listen: no address in it");
}

/* --- life --- */

static void *thread(void *arg)
{
	struct edge *e = arg;
	event_base_loop(e->base, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

static void free_event(struct event *ev)
{
	if (ev)
		event_free(ev);
}

static void free_visitors(struct edge *e)
{
	struct visitor *v;
	while ((v = TAILQ_FIRST(&e->waiting)) || (v = TAILQ_FIRST(&e->busy)))
		visitor_abort(v);
}

static void edge_free(struct edge *e)
{
	for (size_t i = 0; i < e->n_listeners; i++) {
		struct listener *l = &e->listeners[i];
		free_event(l->ev);
		close_fdp(&l->fd);
		if (l->path)
			unlink(l->path);
		free(l->path);
	}
	if (e->base) {
		free_visitors(e);
		edge_table_free(e);
		links_free(e);
		/* What was to be freed after a callback. */
		event_base_loop(e->base, EVLOOP_NONBLOCK);
	}
	free_event(e->tick);
	free_event(e->notify);
	muxloop_free(e->muxloop);
	if (e->base)
		event_base_free(e->base);
	subnets_done(&e->trusted);
	free(e->domain);
	free(e->scheme);
	free(e);
}

/* Without a TLS front visitors come to the listener itself. */
static unsigned port_in_addresses(const struct edge_options *o, unsigned listener)
{
	bool tls = strcmp(o->scheme, "https") == 0;
	unsigned port = o->public_port ? o->public_port : tls ? 443 : listener ? listener : 80;
	return port == (tls ? 443U : 80U) ? 0 : port;
}

unsigned edge_port_of(const struct edge_options *o)
{
	for (const char *p = o->listen; *p;) {
		struct address a;
		p += strspn(p, ", ");
		size_t n = strcspn(p, ", ");
		auto_free char *one = xstrndup(p, n);
		if (n > 0 && strncmp(one, "unix:", 5) != 0 && address_parse("edge.listen", one, &a, NULL) == 0)
			return port_in_addresses(o, ntohs(a.sa.any.sa_family == AF_INET ? a.sa.v4.sin_port : a.sa.v6.sin6_port));
		p += n;
	}
	return port_in_addresses(o, 0);
}

static void name_port(struct edge *e, const struct edge_options *o)
{
	e->public_port = port_in_addresses(o, e->port);
	int n = snprintf(e->origin_suffix, sizeof(e->origin_suffix), ".%s", o->domain);
	if (e->public_port)
		snprintf(e->origin_suffix + n, sizeof(e->origin_suffix) - (size_t)n, ":%u", e->public_port);
}

static int start(struct edge *e, const struct edge_options *o, struct error *err)
{
	if (sodium_init() < 0 || evthread_use_pthreads() != 0)
		return error_set(err, ERR_INTERNAL, "the libraries of the edge could not be initialised");
	e->base = event_base_new();
	if (!e->base)
		return error_set(err, ERR_INTERNAL, "no event loop");
	e->muxloop = muxloop_new(e->base);
	e->tick = event_new(e->base, -1, EV_PERSIST, on_tick, e);
	e->notify = event_new(e->base, -1, EV_PERSIST, on_notify, e);
	if (!e->tick || !e->notify || event_add(e->tick, &(struct timeval){ .tv_sec = TICK_S }) != 0)
		return error_set(err, ERR_INTERNAL, "no events");
	if (subnets_parse("edge.trusted_proxies", o->trusted, &e->trusted, err) != 0 || listen_all(e, o->listen, err) != 0)
		return -1;
	name_port(e, o);
	int rc = pthread_create(&e->thread, NULL, thread, e);
	if (rc != 0) {
		errno = rc;
		return error_errno(err, "starting the edge's thread");
	}
	e->running = true;
	return 0;
}

int edge_start(const struct edge_options *o, struct edge **ret, struct error *err)
{
	struct edge *e = xcalloc(1, sizeof(*e));
	e->o = *o;
	e->domain = xstrdup(o->domain);
	e->scheme = xstrdup(o->scheme);
	TAILQ_INIT(&e->waiting);
	TAILQ_INIT(&e->busy);
	atomic_store(&e->stale, true);
	if (start(e, o, err) != 0) {
		edge_free(e);
		return -1;
	}
	*ret = e;
	return 0;
}

void edge_stop(struct edge *e)
{
	if (!e)
		return;
	event_base_loopexit(e->base, NULL);
	pthread_join(e->thread, NULL);
	edge_free(e);
}

unsigned edge_public_port(const struct edge *e)
{
	return e->public_port;
}

void edge_stats(const struct edge *e, struct edge_stats *ret)
{
	*ret = (struct edge_stats){ .requests = atomic_load(&e->requests), .refused = atomic_load(&e->refused), .failed = atomic_load(&e->failed),
				    .certified = atomic_load(&e->certified), .uncertified = atomic_load(&e->uncertified), .connections = atomic_load(&e->connections) };
}
