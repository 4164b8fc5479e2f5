/* Parts of sandbox-console. */
#ifndef SANDBOX_CLI_CONSOLE_CONSOLE_H
#define SANDBOX_CLI_CONSOLE_CONSOLE_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

/* Words by blanks, with '…', "…" and \ as a shell has them; nothing is expanded. A # where a word would begin ends the line.
 * ERR_INVALID for a quote that is not closed. */
int console_split(const char *line, struct strv *ret, struct error *err);

/* Completion of verbs, subverbs and options from the table, and of what `program __complete` knows. */
void console_complete_setup(const char *program);

#endif
