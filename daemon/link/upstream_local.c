/* A worker's controller in the same process: see upstream.h. */
#include "daemon/link/upstream.h"

#include "daemon/controller/egress.h"
#include "daemon/controller/registries.h"
#include "daemon/controller/secrets.h"
#include "shared/base/mem.h"

struct local {
	struct upstream up;
	struct controller *c;
};

static struct controller *of(struct upstream *u)
{
	return container_of(u, struct local, up)->c;
}

static bool connected(struct upstream *u)
{
	(void)u;
	return true;
}

static void on_connect(struct upstream *u, int (*fn)(void *ctx, struct error *err), void *ctx)
{
	(void)u;
	(void)fn;
	(void)ctx;
}

static int heartbeat(struct upstream *u, const struct node_report *r, struct error *err)
{
	return controller_heartbeat(of(u), r, err);
}

static int lease(struct upstream *u, const struct id *node, struct lease *ret, struct error *err)
{
	return controller_lease(of(u), node, ret, err);
}

static void on_work(struct upstream *u, const struct id *node, void (*fn)(void *ctx), void *ctx)
{
	controller_on_work(of(u), node, fn, ctx);
}

static bool wants_delete(struct upstream *u, const struct id *sandbox)
{
	return controller_wants_delete(of(u), sandbox);
}

static int64_t deadline(struct upstream *u, const struct id *sandbox)
{
	return controller_deadline(of(u), sandbox);
}

static int complete(struct upstream *u, const struct completion *done, struct error *err)
{
	return controller_complete(of(u), done, err);
}

static void progress(struct upstream *u, const struct id *operation, const char *text)
{
	controller_progress(of(u), operation, text);
}

static int sandbox_gone(struct upstream *u, const struct id *sandbox, const char *why, struct error *err)
{
	return controller_sandbox_gone(of(u), sandbox, why, err);
}

static int desired(struct upstream *u, const struct id *node, struct sandbox_list *ret_sandboxes, struct operation_list *ret_execs,
		   struct error *err)
{
	return controller_desired(of(u), node, ret_sandboxes, ret_execs, err);
}

static int secrets(struct upstream *u, const struct id *node, const struct id *sandbox, struct secret_values *ret, struct error *err)
{
	return controller_secret_values(of(u), node, sandbox, ret, err);
}

static int registry_login(struct upstream *u, const struct id *node, const struct id *sandbox, struct secret *ret, struct error *err)
{
	return controller_registry_login_for(of(u), node, sandbox, ret, err);
}

static int egress(struct upstream *u, const struct id *node, const struct id *sandbox, struct egress_terms *ret, struct error *err)
{
	return controller_egress_terms(of(u), node, sandbox, ret, err);
}

static void egress_denied(struct upstream *u, const struct id *sandbox, const char *detail)
{
	controller_egress_denied(of(u), sandbox, detail);
}

static int requeue(struct upstream *u, const struct id *node, struct error *err)
{
	return controller_requeue(of(u), node, err);
}

static void exec_end(struct upstream *u, const struct exec_report *r, upstream_done done, void *ctx)
{
	struct error err = ERROR_INIT;
	int rc = controller_exec_end(of(u), &r->operation, r->result, r->code, r->error, &err);
	done(ctx, &r->operation, rc == 0 ? NULL : &err);
}

static void local_free(struct upstream *u)
{
	free(container_of(u, struct local, up));
}

static const struct upstream_ops ops = {
	.connected = connected,
	.on_connect = on_connect,
	.heartbeat = heartbeat,
	.lease = lease,
	.on_work = on_work,
	.wants_delete = wants_delete,
	.deadline = deadline,
	.complete = complete,
	.progress = progress,
	.sandbox_gone = sandbox_gone,
	.desired = desired,
	.secrets = secrets,
	.registry_login = registry_login,
	.egress = egress,
	.egress_denied = egress_denied,
	.requeue = requeue,
	.exec_end = exec_end,
	.free = local_free,
};

struct upstream *upstream_local(struct controller *c)
{
	struct local *l = xcalloc(1, sizeof(*l));
	l->up.ops = &ops;
	l->c = c;
	return &l->up;
}
