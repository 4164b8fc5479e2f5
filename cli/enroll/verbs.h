/* The verbs of `sandbox node` that work on a machine over SSH; cli/cmd/node.c lists them. */
#ifndef SANDBOX_CLI_ENROLL_VERBS_H
#define SANDBOX_CLI_ENROLL_VERBS_H

#include "cli/command.h"

extern const struct verb node_add, node_upgrade, node_rotate;

#endif
