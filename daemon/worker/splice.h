/* Two streams joined: what comes on one goes out on the other, with end-to-end credit. See relay.c. Event loop thread only. */
#ifndef SANDBOX_DAEMON_SPLICE_H
#define SANDBOX_DAEMON_SPLICE_H

#include "shared/mux/mux.h"

struct relay;

/* Whose they are: a list that holds them, and who is told (may be NULL) when one is gone. */
struct relay_owner {
	struct relay **list;
	void (*freed)(void *a, void *b);
	void *a, *b;
};

/* Opens a stream on `far` with these fields and joins the client's with it. The client's is answered, now or later. */
void relay_splice(const struct relay_owner *o, struct mux *client, uint32_t stream, struct mux *far, const struct tlv *fields);
/* A client's stream that is joined with nothing: it only ends, with the others of its list. */
void relay_alone(const struct relay_owner *o, struct mux *client, uint32_t stream);
void relay_close_all(struct relay **list, enum mux_error why, const char *text);

#endif
