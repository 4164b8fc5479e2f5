/* A hash map from ids to borrowed pointers. Not thread-safe. */
#ifndef SANDBOX_DAEMON_IDMAP_H
#define SANDBOX_DAEMON_IDMAP_H

#include "shared/base/id.h"

#include <stddef.h>

struct idmap_slot {
	struct id key; /* text[0] == 0: free */
	void *value;
};

struct idmap {
	struct idmap_slot *slots; /* cap of them, cap a power of two */
	size_t cap;
	size_t len;
};

#define IDMAP_INIT                                                                                                               \
	{                                                                                                                        \
		.slots = NULL                                                                                                    \
	}

void idmap_done(struct idmap *m);			      /* the values are the caller's */
void *idmap_get(const struct idmap *m, const struct id *key); /* NULL when absent */
/* Replaces; value is not NULL. Returns the value that was there, or NULL. */
void *idmap_put(struct idmap *m, const struct id *key, void *value);
void *idmap_remove(struct idmap *m, const struct id *key); /* the value that was there, or NULL */
/* All values in an array of m->len (free() it): for loops whose body changes the map. NULL when empty. */
void **idmap_values(const struct idmap *m);

#endif
