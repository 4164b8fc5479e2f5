/*
 * Sandboxes made by an external driver (docs/runtime-driver.md). A driver either starts sandbox-init inside ("init"), or runs
 * commands itself ("driver"): then a sandbox-init of the host stands in for process 1 and hands each command to the driver.
 */
#ifndef SANDBOX_DAEMON_EXTERNAL_H
#define SANDBOX_DAEMON_EXTERNAL_H

#include "daemon/runtime/runtime.h"

struct external_options {
	const char *driver;    /* absolute path */
	const char *state_dir; /* records in STATE/driver */
	struct id node;
	bool development;      /* tiers of a driver that says it is for development only are offered */
};

/* Does not call the driver. Its images are not the vtable's business: those members are NULL. */
int external_runtime_new(const struct external_options *o, struct runtime **ret, struct error *err);
/* True when this sandbox was created by it. */
bool external_owns(struct runtime *rt, const struct id *sandbox);

/*
 * A runtime of both: tiers the engine offers are the engine's, others the driver's, if it offers them. Sandboxes go by who
 * made them. Takes both.
 */
struct runtime *paired_runtime_new(struct runtime *take_engine, struct runtime *take_driver);

/* `sandboxd driver-exec --driver PATH --sandbox ID --cwd DIR --timeout-ms N [--user U] -- ARGV…`: one command through the
 * driver, its environment under THROUGH_ENV names. Writes its output and ends as it ended. Does not return when a result is not known. */
int driver_exec_main(int argc, char **argv);
/* `sandboxd driver-check [--image NAME] PATH`: calls a driver as a worker would and prints what is right and wrong. */
int driver_check_main(int argc, char **argv);

#endif
