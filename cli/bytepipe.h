/*
 * A TCP connection of this machine carried by a dial stream: bytes both ways, the end of either direction passed on, a reset passed
 * on as a reset. What comes is acknowledged once the connection took it, and it is read only as the stream takes it, so whoever is
 * slow stops the other side.
 */
#ifndef SANDBOX_CLI_BYTEPIPE_H
#define SANDBOX_CLI_BYTEPIPE_H

#include "shared/base/buf.h"
#include "shared/mux/mux.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct bytepipe {
	int fd; /* non-blocking; -1: over */
	struct mux *m;
	uint32_t stream; /* 0: closed */
	bool live;       /* accepted: bytes may flow */
	bool in_eof;     /* this machine's side has ended */
	bool out_eof;    /* the remote side has ended */
	bool draining;   /* the stream closed; what it sent still goes out */
	struct buf out;  /* for the connection, from `head` on */
	size_t head;
	uint64_t taken;  /* what the connection took */
	int64_t moved_ms; /* monotonic: the last byte */
};

/* The window to open or accept its stream with. */
enum { BYTEPIPE_WINDOW = 256 * 1024 };

/* Takes fd and makes it non-blocking. The stream's user pointer becomes the pipe. */
void bytepipe_init(struct bytepipe *p, int take_fd, struct mux *m, uint32_t stream);
/* Ends what is left of either side. reset: the connection is reset instead of ended. */
void bytepipe_end(struct bytepipe *p, bool reset);
/* Nothing is left: free it. */
static inline bool bytepipe_over(const struct bytepipe *p)
{
	return p->fd < 0;
}

/* Events of its stream. */
void bytepipe_data(struct bytepipe *p, uint64_t offset, const void *bytes, size_t n);
void bytepipe_eof(struct bytepipe *p);
/* failed: the remote end did not end in order. */
void bytepipe_closed(struct bytepipe *p, bool failed);

void bytepipe_poll(const struct bytepipe *p, struct pollfd *ret);
void bytepipe_ready(struct bytepipe *p, short revents);

#endif
