/*
 * What the kernel really enforces on a process, read from its control groups: version 1, 2 and hybrid hosts.
 * For the probe ("do limits bite?") and for stats without asking the engine.
 */
#ifndef SANDBOX_DAEMON_CGROUP_H
#define SANDBOX_DAEMON_CGROUP_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/id.h"

#include <stdbool.h>
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

/*
 * Groups of our own, for runtimes that enforce nothing: "sandbox/NODE/SANDBOX" at the root of each hierarchy, outside of
 * the daemon's own group, so that a service manager which ends the daemon does not end them.
 */
struct cgroup_limits { /* 0: none */
	int64_t memory_max; /* bytes; swap is not given on top */
	int64_t pids_max;
	uint32_t cpu_millis;
};

/* What its limits did to a group so far, also after its last process ended. */
struct cgroup_harm {
	int64_t oom_kills;
	int64_t pids_refused; /* forks the PID limit refused */
	int64_t throttled;    /* periods in which the CPU limit stopped it */
};

/* Makes the group (or sets an existing one's limits) and reads the limits back. ERR_UNAVAILABLE, ERR_FORBIDDEN with the reason. */
int cgroup_make(const struct id *node, const struct id *sandbox, const struct cgroup_limits *l, struct error *err);
/* Moves a process and everything that descends from it, until nothing new appears. Start with the parent: what it forks
 * from then on is born inside. */
int cgroup_enter(const struct id *node, const struct id *sandbox, pid_t pid, struct error *err);
/* False: there is no such group. */
bool cgroup_harm(const struct id *node, const struct id *sandbox, struct cgroup_harm *ret);
/* Kills what is left in it and removes it; success when there is none. */
int cgroup_remove(const struct id *node, const struct id *sandbox, struct error *err);
/* The sandboxes of a node that have a group. */
void cgroup_list(const struct id *node, struct strv *ret);

/*
 * Ending part of a group that makes processes faster than they can be ended one by one: all of it is stopped first (version 1's
 * freezer, version 2's cgroup.freeze), so that nothing forks. first: host pid of the group's process 1; inside: a child of it, as
 * numbered in first's PID namespace. Everything that descends from that child is killed, the child itself not. The group goes on
 * before this returns. ERR_NOT_FOUND: no such child; ERR_UNAVAILABLE: this group cannot be stopped from here, or is also the
 * caller's; ERR_TIMEOUT: it did not stop within seconds.
 */
int cgroup_end_below(pid_t first, pid_t inside, size_t *ret_ended, struct error *err);
/* Success also when it was not stopped. ERR_UNAVAILABLE as above. */
int cgroup_thaw(pid_t first, struct error *err);

#endif
