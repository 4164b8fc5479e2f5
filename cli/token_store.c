/* The encrypted store of tokens, one file an origin: see token.h. */
#include "cli/token.h"

#include "cli/home.h"
#include "cli/sodium.h"
#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/http/unix_client.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_FILE "token.key"

enum { FILE_BYTES_MAX = 64 * 1024, NAME_BYTES_MAX = 250, VERSION = 1 };

/* --- files ------------------------------------------------------------------------------------------------------ */

static char *store_dir(void)
{
	auto_free char *config = home_config_dir();
	return config ? xasprintf("%s/tokens", config) : NULL;
}

/* The file of an origin; *ret_dir and the result are the caller's. */
static char *origin_path(const char *origin, char **ret_dir, char **ret_name, struct error *err)
{
	*ret_dir = store_dir();
	*ret_name = url_encode(origin);
	if (!*ret_dir || strlen(*ret_name) > NAME_BYTES_MAX) {
		error_set(err, ERR_INVALID, *ret_dir ? "the server's name is too long" : "there is no place for tokens: HOME is not set; use SANDBOX_TOKEN");
		return NULL;
	}
	return xasprintf("%s/%s", *ret_dir, *ret_name);
}

/* A file that is nobody else's business: no link, ours. One that others could read is closed to them at once. */
static int read_private(const char *path, struct secret *ret, struct error *err)
{
	struct stat st;
	char bytes[FILE_BYTES_MAX];
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "%s does not exist", path);
	if (fd < 0 && errno == ELOOP)
		return error_set(err, ERR_FORBIDDEN, "%s is a symbolic link, so it is not used", path);
	if (fd < 0 || fstat(fd, &st) != 0)
		return error_errno(err, "opening %s", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return error_set(err, ERR_FORBIDDEN, "%s is not a file of your own, so it is not used", path);
	if ((st.st_mode & 077) && fchmod(fd, 0600) != 0)
		return error_errno(err, "%s can be read by others; closing it", path);
	ssize_t n = io_read_full(fd, bytes, sizeof(bytes));
	if (n < 0)
		return error_errno(err, "reading %s", path);
	secret_set(ret, bytes, (size_t)n);
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

/* --- keys ------------------------------------------------------------------------------------------------------- */

static int wrong_key(const char *path, struct error *err)
{
	return error_set(err, ERR_INVALID, "%s is not a key; remove it and log in again", path);
}

static int read_key(struct secret *ret, struct error *err)
{
	auto_free char *dir = home_data_dir();
	if (!dir)
		return error_set(err, ERR_INVALID, "there is no place for the key of the tokens: HOME is not set");
	auto_free char *path = xasprintf("%s/" KEY_FILE, dir);
	if (read_private(path, ret, err) != 0)
		return -1;
	return ret->n == SODIUM_KEY ? 0 : wrong_key(path, err);
}

/* The key, made on first use. Under the lock, so that two logins at once agree on one. */
static int make_key(struct secret *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	unsigned char fresh[SODIUM_KEY];
	auto_free char *dir = home_data_dir();
	auto_close int lock = dir ? home_lock(dir, err) : -1;
	if (lock < 0)
		return dir ? -1 : error_set(err, ERR_INVALID, "there is no place for the key of the tokens: HOME is not set");
	if (read_key(ret, &e) == 0)
		return 0;
	if (e.code != ERR_NOT_FOUND)
		return error_set(err, e.code, "%s", e.message);
	random_bytes(fresh, sizeof(fresh));
	auto_free char *path = xasprintf("%s/" KEY_FILE, dir);
	int rc = io_write_file_atomic(path, fresh, sizeof(fresh), 0600, true, err);
	if (rc == 0)
		secret_set(ret, fresh, sizeof(fresh));
	explicit_bzero(fresh, sizeof(fresh));
	return rc;
}

static int passphrase_key(const struct sodium *s, const struct secret *passphrase, const unsigned char *salt, struct secret *ret, struct error *err)
{
	unsigned char key[SODIUM_KEY];
	if (sodium_derive(s, passphrase->bytes, passphrase->n, salt, key, err) != 0)
		return -1;
	secret_set(ret, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return 0;
}

static int get_passphrase(struct secret *ret, struct error *err)
{
	const char *own = getenv("SANDBOX_PASSPHRASE");
	if (own && *own) {
		secret_set(ret, own, strlen(own));
		return 0;
	}
	if (token_ask("Passphrase of the stored token: ", ret, NULL) == 0)
		return 0;
	return error_set(err, ERR_UNAUTHORIZED, "the stored token has a passphrase and there is no terminal to ask on; set SANDBOX_PASSPHRASE or SANDBOX_TOKEN");
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static void add_base64(cJSON *o, const char *key, const void *p, size_t n)
{
	auto_free char *text = base64_encode(p, n);
	json_add_str(o, key, text);
}

static char *sealed_text(const struct sodium *s, const char *origin, const struct secret *token, const struct secret *key,
			 const unsigned char *salt)
{
	unsigned char nonce[SODIUM_NONCE];
	auto_free unsigned char *out = xmalloc(token->n + SODIUM_TAG);
	unsigned long long n = 0;
	auto_json *o = cJSON_CreateObject();
	random_bytes(nonce, sizeof(nonce));
	s->encrypt(out, &n, token->bytes, token->n, (const unsigned char *)origin, strlen(origin), NULL, nonce, key->bytes);
	json_add_i64(o, "version", VERSION);
	json_add_str(o, "origin", origin);
	json_add_str(o, "key", salt ? "argon2id" : "file");
	if (salt)
		add_base64(o, "salt", salt, SODIUM_SALT);
	add_base64(o, "nonce", nonce, sizeof(nonce));
	add_base64(o, "sealed", out, (size_t)n);
	return json_print(o);
}

int token_store_put(const char *origin, const struct secret *token, const struct secret *passphrase, struct error *err)
{
	auto_free char *dir = NULL;
	auto_free char *name = NULL;
	auto_free char *path = origin_path(origin, &dir, &name, err);
	auto_sodium s = { .handle = NULL };
	auto_secret key = SECRET_INIT;
	unsigned char salt[SODIUM_SALT];
	if (!path || sodium_load(&s, err) != 0)
		return -1;
	random_bytes(salt, sizeof(salt));
	if ((passphrase ? passphrase_key(&s, passphrase, salt, &key, err) : make_key(&key, err)) != 0)
		return -1;
	auto_free char *text = sealed_text(&s, origin, token, &key, passphrase ? salt : NULL);
	auto_close int lock = home_lock(dir, err);
	return lock < 0 ? -1 : io_write_file_atomic(path, text, strlen(text), 0600, true, err);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static int read_file(const char *origin, cJSON **ret, struct error *err)
{
	auto_free char *dir = NULL;
	auto_free char *name = NULL;
	auto_free char *path = origin_path(origin, &dir, &name, err);
	auto_secret text = SECRET_INIT;
	auto_json *o = NULL;
	if (!path || read_private(path, &text, err) != 0)
		return -1;
	if (json_parse((const char *)text.bytes, text.n, &o, NULL) != 0 || !cJSON_IsObject(o))
		return error_set(err, ERR_INVALID, "%s is damaged; log in again", path);
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(o, "version");
	if (!cJSON_IsNumber(version) || version->valuedouble != VERSION)
		return error_set(err, ERR_INVALID, "%s is of another version of this program; log in again", path);
	*ret = steal(&o);
	return 0;
}

/* A member of exactly n bytes, or at least SODIUM_TAG when n is 0. */
static int get_bytes(const cJSON *o, const char *key, size_t n, struct buf *ret)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
	if (!text || base64_decode(text, ret, NULL) != 0)
		return -1;
	return (n ? ret->len == n : ret->len > SODIUM_TAG) ? 0 : -1;
}

static bool by_passphrase(const cJSON *o)
{
	const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
	return kind && strcmp(kind, "argon2id") == 0;
}

static int find_key(const struct sodium *s, const cJSON *o, struct secret *ret, struct error *err)
{
	auto_secret passphrase = SECRET_INIT;
	auto_buf salt = BUF_INIT;
	if (!by_passphrase(o))
		return read_key(ret, err);
	if (get_bytes(o, "salt", SODIUM_SALT, &salt) != 0)
		return error_set(err, ERR_INVALID, "the stored token is damaged; log in again");
	if (get_passphrase(&passphrase, err) != 0)
		return -1;
	return passphrase_key(s, &passphrase, (const unsigned char *)salt.data, ret, err);
}

int token_store_get(const char *origin, struct secret *ret, struct error *err)
{
	auto_json *o = NULL;
	auto_buf nonce = BUF_INIT, sealed = BUF_INIT;
	auto_secret key = SECRET_INIT;
	auto_sodium s = { .handle = NULL };
	unsigned long long n = 0;
	if (read_file(origin, &o, err) != 0)
		return -1;
	if (get_bytes(o, "nonce", SODIUM_NONCE, &nonce) != 0 || get_bytes(o, "sealed", 0, &sealed) != 0)
		return error_set(err, ERR_INVALID, "the token stored for %s is damaged; log in again", origin);
	if (sodium_load(&s, err) != 0 || find_key(&s, o, &key, err) != 0)
		return -1;
	auto_free unsigned char *out = xmalloc(sealed.len);
	if (s.decrypt(out, &n, NULL, (const unsigned char *)sealed.data, sealed.len, (const unsigned char *)origin, strlen(origin),
		      (const unsigned char *)nonce.data, key.bytes) != 0)
		return error_set(err, ERR_UNAUTHORIZED, "the token stored for %s does not open: %s", origin,
				 by_passphrase(o) ? "the passphrase is another one" : "its key is another one; log in again");
	secret_set(ret, out, (size_t)n);
	explicit_bzero(out, sealed.len);
	return 0;
}

enum token_source token_store_source(const char *origin)
{
	auto_json *o = NULL;
	if (read_file(origin, &o, NULL) != 0)
		return TOKEN_NONE;
	return by_passphrase(o) ? TOKEN_STORE_PASSPHRASE : TOKEN_STORE;
}

int token_store_remove(const char *origin, struct error *err)
{
	auto_free char *dir = NULL;
	auto_free char *name = NULL;
	auto_free char *path = origin_path(origin, &dir, &name, err);
	if (!path)
		return -1;
	if (unlink(path) == 0)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return error_set(err, ERR_NOT_FOUND, "no token was kept for %s", origin);
	return error_errno(err, "removing %s", path);
}
