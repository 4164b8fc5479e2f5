/* Making and freeing the controller, and what of the configuration it uses. */
#include "daemon/controller/internal.h"

#include "daemon/config.h"
#include "daemon/controller/vault.h"
#include "shared/base/log.h"

static int64_t limit_or_none(int64_t configured)
{
	return configured > 0 ? configured : -1;
}

static struct settings settings_of(const struct daemon_config *config)
{
	struct settings s = {
		.max_ttl_ms = config->max_ttl_ms,
		.retention_ms = config->retention_ms,
		.quota = { limit_or_none(config->quota_sandboxes), limit_or_none(config->quota_cpu_millis),
			   limit_or_none(config->quota_memory_mib), limit_or_none(config->quota_ttl_ms) },
	};
	struct policy *p = &s.policy;
	if (config->policy_profile && strcmp(config->policy_profile, "trusted-workstation") == 0)
		policy_trusted_workstation(p);
	else
		policy_strict(p);
	if (config->microvm_risk_threshold >= 0)
		p->microvm_risk_threshold = (int)config->microvm_risk_threshold;
	if (config->gvisor_risk_threshold >= 0)
		p->gvisor_risk_threshold = (int)config->gvisor_risk_threshold;
	p->writable_root_weight = (int)config->writable_root_weight;
	p->max_host_pressure = config->max_host_pressure;
	p->reserve_ratio = config->reserve_ratio;
	return s;
}

struct settings controller_settings(struct controller *c)
{
	pthread_mutex_lock(&c->settings_lock);
	struct settings s = c->settings;
	pthread_mutex_unlock(&c->settings_lock);
	return s;
}

void controller_reload(struct controller *c, const struct daemon_config *config)
{
	struct settings s = settings_of(config);
	struct error err = ERROR_INIT;
	pthread_mutex_lock(&c->settings_lock);
	c->settings = s;
	pthread_mutex_unlock(&c->settings_lock);
	pools_set(c, config);
	hooks_wake(c->hooks, store_now(c->store), 0);
	if (egress_configure(c, config, &err) != 0)
		log_error("egress", "the rules are not reloaded, the old ones stay: %s", err.message);
}

/* Commands that were running when the machine went down: nothing of them is left, and their records may be older than they. */
static int end_lost_exec(struct controller *c, const struct id *id, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_head op;
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = change_op(&ch, id, &op, err);
	if (rc == 1 && !op_ended(op.state))
		rc = change_fail_op(&ch, &op, OUTCOME_LOST, ERR_UNAVAILABLE, "the machine restarted while the command ran", err);
	return rc < 0 ? -1 : change_commit(&ch, err);
}

int end_lost_execs(struct controller *c, const struct id *node, const char *boot_id, struct error *err)
{
	struct op_list open = { .len = 0 };
	struct op_filter f = { .other_boot = boot_id, .node = node };
	{
		auto_tx *tx = NULL;
		if (store_begin(c->store, DB_READ, &tx, err) != 0 || store_op_open(tx, &f, &open, err) != 0)
			return -1;
	}
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < open.len; i++)
		rc = end_lost_exec(c, &open.items[i].id, err);
	op_list_done(&open);
	return rc;
}

static void look_at_nodes(struct controller *c)
{
	auto_tx *tx = NULL;
	struct error err = ERROR_INIT;
	if (store_begin(c->store, DB_READ, &tx, &err) != 0 || nodes_refresh(c, tx, &err) != 0)
		log_debug("store", "nodes not read: %s", err.message);
}

static void on_news(void *ctx, enum store_news what, const struct id *id)
{
	struct controller *c = ctx;
	switch (what) {
	case NEWS_OPERATION:
		hooks_progress(c->hooks, id, NULL);
		watches_fire(c->watches, id);
		break;
	case NEWS_WORK:
		hooks_work(c->hooks, id);
		break;
	case NEWS_DEADLINE:
		if (store_leads(c->store))
			hooks_wake(c->hooks, store_now(c->store), 0);
		break;
	case NEWS_EVENT:
		hooks_event(c->hooks);
		break;
	case NEWS_ROUTES:
		hooks_routes(c->hooks);
		break;
	case NEWS_ANY:
		look_at_nodes(c);
		watches_look(c);
		hooks_all_work(c->hooks);
		hooks_wake(c->hooks, store_now(c->store), 0);
		hooks_event(c->hooks);
		hooks_routes(c->hooks);
		break;
	}
}

int controller_new(const struct daemon_config *config, struct store *store, struct controller **ret, struct error *err)
{
	struct controller *c = xcalloc(1, sizeof(*c));
	c->store = store;
	c->settings = settings_of(config);
	auto_free char *key = *config->secret_key_file ? xstrdup(config->secret_key_file) : xasprintf("%s/secret.key", config->state_dir);
	c->vault = vault_new(key);
	pthread_mutex_init(&c->settings_lock, NULL);
	c->watches = watches_new();
	c->hooks = hooks_new();
	c->shares = shares_new();
	c->metrics = metrics_new();
	c->queue = queue_new();
	c->pools = pools_new();
	pools_set(c, config);
	pthread_mutex_init(&c->doubts_lock, NULL);
	/* In a shared store other machines have commands of other boots: each node's end when its worker comes back. */
	if (egress_configure(c, config, err) != 0 || nodes_load(c, err) != 0 || (!store_shared(store) && end_lost_execs(c, NULL, store_boot_id(store), err) != 0) || store_listen(store, on_news, c, err) != 0) {
		controller_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void controller_free(struct controller *c)
{
	if (!c)
		return;
	store_unlisten(c->store);
	free(c->doubts);
	pthread_mutex_destroy(&c->doubts_lock);
	queue_free(c->queue);
	pools_free(c->pools);
	metrics_free(c->metrics);
	watches_free(c->watches);
	hooks_free(c->hooks);
	shares_free(c->shares);
	nodes_done(c);
	vault_free(c->vault);
	egress_terms_done(&c->egress);
	pthread_mutex_destroy(&c->settings_lock);
	free(c);
}

struct store *controller_store(struct controller *c)
{
	return c->store;
}
