/*
 * Calls over a mux connection, both ways: one stream each. OPEN {KIND=CALL, METHOD}, the request's bytes and EOF on channel 0;
 * the answer's bytes come back on channel 0, then CLOSE, with CODE and MESSAGE when it failed. Bodies mean nothing here.
 *
 * The connection is the event loop thread's. Who calls blocks on another thread; who answers does so on a thread of the pool.
 */
#ifndef SANDBOX_DAEMON_LINK_CALL_H
#define SANDBOX_DAEMON_LINK_CALL_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/mux/mux.h"

#include <stdbool.h>
#include <stdint.h>

struct calls;
struct call_in;
struct mailbox;

/* --- threads that answer --- */

struct call_pool;
struct call_pool *call_pool_new(void);
/* Waits for what is being answered. */
void call_pool_free(struct call_pool *p);

/* --- asking --- */

struct call_out {
	const char *method;
	const char *argument; /* a short text beside the body; NULL: none */
	const void *body; /* NULL: none */
	size_t n;
	bool from_fd;     /* body_fd is read to its end instead of body */
	int body_fd;
	int64_t timeout_ms; /* of silence; 0: none */
	/* Gets the answer's bytes as they come, on the caller's thread; NULL: they are collected. False: not wanted any more. */
	bool (*on_data)(void *ctx, const void *p, size_t n);
	void *ctx;
};

/* What connection calls go over now. `mail` posts to its loop; the mux is NULL while there is none (loop thread only). */
struct caller_link;
struct caller_link *caller_link_new(struct mailbox *mail);
void caller_link_free(struct caller_link *l);
/* Loop thread; NULL: the connection is gone (its calls fail as its streams are lost). */
void caller_link_set(struct caller_link *l, struct mux *m);
/* Loop thread: what is asked is for this node, and is passed on to it; NULL: for whoever is at the other end. Borrowed. */
void caller_link_for(struct caller_link *l, const char *node);

/* Any thread but the loop's. ERR_UNAVAILABLE: no connection, or it broke (whether the call had its effect is then unknown);
 * ERR_TIMEOUT; else what the other side answered. */
int call_ask(struct caller_link *l, const struct call_out *q, struct buf *ret, struct error *err);
/* Loop thread: the same without waiting; copies the body. fn is called once, on the loop thread, maybe before the return. */
typedef void (*call_answered)(void *ctx, const struct buf *answer, const struct error *err);
void call_post(struct caller_link *l, const char *method, const void *body, size_t n, call_answered fn, void *ctx);

/* --- answering --- */

/* On a thread of the pool. 0: `answer` is sent; -1: err is. */
typedef int (*call_handler)(void *ctx, struct call_in *c, struct buf *answer, struct error *err);
struct call_service {
	call_handler handle;
	/* Keeps ctx alive for one more call, and lets go of it; any thread. */
	void (*hold)(void *ctx);
	void (*release)(void *ctx);
	void *ctx;
	struct call_pool *pool;
	struct mailbox *mail;
	const char *file_dir; /* where large bodies of file_methods are kept meanwhile */
	const char *const *file_methods; /* NULL-ended; NULL: none */
};
/* Loop thread: takes an OPEN of kind CALL. */
void call_take(const struct call_service *s, struct mux *m, uint32_t stream, const struct tlv *fields);
const char *call_method(const struct call_in *c);
const char *call_argument(const struct call_in *c); /* NULL: none */
const struct buf *call_body(const struct call_in *c);
int call_file(const struct call_in *c); /* of file_methods: the body, at its beginning; the call's */
/* Sends a piece of the answer ahead of its end; dropped when the other side does not keep up. False: nobody waits any more. */
bool call_send(struct call_in *c, const void *p, size_t n);
/* The same of a piece that matters: waits until the other side has room for it. */
bool call_send_all(struct call_in *c, const void *p, size_t n);

#endif
