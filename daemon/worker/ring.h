/*
 * Bytes of a flow between two absolute offsets, at most RING_SIZE of them: what a window lets in and the other side
 * has not taken. Memory comes with the first byte.
 */
#ifndef SANDBOX_DAEMON_RING_H
#define SANDBOX_DAEMON_RING_H

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <stdint.h>

enum { RING_SIZE = LIMIT_MUX_WINDOW };

struct ring {
	uint8_t *data;
};

static inline void ring_done(struct ring *r)
{
	free(r->data);
	r->data = NULL;
}

/* Stores n bytes from offset on. The caller keeps what is wanted within RING_SIZE. */
static inline void ring_put(struct ring *r, uint64_t offset, const void *p, size_t n)
{
	size_t at = (size_t)(offset % RING_SIZE), first = RING_SIZE - at < n ? RING_SIZE - at : n;

	if (!r->data)
		r->data = xmalloc(RING_SIZE);
	memcpy(r->data + at, p, first);
	memcpy(r->data, (const uint8_t *)p + first, n - first);
}

/* The bytes of [from, to) that lie together from `from` on. from < to. */
static inline size_t ring_get(const struct ring *r, uint64_t from, uint64_t to, const void **ret)
{
	size_t at = (size_t)(from % RING_SIZE), n = RING_SIZE - at;

	*ret = r->data + at;
	return n < to - from ? n : (size_t)(to - from);
}

#endif
