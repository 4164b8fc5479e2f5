/* Sealing secrets: see vault.h. A sealed value is: version, the key's id, nonce, ciphertext with its tag. */
#include "daemon/controller/vault.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

enum {
	KEY_LEN = crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
	NONCE_LEN = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
	TAG_LEN = crypto_aead_xchacha20poly1305_ietf_ABYTES,
	KEY_ID_LEN = 8,
	SEAL_VERSION = 1,
	HEAD_LEN = 1 + KEY_ID_LEN + NONCE_LEN,
};

#define PURPOSE "sandboxd secret 1"

struct vault {
	char *path;
	pthread_mutex_t lock;
	struct secret key; /* n == 0: locked */
	unsigned char id[KEY_ID_LEN];
};

struct vault *vault_new(const char *key_file)
{
	struct vault *v = xcalloc(1, sizeof(*v));
	v->path = xstrdup(key_file);
	pthread_mutex_init(&v->lock, NULL);
	return v;
}

void vault_free(struct vault *v)
{
	if (!v)
		return;
	secret_done(&v->key);
	pthread_mutex_destroy(&v->lock);
	free(v->path);
	free(v);
}

static void take_key(struct vault *v, const void *bytes)
{
	secret_set(&v->key, bytes, KEY_LEN);
	crypto_generichash(v->id, sizeof(v->id), v->key.bytes, KEY_LEN, (const unsigned char *)PURPOSE, strlen(PURPOSE));
}

static int make_key(struct vault *v, struct error *err)
{
	unsigned char bytes[KEY_LEN];
	randombytes_buf(bytes, sizeof(bytes));
	int rc = io_write_file_atomic(v->path, bytes, sizeof(bytes), 0600, true, err);
	if (rc == 0)
		take_key(v, bytes);
	sodium_memzero(bytes, sizeof(bytes));
	return rc;
}

static int read_key(struct vault *v, bool may_make, struct error *err)
{
	struct stat st;
	struct error e = ERROR_INIT;
	auto_buf b = BUF_INIT_MAX(KEY_LEN + 1);
	if (io_read_file(v->path, KEY_LEN, &b, &e) != 0) {
		if (e.code == ERR_NOT_FOUND && may_make)
			return make_key(v, err);
		if (e.code == ERR_NOT_FOUND)
			return error_set(err, ERR_NOT_FOUND, "the key of the stored secrets is missing: put it back at %s, or delete the secrets", v->path);
		return error_set(err, e.code, "%s", e.message);
	}
	int rc = 0;
	if (stat(v->path, &st) != 0 || st.st_mode & 077)
		rc = error_set(err, ERR_FORBIDDEN, "%s may be read by others: chmod 600 it", v->path);
	else if (b.len != KEY_LEN)
		rc = error_set(err, ERR_INVALID, "%s holds no key of %d bytes", v->path, (int)KEY_LEN);
	else
		take_key(v, b.data);
	sodium_memzero(b.data, b.len);
	return rc;
}

int vault_unlock(struct vault *v, bool may_make, struct error *err)
{
	if (sodium_init() < 0)
		return error_set(err, ERR_INTERNAL, "libsodium does not start");
	pthread_mutex_lock(&v->lock);
	int rc = v->key.n ? 0 : read_key(v, may_make, err);
	pthread_mutex_unlock(&v->lock);
	return rc;
}

/* Where it belongs: no other place opens it. */
static void add_place(struct buf *b, const char *tenant, const char *name)
{
	buf_add(b, PURPOSE, sizeof(PURPOSE));
	buf_add(b, tenant, strlen(tenant) + 1);
	buf_add(b, name, strlen(name) + 1);
}

int vault_seal(struct vault *v, const char *tenant, const char *name, const struct secret *value, struct buf *ret, struct error *err)
{
	auto_buf place = BUF_INIT;
	unsigned char head[HEAD_LEN] = { SEAL_VERSION };
	unsigned long long n = 0;
	if (!v->key.n)
		return error_set(err, ERR_INTERNAL, "the key of secrets is not there");
	memcpy(head + 1, v->id, KEY_ID_LEN);
	randombytes_buf(head + 1 + KEY_ID_LEN, NONCE_LEN);
	add_place(&place, tenant, name);
	buf_add(ret, head, sizeof(head));
	unsigned char *out = (unsigned char *)buf_reserve(ret, value->n + TAG_LEN);
	if (!out)
		return error_set(err, ERR_TOO_LARGE, "the secret is too long");
	crypto_aead_xchacha20poly1305_ietf_encrypt(out, &n, value->bytes, value->n, (const unsigned char *)place.data, place.len, NULL,
						   head + 1 + KEY_ID_LEN, v->key.bytes);
	buf_commit(ret, (size_t)n);
	return 0;
}

int vault_open(struct vault *v, const char *tenant, const char *name, const struct buf *sealed, struct secret *ret, struct error *err)
{
	auto_buf place = BUF_INIT;
	const unsigned char *p = (const unsigned char *)sealed->data;
	unsigned long long n = 0;
	if (sealed->len < HEAD_LEN + TAG_LEN || p[0] != SEAL_VERSION)
		return error_set(err, ERR_INTERNAL, "secret '%s' is damaged in the store: set it again", name);
	if (!v->key.n || memcmp(p + 1, v->id, KEY_ID_LEN) != 0)
		return error_set(err, ERR_CONFLICT, "secret '%s' was sealed with another key than %s: put that key back, or set the secret again", name,
				 v->path);
	add_place(&place, tenant, name);
	size_t size = sealed->len - HEAD_LEN;
	unsigned char *plain = sodium_malloc(size);
	if (!plain)
		return error_set(err, ERR_SYSTEM, "no memory for secret '%s'", name);
	int rc = crypto_aead_xchacha20poly1305_ietf_decrypt(plain, &n, NULL, p + HEAD_LEN, size, (const unsigned char *)place.data, place.len,
							    p + 1 + KEY_ID_LEN, v->key.bytes);
	if (rc == 0)
		secret_set(ret, plain, (size_t)n);
	sodium_free(plain);
	return rc == 0 ? 0 : error_set(err, ERR_INTERNAL, "secret '%s' is damaged in the store: set it again", name);
}
