/* Listening on this machine's loopback addresses, both families, and on nothing else. */
#ifndef SANDBOX_CLI_LISTEN_H
#define SANDBOX_CLI_LISTEN_H

#include "shared/base/error.h"

#include <stdint.h>

/* 127.0.0.1 and, where the machine has it, ::1. fd[1] is -1 without IPv6. *port 0: a free one that both have, filled in.
 * Non-blocking. ERR_CONFLICT when it is taken, ERR_FORBIDDEN when it may not be used. */
int listen_loopback(uint16_t *port, int ret_fd[2], struct error *err);

#endif
