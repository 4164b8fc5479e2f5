/* Loading libsodium: see sodium.h. */
#include "cli/sodium.h"

#include <dlfcn.h>
#include <string.h>

enum { ARGON2ID13 = 2 };

/* A data pointer to a function pointer, which ISO C has no cast for. */
static int symbol(void *library, const char *name, void *ret)
{
	void *found = dlsym(library, name);
	memcpy(ret, &found, sizeof(found));
	return found ? 0 : -1;
}

int sodium_load(struct sodium *ret, struct error *err)
{
	struct sodium s = { .handle = dlopen("libsodium.so.23", RTLD_NOW | RTLD_LOCAL) };
	int (*init)(void) = NULL;
	if (!s.handle)
		s.handle = dlopen("libsodium.so.26", RTLD_NOW | RTLD_LOCAL);
	if (!s.handle)
		return error_set(err, ERR_UNAVAILABLE, "stored tokens need libsodium, which is not installed; install it, name a token-helper, or set "
				 "SANDBOX_TOKEN");
	if (symbol(s.handle, "sodium_init", &init) != 0 || symbol(s.handle, "crypto_aead_xchacha20poly1305_ietf_encrypt", &s.encrypt) != 0 ||
	    symbol(s.handle, "crypto_aead_xchacha20poly1305_ietf_decrypt", &s.decrypt) != 0 ||
	    symbol(s.handle, "crypto_pwhash", &s.pwhash) != 0 || init() < 0) {
		sodium_unload(&s);
		return error_set(err, ERR_UNAVAILABLE, "the libsodium found is not one this program can use");
	}
	*ret = s;
	return 0;
}

void sodium_unload(struct sodium *s)
{
	if (s->handle)
		dlclose(s->handle);
	s->handle = NULL;
}

int sodium_derive(const struct sodium *s, const void *password, size_t n, const unsigned char salt[static SODIUM_SALT],
                  unsigned char key[static SODIUM_KEY], struct error *err)
{
	if (s->pwhash(key, SODIUM_KEY, password, n, salt, SODIUM_OPS, SODIUM_MEMORY, ARGON2ID13) != 0)
		return error_set(err, ERR_SYSTEM, "deriving a key from the passphrase needs %d MiB of memory", SODIUM_MEMORY >> 20);
	return 0;
}
