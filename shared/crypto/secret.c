/* Secrets in memory: see secret.h. */
#include "shared/crypto/secret.h"

#include "shared/base/mem.h"

#include <string.h>

void secret_done(struct secret *s)
{
	if (s->bytes)
		explicit_bzero(s->bytes, s->n);
	free(s->bytes);
	*s = (struct secret)SECRET_INIT;
}

void secret_set(struct secret *s, const void *p, size_t n)
{
	unsigned char *copy = xmalloc(n + 1);
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
