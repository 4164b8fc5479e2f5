/* The grammar check that runs before cJSON sees a byte; internal to shared/json. */
#ifndef SANDBOX_JSON_SCAN_H
#define SANDBOX_JSON_SCAN_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RFC 8259 to the letter, one document, plus our bounds (depth, values, exact numbers, no NUL). ERR_INVALID with the byte position. */
int json_scan(const char *p, size_t n, struct error *err);

/* Without libm, which every start of the CLI would have to load: from 2^53 on a double has no fraction. */
static inline bool json_is_whole(double v)
{
	const double all_whole = 9007199254740992.0;
	return v >= all_whole || v <= -all_whole || v == (double)(int64_t)v;
}

#endif
