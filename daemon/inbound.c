/* The edge and the rest of the daemon: see inbound.h. */
#include "daemon/inbound.h"

#include "daemon/controller/tunnels.h"
#include "daemon/edge_server.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <string.h>
#include <sys/socket.h>

struct inbound {
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
				      .public_port = (unsigned)config->edge_public_port, .trusted = config->edge_trusted_proxies };
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

void inbound_stop(struct inbound *i)
{
	if (!i)
		return;
	controller_on_routes(i->controller, NULL, NULL);
	edge_stop(i->edge);
	edge_server_stop(i->server);
	free(i);
}
