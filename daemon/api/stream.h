/*
 * A stream of lines (application/x-ndjson) from a job thread to a client. The producer never blocks and never cares
 * whether the client is still there; the memory held for a slow one is bounded by dropping lines of progress.
 */
#ifndef SANDBOX_DAEMON_API_STREAM_H
#define SANDBOX_DAEMON_API_STREAM_H

#include "daemon/api/request.h"

struct stream;

/* Two references: the producer's (stream_end) and the answer's. */
struct stream *stream_new(struct api *a);
/* Makes the stream the answer of r: takes over the answer's reference. */
void stream_answer(struct stream *s, struct request *r, struct answer *a);
/* One line of progress; dropped while much is queued. Takes the tree. */
void stream_progress(struct stream *s, cJSON *take_line);
/* The last line; drops the producer's reference. */
void stream_end(struct stream *s, cJSON *take_line);
/* Breaks all streams off (the daemon stops). */
void stream_abort_all(struct api *a);
/* Drops the answer's reference when it never became one. */
void stream_drop(struct stream *s);

#endif
