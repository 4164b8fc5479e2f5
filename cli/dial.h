/* A port inside a sandbox as a byte pipe. */
#ifndef SANDBOX_CLI_DIAL_H
#define SANDBOX_CLI_DIAL_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stdint.h>

/* Connects to a TCP port of the sandbox's own loopback, then carries in to it and what it says to out, until both directions have ended.
 * Either end alone is passed on as such. ERR_UNREACHABLE when nothing listens there. */
int dial_pipe(struct cli *cli, const char *sandbox, uint16_t port, int in, int out, struct error *err);

#endif
