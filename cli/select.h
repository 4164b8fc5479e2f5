/* Sandboxes by what they have in common: what list shows and delete -l, --all take. */
#ifndef SANDBOX_CLI_SELECT_H
#define SANDBOX_CLI_SELECT_H

#include "cli/cli.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <cjson/cJSON.h>

/* Appends every sandbox with all the labels (KEY=VALUE) to the array `list`; ended: also those that ended or failed. */
int select_sandboxes(struct cli *cli, const struct strv *labels, bool ended, cJSON *list, struct error *err);

/* Asks on the terminal. 0: yes. ERR_INVALID when there is no terminal to ask on, or the answer is no. */
int confirm(struct cli *cli, const char *question, struct error *err);

#endif
