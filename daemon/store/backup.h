/* Copies of an SQLite store, taken while it is in use, and their way back. PostgreSQL has its own tools. */
#ifndef SANDBOX_DAEMON_STORE_BACKUP_H
#define SANDBOX_DAEMON_STORE_BACKUP_H

#include "shared/base/error.h"

/* One moment of the store in the new file `to` (mode 0600), checked and synced; a daemon may run meanwhile. ERR_CONFLICT when `to` exists,
 * ERR_NOT_FOUND when there is no store, ERR_SYSTEM when it is damaged or another program's. Nothing is left behind on failure. */
int store_backup(const char *path, const char *to, struct error *err);
/* Puts a copy in the place of the store, under the lock of state_dir: ERR_CONFLICT while a daemon runs. The store that was there is
 * renamed; *ret_kept (freed by the caller) is its new name, NULL when there was none. */
int store_restore(const char *from, const char *state_dir, const char *path, char **ret_kept, struct error *err);

#endif
