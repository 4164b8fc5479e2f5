/*
 * A body too large to hold: handed to a reading thread through a socket pair as it arrives. Back-pressure: when the
 * reader is slow the connection is suspended. The reader sees end of file only when the whole body came; a client that
 * breaks off makes its read fail with ECONNRESET, so that half an archive is never taken for a whole one.
 */
#ifndef SANDBOX_DAEMON_API_UPLOAD_H
#define SANDBOX_DAEMON_API_UPLOAD_H

#include "daemon/api/request.h"

/* ret_read_fd (blocking) is the reading thread's; it closes it when done. */
int upload_new(struct request *r, struct upload **ret, int *ret_read_fd, struct error *err);
/* Takes what fits of n bytes and says how many; suspends r when that is not all. */
size_t upload_feed(struct upload *u, const char *p, size_t n);
/* Bytes so far. */
uint64_t upload_bytes(const struct upload *u);
void upload_finish(struct upload *u); /* the body is complete */
void upload_free(struct upload *u);   /* without upload_finish: breaks off; NULL is fine */

#endif
