/* What the parts of mux share: streams and their table (mux.c), the way out (out.c), the way in (feed.c). */
#ifndef SANDBOX_MUX_INTERNAL_H
#define SANDBOX_MUX_INTERNAL_H

#include "shared/base/limits.h"
#include "shared/mux/mux.h"

enum {
	MUX_FRAME_MIN = 16 * 1024,    /* payload every peer takes, also before its HELLO */
	MUX_BUCKETS = 128,
	MUX_ROOM_OPEN = 256 * 1024,   /* DATA accepted while the transport takes bytes */
	MUX_ROOM_BLOCKED = 64 * 1024, /* DATA that may wait while it does not: more would only be copied twice */
	MUX_ROOM_LEAST = 4096,        /* less room than this is none: no crumbs of frames */
};

struct sending {
	uint64_t sent;
	uint64_t acked;
	bool eof;
	bool eof_wanted; /* asked for before ACCEPT */
};

struct receiving {
	uint64_t got;
	uint64_t consumed;
	uint64_t announced; /* what the peer knows: its limit is announced + window */
	bool eof;
};

enum stream_state {
	STREAM_OPENING, /* this side sent OPEN */
	STREAM_ASKED,   /* the peer sent OPEN */
	STREAM_OPEN,
};

struct stream {
	struct stream *next;
	uint32_t id;
	enum stream_state state;
	uint32_t window;      /* granted to the peer */
	uint32_t peer_window; /* granted by it */
	void *user;
	struct sending tx[MUX_CHANNELS];
	struct receiving rx[MUX_CHANNELS];
};

/* Bytes under way out: a ring, so that neither adding nor taking moves what is in it. */
struct outq {
	uint8_t *data;
	size_t head;
	size_t len;
	size_t cap;
};

struct frame {
	uint8_t type;
	uint8_t channel;
	uint16_t flags;
	uint32_t stream;
	uint32_t length;
};

struct mux {
	const struct mux_handler *handler;
	void *ctx;
	mux_sink sink;
	uint32_t max_streams;
	uint32_t next_id;   /* the next stream this side opens */
	uint32_t last_peer; /* the highest id the peer opened */
	struct stream *buckets[MUX_BUCKETS];
	size_t count[2]; /* open streams: [0] of the peer, [1] of this side */
	uint32_t peer_frame_max;
	bool said_hello;
	bool greeted;
	bool dead;   /* the sink failed, or the peer broke the protocol */
	/* out */
	struct outq q;
	bool blocked; /* the sink took less than it was given; cleared when the queue is empty */
	bool full;    /* room had run out */
	unsigned corked;
	/* in */
	uint8_t head[MUX_HEADER_LEN];
	size_t head_len;
	struct frame in;
	size_t left;       /* payload bytes of `in` still to come */
	struct buf body;   /* a control payload that came in pieces */
	struct buf fields; /* a field sequence cut over frames */
	bool more;         /* the next frame must continue it */
};

struct stream *stream_find(const struct mux *m, uint32_t id);
struct stream *stream_add(struct mux *m, uint32_t id, enum stream_state state);
void stream_remove(struct mux *m, uint32_t id);
bool stream_is_mine(const struct mux *m, uint32_t id);
/* An id that was open once: frames still under way to it are no error. */
bool stream_was(const struct mux *m, uint32_t id);

/* Sends or queues one frame; the payload is a then b. */
void out_frame(struct mux *m, const struct frame *f, const void *a, size_t an, const void *b, size_t bn);
/* Sends fields `t` (may be NULL) followed by `extra`, over as many frames as needed. */
void out_fields(struct mux *m, enum mux_type type, uint32_t stream, const struct tlv *t, const struct tlv *extra);
void out_eof(struct mux *m, struct stream *s, unsigned channel);
void out_window(struct mux *m, struct stream *s, unsigned channel);
void outq_done(struct outq *q);

#endif
