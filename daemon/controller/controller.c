/* Making and freeing the controller, and what of the configuration it uses. */
#include "daemon/controller/internal.h"

#include "daemon/config.h"

static struct settings settings_of(const struct daemon_config *config)
{
	struct settings s = { .max_ttl_ms = config->max_ttl_ms, .retention_ms = config->retention_ms };
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
	pthread_mutex_lock(&c->settings_lock);
	c->settings = s;
	pthread_mutex_unlock(&c->settings_lock);
}

/* Commands that were running when the machine went down: nothing of them is left, and their records may be older than they. */
static int end_lost_execs(struct controller *c, struct error *err)
{
	auto_change ch = CHANGE_INIT;
	struct op_list open = { .len = 0 };
	if (change_begin(c, DB_WRITE, &ch, err) != 0)
		return -1;
	int rc = store_op_open(ch.tx, &(struct op_filter){ .other_boot = store_boot_id(c->store) }, &open, err);
	for (size_t i = 0; rc == 0 && i < open.len; i++)
		rc = change_fail_op(&ch, &open.items[i], OUTCOME_LOST, ERR_UNAVAILABLE, "the machine restarted while the command ran", err);
	op_list_done(&open);
	return rc == 0 ? change_commit(&ch, err) : -1;
}

int controller_new(const struct daemon_config *config, struct store *store, struct controller **ret, struct error *err)
{
	struct controller *c = xcalloc(1, sizeof(*c));
	c->store = store;
	c->settings = settings_of(config);
	pthread_mutex_init(&c->settings_lock, NULL);
	c->watches = watches_new();
	c->hooks = hooks_new();
	if (nodes_load(c, err) != 0 || end_lost_execs(c, err) != 0) {
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
	watches_free(c->watches);
	hooks_free(c->hooks);
	nodes_done(c);
	pthread_mutex_destroy(&c->settings_lock);
	free(c);
}

struct store *controller_store(struct controller *c)
{
	return c->store;
}
