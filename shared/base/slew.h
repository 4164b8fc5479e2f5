/*
 * The clock that deadlines are compared with. It starts at the wall clock and then runs on the boot-time clock (which counts suspend), drifting
 * toward the wall clock by at most 1 part in CLOCK_SLEW. So a step of the wall clock neither reaps what is alive nor
 * keeps alive what is due, ordinary NTP corrections are followed, and time never runs backward.
 */
#ifndef SANDBOX_BASE_SLEW_H
#define SANDBOX_BASE_SLEW_H

#include <stdint.h>

enum { CLOCK_SLEW = 1000 };

struct slew_clock {
	int64_t boot_us; /* at the last reading */
	int64_t now_us;
};

void slew_clock_start(struct slew_clock *c, int64_t boot_us, int64_t wall_us);
/* The time now, given both clocks. Never less than the time before. */
int64_t slew_clock_read(struct slew_clock *c, int64_t boot_us, int64_t wall_us);
/* CLOCK_BOOTTIME: what passes for boot_us outside of tests. */
int64_t slew_boot_us(void);

#endif
