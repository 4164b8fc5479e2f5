/* The few functions of libsodium that are used, loaded when they are: a process that needs none of them does not pay for the library. */
#ifndef SANDBOX_CLI_SODIUM_H
#define SANDBOX_CLI_SODIUM_H

#include "shared/base/error.h"

#include <stddef.h>

enum { SODIUM_KEY = 32, SODIUM_NONCE = 24, SODIUM_TAG = 16, SODIUM_SALT = 16 };
/* libsodium's OPSLIMIT and MEMLIMIT "moderate" for Argon2id. */
enum { SODIUM_OPS = 3, SODIUM_MEMORY = 256 * 1024 * 1024 };

struct sodium {
	void *handle;
	/* XChaCha20-Poly1305 (IETF). */
	int (*encrypt)(unsigned char *c, unsigned long long *c_n, const unsigned char *m, unsigned long long m_n, const unsigned char *ad,
	               unsigned long long ad_n, const unsigned char *unused, const unsigned char *nonce, const unsigned char *key);
	int (*decrypt)(unsigned char *m, unsigned long long *m_n, unsigned char *unused, const unsigned char *c, unsigned long long c_n,
	               const unsigned char *ad, unsigned long long ad_n, const unsigned char *nonce, const unsigned char *key);
	int (*pwhash)(unsigned char *out, unsigned long long out_n, const char *password, unsigned long long password_n,
	              const unsigned char *salt, unsigned long long ops, size_t memory, int algorithm);
};

/* ERR_UNAVAILABLE when the library is not installed. */
int sodium_load(struct sodium *ret, struct error *err);
void sodium_unload(struct sodium *s);
#define auto_sodium __attribute__((cleanup(sodium_unload))) struct sodium
/* Argon2id. */
int sodium_derive(const struct sodium *s, const void *password, size_t n, const unsigned char salt[static SODIUM_SALT],
                  unsigned char key[static SODIUM_KEY], struct error *err);

#endif
