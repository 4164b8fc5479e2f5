/* The table of ports: see node_port.h. Some thousands at most, looked up by id. */
#include "daemon/link/node_port.h"

#include "daemon/worker/idmap.h"
#include "shared/base/mem.h"

#include <pthread.h>
#include <string.h>

struct node_ports {
	pthread_mutex_t lock;
	struct idmap by_id;
};

struct node_ports *node_ports_new(void)
{
	struct node_ports *all = xcalloc(1, sizeof(*all));
	pthread_mutex_init(&all->lock, NULL);
	return all;
}

void node_ports_free(struct node_ports *all)
{
	if (!all)
		return;
	idmap_done(&all->by_id);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

void node_ports_add(struct node_ports *all, struct node_port *n)
{
	pthread_mutex_lock(&all->lock);
	idmap_put(&all->by_id, &n->id, n);
	pthread_mutex_unlock(&all->lock);
}

void node_ports_remove(struct node_ports *all, const struct id *node)
{
	pthread_mutex_lock(&all->lock);
	idmap_remove(&all->by_id, node);
	pthread_mutex_unlock(&all->lock);
}

struct node_port *node_ports_find(struct node_ports *all, const struct id *node, struct error *err)
{
	pthread_mutex_lock(&all->lock);
	struct node_port *n = idmap_get(&all->by_id, node);
	pthread_mutex_unlock(&all->lock);
	if (!n)
		error_set(err, ERR_UNAVAILABLE, "the node of this sandbox is not connected; try again when its worker is back");
	return n;
}

int node_ports_reachable(void *all, const struct id *node, struct error *err)
{
	struct node_port *n = node_ports_find(all, node, err);
	return n ? n->ops->reachable(n, err) : -1;
}

size_t node_ports_list(struct node_ports *all, struct node_port **ret, size_t max)
{
	pthread_mutex_lock(&all->lock);
	size_t n = all->by_id.len;
	auto_free void **values = idmap_values(&all->by_id);
	pthread_mutex_unlock(&all->lock);
	for (size_t i = 0; i < n && i < max; i++)
		ret[i] = values[i];
	return n;
}

static struct node_port *only_one(struct node_port **list, size_t n, struct error *err)
{
	if (n == 1)
		return list[0];
	if (n == 0)
		error_set(err, ERR_UNAVAILABLE, "no worker is connected to this controller");
	else
		error_set(err, ERR_INVALID, "%zu nodes are connected: name one; sandbox node list shows them", n);
	return NULL;
}

struct node_port *node_ports_named(struct node_ports *all, const char *name, struct error *err)
{
	size_t n = node_ports_list(all, NULL, 0);
	auto_free struct node_port **list = xcalloc(n + 1, sizeof(struct node_port *));
	size_t there = node_ports_list(all, list, n);
	n = there < n ? there : n;
	if (!name)
		return only_one(list, n, err);
	/* A worker that joined anew has its old name under a new id: the one that can be reached is meant. */
	struct node_port *found = NULL;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(list[i]->id.text, name) != 0 && strcmp(list[i]->name, name) != 0)
			continue;
		found = list[i];
		if (found->ops->reachable(found, NULL) == 0)
			return found;
	}
	if (found)
		return found;
	error_set(err, ERR_NOT_FOUND, "no node '%.64s' is connected to this controller; sandbox node list shows all", name);
	return NULL;
}
