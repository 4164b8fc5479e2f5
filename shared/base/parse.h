/*
 * The only parsers of numbers, sizes, durations, names and ports. Each takes the whole string, names
 * the range in its message, and accepts no leading blank, sign or trailing text unless said so.
 */
#ifndef SANDBOX_BASE_PARSE_H
#define SANDBOX_BASE_PARSE_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Decimal in [min, max]. `what` names the value in the message. A leading '-' only when min < 0. */
int parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret, struct error *err);
/* "90", "90s", "1.5h", "30m", "2d", "500ms": plain numbers are seconds; lower case only. Rounded down. Result in milliseconds within [min_ms, max_ms]. */
int parse_duration_ms(const char *what, const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms, struct error *err);
/* "64m", "1g", "512MiB", "1048576": plain numbers are bytes; k, m, g, t (any case, also kb and KiB) are powers of 1024. Rounded down. */
int parse_size(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret_bytes, struct error *err);
/* What the two parsers above read back exactly: "2d", "90s", "1500ms"; "64MiB", "1000". Return out. */
char *duration_format(int64_t ms, char out[static 32]);
char *size_format(int64_t bytes, char out[static 32]);
/* "true/false", "yes/no", "on/off", "1/0". */
int parse_bool(const char *what, const char *text, bool *ret, struct error *err);

bool name_valid(const char *s);        /* sandbox names: [a-z][a-z0-9-]{0,62}, not four and more of hex digits and dashes only */
bool tenant_valid(const char *s);      /* [a-z0-9][a-z0-9._-]{0,62} */
bool label_key_valid(const char *s);   /* [A-Za-z0-9][A-Za-z0-9._/-]{0,127} */
bool label_value_valid(const char *s); /* printable UTF-8, at most 256 bytes */
bool env_key_valid(const char *s);     /* [A-Za-z_][A-Za-z0-9_]* */
bool secret_name_valid(const char *s); /* [A-Za-z_][A-Za-z0-9._-]{0,62} */
bool secret_file_valid(const char *s); /* [A-Za-z0-9_-][A-Za-z0-9._-]{0,127} */
bool utf8_valid(const char *p, size_t n); /* no surrogates, no overlong forms; NUL is valid UTF-8 here */
/* The bytes of the character at p, 0 when there is no valid one within n. */
size_t utf8_next(const char *p, size_t n);
/* The length of a prefix of p[0..n) that does not cut a character (n minus at most 3). */
size_t utf8_cut(const char *p, size_t n);
/* Text safe for a terminal or a log line: control bytes, DEL, C1, invalid UTF-8, line separators and
 * direction overrides become \xNN. Cut, never inside a character or an escape, when out is too small. Returns out. */
char *text_escape(const char *p, size_t n, char *out, size_t out_size);

#endif
