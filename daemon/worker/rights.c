/* Private images: see rights.h. */
#include "daemon/worker/rights.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/model/image_ref.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
	ANSWERS = 256,          /* remembered; the oldest goes first */
	FRESH_MS = 60 * 1000,   /* so long an answer of a registry holds */
	REPOSITORY_MAX = 520,
	FILE_MAX = 2 * LIMIT_PRIVATE_REPOSITORIES * REPOSITORY_MAX,
	HASH = 32,
};

struct answer {
	unsigned char hash[HASH]; /* of reference and login, keyed: nothing of a login stays here */
	int64_t until_ms;
};

struct rights {
	pthread_mutex_t lock;
	char *path;
	struct strv private; /* "ghcr.io/org/name" */
	unsigned char key[crypto_generichash_KEYBYTES];
	struct answer answers[ANSWERS];
	size_t next;
};

static void repository_of(const struct image_ref *ref, char *ret, size_t n)
{
	snprintf(ret, n, "%s/%s", ref->registry, ref->repository);
}

static bool is_private(const struct rights *r, const char *image)
{
	struct image_ref ref;
	char repository[REPOSITORY_MAX];
	if (image_ref_parse(image, &ref, NULL) != 0 || ref.is_id)
		return false;
	repository_of(&ref, repository, sizeof(repository));
	return strv_has(&r->private, repository);
}

int rights_new(const char *state_dir, struct rights **ret, struct error *err)
{
	struct rights *r = xcalloc(1, sizeof(*r));
	struct error e = ERROR_INIT;
	auto_buf text = BUF_INIT;
	pthread_mutex_init(&r->lock, NULL);
	r->path = xasprintf("%s/private-images", state_dir);
	int rc = sodium_init() < 0 ? error_set(&e, ERR_INTERNAL, "libsodium does not start") : io_read_file(r->path, FILE_MAX, &text, &e);
	if (rc != 0 && e.code != ERR_NOT_FOUND) {
		rights_free(r);
		return error_set(err, e.code, "%s", e.message);
	}
	randombytes_buf(r->key, sizeof(r->key));
	char *at = (char *)(uintptr_t)buf_str(&text), *line;
	while (text.len > 0 && (line = strsep(&at, "\n")))
		if (*line)
			strv_add(&r->private, line);
	*ret = r;
	return 0;
}

void rights_free(struct rights *r)
{
	if (!r)
		return;
	strv_done(&r->private);
	free(r->path);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* Those there are and one more. */
static int save_with(struct rights *r, const char *repository, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (r->private.len >= LIMIT_PRIVATE_REPOSITORIES)
		return error_set(err, ERR_NO_CAPACITY, "this worker knows %d private repositories, the limit: those no longer used can be taken out of %s while it is stopped",
				 LIMIT_PRIVATE_REPOSITORIES, r->path);
	for (size_t i = 0; i < r->private.len; i++)
		buf_addf(&text, "%s\n", r->private.items[i]);
	buf_addf(&text, "%s\n", repository);
	return io_write_file_atomic(r->path, buf_str(&text), text.len, 0600, true, err);
}

bool rights_private(struct rights *r, const char *image)
{
	pthread_mutex_lock(&r->lock);
	bool yes = is_private(r, image);
	pthread_mutex_unlock(&r->lock);
	return yes;
}

int rights_mark(struct rights *r, const char *image, struct error *err)
{
	struct image_ref ref;
	char repository[REPOSITORY_MAX];
	int rc = 0;
	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	if (ref.is_id)
		return error_set(err, ERR_INVALID, "an image id names no repository");
	repository_of(&ref, repository, sizeof(repository));
	pthread_mutex_lock(&r->lock);
	if (!strv_has(&r->private, repository) && (rc = save_with(r, repository, err)) == 0)
		strv_add(&r->private, repository);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* By its id an image is everybody's when any of its names is. */
static int question_of_id(const struct rights *r, const char *image, const struct strv *names, char **ret, struct error *err)
{
	const char *private = NULL;
	for (size_t i = 0; i < names->len; i++) {
		if (!is_private(r, names->items[i]))
			return 0;
		private = names->items[i];
	}
	if (!private && r->private.len > 0)
		return error_set(err, ERR_FORBIDDEN, "image '%.80s' has no name on this worker, so nothing tells who may use it: give it one", image);
	*ret = private ? xstrdup(private) : NULL;
	return 0;
}

int rights_question(struct rights *r, const char *image, const struct strv *names, char **ret, struct error *err)
{
	struct image_ref ref;
	int rc = 0;
	*ret = NULL;
	if (image_ref_parse(image, &ref, err) != 0)
		return -1;
	pthread_mutex_lock(&r->lock);
	if (ref.is_id)
		rc = question_of_id(r, image, names, ret, err);
	else if (is_private(r, image))
		*ret = xstrdup(ref.familiar);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* --- what registries said --- */

static void hash_of(const struct rights *r, const char *image, const struct secret *login, unsigned char ret[static HASH])
{
	crypto_generichash_state s;
	crypto_generichash_init(&s, r->key, sizeof(r->key), HASH);
	crypto_generichash_update(&s, (const unsigned char *)image, strlen(image) + 1);
	if (login->n > 0)
		crypto_generichash_update(&s, login->bytes, login->n);
	crypto_generichash_final(&s, ret, HASH);
	sodium_memzero(&s, sizeof(s));
}

bool rights_fresh(struct rights *r, const char *image, const struct secret *login)
{
	unsigned char hash[HASH];
	int64_t now = clock_mono_ms();
	bool found = false;
	hash_of(r, image, login, hash);
	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; !found && i < ANSWERS; i++)
		found = r->answers[i].until_ms > now && memcmp(r->answers[i].hash, hash, HASH) == 0;
	pthread_mutex_unlock(&r->lock);
	return found;
}

void rights_note(struct rights *r, const char *image, const struct secret *login)
{
	struct answer a = { .until_ms = clock_mono_ms() + FRESH_MS };
	hash_of(r, image, login, a.hash);
	pthread_mutex_lock(&r->lock);
	r->answers[r->next] = a;
	r->next = (r->next + 1) % ANSWERS;
	pthread_mutex_unlock(&r->lock);
}
