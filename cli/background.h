/* A verb that goes on in the background: its process of its own, which holds nothing of the caller's once it is ready. */
#ifndef SANDBOX_CLI_BACKGROUND_H
#define SANDBOX_CLI_BACKGROUND_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stddef.h>

/* Before the first request: a connection must not be shared by two processes.
 * In the caller: waits until the other process is ready or has failed. 0: *ret_pid is its id, and `state` (n bytes) is as it was when
 * that process said background_ready; -1: its error, its hint kept.
 * In the other process it does not return: run(ctx) is its life; an error before background_ready goes to the caller. */
int background_run(struct cli *cli, int (*run)(void *ctx, struct error *err), void *ctx, void *state, size_t n, int *ret_pid,
		   struct error *err);
/* From inside run: the caller may go. */
int background_ready(struct error *err);

#endif
