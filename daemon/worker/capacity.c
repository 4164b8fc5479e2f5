/* What this node offers: totals from the configuration or the machine, and how pressed it is. */
#include "daemon/worker/worker_priv.h"

#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	MIB = 1024 * 1024,
	CPU_OVERCOMMIT = 8, /* CPU is shared in time: limits hold per sandbox, and most are idle */
	DISK_SHARE_NUM = 4,
	DISK_SHARE_DEN = 5,
};

static const double CPU_PRESSURE_MAX = 0.8;

static int64_t number_in_file(const char *path, const char *after, int64_t otherwise)
{
	auto_buf text = BUF_INIT;
	const char *at;

	if (io_read_file(path, 64 * 1024, &text, NULL) != 0)
		return otherwise;
	at = *after ? strstr(buf_str(&text), after) : buf_str(&text);
	return at ? strtoll(at + strlen(after), NULL, 10) : otherwise;
}

static double real_in_file(const char *path, const char *line, const char *after)
{
	auto_buf text = BUF_INIT;
	const char *at;

	if (io_read_file(path, 64 * 1024, &text, NULL) != 0)
		return 0;
	at = strstr(buf_str(&text), line);
	at = at ? strstr(at, after) : NULL;
	return at ? strtod(at + strlen(after), NULL) : 0;
}

static long cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? n : 1;
}

static uint32_t capped(int64_t v)
{
	return v < 0 ? 0 : v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

void capacity_measure(struct worker *w)
{
	struct settings s = worker_settings(w);
	struct error err = ERROR_INIT;
	int64_t room = 0, held = 0, total = s.disk;

	if (total == 0 && workspaces_mode(w->spaces, NULL, 0) == WORKSPACE_MODE_MEMORY) {
		/* Memory bounds these workspaces; the disk must not refuse them. */
		total = (int64_t)UINT32_MAX * MIB;
	} else if (total == 0) {
		if (workspaces_space(w->spaces, &room, &held, &err) != 0)
			log_warn("worker", "measuring the disk: %s", err.message);
		total = (room + held) / DISK_SHARE_DEN * DISK_SHARE_NUM;
	}
	pthread_mutex_lock(&w->lock);
	w->disk_total = total;
	pthread_mutex_unlock(&w->lock);
}

/*
 * 0 (idle) to 1. Memory: what is used, and how long every task stalled for it. CPU: the run queue against what is offered
 * (a busy machine is normal, one with eight waiters per core is not). Disk: stalls over a whole minute, since one pull on
 * an idle machine stalls everything for seconds.
 */
/*
 * The largest of what is short: memory taken, time stalled on memory, time stalled on I/O. A queue for the processors slows work but breaks
 * none, so it counts for choosing among nodes and stays below any sensible policy.max_host_pressure.
 */
double capacity_pressure(const char **ret_what)
{
	int64_t total = number_in_file("/proc/meminfo", "MemTotal:", 0), available = number_in_file("/proc/meminfo", "MemAvailable:", 0);
	double load = real_in_file("/proc/loadavg", "", "") / ((double)cores() * CPU_OVERCOMMIT);
	const struct {
		const char *what;
		double value;
	} parts[] = {
		{ "the queue for the processors", load < CPU_PRESSURE_MAX ? load : CPU_PRESSURE_MAX },
		{ "memory taken", total > 0 ? 1.0 - (double)available / (double)total : 0 },
		{ "time stalled on memory", real_in_file("/proc/pressure/memory", "full", "avg10=") / 100 },
		{ "time stalled on I/O", real_in_file("/proc/pressure/io", "full", "avg60=") / 100 },
	};
	size_t most = 0;

	for (size_t i = 1; i < ARRAY_LEN(parts); i++)
		if (parts[i].value > parts[most].value)
			most = i;
	if (ret_what)
		*ret_what = parts[most].what;
	return parts[most].value > 1 ? 1 : parts[most].value;
}

static void fill_totals(struct worker *w, const struct settings *s, struct node_report *r)
{
	int64_t memory = s->memory ? s->memory : number_in_file("/proc/meminfo", "MemTotal:", 0) * 1024, disk;

	pthread_mutex_lock(&w->lock);
	disk = w->disk_total;
	pthread_mutex_unlock(&w->lock);
	r->total.cpu_millis = capped(s->cpu_millis ? s->cpu_millis : cores() * 1000 * CPU_OVERCOMMIT);
	r->total.memory_mib = capped(memory / MIB);
	r->total.disk_mib = capped(disk / MIB);
	r->total.pids = capped(s->pids ? s->pids : number_in_file("/proc/sys/kernel/pid_max", "", 32768) / 2);
	r->max_sandboxes = capped(s->max_sandboxes);
}

static void fill_tiers(struct worker *w, struct node_report *r)
{
	pthread_mutex_lock(&w->lock);
	for (int t = 0; t < TIER_COUNT; t++) {
		if (w->probed) {
			r->tiers[t].offered = w->probe.tiers[t].offered;
			snprintf(r->tiers[t].reason, sizeof(r->tiers[t].reason), "%s", w->probe.tiers[t].reason);
		} else {
			snprintf(r->tiers[t].reason, sizeof(r->tiers[t].reason), "%s", *w->engine ? w->engine : "the runtime was not asked yet");
		}
	}
	pthread_mutex_unlock(&w->lock);
}

void capacity_network(struct worker *w, struct node_report *r)
{
	r->network[NETWORK_DENY] = true;
	snprintf(r->network_reason[NETWORK_DENY], sizeof(r->network_reason[0]), "loopback only");
	r->network[NETWORK_RESTRICTED] = w->o.egress != NULL;
	snprintf(r->network_reason[NETWORK_RESTRICTED], sizeof(r->network_reason[0]), "%s",
		 r->network[NETWORK_RESTRICTED] ? "loopback only, with a proxy that judges each connection"
						: "not offered: this worker judges no connections");
	pthread_mutex_lock(&w->lock);
	r->network[NETWORK_OPEN] = w->open_offered;
	snprintf(r->network_reason[NETWORK_OPEN], sizeof(r->network_reason[0]), "%s", *w->open_reason ? w->open_reason : "the runtime was not asked yet");
	pthread_mutex_unlock(&w->lock);
}

/* "a=b, c=d"; checked with the configuration. */
static void fill_labels(const char *text, struct map *ret)
{
	auto_free char *copy = xstrdup(text);
	char *rest = NULL;

	for (char *one = strtok_r(copy, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest)) {
		char *equals = strchr(one, '=');

		if (!equals)
			continue;
		*equals = '\0';
		map_set(ret, one, equals + 1);
	}
}

int capacity_heartbeat(struct worker *w, struct error *err)
{
	const struct daemon_config *c = w->o.config;
	struct settings s = worker_settings(w);
	struct node_report r = { .node = w->node, .pressure = capacity_pressure(NULL) };

	snprintf(r.name, sizeof(r.name), "%s", c->worker_name);
	snprintf(r.region, sizeof(r.region), "%s", c->worker_region);
	fill_totals(w, &s, &r);
	fill_tiers(w, &r);
	capacity_network(w, &r);
	fill_labels(c->worker_labels, &r.labels);
	int rc = w->o.up->ops->heartbeat(w->o.up, &r, err);
	map_done(&r.labels);
	return rc;
}
