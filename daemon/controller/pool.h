/* Warm pools, inside the controller: pool.c claims, pool_keep.c keeps them at their size. */
#ifndef SANDBOX_DAEMON_CONTROLLER_POOL_H
#define SANDBOX_DAEMON_CONTROLLER_POOL_H

#include "daemon/controller/internal.h"

enum {
	POOL_NAME_SIZE = 33,
	WHY_SIZE = 512,
	POOL_FAILED_LATELY_US = 120 * 1000 * 1000,
	POOL_QUIET_US = 500 * 1000, /* nothing is started for a pool so soon after a claim: the next one may be coming */
};

struct pool {
	char name[POOL_NAME_SIZE];
	struct spec spec;          /* its tenant is "" */
	size_t size;
	int64_t max_age_ms;
	uint64_t claims, misses;
	char why[WHY_SIZE];        /* what its last start was refused with, "": it was not */
};

struct pools {
	pthread_mutex_t lock; /* a leaf */
	struct pool *items;
	size_t n;
	bool dirty;           /* others may be left of a configuration before */
	int64_t claimed_ms;   /* monotonic: the last claim, or a create that found nothing ready; 0: none */
};

/* All of a spec that a sandbox started before cannot be given later, as text. Whatever is not named in pool_key's code is part of it. */
char *pool_key(const struct spec *asked, enum tier tier);
/* The tier that policy makes of a pool's spec. */
enum tier pool_tier(struct controller *c, const struct spec *s);
/* Whether the request could be placed on this node if one such sandbox less were there; then d says that it is, from this pool. */
bool pool_may_claim(struct controller *c, const struct spec *spec, const struct id *node, const char *pool, struct decision *d);
/* Of those that wait, brings those to the front that would have to end for the request to be placed, and returns how many they are; 0: it
 * would not help. */
struct pool_member {
	struct id id, node;
	struct resources resources;
};
size_t pool_must_yield(struct controller *c, const struct spec *spec, enum tier required, struct pool_member *members, size_t n);
/* Ends one that waits; nothing when it was claimed meanwhile. */
int pool_end_member(struct controller *c, const struct id *id, struct error *err);
/* A copy of the i-th pool, to be looked at without the lock (spec_done its spec); false: there are no more. */
bool pool_copy(struct controller *c, size_t i, struct pool *ret);

#endif
