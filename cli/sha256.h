/* SHA-256 by libsodium, loaded when first used: linking it would cost every start of the program. */
#ifndef SANDBOX_CLI_SHA256_H
#define SANDBOX_CLI_SHA256_H

#include "shared/base/error.h"

#include <stddef.h>

enum { SHA256_LEN = 32, SHA256_HEX = 2 * SHA256_LEN + 1 };

struct sha256 {
	_Alignas(16) unsigned char state[128];
};

/* ERR_UNAVAILABLE when the library is not there. */
int sha256_load(struct error *err);
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* Lower-case hex. Returns out. */
char *sha256_hex(struct sha256 *s, char out[static SHA256_HEX]);

#endif
