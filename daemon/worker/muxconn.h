/*
 * A mux on a non-blocking stream socket, driven by the event loop. Loop thread only.
 *
 * Every stream that somebody owns carries a struct stream as its user pointer: events of the stream go to its ops,
 * events of the connection to the connection's. A connection ends late (on the next turn of the loop), so it may be
 * dropped from inside any callback.
 */
#ifndef SANDBOX_DAEMON_MUXCONN_H
#define SANDBOX_DAEMON_MUXCONN_H

#include "shared/mux/mux.h"

#include <stdbool.h>

struct event_base;
struct muxloop;
struct muxconn;
struct stream;

/* All may be NULL. After closed and lost the stream is dead: s->m is NULL already. */
struct stream_ops {
	void (*accepted)(struct stream *s, const struct tlv *fields);
	void (*data)(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n);
	void (*eof)(struct stream *s, unsigned channel);
	void (*window)(struct stream *s, unsigned channel, uint64_t consumed);
	void (*control)(struct stream *s, const struct tlv *fields);
	void (*closed)(struct stream *s, const struct tlv *fields);
	void (*lost)(struct stream *s, enum mux_error why);
	void (*writable)(struct stream *s);
};

/* Embedded in its owner. */
struct stream {
	const struct stream_ops *ops;
	struct mux *m; /* NULL: not (or no longer) a stream */
	uint32_t id;
};

/* Makes s the owner of a stream. */
void stream_bind(struct stream *s, const struct stream_ops *ops, struct mux *m, uint32_t id);
/* Closes the stream when it is one. */
void stream_close(struct stream *s, const struct tlv *fields);

struct muxconn_ops {
	void (*hello)(void *ctx, struct muxconn *c, const struct tlv *fields);
	void (*opened)(void *ctx, struct muxconn *c, uint32_t stream, const struct tlv *fields);
	/* The connection is gone, after `lost` of its streams; c is freed on return. Also called by muxconn_drop. */
	void (*gone)(void *ctx, struct muxconn *c, const char *why);
};

/* What all connections of one loop share: the base and the read buffer. */
struct muxloop *muxloop_new(struct event_base *base);
void muxloop_free(struct muxloop *l);
struct event_base *muxloop_base(const struct muxloop *l);
/* The read buffer, for one who reads another descriptor of the loop: good until the callback it is asked in returns. */
void *muxloop_buffer(struct muxloop *l, size_t *ret_size);

struct muxconn *muxconn_new(struct muxloop *l, int take_fd, const struct muxconn_ops *ops, void *ctx, bool dialled);
struct mux *muxconn_mux(const struct muxconn *c);
void *muxconn_ctx(const struct muxconn *c);
int muxconn_fd(const struct muxconn *c); /* borrowed; not to be read or written */
/* Bytes read before the connection was handed over. */
void muxconn_early(struct muxconn *c, const void *p, size_t n);
/* What `lost` of its streams and `gone` will say. */
void muxconn_set_reason(struct muxconn *c, enum mux_error why);
/* Ends it on the next turn of the loop; nothing more is read. */
void muxconn_close(struct muxconn *c, const char *why);
/* Ends it now. Not from a callback of this connection. */
void muxconn_drop(struct muxconn *c, const char *why);

#endif
