/* Restricted egress of this worker's sandboxes: the terms come from the controller, the proxy is offered by sandbox-init, daemon/egress judges. */
#include "daemon/worker/worker_priv.h"

#include "daemon/egress/egress.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

enum { PROXY_MS = 10 * 1000 };

static int take_terms(struct worker *w, const struct id *sandbox, struct error *err)
{
	auto_egress_terms t = EGRESS_TERMS_INIT;

	if (w->o.up->ops->egress(w->o.up, &w->node, sandbox, &t, err) != 0)
		return -1;
	return egress_set(w->o.egress, sandbox, &t, err);
}

int network_open(struct worker *w, const struct sandbox *s, struct error *err)
{
	auto_tlv t = TLV_INIT;

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
