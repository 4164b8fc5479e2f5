/* Bytes that must not be seen: a type of their own, so that no %s takes them; locked in memory where the system lets it, wiped when done,
 * compared in constant time. */
#ifndef SANDBOX_CRYPTO_SECRET_H
#define SANDBOX_CRYPTO_SECRET_H

#include <stdbool.h>
#include <stddef.h>

struct secret {
	unsigned char *bytes; /* NUL-terminated beyond n, so that a token can be given where a C string is wanted */
	size_t n;
};

#define SECRET_INIT { .bytes = NULL }

/* Replaces *s by a copy. */
void secret_set(struct secret *s, const void *p, size_t n);
void secret_done(struct secret *s);
bool secret_equal(const struct secret *a, const struct secret *b);
#define auto_secret __attribute__((cleanup(secret_done))) struct secret

#endif
