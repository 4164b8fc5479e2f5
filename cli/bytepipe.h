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
	const void *tag;  /* its owner's */
	struct bytepipe *next;
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

/* --- many of them --- */

struct bytepipes {
	struct bytepipe *first;
	size_t n;
};

/* A new one, owned by the set; takes fd. stream 0: it is over at once. */
struct bytepipe *bytepipes_add(struct bytepipes *all, int take_fd, struct mux *m, uint32_t stream, const void *tag);
/* Frees those that are over, ends those that somebody has forgotten half-closed. */
void bytepipes_sweep(struct bytepipes *all);
void bytepipes_done(struct bytepipes *all);
/* One entry for each. bytepipes_ready looks at the same entries; meanwhile none may be swept. */
void bytepipes_poll(const struct bytepipes *all, struct pollfd *fds);
void bytepipes_ready(struct bytepipes *all, const struct pollfd *fds);

/* Members of a mux_handler for connections all of whose streams with a user pointer are pipes. */
void bytepipe_on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *bytes, size_t n);
void bytepipe_on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel);
void bytepipe_on_lost(void *ctx, struct mux *m, uint32_t stream);

#endif
