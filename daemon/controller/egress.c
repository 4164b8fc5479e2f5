/* Rules of restricted egress and where they are kept: see egress.h. */
#include "daemon/controller/egress.h"

#include "daemon/config.h"
#include "daemon/controller/internal.h"
#include "daemon/store/secrets.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/parse.h"

static char *join(const struct strv *rules)
{
	auto_buf b = BUF_INIT;
	for (size_t i = 0; i < rules->len; i++)
		buf_addf(&b, "%s%s", i ? " " : "", rules->items[i]);
	return buf_steal(&b);
}

/* --- sandboxes --- */

static int set_rules(struct change *ch, const struct sandbox_head *h, const struct strv *rules, struct sandbox *ret, const char *actor,
		     struct error *err)
{
	char label[LABEL_MAX];
	if (!sandbox_live(h->state))
		return lookup_ended(ch->tx, h, err);
	if (lookup_load(ch->c, ch->tx, &h->id, ret, err) != 0)
		return -1;
	if (ret->spec.network != NETWORK_RESTRICTED)
		return error_set(err, ERR_CONFLICT, "sandbox %s has network %s: only restricted_egress has rules", lookup_label(h, label),
				 network_text(ret->spec.network));
	strv_copy(&ret->spec.egress, rules);
	if (spec_validate(&ret->spec, err) != 0 || store_sandbox_set_spec(ch->tx, &h->id, &ret->spec, ch->now, err) != 0)
		return -1;
	auto_free char *text = join(rules);
	change_event(ch, h, "egress.changed", text, actor);
	return 0;
}

int controller_egress_set(struct controller *c, const struct caller *who, const char *ref, const struct strv *rules, struct sandbox *ret,
			  struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (access_may_mutate(who, err) != 0 || change_begin(c, DB_SYNCED, &ch, err) != 0 || change_lookup(&ch, who, ref, &h, err) != 0 ||
	    set_rules(&ch, &h, rules, ret, who->who, err) != 0)
		return -1;
	return change_commit(&ch, err);
}

/* --- tenants --- */

static int check_tenant(const struct caller *who, const char *tenant, struct error *err)
{
	if (!tenant_valid(tenant))
		return error_set(err, ERR_INVALID, "'%.80s' is not a tenant name", tenant);
	if (!access_visible(who, tenant))
		return error_set(err, ERR_FORBIDDEN, "you act in tenant '%s', not in '%s'", who->tenant, tenant);
	return 0;
}

int controller_egress_tenant(struct controller *c, const struct caller *who, const char *tenant, char **ret, struct error *err)
{
	auto_tx *tx = NULL;
	*ret = NULL;
	if (check_tenant(who, tenant, err) != 0 || store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	return store_egress_get(tx, tenant, ret, err) < 0 ? -1 : 0;
}

int controller_egress_tenant_set(struct controller *c, const struct caller *who, const char *tenant, const struct strv *rules, struct error *err)
{
	auto_tx *tx = NULL;
	auto_egress_rules parsed = EGRESS_RULES_INIT;
	auto_free char *text = rules ? join(rules) : NULL;
	if (who->role != ROLE_ADMIN || !who->all_tenants)
		return error_set(err, ERR_FORBIDDEN, "only an admin may do this; %s is %s", who->who, role_text(who->role));
	if (check_tenant(who, tenant, err) != 0 || (rules && egress_rules_from("rules", rules, &parsed, err) != 0) ||
	    store_begin(c->store, DB_SYNCED, &tx, err) != 0 || store_egress_put(tx, tenant, text, store_now(c->store), err) != 0)
		return -1;
	return db_commit(steal(&tx), err);
}

/* --- workers --- */

int controller_egress_terms(struct controller *c, const struct id *node, const struct id *sandbox, struct egress_terms *ret, struct error *err)
{
	auto_tx *tx = NULL;
	auto_egress_terms t = EGRESS_TERMS_INIT;
	auto_sandbox s;
	sandbox_init(&s);
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_sandbox_get(tx, sandbox, &s, err);
	if (rc == 0 || (rc == 1 && (!id_eq(&s.node_id, node) || !sandbox_live(s.state))))
		return error_set(err, ERR_NOT_FOUND, "no live sandbox %s on this node", sandbox->text);
	if (rc < 0 || store_egress_get(tx, s.spec.tenant, &t.tenant, err) < 0)
		return -1;
	strv_copy(&t.sandbox, &s.spec.egress);
	pthread_mutex_lock(&c->settings_lock);
	t.server = xstrdup(c->egress.server);
	t.standard = xstrdup(c->egress.standard);
	t.open = xstrdup(c->egress.open);
	pthread_mutex_unlock(&c->settings_lock);
	*ret = t;
	t = (struct egress_terms)EGRESS_TERMS_INIT;
	return 0;
}

static int add_denied(struct controller *c, const struct id *sandbox, const char *detail, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct sandbox_head h;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = store_sandbox_head(ch.tx, sandbox, &h, err);
	if (rc <= 0)
		return rc;
	change_event(&ch, &h, "egress.denied", detail, NULL);
	return change_commit(&ch, err);
}

void controller_egress_denied(struct controller *c, const struct id *sandbox, const char *detail)
{
	struct error err = ERROR_INIT;
	if (add_denied(c, sandbox, detail, &err) != 0)
		log_warn("egress", "a refusal is not noted sandbox=%s: %s", sandbox->text, err.message);
}

/* --- configuration --- */

int egress_configure(struct controller *c, const struct daemon_config *config, struct error *err)
{
	auto_egress_terms fresh = EGRESS_TERMS_INIT;
	if (daemon_config_rules("egress.rules", config->egress_rules, &fresh.server, err) != 0 ||
	    daemon_config_rules("egress.default", config->egress_default, &fresh.standard, err) != 0)
		return -1;
	fresh.open = xstrdup(config->egress_open);
	pthread_mutex_lock(&c->settings_lock);
	struct egress_terms old = c->egress;
	c->egress = fresh;
	pthread_mutex_unlock(&c->settings_lock);
	fresh = old;
	return 0;
}
