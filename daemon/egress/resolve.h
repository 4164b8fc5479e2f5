/*
 * Names to addresses, off the event loop: a few threads ask the machine's resolver, answers come back on the loop. Names that the
 * configuration fixes are not asked for.
 */
#ifndef SANDBOX_DAEMON_EGRESS_RESOLVE_H
#define SANDBOX_DAEMON_EGRESS_RESOLVE_H

#include "daemon/address.h"
#include "shared/base/error.h"
#include "shared/model/egress.h"

struct mailbox;
struct resolver;

enum { RESOLVE_ADDRESSES_MAX = 16, RESOLVE_QUEUE_MAX = 1024, RESOLVE_THREADS = 16 };

struct addresses {
	struct address items[RESOLVE_ADDRESSES_MAX];
	size_t len;
};

/* hosts: "NAME=ADDRESS …". ERR_INVALID. */
int resolver_new(struct mailbox *mail, const char *hosts, struct resolver **ret, struct error *err);
/* Loop thread, or after the loop ended. Nothing is called back afterwards; lookups under way end by themselves. */
void resolver_free(struct resolver *r);

/* Loop thread. done is called later, once, on the loop (err NULL: found), unless it was cancelled. NULL: too much is asked for already. */
struct lookup;
typedef void (*resolve_done)(void *ctx, const struct addresses *found, const struct error *err);
struct lookup *resolve_start(struct resolver *r, const struct egress_target *t, resolve_done done, void *ctx);
void resolve_cancel(struct lookup *l);
/* The same, waiting: any thread but the loop's. */
int resolve_now(struct resolver *r, const struct egress_target *t, struct addresses *ret, struct error *err);
/* Checks the text of hosts. */
int resolve_check_hosts(const char *what, const char *hosts, struct error *err);

#endif
