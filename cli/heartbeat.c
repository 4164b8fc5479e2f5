/* Pings: see heartbeat.h. */
#include "cli/heartbeat.h"

#include "shared/base/clock.h"

enum { PING_MS = 20 * 1000, PONG_WAIT_MS = 20 * 1000 };

void heartbeat_start(struct heartbeat *h)
{
	*h = (struct heartbeat){ .ping_ms = clock_mono_ms() + PING_MS };
}

void heartbeat_pong(struct heartbeat *h)
{
	h->pong_by_ms = 0;
}

bool heartbeat_check(struct heartbeat *h, struct mux *m)
{
	int64_t now = clock_mono_ms();
	if (h->pong_by_ms && now >= h->pong_by_ms)
		return false;
	if (now < h->ping_ms)
		return true;
	mux_ping(m);
	h->ping_ms = now + PING_MS;
	if (!h->pong_by_ms)
		h->pong_by_ms = now + PONG_WAIT_MS;
	return true;
}

int64_t heartbeat_wait_ms(const struct heartbeat *h)
{
	int64_t by = h->pong_by_ms && h->pong_by_ms < h->ping_ms ? h->pong_by_ms : h->ping_ms;
	int64_t left = by - clock_mono_ms();
	return left > 0 ? left : 0;
}
