/* Secrets in memory: see secret.h. Each has pages of its own, so that they can be kept out of swap and core files. */
#include "shared/crypto/secret.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t pages_for(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (n + 1 + page - 1) / page * page;
}

void secret_done(struct secret *s)
{
	if (s->bytes) {
		explicit_bzero(s->bytes, s->n);
		munmap(s->bytes, pages_for(s->n));
	}
	*s = (struct secret)SECRET_INIT;
}

void secret_set(struct secret *s, const void *p, size_t n)
{
	size_t size = pages_for(n);
	unsigned char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		abort();
	/* Best effort: users may lock only a little. */
	(void)mlock(copy, size);
#ifdef MADV_DONTDUMP
	(void)madvise(copy, size, MADV_DONTDUMP);
#endif
	if (n > 0)
		memcpy(copy, p, n);
	copy[n] = '\0';
	secret_done(s);
	*s = (struct secret){ .bytes = copy, .n = n };
}

bool secret_equal(const struct secret *a, const struct secret *b)
{
	unsigned char different = a->n != b->n;
	for (size_t i = 0; i < a->n && i < b->n; i++)
		different |= (unsigned char)(a->bytes[i] ^ b->bytes[i]);
	return !different;
}
