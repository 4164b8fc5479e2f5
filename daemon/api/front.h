/*
 * The TLS front: accepts, does TLS 1.2 or later, and hands each connection on as a plain one, over a socket pair. Who gets
 * them never knows. Runs on the carrier's thread.
 */
#ifndef SANDBOX_DAEMON_API_FRONT_H
#define SANDBOX_DAEMON_API_FRONT_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct carrier;
struct front;

struct front_options {
	struct carrier *carrier;
	int listen_fd; /* non-blocking, listening; taken, also on failure */
	const char *cert, *key; /* PEM files; the first holds the chain */
	/* The plain end of a connection whose handshake is done, with the client's address (carrier's thread). Takes the
	 * descriptor; -1: refused. Not called after front_quiesce returned. */
	int (*give)(void *ctx, int take_fd, const struct sockaddr *from, socklen_t len);
	void *ctx;
};

int front_start(const struct front_options *o, struct front **ret, struct error *err);
/* Reads the files again; running connections keep what they have. On failure the old certificate stays in use. */
int front_reload(struct front *f, const char *cert, const char *key, struct error *err);
/* Gives no more; connections that were given go on. */
void front_quiesce(struct front *f);
/* Waits a moment for the connections whose plain end was closed to be flushed. */
void front_drain(struct front *f, int64_t timeout_ms);
/* Ends all connections, after carrier_stop. NULL is fine. */
void front_free(struct front *f);

/* Certificate and key as they would be used: ERR_INVALID says what is wrong with them. */
int front_check(const char *cert, const char *key, struct error *err);

#endif
