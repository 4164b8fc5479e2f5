/*
 * The daemon put together: store, controller, event loop, links, commands, runtime, worker, API. main.c parses the command
 * line; everything else about starting, running and stopping is here.
 */
#ifndef SANDBOX_DAEMON_DAEMON_H
#define SANDBOX_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

struct daemon_setup {
	char *config_path; /* NULL: the usual place, where a missing file is fine */
	struct strv sets;  /* "section.key=value", over the file */
	int ready_fd;      /* gets "ready\n" once requests are served; -1: none */
};

/* Defaults, file, overrides, checks: the configuration in force. ret must be zeroed. Used again on SIGHUP. */
int daemon_setup_config(const struct daemon_setup *s, struct daemon_config *ret, struct error *err);
/* Where the configuration is when none is named; NULL when HOME is not set. The caller frees. */
char *daemon_default_config_path(void);
/* Serves until SIGTERM or SIGINT; sandboxes and their commands go on afterwards. -1: it could not start. */
int daemon_run(const struct daemon_setup *s, struct error *err);

#endif
