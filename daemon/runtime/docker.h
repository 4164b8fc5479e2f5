/* The Docker Engine as a runtime, over its API (never the docker program). docs/security.md says what it sets and why. */
#ifndef SANDBOX_DAEMON_DOCKER_H
#define SANDBOX_DAEMON_DOCKER_H

#include "daemon/runtime/runtime.h"

struct docker_options {
	const char *socket;             /* absolute path */
	struct id node;                 /* label on everything made */
	const char *allowed_registries; /* policy.allowed_registries */
	const char *gvisor_runtime;     /* name of runsc among the engine's runtimes; NULL or "": no gVisor tier */
};

/* Does not ask whether the engine answers. */
int docker_runtime_new(const struct docker_options *o, struct runtime **ret, struct error *err);

/* PIDs the limit grants beyond what was asked: process 1 and the supervisors of some thirty commands at a time. */
enum { DOCKER_PIDS_RESERVE = 32 };

/*
 * gVisor on its ptrace platform takes this many host tasks for a process inside: one stub process each, and threads of the
 * sentry and the stubs (measured: 8 when idle, 16 when busy). A limit on tasks is the only one the host has, and a sentry
 * that is refused a task ends with everything in it, so the bound is the busy figure.
 */
enum { DOCKER_GVISOR_TASKS_PER_PID = 16, DOCKER_GVISOR_TASKS_RESERVE = 128 };

/* init ends itself so long after the deadline when no worker is there to do it. */
enum { DOCKER_INIT_GRACE_MS = 30 * 1000 };

#endif
