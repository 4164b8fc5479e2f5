/* Ending a running command by its operation, for `operation cancel` and `kill`. */
#ifndef SANDBOX_CLI_CANCEL_H
#define SANDBOX_CLI_CANCEL_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <cjson/cJSON.h>

/* A name with or without SIG, or a number, into an int field. */
int cancel_parse_signal(const char *what, const char *text, void *field, struct error *err);
/* sig 0: the server's way, TERM and then KILL. *ret: its answer (caller frees). */
int cancel_operation(struct cli *cli, const char *id, int sig, cJSON **ret, struct error *err);

#endif
