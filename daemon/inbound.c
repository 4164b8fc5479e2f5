/* The edge and the rest of the daemon: see inbound.h. */
#include "daemon/inbound.h"

#include "daemon/controller/tunnels.h"
#include "daemon/edge_server.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>
#include <sys/socket.h>

struct inbound {
	const struct daemon_config *config;
	struct controller *controller;
	struct gate *gate;
	struct edge *edge;          /* inside this process, or */
	struct edge_server *server; /* in others */
};

struct adding {
	edge_route_fn add;
	void *ctx;
};

struct edge_route edge_route_of(const struct tunnel_route *t)
{
	static const enum edge_auth auth[] = { [TUNNEL_AUTH_NONE] = EDGE_AUTH_NONE, [TUNNEL_AUTH_TOKEN] = EDGE_AUTH_TOKEN,
					       [TUNNEL_AUTH_PASSWORD] = EDGE_AUTH_PASSWORD };
	const struct tunnel *from = t->tunnel;
	struct edge_route r = { .tunnel = from->id, .target = from->sandbox, .port = from->port, .auth = auth[from->auth], .keep_host = from->keep_host };
	snprintf(r.label, sizeof(r.label), "%s", from->label);
	snprintf(r.hash, sizeof(r.hash), "%s", t->hash);
	return r;
}

static void add_route(void *ctx, const struct tunnel_route *t)
{
	const struct adding *a = ctx;
	struct edge_route r = edge_route_of(t);
	a->add(a->ctx, &r);
}

static int routes(void *ctx, edge_route_fn add, void *add_ctx, struct error *err)
{
	struct inbound *i = ctx;
	struct adding a = { .add = add, .ctx = add_ctx };
	return controller_routes(i->controller, add_route, &a, err);
}

/* The same way that an edge on another machine would take: it has no more rights for being here. */
static int connect_to_gate(void *ctx, int *ret_fd, struct error *err)
{
	struct inbound *i = ctx;
	struct caller who = { .role = ROLE_VIEWER, .edge = true, .who = "edge", .from = "edge" };
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return error_errno(err, "making a socket pair for the edge");
	gate_serve(i->gate, &who, pair[1], NULL, 0, NULL, NULL);
	*ret_fd = pair[0];
	return 0;
}

static void on_routes(void *ctx)
{
	struct inbound *i = ctx;
	if (i->edge)
		edge_changed(i->edge);
	else
		edge_server_changed(i->server);
}

static const char *scheme_of(const struct daemon_config *config)
{
	if (*config->edge_scheme)
		return config->edge_scheme;
	return strcmp(config->edge_domain, "localhost") == 0 ? "http" : "https";
}

struct edge_options inbound_edge_options(const struct daemon_config *config)
{
	return (struct edge_options){ .listen = config->edge_listen, .domain = config->edge_domain, .scheme = scheme_of(config),
				      .public_port = (unsigned)config->edge_public_port, .trusted = config->edge_trusted_proxies,
				      .keepalive_s = (unsigned)(config->edge_keepalive_ms / 1000) };
}

static void offer(struct inbound *i, const struct daemon_config *config, unsigned port)
{
	struct tunnel_offer o = { .enabled = true, .port = port, .per_sandbox = config->edge_per_sandbox,
				  .share = config->edge_share, .share_ttl_ms = config->edge_share_ttl_ms, .share_max = config->edge_share_max,
				  .share_per_client = config->edge_share_per_client };
	snprintf(o.domain, sizeof(o.domain), "%s", config->edge_domain);
	snprintf(o.scheme, sizeof(o.scheme), "%s", scheme_of(config));
	controller_offer_tunnels(i->controller, &o);
	if (i->edge)
		log_info("edge", "serving %s://NAME.%s on %s", o.scheme, o.domain, config->edge_listen);
	else
		log_info("edge", "%s://NAME.%s is served by the edge that connects to %s", o.scheme, o.domain, config->edge_link);
}

static int start_inside(struct inbound *i, const struct daemon_config *config, struct error *err)
{
	struct edge_options o = inbound_edge_options(config);
	o.routes = routes;
	o.connect = connect_to_gate;
	o.ctx = i;
	return edge_start(&o, &i->edge, err);
}

int inbound_start(const struct daemon_config *config, struct controller *c, struct gate *g, struct inbound **ret, struct error *err)
{
	*ret = NULL;
	if (!*config->edge_listen)
		return 0;
	struct inbound *i = xcalloc(1, sizeof(*i));
	i->config = config;
	i->controller = c;
	i->gate = g;
	unsigned port = 0;
	int rc = *config->edge_link ? edge_server_start(config->edge_link, config->edge_group, c, g, &i->server, err) : start_inside(i, config, err);
	if (rc == 0 && i->edge)
		port = edge_public_port(i->edge);
	else if (rc == 0)
		port = edge_port_of(&(struct edge_options){ .listen = config->edge_listen, .scheme = scheme_of(config), .public_port = (unsigned)config->edge_public_port });
	if (rc != 0) {
		free(i);
		return -1;
	}
	offer(i, config, port);
	controller_on_routes(c, on_routes, i);
	*ret = i;
	return 0;
}

/* --- for doctor and metrics --- */

struct seen {
	struct edge_stats sum;
	size_t edges, behind, strangers; /* connected; of them those that lag; those of another version */
	char which[160];
};

