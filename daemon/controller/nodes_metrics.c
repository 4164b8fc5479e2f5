/* What /metrics says of nodes. */
#include "daemon/controller/nodes_priv.h"

#include "shared/base/clock.h"

/* A label's value between quotes. */
static char *quoted(const char *text)
{
	struct buf out = BUF_INIT;
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_addc(&out, '\\');
		buf_addc(&out, *text == '\n' ? ' ' : *text);
	}
	return buf_steal(&out);
}

static void add_resources(struct buf *out, const char *metric, const char *node, const struct resources *r)
{
	buf_addf(out, "%s{node=\"%s\",resource=\"cpu_cores\"} %g\n", metric, node, (double)r->cpu_millis / 1000);
	buf_addf(out, "%s{node=\"%s\",resource=\"memory_bytes\"} %.0f\n", metric, node, (double)r->memory_mib * 1048576);
	buf_addf(out, "%s{node=\"%s\",resource=\"disk_bytes\"} %.0f\n", metric, node, (double)r->disk_mib * 1048576);
	buf_addf(out, "%s{node=\"%s\",resource=\"pids\"} %u\n", metric, node, r->pids);
}

enum node_metric { NODE_UP, NODE_SANDBOXES, NODE_SLOTS, NODE_PRESSURE, NODE_TOTAL, NODE_FREE, NODE_METRICS };
static const char *const node_metrics[NODE_METRICS][2] = {
	[NODE_UP] = { "sandbox_node_up", "1 when the node has been heard of lately." },
	[NODE_SANDBOXES] = { "sandbox_node_sandboxes", "Sandboxes placed on the node." },
	[NODE_SLOTS] = { "sandbox_node_max_sandboxes", "Sandboxes the node takes; 0: no limit." },
	[NODE_PRESSURE] = { "sandbox_node_pressure", "How pressed the node is, 0 to 1." },
	[NODE_TOTAL] = { "sandbox_node_total", "What the node offers." },
	[NODE_FREE] = { "sandbox_node_free", "What is left of it after reservations." },
};

static void add_node(struct buf *out, enum node_metric m, const struct node_view *v, bool up)
{
	auto_free char *name = quoted(v->name);
	const char *metric = node_metrics[m][0];
	switch (m) {
	case NODE_UP:
		buf_addf(out, "%s{node=\"%s\"} %d\n", metric, name, up);
		break;
	case NODE_SANDBOXES:
		buf_addf(out, "%s{node=\"%s\"} %u\n", metric, name, v->sandboxes);
		break;
	case NODE_SLOTS:
		buf_addf(out, "%s{node=\"%s\"} %u\n", metric, name, v->max_sandboxes);
		break;
	case NODE_PRESSURE:
		buf_addf(out, "%s{node=\"%s\"} %g\n", metric, name, v->pressure);
		break;
	case NODE_TOTAL:
		add_resources(out, metric, name, &v->total);
		break;
	case NODE_FREE:
		add_resources(out, metric, name, &v->free);
		break;
	case NODE_METRICS:
		break;
	}
}

void nodes_metrics(struct controller *c, struct buf *out)
{
	struct nodes *n = &c->nodes;
	int64_t now_ms = clock_mono_ms();
	pthread_mutex_lock(&n->lock);
	for (int m = 0; m < NODE_METRICS; m++) {
		buf_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", node_metrics[m][0], node_metrics[m][1], node_metrics[m][0]);
		for (size_t i = 0; i < n->len; i++)
			add_node(out, (enum node_metric)m, &n->views[i], !node_is_stale(n->extra[i], now_ms));
	}
	pthread_mutex_unlock(&n->lock);
}
