/* The Docker Engine as a runtime, over its API (never the docker program). docs/security.md says what it sets and why. */
#ifndef SANDBOX_DAEMON_DOCKER_H
#define SANDBOX_DAEMON_DOCKER_H

#include "daemon/runtime/runtime.h"

struct docker_options {
	const char *socket;             /* absolute path */
	struct id node;                 /* label on everything made */
	const char *allowed_registries; /* policy.allowed_registries */
};

/* Does not ask whether the engine answers. */
int docker_runtime_new(const struct docker_options *o, struct runtime **ret, struct error *err);

/* PIDs the limit grants beyond what was asked: process 1 and the supervisors of some thirty commands at a time. */
enum { DOCKER_PIDS_RESERVE = 32 };

/* init ends itself so long after the deadline when no worker is there to do it. */
enum { DOCKER_INIT_GRACE_MS = 30 * 1000 };

#endif
