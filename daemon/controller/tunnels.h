/*
 * Tunnels: public routes to ports of sandboxes. The controller decides who may have which and keeps them; it knows the edge only as
 * somebody who reads the routes. Any thread.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_TUNNELS_H
#define SANDBOX_DAEMON_CONTROLLER_TUNNELS_H

#include "daemon/controller/controller.h"

/* What this server offers; set once, before anybody is served. */
struct tunnel_offer {
	bool enabled;
	char domain[254];     /* names are LABEL.domain */
	char scheme[8];       /* http or https */
	unsigned port;        /* in addresses; 0: that of the scheme */
	int64_t per_sandbox;  /* tunnels at most */
	bool share;           /* ports of users' machines */
	int64_t share_ttl_ms, share_max, share_per_client;
};
void controller_offer_tunnels(struct controller *c, const struct tunnel_offer *o);
struct tunnel_offer controller_tunnel_offer(struct controller *c);

enum { TUNNEL_SECRET_MAX = 64 };

struct tunnel_request {
	uint16_t port;
	enum protocol protocol;
	const char *subdomain; /* NULL: the server chooses one that cannot be guessed */
	enum tunnel_auth auth;
	bool keep_host;
	int64_t ttl_ms;        /* 0: as long as the sandbox */
};
/* What happened: the tunnel, its (ended) operation, and the visitors' secret, told here alone ("" without). */
struct tunnel_result {
	struct tunnel tunnel;
	struct operation operation;
	char secret[TUNNEL_SECRET_MAX];
};
void tunnel_result_init(struct tunnel_result *r);
void tunnel_result_done(struct tunnel_result *r);

/* ERR_UNAVAILABLE: not offered here; ERR_FORBIDDEN: the sandbox's data; ERR_CONFLICT: not running, the label is taken; ERR_INVALID;
 * ERR_NO_CAPACITY: the sandbox has as many as it may. */
int controller_tunnel_create(struct controller *c, const struct caller *who, const char *sandbox_ref, const struct tunnel_request *q,
			     struct tunnel_result *ret, struct error *err);
/* tunnel: id, its label, or its last digits. No request that comes after the answer reaches the sandbox. */
int controller_tunnel_delete(struct controller *c, const struct caller *who, const char *sandbox_ref, const char *tunnel, struct tunnel_result *ret,
			     struct error *err);
/* Another secret; what was let in by the old one is not any more. ERR_CONFLICT when visitors need none. */
int controller_tunnel_secret(struct controller *c, const struct caller *who, const char *sandbox_ref, const char *tunnel,
			     struct tunnel_result *ret, struct error *err);

struct tunnel_list {
	struct tunnel *items;
	size_t len;
};
void tunnel_list_done(struct tunnel_list *l);
/* sandbox_ref NULL: all the caller may see. */
int controller_tunnels(struct controller *c, const struct caller *who, const char *sandbox_ref, struct tunnel_list *ret, struct error *err);

/* --- for the edge --- */

struct tunnel_route {
	const struct tunnel *tunnel;
	const char *hash; /* of the visitors' secret, "" without */
};
typedef void (*tunnel_route_fn)(void *ctx, const struct tunnel_route *r);
/* All that lead somewhere now. */
int controller_routes(struct controller *c, tunnel_route_fn fn, void *ctx, struct error *err);
/* Whether an active tunnel leads there: the only places the edge may dial. *ret_node: where the sandbox is. ERR_NOT_FOUND. */
int controller_route_dial(struct controller *c, const struct id *sandbox, uint16_t port, struct id *ret_node, struct error *err);
/* Called (any thread, before the change is answered) when routes were added or removed; NULL removes. As controller_on_work. */
void controller_on_routes(struct controller *c, void (*fn)(void *ctx), void *ctx);

#endif
