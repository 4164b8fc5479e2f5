/* A request target ("/v1/sandboxes/web?wait=5") taken apart: decoded path segments and query pairs. Pure; input is hostile. */
#ifndef SANDBOX_DAEMON_API_TARGET_H
#define SANDBOX_DAEMON_API_TARGET_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

enum { TARGET_SEGMENTS_MAX = 16, TARGET_QUERY_MAX = 128 };

struct target {
	struct strv segments; /* "/v1/x" → "v1", "x"; a trailing slash leaves an empty last one */
	struct strv names;    /* query names and values, same index, in order */
	struct strv values;
};

#define TARGET_INIT { .segments = STRV_INIT, .names = STRV_INIT, .values = STRV_INIT }

/* ERR_INVALID: not origin-form, a broken or NUL escape, bytes that are not UTF-8, too many parts. */
int target_parse(const char *raw, struct target *ret, struct error *err);
void target_done(struct target *t);
/* The first value of a query name, NULL when absent. */
const char *target_query(const struct target *t, const char *name);

#endif
