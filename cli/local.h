/* The user's local daemon as a process: starting it detached, finding and stopping it, its log. */
#ifndef SANDBOX_CLI_LOCAL_H
#define SANDBOX_CLI_LOCAL_H

#include "cli/cli.h"
#include "cli/paths.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Starts sandboxd for this user and returns when it serves. Two CLIs at once start one: the second finds it running (*ret_started false).
 * Not where systemd has it enabled as a service: ERR_UNREACHABLE says so. On failure the message says why and the daemon's last log lines are on stderr. */
int local_start(struct cli *cli, const struct local_paths *p, bool *ret_started, struct error *err);
/* The program: beside this one, else on PATH. Caller frees. ERR_NOT_FOUND. */
int local_program(char **ret, struct error *err);
/* The daemon that listens on a socket. ERR_UNREACHABLE, ERR_FORBIDDEN. */
int local_pid(const char *socket, pid_t *ret, struct error *err);
/* TERM, then waits for its end. ERR_TIMEOUT when it has not ended within timeout_ms. */
int local_stop(pid_t pid, int64_t timeout_ms, struct error *err);
/* Prints the last `lines` lines of the log that begin at or behind byte `from`, each after `prefix`, control bytes escaped. -1: no log. */
int local_log_tail(const char *path, unsigned lines, off_t from, const char *prefix, FILE *out);

#endif
