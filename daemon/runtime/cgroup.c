/* Control groups of a process. Each controller is looked up on its own: a hybrid host has some in version 1. */
#include "daemon/runtime/cgroup_internal.h"

#include "shared/base/buf.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 64 * 1024 };

static bool word_in(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0' || p[n] == '\n' || p[n] == ' '))
			return true;
	return false;
}

/* The group of one controller from /proc/PID/cgroup: its version 1 line when there is one, else the "0::" line. */
static bool group_path(const char *table, const char *controller, bool *ret_v2, char *ret, size_t n)
{
	bool found = false;

	for (const char *line = table; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
		char list[256];

		if (!path)
			continue;
		snprintf(list, sizeof(list), "%.*s", (int)(path - names - 1), names + 1);
		if (list[0] != '\0' && !word_in(list, controller))
			continue;
		*ret_v2 = list[0] == '\0';
		snprintf(ret, n, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
		found = true;
		if (!*ret_v2)
			return true;
	}
	return found;
}

bool cgroup_mount_of(const char *mounts, const char *controller, bool v2, char *ret_root, char *ret_point, size_t n)
{
	for (const char *line = mounts; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *end = strchr(line, '\n'), *dash = strstr(line, " - ");
		char root[PATH_MAX], point[PATH_MAX], type[32], options[1024];

		if (!dash || (end && dash > end))
			continue;
		if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2)
			continue;
		if (sscanf(dash + 3, "%31s %*s %1023s", type, options) != 2)
			continue;
		if (strcmp(type, v2 ? "cgroup2" : "cgroup") != 0 || (!v2 && !word_in(options, controller)))
			continue;
		snprintf(ret_root, n, "%s", root);
		snprintf(ret_point, n, "%s", point);
		return true;
	}
	return false;
}

int cgroup_place_of(const char *table, const char *mounts, const char *controller, struct cgroup_place *ret)
{
	char path[PATH_MAX], root[PATH_MAX], point[PATH_MAX];
	const char *below = path;
	auto_free char *dir = NULL;

	if (!group_path(table, controller, &ret->v2, path, sizeof(path)) || !cgroup_mount_of(mounts, controller, ret->v2, root, point, sizeof(root)))
		return -1;
	if (strcmp(root, "/") != 0 && strncmp(path, root, strlen(root)) == 0)
		below = path + strlen(root);
	dir = xasprintf("%s%s", point, below);
	if (strlen(dir) >= sizeof(ret->dir))
		return -1;
	memcpy(ret->dir, dir, strlen(dir) + 1);
	return 0;
}

bool cgroup_text(const struct cgroup_place *p, const char *file, struct buf *ret)
{
	auto_free char *path = xasprintf("%s/%s", p->dir, file);

	buf_reset(ret);
	return io_read_file(path, VALUE_MAX, ret, NULL) == 0;
}

bool cgroup_number(const struct cgroup_place *p, const char *file, int64_t *ret)
{
	auto_buf text = BUF_INIT;
	long long v;

	if (!cgroup_text(p, file, &text))
		return false;
	if (strncmp(buf_str(&text), "max", 3) == 0) {
		*ret = CGROUP_UNLIMITED;
		return true;
	}
	errno = 0;
	v = strtoll(buf_str(&text), NULL, 10);
	*ret = errno || v >= (1LL << 61) || v < 0 ? CGROUP_UNLIMITED : v;
	return true;
}

int64_t cgroup_keyed(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			return strtoll(line + n + 1, NULL, 10);
	return 0;
}

static bool read_memory(const struct cgroup_place *p, struct cgroup_view *v)
{
	auto_buf text = BUF_INIT;
	bool ok;

	v->memory_swap_max = CGROUP_UNLIMITED;
	if (p->v2) {
		int64_t swap = CGROUP_UNLIMITED;

		ok = cgroup_number(p, "memory.max", &v->memory_max) && cgroup_number(p, "memory.current", &v->memory_used);
		if (cgroup_number(p, "memory.swap.max", &swap) && swap >= 0 && v->memory_max >= 0)
			v->memory_swap_max = v->memory_max + swap;
		if (cgroup_text(p, "memory.events", &text))
			v->oom_kills = cgroup_keyed(buf_str(&text), "oom_kill");
		return ok;
	}
	ok = cgroup_number(p, "memory.limit_in_bytes", &v->memory_max) && cgroup_number(p, "memory.usage_in_bytes", &v->memory_used);
	cgroup_number(p, "memory.memsw.limit_in_bytes", &v->memory_swap_max);
	if (cgroup_text(p, "memory.oom_control", &text))
		v->oom_kills = cgroup_keyed(buf_str(&text), "oom_kill");
	return ok;
}

static bool read_pids(const struct cgroup_place *p, struct cgroup_view *v)
{
	return cgroup_number(p, "pids.max", &v->pids_max) && cgroup_number(p, "pids.current", &v->pids_used);
}

static bool read_cpu(const struct cgroup_place *p, struct cgroup_view *v)
{
	auto_buf text = BUF_INIT;
	char quota[32];
	long long period;

	if (!p->v2)
		return cgroup_number(p, "cpu.cfs_quota_us", &v->cpu_quota_us) && cgroup_number(p, "cpu.cfs_period_us", &v->cpu_period_us);
	if (!cgroup_text(p, "cpu.max", &text) || sscanf(buf_str(&text), "%31s %lld", quota, &period) != 2)
		return false;
	v->cpu_quota_us = strcmp(quota, "max") == 0 ? CGROUP_UNLIMITED : strtoll(quota, NULL, 10);
	v->cpu_period_us = period;
	return true;
}

static bool read_cpu_use(const struct cgroup_place *p, struct cgroup_view *v)
{
	auto_buf text = BUF_INIT;
	int64_t ns;

	if (p->v2) {
		if (!cgroup_text(p, "cpu.stat", &text))
			return false;
		v->cpu_used_us = cgroup_keyed(buf_str(&text), "usage_usec");
		return true;
	}
	if (!cgroup_number(p, "cpuacct.usage", &ns))
		return false;
	v->cpu_used_us = ns / 1000;
	return true;
}

int cgroup_read(pid_t pid, struct cgroup_view *ret, struct error *err)
{
	static const struct {
		const char *controller;
		bool (*read)(const struct cgroup_place *, struct cgroup_view *);
	} parts[] = { { "memory", read_memory }, { "pids", read_pids }, { "cpu", read_cpu }, { "cpuacct", read_cpu_use } };
	auto_buf table = BUF_INIT, mounts = BUF_INIT;
	auto_free char *path = xasprintf("/proc/%d/cgroup", (int)pid);
	struct cgroup_view v = { .memory_max = CGROUP_UNLIMITED, .pids_max = CGROUP_UNLIMITED, .cpu_quota_us = CGROUP_UNLIMITED };
	struct cgroup_place place;

	if (io_read_file(path, CGROUP_TABLE_MAX, &table, err) != 0)
		return -1;
	if (io_read_file("/proc/self/mountinfo", CGROUP_TABLE_MAX, &mounts, err) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		if (cgroup_place_of(buf_str(&table), buf_str(&mounts), parts[i].controller, &place) != 0)
			return error_set(err, ERR_UNAVAILABLE, "the %s control group of process %d is not mounted here", parts[i].controller, (int)pid);
		if (!parts[i].read(&place, &v))
			return error_set(err, ERR_UNAVAILABLE, "the %s control group of process %d cannot be read below %s", parts[i].controller,
			                 (int)pid, place.dir);
	}
	*ret = v;
	return 0;
}
