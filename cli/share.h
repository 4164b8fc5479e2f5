/* Sharing a port of this machine: a public address of the server's leads to it for as long as this runs. */
#ifndef SANDBOX_CLI_SHARE_H
#define SANDBOX_CLI_SHARE_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stdint.h>

struct share_request {
	uint16_t port;
	const char *subdomain; /* NULL: the server's choice */
	bool keep_host;
	/* The address, and when it ends (wall clock, microseconds); again after each new connection, `again` then. -1 with err ends it. */
	int (*ready)(void *ctx, const char *url, int64_t expires_us, bool again, struct error *err);
	void *ctx;
};

/* Runs until an interrupt (0), the server ends it or cannot be reached any more (-1). Visitors get 502 while nothing listens here. */
int share_run(struct cli *cli, const struct share_request *rq, struct error *err);

#endif
