/* The user's own directories by the XDG rules (a relative value counts as unset), and safe changes of files in them. */
#ifndef SANDBOX_CLI_HOME_H
#define SANDBOX_CLI_HOME_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

/* $XDG_CONFIG_HOME/sandbox, $XDG_DATA_HOME/sandbox, $XDG_STATE_HOME/sandbox with ~/.config, ~/.local/share, ~/.local/state as defaults.
 * NULL when neither the variable nor HOME says where. Caller frees. */
char *home_config_dir(void);
char *home_data_dir(void);
char *home_state_dir(void);

/* Makes the directory 0700 (its parents too) and takes the lock file in it, waiting up to 10 s. Returns a descriptor that holds the lock
 * until it is closed, -1 with err. */
int home_lock(const char *dir, struct error *err);
/* Replaces the file `name` of dir: 0600 from its first instant, complete or untouched. A symbolic link keeps being one: what it
 * points to is replaced. Hold the lock. */
int home_write(const char *dir, const char *name, const void *p, size_t n, struct error *err);

#endif
