/*
 * Ways out of this worker's sandboxes. Restricted: the terms come from the controller, the proxy is offered by sandbox-init, daemon/egress
 * judges. Open: an interface (open_net.c).
 */
#include "daemon/worker/worker_priv.h"

#include "daemon/address.h"
#include "daemon/egress/addresses.h"
#include "daemon/egress/egress.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/config/server_url.h"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

enum { PROXY_MS = 10 * 1000 };

static int take_terms(struct worker *w, const struct id *sandbox, struct error *err)
{
	auto_egress_terms t = EGRESS_TERMS_INIT;

	if (w->o.up->ops->egress(w->o.up, &w->node, sandbox, &t, err) != 0)
		return -1;
	return egress_set(w->o.egress, sandbox, &t, err);
}

static int join_open(struct worker *w, const struct sandbox *s, struct error *err)
{
	struct runtime_status now;

	if (w->o.runtime->ops->inspect(w->o.runtime, &s->id, &now, err) != 0)
		return -1;
	if (now.state != RUNTIME_RUNNING || now.pid <= 0)
		return error_set(err, ERR_UNAVAILABLE, "the sandbox is not running");
	return open_net_join(w->open_net, &s->id, now.pid, err) == 0 ? 0 : error_wrap(err, "giving it a network");
}

void network_controller(const struct daemon_config *c, bool six, struct buf *out)
{
	struct addrinfo hints = { .ai_family = six ? AF_UNSPEC : AF_INET, .ai_socktype = SOCK_STREAM }, *all = NULL;
	auto_server_url u = { .url = NULL };

	if (!*c->controller_url || server_url_parse(c->controller_url, &u, NULL) != 0 || u.path || u.loopback)
		return;
	const char *host = strstr(u.origin, "://") + 3;
	bool bracket = *host == '[';
	auto_free char *name = xstrndup(host + bracket, strcspn(host + bracket, bracket ? "]" : ":"));
	if (getaddrinfo(name, NULL, &hints, &all) != 0)
		return;
	for (const struct addrinfo *i = all; i; i = i->ai_next) {
		char address[ADDRESS_TEXT_MAX];

		address_host(i->ai_addr, address);
		buf_addf(out, "%s%s", out->len ? ", " : "", address);
	}
	freeaddrinfo(all);
}

int network_open(struct worker *w, const struct sandbox *s, struct error *err)
{
	auto_tlv t = TLV_INIT;

	if (s->spec.network == NETWORK_OPEN)
		return join_open(w, s, err);
	if (s->spec.network != NETWORK_RESTRICTED)
		return 0;
	if (take_terms(w, &s->id, err) != 0)
		return -1;
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_PROXY);
	tlv_add_u64(&t, MUX_F_PORT, EGRESS_PORT);
	return initlink_ask(w->o.links, &s->id, &t, PROXY_MS, err) == 0 ? 0 : error_wrap(err, "offering the way out");
}

void network_refresh(struct worker *w, const struct sandbox *s)
{
	struct error err = ERROR_INIT;

	if (s->spec.network == NETWORK_RESTRICTED && take_terms(w, &s->id, &err) != 0)
		log_warn("egress", "what it may reach stays as it was sandbox=%s: %s", s->id.text, err.message);
}

void network_denied(void *ctx, const struct id *sandbox, const char *detail)
{
	struct task *t = xcalloc(1, sizeof(*t));

	t->kind = TASK_DENIED;
	t->sandbox = *sandbox;
	t->detail = xstrdup(detail);
	worker_post(ctx, t);
}

/* --- the worker's own rounds --- */

enum { OPEN_AGAIN_MS = 60 * 1000, CLOSED_AGAIN_MS = 10 * 60 * 1000 };

void network_maintain(struct worker *w)
{
	char reason[sizeof(w->open_reason)];
	int64_t now = clock_mono_ms();
	auto_buf closed = BUF_INIT;

	if (!w->closed_ms || now - w->closed_ms > CLOSED_AGAIN_MS) {
		network_controller(w->o.config, true, &closed);
		addresses_close(buf_str(&closed));
		w->closed_ms = now;
	}
	if (w->open_offered) {
		open_net_check(w->open_net);
		return;
	}
	if (w->open_probed_ms && (now - w->open_probed_ms < OPEN_AGAIN_MS || !*w->o.config->open_pool))
		return;
	bool offered = open_net_probe(w->open_net, reason, sizeof(reason));
	if (*w->o.config->open_pool && (offered || !w->open_probed_ms))
		log_info("worker", "network open: %s", reason);
	pthread_mutex_lock(&w->lock);
	w->open_offered = offered;
	w->open_probed_ms = now;
	snprintf(w->open_reason, sizeof(w->open_reason), "%s", reason);
	pthread_mutex_unlock(&w->lock);
}

/* --- for the API --- */

int worker_network(struct worker *w, const struct id *sandbox, const char *target, cJSON **ret, struct error *err)
{
	if (target)
		return egress_check(w->o.egress, sandbox, target, ret, err);
	return egress_view(w->o.egress, sandbox, ret, err);
}

static void change_one(struct worker *w, const struct id *sandbox)
{
	struct error err = ERROR_INIT;

	worker_take(w, sandbox);
	if (egress_has(w->o.egress, sandbox) && take_terms(w, sandbox, &err) != 0)
		log_warn("egress", "what it may reach stays as it was sandbox=%s: %s", sandbox->text, err.message);
	worker_give(w, sandbox);
}

void worker_network_changed(struct worker *w, const struct id *sandbox)
{
	auto_free struct id *all = NULL;
	size_t n = 0;

	if (sandbox) {
		change_one(w, sandbox);
		return;
	}
	egress_list(w->o.egress, &all, &n);
	for (size_t i = 0; i < n; i++)
		change_one(w, &all[i]);
}
