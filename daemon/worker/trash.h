/*
 * Files on their way out: renamed into one directory at once, deleted by a thread of its own. Deleting a reserved image
 * of 10 GiB takes the file system 10 ms at best and 400 ms on a busy disk; nobody should wait for that.
 */
#ifndef SANDBOX_DAEMON_TRASH_H
#define SANDBOX_DAEMON_TRASH_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct trash;

/* dir: a directory of ours on the file system of the files. What an earlier daemon left in it goes first. */
struct trash *trash_new(const char *dir);
void trash_free(struct trash *t); /* waits until it is empty */

/* The file's name is gone on success, also when there was none. */
int trash_take(struct trash *t, const char *path, struct error *err);
/* Waits until it is empty; false when that took longer. */
bool trash_drain(struct trash *t, int64_t timeout_ms);

#endif
