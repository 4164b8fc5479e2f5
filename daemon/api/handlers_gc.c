/* Handlers: what is left over on the nodes. Everything here asks runtimes, so it runs on threads of its own. */
#include "daemon/api/handlers.h"

#include "daemon/api/server.h"
#include "daemon/link/node_port.h"
#include "shared/base/mem.h"

struct look {
	cJSON *list;
	const struct node_port *node;
};

static void add_leak(void *ctx, const struct leak *leak)
{
	const struct look *l = ctx;
	cJSON *j = cJSON_CreateObject();
	json_add_str(j, "kind", leak->kind);
	json_add_str(j, "name", leak->name);
	json_add_str(j, "sandbox_id", leak->owner.text);
	json_add_str(j, "evidence", leak->evidence);
	json_add_str(j, "node", l->node->name);
	cJSON_AddItemToArray(l->list, j);
}

/* All nodes; the first that fails ends it. */
static int each_node(struct request *r, int (*fn)(struct node_port *n, void *ctx, struct error *err), void *ctx, struct error *err)
{
	size_t n = node_ports_list(r->api->o.nodes, NULL, 0);
	auto_free struct node_port **nodes = xcalloc(n + 1, sizeof(struct node_port *));
	size_t there = node_ports_list(r->api->o.nodes, nodes, n);
	for (size_t i = 0; i < n && i < there; i++)
		if (fn(nodes[i], ctx, err) != 0)
			return error_wrap(err, "node %s", nodes[i]->name);
	return 0;
}

static int look_at(struct node_port *n, void *ctx, struct error *err)
{
	struct look l = { .list = ctx, .node = n };
	return n->ops->leaks(n, add_leak, &l, err);
}

static int look(struct request *r, struct answer *a, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	if (each_node(r, look_at, cJSON_AddArrayToObject(j, "leaks"), err) != 0)
		return -1;
	answer_json(a, r->route->status, steal(&j));
	return 0;
}

int handle_leaks(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, look, err);
}

static int reconcile(struct node_port *n, void *ctx, struct error *err)
{
	(void)ctx;
	return n->ops->reconcile(n, err);
}

static int collect(struct request *r, struct answer *a, struct error *err)
{
	return each_node(r, reconcile, NULL, err) == 0 ? look(r, a, err) : -1;
}

int handle_gc(struct request *r, struct answer *a, struct error *err)
{
	(void)a;
	return request_block(r, collect, err);
}
