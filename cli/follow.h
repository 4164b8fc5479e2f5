/* Showing a command's output from its spool, for attach and logs. */
#ifndef SANDBOX_CLI_FOLLOW_H
#define SANDBOX_CLI_FOLLOW_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stdint.h>

struct follow_options {
	uint64_t since_out, since_err;
};

/* "OUT" or "OUT,ERR" into a struct follow_options. */
int follow_parse_since(const char *what, const char *text, void *field, struct error *err);
/* Until the command ended: its exit status, or -1 with err when there was nothing to attach to. */
int follow_run(struct cli *cli, const char *operation, const struct follow_options *o, struct error *err);

#endif
