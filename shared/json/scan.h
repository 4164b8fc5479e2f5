/* The grammar check that runs before cJSON sees a byte; internal to shared/json. */
#ifndef SANDBOX_JSON_SCAN_H
#define SANDBOX_JSON_SCAN_H

#include "shared/base/error.h"

#include <stddef.h>

/* RFC 8259 to the letter, one document, plus our bounds (depth, values, exact numbers, no NUL). ERR_INVALID with the byte position. */
int json_scan(const char *p, size_t n, struct error *err);

#endif
