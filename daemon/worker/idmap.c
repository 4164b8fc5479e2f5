/* Open addressing with linear probing; removal shifts back, so there are no tombstones. */
#include "daemon/worker/idmap.h"

#include "shared/base/mem.h"

#include <stdint.h>

static size_t home_of(const struct idmap *m, const struct id *key)
{
	uint64_t h = 1469598103934665603ULL;

	for (const char *p = key->text; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211ULL;
	return (size_t)(h ^ h >> 32) & (m->cap - 1);
}

void idmap_done(struct idmap *m)
{
	free(m->slots);
	*m = (struct idmap)IDMAP_INIT;
}

/* The slot that holds key, or the free one where it would go. */
static struct idmap_slot *find(const struct idmap *m, const struct id *key)
{
	size_t i = home_of(m, key);

	while (m->slots[i].key.text[0] && strcmp(m->slots[i].key.text, key->text) != 0)
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

void *idmap_get(const struct idmap *m, const struct id *key)
{
	if (m->len == 0 || !key->text[0])
		return NULL;
	return find(m, key)->value;
}

static void grow(struct idmap *m)
{
	struct idmap bigger = { .cap = m->cap ? m->cap * 2 : 16, .len = m->len };

	bigger.slots = xcalloc(bigger.cap, sizeof(*bigger.slots));
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].key.text[0])
			*find(&bigger, &m->slots[i].key) = m->slots[i];
	}
	free(m->slots);
	*m = bigger;
}

void *idmap_put(struct idmap *m, const struct id *key, void *value)
{
	struct idmap_slot *s;
	void *old;

	if ((m->len + 1) * 4 > m->cap * 3)
		grow(m);
	s = find(m, key);
	old = s->value;
	if (!old)
		m->len++;
	s->key = *key;
	s->value = value;
	return old;
}

void *idmap_remove(struct idmap *m, const struct id *key)
{
	struct idmap_slot *s;
	void *old;
	size_t hole;

	if (m->len == 0 || !(s = find(m, key))->value)
		return NULL;
	old = s->value;
	hole = (size_t)(s - m->slots);
	for (size_t i = (hole + 1) & (m->cap - 1); m->slots[i].key.text[0]; i = (i + 1) & (m->cap - 1)) {
		size_t home = home_of(m, &m->slots[i].key);

		/* An entry may move back only to a place at or after its home. */
		if (((i - home) & (m->cap - 1)) >= ((i - hole) & (m->cap - 1))) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole] = (struct idmap_slot){ .value = NULL };
	m->len--;
	return old;
}

void **idmap_values(const struct idmap *m)
{
	void **all;
	size_t n = 0;

	if (m->len == 0)
		return NULL;
	all = xcalloc(m->len, sizeof(*all));
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].value)
			all[n++] = m->slots[i].value;
	}
	return all;
}
