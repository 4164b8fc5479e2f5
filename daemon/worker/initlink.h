/*
 * Links to sandbox-init: one listening socket per sandbox in its io directory, the peer check, the mux, and redial
 * after a daemon restart. Runs on the event loop thread; functions marked (any thread) post to it.
 */
#ifndef SANDBOX_DAEMON_INITLINK_H
#define SANDBOX_DAEMON_INITLINK_H

#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/mux/mux.h"

#include <stdbool.h>
#include <sys/types.h>

struct event_base;
struct initlinks;
struct mailbox;
struct muxloop;

struct initlinks *initlinks_new(struct event_base *base, const char *state_dir);
void initlinks_free(struct initlinks *l); /* closes; sandboxes keep running */

/* Makes STATE/sandboxes/<id>/io with its socket and starts listening (any thread). The directory is 0711 under a 0700
 * parent, the socket 0666. Idempotent: a stale socket is replaced inside the same directory. */
int initlink_listen(struct initlinks *l, const struct id *sandbox, char *ret_io_dir, size_t n, struct error *err);
/* The only pid whose connection is accepted; connections that came before are held until this is known (any thread).
 * key_only: the peer is a sentry or serial port, whose redial must prove the key. */
void initlink_expect(struct initlinks *l, const struct id *sandbox, pid_t pid, bool key_only);
/* Tells init when its sandbox ends (wall clock): with every HELLO from now on, and at once on a link that is up (any
 * thread). Before it, init keeps what it was started with. */
void initlink_set_deadline(struct initlinks *l, const struct id *sandbox, int64_t deadline_us);
/* Blocks up to timeout for a greeted link (job threads only). ERR_TIMEOUT. */
int initlink_wait(struct initlinks *l, const struct id *sandbox, int64_t timeout_ms, struct error *err);
/* Opens a stream that init answers by closing it, and waits for that (job threads only; takes the fields and wipes them).
 * ERR_UNAVAILABLE with init's reason, ERR_TIMEOUT. */
int initlink_ask(struct initlinks *l, const struct id *sandbox, struct tlv *take_fields, int64_t timeout_ms, struct error *err);
/* Closes and removes the socket; streams are lost with this reason (any thread). */
void initlink_close(struct initlinks *l, const struct id *sandbox, enum mux_error why);

/* --- event loop thread only --- */

/* Called when a link was greeted, also after a redial: streams of the link before it were lost already. */
typedef void (*initlink_up)(void *ctx, const struct id *sandbox, struct mux *m);
void initlinks_on_up(struct initlinks *l, initlink_up fn, void *ctx);
/* Called when init opens a stream on a greeted link: fn answers it. Without it such streams are refused. */
typedef void (*initlink_opened)(void *ctx, const struct id *sandbox, struct mux *m, uint32_t stream, const struct tlv *fields);
void initlinks_on_opened(struct initlinks *l, initlink_opened fn, void *ctx);
/* The mux of the greeted link; NULL while there is none. */
struct mux *initlink_mux(struct initlinks *l, const struct id *sandbox);
/* The network namespace of the link's peer; -1: it is on another kernel, this process may not enter it, or there is no link. Borrowed. */
int initlink_netns(struct initlinks *l, const struct id *sandbox);
/* True when a socket listens for the sandbox. */
bool initlink_known(struct initlinks *l, const struct id *sandbox);
/* Drops a link whose peer broke the rules above the mux; init dials again. */
void initlink_reset(struct initlinks *l, const struct id *sandbox, const char *why);
struct mailbox *initlinks_mailbox(struct initlinks *l);
struct muxloop *initlinks_muxloop(struct initlinks *l);

#endif
