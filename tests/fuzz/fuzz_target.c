/*
 * Request targets: whatever comes in, what is taken apart is bounded and UTF-8 without NUL, and what is refused says why.
 * fuzz-archives: daemon
 */
#include "daemon/api/target.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(const struct strv *v)
{
	for (size_t i = 0; i < v->len; i++)
		if (!utf8_valid(v->items[i], strlen(v->items[i])))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	auto_free char *raw = xstrndup((const char *)p, n);
	struct target t;
	struct error err = ERROR_INIT;
	if (target_parse(raw, &t, &err) != 0) {
		if (err.code != ERR_INVALID || !err.message[0])
			abort();
		return 0;
	}
	if (t.segments.len > TARGET_SEGMENTS_MAX || t.names.len > TARGET_QUERY_MAX || t.names.len != t.values.len)
		abort();
	check(&t.segments);
	check(&t.names);
	check(&t.values);
	for (size_t i = 0; i < t.names.len; i++)
		if (!target_query(&t, t.names.items[i]))
			abort();
	target_done(&t);
	return 0;
}
