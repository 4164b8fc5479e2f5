/* Engine and driver as one runtime: see external.h. Images are the engine's. */
#include "daemon/runtime/external.h"

#include "shared/base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct paired {
	struct runtime rt;
	struct runtime *engine, *driver;
	_Atomic bool by_driver[TIER_COUNT]; /* from the last probe; no lock: each stands alone */
};

static struct paired *paired_of(struct runtime *rt)
{
	return container_of(rt, struct paired, rt);
}

static struct runtime *of_tier(struct runtime *rt, enum tier tier)
{
	struct paired *p = paired_of(rt);

	return p->by_driver[tier] ? p->driver : p->engine;
}

static struct runtime *of_sandbox(struct runtime *rt, const struct id *sandbox)
{
	struct paired *p = paired_of(rt);

	return external_owns(p->driver, sandbox) ? p->driver : p->engine;
}

static unsigned traits(struct runtime *rt, enum tier tier)
{
	return runtime_traits(of_tier(rt, tier), tier);
}

/* A driver that does not work takes nothing away from the engine. */
static int probe(struct runtime *rt, struct runtime_probe *p, struct error *err)
{
	struct paired *both = paired_of(rt);
	struct runtime_probe driver = { .init_path = p->init_path };
	struct error local = ERROR_INIT;
	bool works;

	if (both->engine->ops->probe(both->engine, p, err) != 0)
		return -1;
	works = both->driver->ops->probe(both->driver, &driver, &local) == 0;
	for (int t = 0; t < TIER_COUNT; t++) {
		both->by_driver[t] = works && driver.tiers[t].offered && !p->tiers[t].offered;
		if (both->by_driver[t] || (works && driver.tiers[t].development && !p->tiers[t].offered))
			p->tiers[t] = driver.tiers[t];
		else if (!p->tiers[t].offered && t == TIER_MICROVM)
			snprintf(p->tiers[t].reason, sizeof(p->tiers[t].reason), "not offered: %.230s",
			         works ? "worker.driver does not name this tier" : local.message);
	}
	return 0;
}

static int ping(struct runtime *rt, char *ret_text, size_t n, struct error *err)
{
	return paired_of(rt)->engine->ops->ping(paired_of(rt)->engine, ret_text, n, err);
}

static int image_resolve(struct runtime *rt, const char *image, struct image_config *ret, struct error *err)
{
	return paired_of(rt)->engine->ops->image_resolve(paired_of(rt)->engine, image, ret, err);
}

static int image_allowed(struct runtime *rt, const char *image, bool present, struct error *err)
{
	return paired_of(rt)->engine->ops->image_allowed(paired_of(rt)->engine, image, present, err);
}

static void set_registries(struct runtime *rt, const char *allowed)
{
	paired_of(rt)->engine->ops->set_registries(paired_of(rt)->engine, allowed);
}

static int image_pull(struct runtime *rt, const struct image_pull *p, struct error *err)
{
	return paired_of(rt)->engine->ops->image_pull(paired_of(rt)->engine, p, err);
}

static int image_verify(struct runtime *rt, const char *image, const struct secret *login, struct error *err)
{
	return paired_of(rt)->engine->ops->image_verify(paired_of(rt)->engine, image, login, err);
}

static int image_list(struct runtime *rt, struct image_list *ret, struct error *err)
{
	return paired_of(rt)->engine->ops->image_list(paired_of(rt)->engine, ret, err);
}

static int image_import(struct runtime *rt, int fd, const char *name, const struct image_config *config, struct error *err)
{
	return paired_of(rt)->engine->ops->image_import(paired_of(rt)->engine, fd, name, config, err);
}

static int image_save(struct runtime *rt, const char *image, image_sink sink, void *ctx, struct error *err)
{
	return paired_of(rt)->engine->ops->image_save(paired_of(rt)->engine, image, sink, ctx, err);
}

static int image_load(struct runtime *rt, int fd, struct error *err)
{
	return paired_of(rt)->engine->ops->image_load(paired_of(rt)->engine, fd, err);
}

static int image_remove(struct runtime *rt, const char *image, struct error *err)
{
	return paired_of(rt)->engine->ops->image_remove(paired_of(rt)->engine, image, err);
}

static int create(struct runtime *rt, const struct runtime_create *req, struct error *err)
{
	struct runtime *r = of_tier(rt, req->tier);

	return r->ops->create(r, req, err);
}

static int start(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->start(r, sandbox, ret, err);
}

static int inspect(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->inspect(r, sandbox, ret, err);
}

static int kill_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->kill(r, sandbox, err);
}

static int remove_it(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->remove(r, sandbox, err);
}

static int list_owned(struct runtime *rt, struct owned_list *ret, struct error *err)
{
	struct paired *p = paired_of(rt);
	struct owned_list all, more;

	if (p->engine->ops->list_owned(p->engine, &all, err) != 0)
		return -1;
	if (p->driver->ops->list_owned(p->driver, &more, err) != 0) {
		owned_list_done(&all);
		return -1;
	}
	all.items = xrealloc(all.items, all.len + more.len + 1, sizeof(*all.items));
	for (size_t i = 0; i < more.len; i++)
		all.items[all.len++] = more.items[i];
	owned_list_done(&more);
	*ret = all;
	return 0;
}

static int stats(struct runtime *rt, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->stats(r, sandbox, ret, err);
}

static int deadline(struct runtime *rt, const struct id *sandbox, int64_t deadline_us, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->deadline ? r->ops->deadline(r, sandbox, deadline_us, err) : 0;
}

static int root_bytes(struct runtime *rt, const struct id *sandbox, int64_t *ret, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->root_bytes(r, sandbox, ret, err);
}

static int end_below(struct runtime *rt, const struct id *sandbox, pid_t inside, size_t *ret_ended, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	if (!r->ops->end_below)
		return error_set(err, ERR_UNAVAILABLE, "a driver's sandbox does not show its processes");
	return r->ops->end_below(r, sandbox, inside, ret_ended, err);
}

static int thaw(struct runtime *rt, const struct id *sandbox, struct error *err)
{
	struct runtime *r = of_sandbox(rt, sandbox);

	return r->ops->thaw ? r->ops->thaw(r, sandbox, err) : 0;
}

static void paired_free(struct runtime *rt)
{
	struct paired *p = paired_of(rt);

	p->engine->ops->free(p->engine);
	p->driver->ops->free(p->driver);
	free(p);
}

static const struct runtime_ops paired_ops = {
	.name = "docker and driver",
	.traits = traits,
	.probe = probe,
	.ping = ping,
	.image_resolve = image_resolve,
	.image_allowed = image_allowed,
	.set_registries = set_registries,
	.image_pull = image_pull,
	.image_verify = image_verify,
	.image_list = image_list,
	.image_import = image_import,
	.image_save = image_save,
	.image_load = image_load,
	.image_remove = image_remove,
	.create = create,
	.start = start,
	.inspect = inspect,
	.kill = kill_it,
	.remove = remove_it,
	.list_owned = list_owned,
	.stats = stats,
	.deadline = deadline,
	.root_bytes = root_bytes,
	.end_below = end_below,
	.thaw = thaw,
	.free = paired_free,
};

struct runtime *paired_runtime_new(struct runtime *take_engine, struct runtime *take_driver)
{
	struct paired *p = xcalloc(1, sizeof(*p));

	p->rt.ops = &paired_ops;
	p->engine = take_engine;
	p->driver = take_driver;
	return &p->rt;
}
