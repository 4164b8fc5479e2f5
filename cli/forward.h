/*
 * Private ports: connections to ports of this machine's loopback addresses, carried to ports of a sandbox's own loopback. One stream
 * connection carries all of them; it is made again when it breaks.
 */
#ifndef SANDBOX_CLI_FORWARD_H
#define SANDBOX_CLI_FORWARD_H

#include "cli/cli.h"
#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct forward_port {
	uint16_t local;  /* 0: a free one; forward_run fills in which */
	uint16_t remote;
};

struct forward_request {
	const char *sandbox; /* the id: a name could mean another sandbox by and by */
	struct forward_port *ports;
	size_t n_ports;
	/* Everything listens and the server has agreed. -1 with err ends it. */
	int (*ready)(void *ctx, struct error *err);
	void *ctx;
};

/* Runs until an interrupt (0) or until it cannot go on (-1): the sandbox ended, the server cannot be reached any more, a local port is
 * taken (ERR_CONFLICT). A connection's own trouble ends that connection alone. */
int forward_run(struct cli *cli, struct forward_request *rq, struct error *err);

/* "[LOCAL:]REMOTE". ERR_INVALID. */
int forward_port_parse(const char *text, struct forward_port *ret, struct error *err);

#endif
