/* Handlers: health, readiness, doctor. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/config.h"
#include "daemon/controller/tunnels.h"
#include "daemon/store/store.h"
#include "daemon/link/node_port.h"
#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHECKS_MAX = 32 };

static cJSON *tunnels_json(struct api *api)
{
	struct tunnel_offer o = { .enabled = false };
	if (api->o.controller)
		o = controller_tunnel_offer(api->o.controller);
	cJSON *t = cJSON_CreateObject();
	json_add_bool(t, "enabled", o.enabled);
	json_add_str(t, "base_domain", o.enabled ? o.domain : NULL);
	json_add_str(t, "public_scheme", o.enabled ? o.scheme : NULL);
	cJSON *protocols = cJSON_AddArrayToObject(t, "protocols");
	if (o.enabled)
		cJSON_AddItemToArray(protocols, cJSON_CreateString(protocol_text(PROTOCOL_HTTP)));
	json_add_bool(t, "local_relay_enabled", o.share);
	/* Shares go over the stream connection of the API itself. */
	json_add_str(t, "local_relay_url", NULL);
	return t;
}

/* A worker has no store; one that several daemons may share is PostgreSQL. */
static const char *store_word(struct api *api)
{
	if (!api->o.controller)
		return "none";
	return store_shared(controller_store(api->o.controller)) ? "postgresql" : "sqlite";
}

static cJSON *health_json(struct api *api)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "status", "ok");
	json_add_str(j, "version", SANDBOX_VERSION);
	json_add_str(j, "store", store_word(api));
	json_add_time(j, "now", clock_wall_us());
	cJSON_AddItemToObject(j, "tunnels", tunnels_json(api));
	return j;
}

int handle_healthz(struct request *r, struct answer *a, struct error *err)
{
	(void)err;
	answer_json(a, r->route->status, health_json(r->api));
	return 0;
}

int handle_readyz(struct request *r, struct answer *a, struct error *err)
{
	const struct api_options *o = &r->api->o;
	struct error e = ERROR_INIT;
	char link[512];
	if (o->link_state && !o->link_state(o->link_ctx, link, sizeof(link)))
		return error_set(err, ERR_UNAVAILABLE, "no link to the controller: %s", link);
	if (!o->link_state && store_ping(controller_store(o->controller), &e) != 0)
		return error_set(err, ERR_UNAVAILABLE, "the store does not answer: %s", e.message);
	answer_json(a, r->route->status, health_json(r->api));
	return 0;
}

__attribute__((format(printf, 4, 5))) static struct check_row row(const char *part, const char *status, const char *remedy, const char *detail,
								   ...)
{
	struct check_row c = { .part = "" };
	va_list ap;
	va_start(ap, detail);
	snprintf(c.part, sizeof(c.part), "%s", part);
	snprintf(c.status, sizeof(c.status), "%s", status);
	snprintf(c.remedy, sizeof(c.remedy), "%s", remedy);
	vsnprintf(c.detail, sizeof(c.detail), detail, ap);
	va_end(ap);
	return c;
}

static struct check_row check_store(struct store *s)
{
	struct error e = ERROR_INIT;
	if (store_ping(s, &e) != 0)
		return row("store", "fail", "check the disk and permissions of the state directory, then restart sandboxd", "%s", e.message);
	return row("store", "ok", "", "%s", store_describe(s));
}

static struct check_row check_policy(struct api *a)
{
	char profile[32];
	api_profile(a, profile);
	if (strcmp(profile, "strict") == 0)
		return row("policy", "ok", "", "profile strict");
	return row("policy", "warn", "set policy.profile = strict where people other than you decide what runs",
		   "profile %s: risky code may run in plain containers", profile);
}

static struct check_row check_socket(const struct api *a)
{
	const struct daemon_config *c = a->o.config;
	if (!*c->listen)
		return row("api", "ok", "", "%s", c->socket);
	return row("api", "ok", "", "%s and %s (token in %s/api-token)", c->socket, c->listen, c->state_dir);
}

