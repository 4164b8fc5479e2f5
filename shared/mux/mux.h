/*
 * mux: many streams over one byte transport. docs/protocol-mux.md is the byte-level contract.
 *
 * A struct mux is a pure state machine: it owns no descriptor and never blocks. Feed it the bytes that
 * came in; it calls the handler. What it wants to send goes to the sink at once when nothing is queued,
 * the rest waits in a bounded queue until mux_flush(). It allocates per stream, never per frame, and is
 * used unchanged by init, daemon and CLI (so: libc only).
 *
 * Flow control: each receiver grants a window W per stream and channel (in OPEN or ACCEPT) and reports
 * absolute consumed offsets (WINDOW). A sender never has more than W bytes beyond the last consumed
 * offset. Offsets are absolute so that a stream can be resumed on another connection (mux_rebase).
 *
 * Nothing invents an outcome: a connection that ends with streams open calls `lost` for each.
 */
#ifndef SANDBOX_MUX_MUX_H
#define SANDBOX_MUX_MUX_H

#include "shared/base/error.h"
#include "shared/mux/tlv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { MUX_VERSION = 1, MUX_VERSION_MIN = 1, MUX_HEADER_LEN = 12, MUX_CHANNELS = 3 };

enum mux_type {
	MUX_HELLO = 1,
	MUX_OPEN = 2,
	MUX_ACCEPT = 3,
	MUX_DATA = 4,
	MUX_EOF = 5,
	MUX_WINDOW = 6,
	MUX_CONTROL = 7,
	MUX_CLOSE = 8,
	MUX_PING = 9,
	MUX_PONG = 10,
};

enum { MUX_FLAG_MORE = 1 }; /* fields continue in the next frame of this stream */

/* Channels of an exec stream; byte pipes use MUX_STDIN in both directions. */
enum mux_channel { MUX_STDIN = 0, MUX_STDOUT = 1, MUX_STDERR = 2 };

struct mux;

/* All callbacks may call back into the mux except mux_free. `fields` and `p` are borrowed for the call. NULL members are allowed. */
struct mux_handler {
	void (*hello)(void *ctx, struct mux *m, const struct tlv *fields);
	/* The peer opened a stream: answer with mux_accept or mux_close, now or later. */
	void (*opened)(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields);
	void (*accepted)(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields);
	/* n bytes inside the granted window arrived at absolute `offset`; all are taken. Report progress with mux_consumed. */
	void (*data)(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n);
	void (*eof)(void *ctx, struct mux *m, uint32_t stream, unsigned channel);
	/* The peer consumed up to `consumed`: retained bytes below may go, more may be sent. */
	void (*window)(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t consumed);
	void (*control)(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields);
	/* The peer closed the stream. When this side has not closed it, it is closed by the return (no reply needed); the id is dead. */
	void (*closed)(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields);
	/* The transport ended or broke the protocol with this stream still open; the id is dead. From mux_lost only. */
	void (*lost)(void *ctx, struct mux *m, uint32_t stream);
	/* Queue has room again after mux_room() had returned 0. */
	void (*writable)(void *ctx, struct mux *m);
	void (*pong)(void *ctx, struct mux *m);
};

/* Tries to send; returns bytes taken (0: would block), -1: the transport is dead. */
typedef ssize_t (*mux_sink)(void *ctx, const struct iovec *iov, int n);

struct mux_options {
	const struct mux_handler *handler;
	void *ctx;
	mux_sink sink; /* NULL: everything queues, the owner takes it with mux_queued/mux_taken (tests) */
	bool dialled;  /* this side dialled: its streams are odd */
	uint32_t max_streams; /* 0: LIMIT_MUX_STREAMS_MAX */
};

struct mux *mux_new(const struct mux_options *o);
void mux_free(struct mux *m); /* does not call handlers */

/* Bytes from the transport. -1: the peer broke the protocol (message says how); call mux_lost and drop the connection. */
int mux_feed(struct mux *m, const void *p, size_t n, struct error *err);
/* Calls `lost` for every stream still open. */
void mux_lost(struct mux *m);

/* Writes what is queued. -1 when the sink failed. mux_want_write: something is queued. */
int mux_flush(struct mux *m);
bool mux_want_write(const struct mux *m);
/* The first run of queued bytes, and removal of n of them: for an owner without a sink. */
size_t mux_queued(struct mux *m, const void **ret);
void mux_taken(struct mux *m, size_t n);
/* Between them small frames only queue, so that a batch costs one write. They nest; mux_feed does it by itself. */
void mux_cork(struct mux *m);
void mux_uncork(struct mux *m);
/* Bytes of DATA that may be queued now (0 when the queue is long: wait for `writable`). */
size_t mux_room(const struct mux *m);

/* The first frame each way. fields may hold MUX_F_KEY, MUX_F_NONCE, …; version and limits are added. */
void mux_hello(struct mux *m, const struct tlv *fields);
bool mux_greeted(const struct mux *m); /* the peer's HELLO came */

/* Opens a stream (fields: MUX_F_KIND first). Returns its id, 0 when the limit is reached. */
uint32_t mux_open(struct mux *m, const struct tlv *fields, uint32_t window, struct error *err);
/* 0, or -1 when the stream is gone. */
int mux_accept(struct mux *m, uint32_t stream, const struct tlv *fields, uint32_t window);
/* Queues up to n bytes on a channel; returns how many were taken: at least as many of them as mux_sendable said. 0 is normal. */
size_t mux_send(struct mux *m, uint32_t stream, unsigned channel, const void *p, size_t n);
/* Bytes the peer's window and the queue would take now. */
size_t mux_sendable(const struct mux *m, uint32_t stream, unsigned channel);
void mux_eof(struct mux *m, uint32_t stream, unsigned channel); /* once per channel; later calls do nothing */
/* The receiver's absolute progress; sent to the peer when worth a frame (a quarter window, or all that came before an EOF). */
void mux_consumed(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset);
void mux_control(struct mux *m, uint32_t stream, const struct tlv *fields);
/* Ends the stream from this side; later frames of the peer for it are dropped. Outcome fields go along. */
void mux_close(struct mux *m, uint32_t stream, const struct tlv *fields);
void mux_ping(struct mux *m);

/* Starts a channel's counters at an offset: sent (what the peer already has) or received. Before any byte moved on it. */
void mux_rebase_send(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset);
void mux_rebase_recv(struct mux *m, uint32_t stream, unsigned channel, uint64_t offset);

void mux_set_user(struct mux *m, uint32_t stream, void *user);
void *mux_user(const struct mux *m, uint32_t stream); /* NULL when the stream is gone */
size_t mux_stream_count(const struct mux *m);
/* Calls fn for every open stream (fn may close it). */
void mux_each(struct mux *m, void (*fn)(void *ctx, struct mux *m, uint32_t stream, void *user), void *ctx);

#endif
