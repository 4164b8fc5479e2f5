/* Help texts from the command table. Each fits 24 lines of 80 columns. */
#ifndef SANDBOX_CLI_HELP_H
#define SANDBOX_CLI_HELP_H

#include "cli/command.h"
#include "shared/base/buf.h"

#include <stdbool.h>

/* What `sandbox` alone says. */
void help_guide(struct buf *out);
/* Every command with its subcommands, one a line. */
void help_tree(struct buf *out);
/* A verb, a subverb (parent not NULL), or a verb with subverbs. */
void help_verb(const struct verb *v, const struct verb *parent, struct buf *out);
/* "sandbox exec [OPTIONS] SANDBOX [--] COMMAND..." */
void help_usage(const struct verb *v, const struct verb *parent, struct buf *out);
/* "-i, --image IMAGE", "--[no-]wait", "--json[=FIELDS]". */
void help_option_label(const struct option_row *o, struct buf *out);
/* True for rows a reader sees; OPT_REST is none. */
bool help_option_shown(const struct option_row *o);
bool help_has_options(const struct verb *v);

#endif
