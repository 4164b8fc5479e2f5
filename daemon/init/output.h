/*
 * One output channel of a command: read from its descriptor into a ring that keeps every byte until the worker has
 * reported it consumed. When the ring holds a full window, reading stops, and so does the command.
 */
#ifndef SANDBOX_INIT_OUTPUT_H
#define SANDBOX_INIT_OUTPUT_H

#include "daemon/init/loop.h"
#include "shared/mux/mux.h"

struct output {
	struct loop *loop;
	struct watch w;
	struct timer trim;
	struct mux *mux; /* NULL: nobody takes the bytes now */
	uint32_t stream;
	unsigned channel;
	uint32_t window; /* the most that is kept */
	uint8_t *ring;
	size_t cap;     /* of the ring: 0 or a power of two */
	uint64_t start; /* consumed by the worker */
	uint64_t sent;  /* given to the mux */
	uint64_t end;   /* read */
	bool ended;     /* no byte comes any more */
	bool eof_sent;
	bool roomy;     /* its pipe was enlarged */
	void (*changed)(struct output *o); /* bytes came, it ended, or all was sent */
};

void output_init(struct output *o, struct loop *l, unsigned channel, uint32_t window, void (*changed)(struct output *o));
/* Starts reading. Takes fd; a failure ends the channel. */
void output_open(struct output *o, int take_fd);
/* The first offset from `offset` on that is kept: below it everything was consumed. */
uint64_t output_kept(const struct output *o, uint64_t offset);
void output_attach(struct output *o, struct mux *m, uint32_t stream, uint64_t offset);
void output_detach(struct output *o);
void output_acked(struct output *o, uint64_t offset);
void output_pump(struct output *o); /* sends what may be sent */
void output_read(struct output *o); /* reads what is there now */
bool output_blocked(const struct output *o);
bool output_delivered(const struct output *o); /* ended, and everything with its EOF was given to the mux */
/* Ends the channel although its descriptor is still open elsewhere. keep_reading: what is written later is discarded, so that
 * a server left behind does not stop or die on its log; else the descriptor is closed. */
void output_stop(struct output *o, bool keep_reading);
void output_done(struct output *o);

#endif
