/* Time: int64_t, the unit is in every name. Monotonic for waiting, wall clock only for records. */
#ifndef SANDBOX_BASE_CLOCK_H
#define SANDBOX_BASE_CLOCK_H

#include <stdint.h>

enum { RFC3339_MAX = 32 };

int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_wall_us(void);
/* "2026-01-02T03:04:05.678901Z"; years 0001..9999. Returns out. */
char *time_rfc3339(int64_t us, char out[static RFC3339_MAX]);
/* Whole-string RFC 3339 with Z or a numeric offset, fraction up to 9 digits. 0 or -1. */
int time_parse_rfc3339(const char *text, int64_t *ret_us);

#endif
