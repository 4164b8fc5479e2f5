/*
 * What the kernel really enforces on a process, read from its control groups: version 1, 2 and hybrid hosts.
 * For the probe ("do limits bite?") and for stats without asking the engine.
 */
#ifndef SANDBOX_DAEMON_CGROUP_H
#define SANDBOX_DAEMON_CGROUP_H

#include "shared/base/error.h"

#include <stdint.h>
#include <sys/types.h>

enum { CGROUP_UNLIMITED = -1 };

struct cgroup_view {
	int64_t memory_max, memory_used;   /* bytes; _max CGROUP_UNLIMITED: none */
	int64_t memory_swap_max;           /* memory and swap together, bytes; CGROUP_UNLIMITED: none or not accounted */
	int64_t pids_max, pids_used;
	int64_t cpu_quota_us, cpu_period_us; /* quota CGROUP_UNLIMITED: none */
	int64_t cpu_used_us;
	int64_t oom_kills;
};

/* pid: host pid. ERR_NOT_FOUND when it is gone, ERR_UNAVAILABLE when this host's groups cannot be read from here. */
int cgroup_read(pid_t pid, struct cgroup_view *ret, struct error *err);

#endif
