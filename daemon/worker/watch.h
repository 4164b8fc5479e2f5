/* Watches process 1 of each sandbox by a pidfd: one thread, a call when one ends. No privileges are needed for it. */
#ifndef SANDBOX_DAEMON_WATCH_H
#define SANDBOX_DAEMON_WATCH_H

#include "shared/base/error.h"
#include "shared/base/id.h"

#include <stdbool.h>
#include <sys/types.h>

struct watch;

/* fn runs on the watch's thread, once per added sandbox, and must not block. */
int watch_new(void (*fn)(void *ctx, const struct id *sandbox), void *ctx, struct watch **ret, struct error *err);
void watch_free(struct watch *w);

/* Any thread. A pid that is gone already is reported like one that ends. Replaces an earlier watch of the sandbox. */
int watch_add(struct watch *w, const struct id *sandbox, pid_t pid, struct error *err);
/* After it returns no call for this sandbox starts any more. */
void watch_remove(struct watch *w, const struct id *sandbox);
bool watch_has(struct watch *w, const struct id *sandbox);
/* The same, and hands out the pidfd, by which the process can still be signalled (-1: none; the caller closes it). */
int watch_take(struct watch *w, const struct id *sandbox);

#endif
