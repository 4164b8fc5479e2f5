/* libsodium's SHA-256 by dlopen. */
#include "cli/sha256.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
	int (*init)(void *state);
	int (*update)(void *state, const unsigned char *p, unsigned long long n);
	int (*final)(void *state, unsigned char *out);
} sodium;

static void *symbol(void *lib, const char *name)
{
	return lib ? dlsym(lib, name) : NULL;
}

int sha256_load(struct error *err)
{
	static const char *const names[] = { "libsodium.so.23", "libsodium.so.26", "libsodium.so" };
	void *lib = NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	size_t (*size)(void) = (size_t(*)(void))symbol(lib, "crypto_hash_sha256_statebytes");
	sodium.init = (int (*)(void *))symbol(lib, "crypto_hash_sha256_init");
	sodium.update = (int (*)(void *, const unsigned char *, unsigned long long))symbol(lib, "crypto_hash_sha256_update");
	sodium.final = (int (*)(void *, unsigned char *))symbol(lib, "crypto_hash_sha256_final");
	if (!size || size() > sizeof(struct sha256) || !sodium.init || !sodium.update || !sodium.final)
		return error_set(err, ERR_UNAVAILABLE, "--verify needs libsodium, which is not installed");
	return 0;
}

void sha256_init(struct sha256 *s)
{
	sodium.init(s->state);
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
	sodium.update(s->state, p, n);
}

char *sha256_hex(struct sha256 *s, char out[static SHA256_HEX])
{
	unsigned char sum[SHA256_LEN];
	sodium.final(s->state, sum);
	for (int i = 0; i < SHA256_LEN; i++)
		snprintf(out + 2 * i, 3, "%02x", sum[i]);
	return out;
}
