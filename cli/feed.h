/*
 * Local input on its way to a remote stdin: read only as far as the remote takes it, kept until the remote has consumed it, so that a
 * resumed stream continues at any offset. Memory: one window, allocated at the first byte.
 */
#ifndef SANDBOX_CLI_FEED_H
#define SANDBOX_CLI_FEED_H

#include "cli/localio.h"
#include "cli/terminal.h"
#include "shared/mux/mux.h"

struct feed {
	struct local_fd local;
	char *ring;
	uint64_t acked, sent, end; /* absolute offsets: consumed by the remote, handed to the mux, read */
	bool none;                 /* the remote expects none */
	bool ended;                /* no more input comes */
	bool eof_sent;
	int error;                 /* errno of a failed read; ended is set too */
	struct escape escape;      /* looked for on a raw terminal only */
	struct buf typed;          /* read from a raw terminal, not yet looked at */
};

/* fd < 0: no input at all; closed: input that has ended. */
void feed_open(struct feed *f, int fd, int escape_key);
void feed_close(struct feed *f);
/* Whether reading now makes sense: everything read was sent, and the remote has room. */
bool feed_wants(const struct feed *f, const struct mux *m, uint32_t stream);
/* After poll said so: reads once. An escape key typed is reported; input behind it waits for the next call. */
enum escape_event feed_read(struct feed *f, const struct mux *m, uint32_t stream);
/* Hands what is read to the mux, and EOF after the last byte. */
void feed_push(struct feed *f, struct mux *m, uint32_t stream);
/* The remote consumed up to offset. */
void feed_acked(struct feed *f, uint64_t offset);
/* A new connection continues at offset. False when those bytes are no longer kept, or were never read. */
bool feed_rewind(struct feed *f, uint64_t offset);

#endif
