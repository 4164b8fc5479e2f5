/* Pings on a mux connection that may be quiet for long: proxies on the way see that it lives, and a peer that is gone without a word is
 * noticed. */
#ifndef SANDBOX_CLI_HEARTBEAT_H
#define SANDBOX_CLI_HEARTBEAT_H

#include "shared/mux/mux.h"

#include <stdbool.h>
#include <stdint.h>

struct heartbeat {
	int64_t ping_ms;    /* monotonic: the next one */
	int64_t pong_by_ms; /* 0: none is awaited */
};

void heartbeat_start(struct heartbeat *h);
void heartbeat_pong(struct heartbeat *h);
/* Pings when it is time. False: the peer does not answer. */
bool heartbeat_check(struct heartbeat *h, struct mux *m);
/* How long heartbeat_check may wait. */
int64_t heartbeat_wait_ms(const struct heartbeat *h);

#endif
