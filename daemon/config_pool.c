/* [pool NAME] sections: finding one by its section, replacing them all, and what they ask for. */
#include "daemon/config_priv.h"

#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/model/model.h"

#include <string.h>

#define PREFIX "pool "

enum { POOL_NAME_MAX = 32, MIB = 1024 * 1024 };

bool config_pool_is_section(const char *section)
{
	return strncmp(section, PREFIX, strlen(PREFIX)) == 0;
}

static bool pool_name_valid(const char *name)
{
	size_t n = strlen(name);
	return n > 0 && n <= POOL_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

struct pool_config *config_pool_section(struct daemon_config *c, const char *section, struct error *err)
{
	const char *name = section + strlen(PREFIX);
	for (size_t i = 0; i < c->n_pools; i++)
		if (strcmp(c->pools[i].name, name) == 0)
			return &c->pools[i];
	if (!pool_name_valid(name)) {
		error_set(err, ERR_INVALID, "[%.80s]: a pool's name is a letter, then up to %d of a-z, 0-9 and '-'", section, POOL_NAME_MAX - 1);
		return NULL;
	}
	if (c->n_pools == LIMIT_POOLS_MAX) {
		error_set(err, ERR_INVALID, "[%.80s]: more than %d pools", section, LIMIT_POOLS_MAX);
		return NULL;
	}
	c->pools = xrealloc(c->pools, c->n_pools + 1, sizeof(*c->pools));
	struct pool_config *p = &c->pools[c->n_pools++];
	pool_config_init(p);
	p->name = xstrdup(name);
	return p;
}

void config_pools_done(struct daemon_config *c)
{
	for (size_t i = 0; i < c->n_pools; i++) {
		pool_config_done(&c->pools[i]);
		free(c->pools[i].name);
	}
	free(c->pools);
	c->pools = NULL;
	c->n_pools = 0;
}

static void copy_pool(struct pool_config *to, const struct pool_config *from)
{
	*to = *from;
	to->name = xstrdup(from->name);
	to->image = xstrdup(from->image);
	to->tier = xstrdup(from->tier);
	to->network = xstrdup(from->network);
}

static bool same_pools(const struct daemon_config *a, const struct daemon_config *b)
{
	bool same = a->n_pools == b->n_pools;
	for (size_t i = 0; same && i < a->n_pools; i++)
		same = pool_config_same(&a->pools[i], &b->pools[i]);
	return same;
}

/* Only the thread that reloads reads them: who uses pools has a copy. */
void config_pools_reload(struct daemon_config *c, const struct daemon_config *fresh)
{
	if (same_pools(c, fresh))
		return;
	config_pools_done(c);
	c->pools = fresh->n_pools ? xcalloc(fresh->n_pools, sizeof(*c->pools)) : NULL;
	for (; c->n_pools < fresh->n_pools; c->n_pools++)
		copy_pool(&c->pools[c->n_pools], &fresh->pools[c->n_pools]);
	log_info("config", "reloaded the pools: %zu", c->n_pools);
}

/* The words of the command line. */
static int network_of(const char *word, enum network *ret)
{
	static const char *const words[] = { [NETWORK_DENY] = "deny", [NETWORK_RESTRICTED] = "restricted", [NETWORK_OPEN] = "open" };
	_Static_assert(ARRAY_LEN(words) == NETWORK_COUNT, "one word per mode");
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(word, words[i]) == 0) {
			*ret = (enum network)i;
			return 0;
		}
	}
	return -1;
}

static int whole_mib(const struct pool_config *p, const char *key, int64_t bytes, uint32_t *ret, struct error *err)
{
	if (bytes % MIB)
		return error_set(err, ERR_INVALID, "pool %s.%s: not a whole number of MiB", p->name, key);
	*ret = (uint32_t)(bytes / MIB);
	return 0;
}

static int fill_spec(const struct pool_config *p, struct spec *s, struct error *err)
{
	struct resources *r = &s->resources;
	s->image = xstrdup(p->image);
	r->cpu_millis = (uint32_t)p->cpu_millis;
	r->pids = (uint32_t)p->pids;
	s->writable_root = p->writable_root;
	if (tier_parse(p->tier, &s->min_tier) != 0)
		return error_set(err, ERR_INVALID, "pool %s.tier: '%.64s' is not one of: container, gvisor, microvm", p->name, p->tier);
	if (network_of(p->network, &s->network) != 0)
		return error_set(err, ERR_INVALID, "pool %s.network: '%.64s' is not one of: deny, restricted, open", p->name, p->network);
	if (whole_mib(p, "memory", p->memory, &r->memory_mib, err) != 0 || whole_mib(p, "disk", p->disk, &r->disk_mib, err) != 0)
		return -1;
	return spec_validate(s, err) == 0 ? 0 : error_wrap(err, "pool %s", p->name);
}

int pool_config_spec(const struct pool_config *p, struct spec *ret, struct error *err)
{
	struct spec s;
	spec_init(&s);
	/* Only while it is checked: a pool's sandboxes belong to nobody yet. */
	s.tenant = xstrdup("pool");
	if (fill_spec(p, &s, err) != 0) {
		spec_done(&s);
		return -1;
	}
	free(s.tenant);
	s.tenant = xstrdup("");
	spec_done(ret);
	*ret = s;
	return 0;
}

int config_pools_check(const struct daemon_config *c, struct error *err)
{
	for (size_t i = 0; i < c->n_pools; i++) {
		auto_spec s;
		spec_init(&s);
		if (pool_config_spec(&c->pools[i], &s, err) != 0)
			return -1;
	}
	return 0;
}
