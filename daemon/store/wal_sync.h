/* Waiting until what was committed to a write-ahead log survives a power loss; any thread, and not under the database's lock. */
#ifndef SANDBOX_DAEMON_STORE_WAL_SYNC_H
#define SANDBOX_DAEMON_STORE_WAL_SYNC_H

#include "shared/base/error.h"

struct wal_sync;

/* path: the log's file, which need not be there before the first commit and stays the same file from then on. */
struct wal_sync *wal_sync_new(const char *path);
void wal_sync_free(struct wal_sync *w); /* NULL is fine */
/* A commit has been written, not synced. Under the database's lock. */
void wal_sync_wrote(struct wal_sync *w);
/* Until all that was written before the call is on the disk. Else ERR_UNAVAILABLE, doubtful. */
int wal_sync_wait(struct wal_sync *w, struct error *err);

#endif
