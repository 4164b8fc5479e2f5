/* Package managers and read-only root file systems: what to say when one failed because of the other. */
#ifndef SANDBOX_CLI_INSTALLERS_H
#define SANDBOX_CLI_INSTALLERS_H

#include "cli/cli.h"
#include "cli/options.h"

/* Whether a command is a package manager, or a shell line with one. */
bool installer_named(const struct words *argv);
/* After such a command failed: a hint on stderr when the sandbox's root is read-only. Asks the server; silent when it does not answer. */
void installer_hint(struct cli *cli, const char *sandbox);

#endif
