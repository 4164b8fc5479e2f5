/* Short-lived programs of the host: ip, nft. Job threads only: it waits. */
#ifndef SANDBOX_DAEMON_WORKER_TOOL_H
#define SANDBOX_DAEMON_WORKER_TOOL_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

/* Runs argv[0] from the system's own folders with `input` (may be NULL) as its standard input, in a network namespace (-1: this process's).
 * ret_out (may be NULL) gets what it printed, at most 256 KiB. ERR_NOT_FOUND: it is not installed; ERR_UNAVAILABLE: it failed, with the first
 * line it said; ERR_TIMEOUT. */
int tool_run(const char *const argv[], const char *input, int netns, struct buf *ret_out, struct error *err);

#endif
