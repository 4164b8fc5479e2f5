/*
 * Closures for the event loop thread, posted from any thread and run in order. An eventfd wakes the loop, so the base
 * needs no locking of its own.
 */
#ifndef SANDBOX_DAEMON_MAILBOX_H
#define SANDBOX_DAEMON_MAILBOX_H

#include "shared/base/error.h"

#include <stdint.h>

struct event_base;
struct mailbox;

typedef void (*mailbox_fn)(void *arg);

/* On the loop thread, or before the loop runs. */
struct mailbox *mailbox_new(struct event_base *base);
/* On the loop thread, or after the loop ended. Runs what is still posted. */
void mailbox_free(struct mailbox *m);
void mailbox_post(struct mailbox *m, mailbox_fn fn, void *arg);
/* Runs fn on the loop thread and waits for its return; at once when called there. ERR_TIMEOUT when the loop did not
 * come to it in time: then fn never runs. */
int mailbox_call(struct mailbox *m, mailbox_fn fn, void *arg, int64_t timeout_ms, struct error *err);
/* Runs what is posted so far (loop thread, or after the loop ended). */
void mailbox_drain(struct mailbox *m);

#endif
