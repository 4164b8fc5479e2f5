/* The port of this process's own worker: see node_port.h. */
#include "daemon/link/node_port.h"
#include "shared/base/mem.h"

struct local {
	struct node_port port;
	struct worker *w;
	struct execs *e;
};

static struct local *of(struct node_port *n)
{
	return container_of(n, struct local, port);
}

static int open_stream(struct node_port *n, struct mux *client, uint32_t stream, const struct node_stream *what, struct error *err)
{
	return execs_open(of(n)->e, client, stream, what, err);
}

static int reachable(struct node_port *n, struct error *err)
{
	(void)n;
	(void)err;
	return 0;
}

static void start_detached(struct node_port *n, const struct exec_grant *grant, const struct command *cmd)
{
	execs_start_detached(of(n)->e, grant, cmd);
}

static void deadline_moved(struct node_port *n, const struct id *sandbox)
{
	worker_deadline_moved(of(n)->w, sandbox);
}

static int cancel(struct node_port *n, const struct id *operation, int signal, struct error *err)
{
	return execs_cancel(of(n)->e, operation, signal, err);
}

static int network(struct node_port *n, const struct id *sandbox, const char *target, cJSON **ret, struct error *err)
{
	return worker_network(of(n)->w, sandbox, target, ret, err);
}

static void network_changed(struct node_port *n, const struct id *sandbox)
{
	worker_network_changed(of(n)->w, sandbox);
}

static int stats(struct node_port *n, const struct id *sandbox, struct runtime_stats *ret, struct error *err)
{
	return worker_sandbox_stats(of(n)->w, sandbox, ret, err);
}

static size_t checks(struct node_port *n, struct check_row *ret, size_t max)
{
	return worker_checks(of(n)->w, ret, max);
}

static int leaks(struct node_port *n, worker_leak_fn fn, void *ctx, struct error *err)
{
	return worker_leaks(of(n)->w, fn, ctx, err);
}

static int reconcile(struct node_port *n, struct error *err)
{
	return worker_reconcile(of(n)->w, err);
}

static int image_list(struct node_port *n, struct image_list *ret, struct error *err)
{
	return worker_images(of(n)->w, ret, err);
}

static int image_remove(struct node_port *n, const char *name, struct error *err)
{
	return worker_image_remove(of(n)->w, name, err);
}

static int image_allowed(struct node_port *n, const char *name, struct error *err)
{
	return worker_image_allowed(of(n)->w, name, err);
}

static int image_pull(struct node_port *n, const struct image_pull *p, struct image_list *ret, struct error *err)
{
	return worker_image_pull(of(n)->w, p, ret, err);
}

static int image_save(struct node_port *n, const char *name, image_sink sink, void *ctx, struct error *err)
{
	return worker_image_save(of(n)->w, name, sink, ctx, err);
}

static int image_mark(struct node_port *n, const char *name, struct error *err)
{
	return worker_image_mark(of(n)->w, name, err);
}

static int image_load(struct node_port *n, const char *name, int fd, struct image_list *ret, struct error *err)
{
	return worker_image_load(of(n)->w, name, fd, ret, err);
}

static int image_import(struct node_port *n, const char *name, int fd, struct image_list *ret, struct error *err)
{
	return worker_image_import(of(n)->w, name, fd, ret, err);
}

static const struct node_ops ops = {
	.open = open_stream,
	.reachable = reachable,
	.start_detached = start_detached,
	.deadline_moved = deadline_moved,
	.cancel = cancel,
	.network = network,
	.network_changed = network_changed,
	.stats = stats,
	.checks = checks,
	.leaks = leaks,
	.reconcile = reconcile,
	.image_allowed = image_allowed,
	.image_list = image_list,
	.image_remove = image_remove,
	.image_pull = image_pull,
	.image_save = image_save,
	.image_mark = image_mark,
	.image_load = image_load,
	.image_import = image_import,
};

struct node_port *node_port_local(struct worker *w, struct execs *e, const struct id *node, const char *name)
{
	struct local *l = xcalloc(1, sizeof(*l));
	l->port.ops = &ops;
	l->port.id = *node;
	l->w = w;
	l->e = e;
	snprintf(l->port.name, sizeof(l->port.name), "%s", name);
	return &l->port;
}

void node_port_local_free(struct node_port *n)
{
	if (n)
		free(of(n));
}
