/* A clock that does not jump: see slew.h. */
#include "shared/base/slew.h"

#include <time.h>

void slew_clock_start(struct slew_clock *c, int64_t boot_us, int64_t wall_us)
{
	*c = (struct slew_clock){ .boot_us = boot_us, .now_us = wall_us };
}

int64_t slew_clock_read(struct slew_clock *c, int64_t boot_us, int64_t wall_us)
{
	int64_t passed = boot_us - c->boot_us;
	/* Short intervals wait until they are long enough for a whole microsecond of drift; else drift would be lost. */
	if (passed < CLOCK_SLEW)
		return passed > 0 ? c->now_us + passed : c->now_us;
	int64_t now = c->now_us + passed, most = passed / CLOCK_SLEW, off = wall_us - now;
	if (off > most)
		off = most;
	if (off < -most)
		off = -most;
	c->boot_us = boot_us;
	c->now_us = now + off;
	return c->now_us;
}

int64_t slew_boot_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
