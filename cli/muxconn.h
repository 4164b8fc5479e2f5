/*
 * One mux connection of the CLI: dialled with its first frames on board, then driven from a poll loop. The owner embeds it as the
 * first member of its own struct and gives the handler, whose ctx is that struct; streams, offsets and what a loss means are its own.
 */
#ifndef SANDBOX_CLI_MUXCONN_H
#define SANDBOX_CLI_MUXCONN_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/mux/mux.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

/* How a connection is made: a blocking descriptor on which mux frames flow, `early` already sent. */
struct dialler {
	/* redial: an earlier connection broke; wait for the server until deadline_ms (monotonic) and do not start one. */
	int (*dial)(void *ctx, const void *early, size_t n, bool redial, int64_t deadline_ms, int *ret_fd, struct buf *ret_rest,
	            struct error *err);
	void *ctx;
};

struct cli;
/* The dialler of a session; `cli` outlives it. */
struct dialler session_dialler(struct cli *cli);

struct muxconn {
	int fd; /* -1: not connected */
	struct mux *mux;
	char *in;
	bool send_failed; /* the peer is gone for writing; what it sent is still read */
};

#define MUXCONN_INIT { .fd = -1 }

/* A mux whose HELLO is queued. Open streams on it, then dial. */
void muxconn_start(struct muxconn *c, const struct mux_handler *handler);
/* Connects and sends everything queued; handlers run for frames that came with the answer. -1: not connected (the mux stays). */
int muxconn_dial(struct muxconn *c, const struct dialler *d, bool redial, int64_t deadline_ms, struct error *err);
void muxconn_stop(struct muxconn *c); /* harmless when not started */

void muxconn_poll(const struct muxconn *c, struct pollfd *ret);
enum muxconn_state { MUXCONN_ALIVE, MUXCONN_GONE, MUXCONN_BROKEN };
/* After poll: reads, feeds, flushes. GONE: the transport ended; BROKEN: the peer broke the protocol (err says how). */
enum muxconn_state muxconn_ready(struct muxconn *c, short revents, struct error *err);
/* Sends what is queued as far as the transport takes it. */
void muxconn_flush(struct muxconn *c);

#endif
