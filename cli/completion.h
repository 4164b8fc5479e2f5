/* What the generators of shell completions share: which words stand for what. */
#ifndef SANDBOX_CLI_COMPLETION_H
#define SANDBOX_CLI_COMPLETION_H

#include "cli/command.h"
#include "shared/base/buf.h"

#include <stdbool.h>

bool completion_shown(const struct verb *v);
/* "sandbox", "path" ...: what completes a positional; "none" for what nobody can know. */
const char *completion_what(enum pos_what w);
/* The same for an option's value. */
const char *completion_value(const struct option_row *o);
bool completion_repeats(const struct positional *p);
/* Whether the program itself is asked (sandbox __complete). */
bool completion_asked(enum pos_what w);
/* The names of a table, separated by blanks. */
void completion_names(const struct verb *const *table, struct buf *out);

#endif