struct pool_rows {
	struct check_row *rows;
	size_t n, max;
};

static void check_pool(void *ctx, const struct pool_view *v)
{
	struct pool_rows *all = ctx;
	char part[sizeof(all->rows->part)];
	if (all->n == all->max)
		return;
	snprintf(part, sizeof(part), "pool %.25s", v->name);
	if (v->why)
		all->rows[all->n++] = row(part, "warn", "make room or mend what it says, or set a smaller size for the pool", "%zu of %zu ready: %.400s", v->ready,
					  v->size, v->why);
	else
		all->rows[all->n++] = row(part, "ok", "", "%zu of %zu ready, %zu starting, %llu creates served", v->ready, v->size, v->starting,
					  (unsigned long long)v->claims);
}

static size_t check_pools(struct controller *c, struct check_row *rows, size_t max)
{
	struct pool_rows all = { .rows = rows, .max = max };
	struct error err = ERROR_INIT;
	if (controller_pools(c, check_pool, &all, &err) != 0 && all.n < max)
		rows[all.n++] = row("pools", "fail", "see the store's row", "%s", err.message);
	return all.n;
}

static struct check_row check_link(const struct api_options *o)
{
	char text[400];
	bool up = o->link_state(o->link_ctx, text, sizeof(text));
	return row("controller", up ? "ok" : "fail", up ? "" : "check worker.controller, its certificate and the network between; the log of sandboxd says more",
		   "%s", text);
}

/* With several nodes each part says whose it is. */
static size_t check_nodes(struct node_ports *all, struct check_row *rows, size_t max)
{
	struct node_port *nodes[CHECKS_MAX];
	size_t count = node_ports_list(all, nodes, ARRAY_LEN(nodes)), n = 0;
	for (size_t i = 0; i < count && i < ARRAY_LEN(nodes); i++) {
		size_t more = nodes[i]->ops->checks(nodes[i], rows + n, max - n);
		for (size_t k = n; count > 1 && k < n + more; k++) {
			auto_free char *part = xasprintf("%.15s %.15s", nodes[i]->name, rows[k].part);
			snprintf(rows[k].part, sizeof(rows[k].part), "%s", part);
		}
		n += more;
	}
	return n;
}

static const char *worst(const struct check_row *rows, size_t n)
{
	const char *w = "ok";
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].status, "fail") == 0)
			return "fail";
		if (strcmp(rows[i].status, "warn") == 0)
			w = "warn";
	}
	return w;
}

static cJSON *check_json(const struct check_row *c)
{
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "part", c->part);
	json_add_str(j, "status", c->status);
	json_add_str(j, "detail", c->detail);
	json_add_str(j, "remedy", c->remedy);
	return j;
}

static int doctor_job(struct request *r, struct answer *a, struct error *err)
{
	(void)err;
	auto_free struct check_row *rows = xcalloc(CHECKS_MAX, sizeof(*rows));
	size_t n = 0;
	rows[n++] = check_socket(r->api);
	if (r->api->o.link_state) {
		rows[n++] = check_link(&r->api->o);
	} else {
		rows[n++] = check_store(controller_store(r->api->o.controller));
		rows[n++] = check_policy(r->api);
		n += check_pools(r->api->o.controller, rows + n, CHECKS_MAX - n);
		if (r->api->o.edge_checks)
			n += r->api->o.edge_checks(r->api->o.edge_ctx, rows + n, CHECKS_MAX - n);
	}
	n += check_nodes(r->api->o.nodes, rows + n, CHECKS_MAX - n);
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "status", worst(rows, n));
	cJSON *list = cJSON_AddArrayToObject(j, "checks");
	for (size_t i = 0; i < n; i++)
		cJSON_AddItemToArray(list, check_json(&rows[i]));
	answer_json(a, r->route->status, j);
	return 0;
}

int handle_doctor(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, doctor_job, err);
}