static void add_stats(struct edge_stats *sum, const struct edge_stats *s)
{
	sum->requests += s->requests;
	sum->refused += s->refused;
	sum->failed += s->failed;
	sum->certified += s->certified;
	sum->uncertified += s->uncertified;
	sum->connections += s->connections;
}

static void see_peer(void *ctx, const struct edge_peer *p)
{
	struct seen *s = ctx;
	size_t n = strlen(s->which);
	add_stats(&s->sum, &p->about.stats);
	s->edges++;
	s->behind += !p->current;
	s->strangers += *p->about.version && strcmp(p->about.version, SANDBOX_VERSION) != 0;
	snprintf(s->which + n, sizeof(s->which) - n, "%spid %d of version %s", n ? ", " : "", (int)p->pid, *p->about.version ? p->about.version : "(not said yet)");
}

static void look(struct inbound *i, struct seen *ret)
{
	*ret = (struct seen){ .edges = 0 };
	if (i->server) {
		edge_server_each(i->server, see_peer, ret);
		return;
	}
	edge_stats(i->edge, &ret->sum);
	ret->edges = 1;
	snprintf(ret->which, sizeof(ret->which), "inside this daemon");
}

/* Only a front for https asks for certificates, and one with a certificate of its own does not. */
static void describe(const struct inbound *i, const struct seen *s, char *ret, size_t n)
{
	const struct edge_stats *t = &s->sum;
	int at = snprintf(ret, n, "%s://NAME.%s, %s; %zu connections, %llu requests, %llu refused, %llu failed", scheme_of(i->config), i->config->edge_domain, s->which,
			  t->connections, (unsigned long long)t->requests, (unsigned long long)t->refused, (unsigned long long)t->failed);
	if (strcmp(scheme_of(i->config), "https") != 0 || at < 0 || (size_t)at >= n)
		return;
	if (t->certified + t->uncertified == 0)
		snprintf(ret + at, n - (size_t)at, "; no TLS front has asked for a certificate (one with a certificate of its own never does)");
	else
		snprintf(ret + at, n - (size_t)at, "; certificates asked for by a TLS front: %llu granted, %llu refused", (unsigned long long)t->certified,
			 (unsigned long long)t->uncertified);
}

static void judge(const struct inbound *i, const struct seen *s, struct check_row *r)
{
	const char *status = "ok", *remedy = "";
	if (s->edges == 0) {
		snprintf(r->status, sizeof(r->status), "fail");
		snprintf(r->detail, sizeof(r->detail), "no edge is connected to %s: visitors of tunnels get no answer", i->config->edge_link);
		snprintf(r->remedy, sizeof(r->remedy), "systemctl start sandboxd-edge; its user must be a member of the group %s (edge.group)", i->config->edge_group);
		return;
	}
	if (s->strangers) {
		status = "warn";
		remedy = "restart the edge: it is of another version than this daemon (systemctl restart sandboxd-edge)";
	} else if (s->behind) {
		status = "warn";
		remedy = "ask again: an edge that does not confirm its routes within two seconds is cut off";
	}
	describe(i, s, r->detail, sizeof(r->detail));
	snprintf(r->status, sizeof(r->status), "%s", status);
	snprintf(r->remedy, sizeof(r->remedy), "%s", remedy);
}

size_t inbound_checks(struct inbound *i, struct check_row *ret, size_t max)
{
	struct seen s;
	if (!i || max == 0)
		return 0;
	*ret = (struct check_row){ .part = "edge" };
	look(i, &s);
	judge(i, &s, ret);
	return 1;
}

void inbound_metrics(struct inbound *i, struct buf *out)
{
	struct seen s;
	if (!i)
		return;
	look(i, &s);
	buf_addf(out, "# HELP sandbox_edge_up Edges that serve tunnels now.\n# TYPE sandbox_edge_up gauge\nsandbox_edge_up %zu\n", s.edges);
	buf_addf(out, "# HELP sandbox_edge_connections Visitors' connections.\n# TYPE sandbox_edge_connections gauge\nsandbox_edge_connections %zu\n", s.sum.connections);
	buf_addf(out,
		 "# HELP sandbox_edge_requests_total Visitors' requests, by what became of them.\n# TYPE sandbox_edge_requests_total counter\n"
		 "sandbox_edge_requests_total{result=\"routed\"} %llu\nsandbox_edge_requests_total{result=\"refused\"} %llu\nsandbox_edge_requests_total{result=\"failed\"} %llu\n",
		 (unsigned long long)s.sum.requests, (unsigned long long)s.sum.refused, (unsigned long long)s.sum.failed);
	buf_addf(out,
		 "# HELP sandbox_edge_certificates_total Questions of a TLS front whether a name may have a certificate.\n# TYPE sandbox_edge_certificates_total counter\n"
		 "sandbox_edge_certificates_total{answer=\"yes\"} %llu\nsandbox_edge_certificates_total{answer=\"no\"} %llu\n",
		 (unsigned long long)s.sum.certified, (unsigned long long)s.sum.uncertified);
}

void inbound_stop(struct inbound *i)
{
	if (!i)
		return;
	controller_on_routes(i->controller, NULL, NULL);
	edge_stop(i->edge);
	edge_server_stop(i->server);
	free(i);
}
