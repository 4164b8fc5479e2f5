/*
 * Calling an external runtime driver: one process per call, protocol sandbox.runtime.v1 (docs/runtime-driver.md). The driver
 * is the operator's, but nothing it does may hang or flood the worker: every call has a deadline and every answer a bound.
 */
#ifndef SANDBOX_DAEMON_DRIVER_H
#define SANDBOX_DAEMON_DRIVER_H

#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/json/json.h"

#include <stdbool.h>
#include <sys/types.h>

#define DRIVER_PROTOCOL "sandbox.runtime.v1"

enum {
	DRIVER_PROBE_MS = 45 * 1000, /* it really runs something */
	DRIVER_PREPARE_MS = 10 * 60 * 1000, /* a large image made a disk */
	DRIVER_CREATE_MS = 120 * 1000,
	DRIVER_DELETE_MS = 60 * 1000,
	DRIVER_ASK_MS = 10 * 1000,      /* inspect, stats, kill, deadline */
	DRIVER_EXEC_GRACE_MS = 5 * 1000, /* over the command's own time limit */
	DRIVER_EXEC_MS = 24 * 3600 * 1000, /* a command without one */
	DRIVER_ANSWER_MAX = 4 * 1024 * 1024,
};

/* Who may be run: an absolute path to an executable that belongs to root or to this user, which nobody else may change, in a
 * directory of which the same holds. ERR_NOT_FOUND, ERR_FORBIDDEN with the reason. */
int driver_check_file(const char *path, struct error *err);

struct driver_call {
	const char *path;
	const char *action;
	const struct id *node;    /* its control groups; NULL: none is made */
	const struct id *sandbox;
	cJSON *payload;           /* taken; NULL: {} */
	int64_t timeout_ms;
	bool keeps_children;      /* what it leaves running belongs to the sandbox (create); else it is ended with the call */
};

/*
 * Runs one call. ret_result (may be NULL) gets the answer's result object. ERR_TIMEOUT, ERR_TOO_LARGE, ERR_PROTOCOL for an answer that is none,
 * ERR_UNAVAILABLE with the driver's own text when it said no.
 */
int driver_call(const struct driver_call *c, cJSON **ret_result, struct error *err);

/* Starts a program of ours in the control group of a sandbox (node NULL: in none), with a session of its own, /dev/null as its input and output,
 * no descriptor and no environment of this process. */
int driver_spawn(const char *const *argv, const struct id *node, const struct id *sandbox, pid_t *ret, struct error *err);

#endif
