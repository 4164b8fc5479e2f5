/* Where the local daemon lives, by the rules it follows itself. Root: /run/sandbox, /var/lib/sandbox; others: the XDG directories. */
#ifndef SANDBOX_CLI_PATHS_H
#define SANDBOX_CLI_PATHS_H

#include "shared/base/error.h"

#define SYSTEM_SOCKET "/run/sandbox/sandboxd.sock"

struct local_paths {
	char *state;  /* directory */
	char *socket;
	char *log;    /* what a daemon started by the CLI prints */
	char *lock;   /* held while one CLI starts the daemon */
};

/* ERR_INVALID when neither XDG_STATE_HOME nor HOME says where. */
int local_paths_find(struct local_paths *ret, struct error *err);
void local_paths_done(struct local_paths *p);
#define auto_paths __attribute__((cleanup(local_paths_done))) struct local_paths

#endif
