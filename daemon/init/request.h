/* What an OPEN of a command asks, checked and bounded. */
#ifndef SANDBOX_INIT_REQUEST_H
#define SANDBOX_INIT_REQUEST_H

#include "shared/mux/tlv.h"

#include <sys/types.h>

enum { OPERATION_MAX = 64, REQUEST_GROUPS_MAX = 32 };

struct request {
	char operation[OPERATION_MAX + 1];
	struct strv args;
	struct strv env; /* one entry per name: the last wins */
	char *cwd;
	char *user; /* NULL: init's own */
	int64_t timeout_ms; /* 0: none */
	uint64_t flags;
	unsigned rows, cols; /* 0: not given */
	bool keep_caps;
	gid_t groups[REQUEST_GROUPS_MAX];
	size_t group_count;
	uint32_t window;
};

void request_done(struct request *r);
#define auto_request __attribute__((cleanup(request_done))) struct request

/* ERR_INVALID or ERR_TOO_LARGE with a line for people. */
int request_parse(struct request *ret, const struct tlv *fields, struct error *err);
/* The value of a name in the request's environment; NULL when it has none. */
const char *request_getenv(const struct request *r, const char *name);
void request_setenv(struct request *r, const char *name, const char *value);
int request_operation(const struct tlv *fields, char ret[static OPERATION_MAX + 1], struct error *err);
unsigned request_size(const struct tlv *fields, enum mux_field f); /* rows or columns, at most 65535 */

#endif
