/* Long polls: a suspended request that answers when an operation ends or a create fits, or when its time is over. */
#ifndef SANDBOX_DAEMON_API_WAIT_H
#define SANDBOX_DAEMON_API_WAIT_H

#include "daemon/api/request.h"

/* Suspends r until `operation` has ended, timeout_ms passed or the daemon stops; then `then` runs. A client that leaves
 * meanwhile is noticed only then: the server cannot see it while suspended, so the time is what bounds it. */
int wait_operation(struct request *r, const struct id *operation, int64_t timeout_ms,
                   int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err);
/* The same for a create that waits for capacity: `then` takes r->create's answer (NULL: r->err says why it does not wait). Its client is
 * looked for about every second. */
int wait_create(struct request *r, const struct spec *spec, const char *key, int64_t timeout_ms,
		int (*then)(struct request *r, struct answer *a, struct error *err), struct error *err);
/* Wakes every waiting request (the daemon stops). */
void wait_wake_all(struct api *a);

#endif
