/*
 * Strict JSON over cJSON. Reading refuses what cJSON accepts or mangles: NUL, bad UTF-8, lone surrogates,
 * duplicate keys, trailing bytes, numbers that are not exact integers where an integer is wanted, depth over
 * LIMIT_JSON_DEPTH_MAX, size over LIMIT_JSON_BYTES_MAX. Messages carry the path of the field ("spec.resources.pids").
 */
#ifndef SANDBOX_JSON_JSON_H
#define SANDBOX_JSON_JSON_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

void json_freep(cJSON **j);
#define auto_json __attribute__((cleanup(json_freep))) cJSON

/* Parses exactly one document. ERR_INVALID with position, ERR_TOO_LARGE. */
int json_parse(const char *p, size_t n, cJSON **ret, struct error *err);
/* Compact text, owned by the caller. Never fails for trees we built. */
char *json_print(const cJSON *j);

/*
 * A reader walks one object: each json_get_* marks its key as known; json_end refuses the keys nobody asked for
 * (requests) — skip json_end for answers, which tolerate new fields. The first failure is kept and every later
 * call does nothing, so a decoder reads all fields and checks once.
 */
struct json_reader {
	const cJSON *object;
	const struct json_reader *parent; /* for the path */
	const char *name;                 /* key in the parent, or "" */
	int index;                        /* ≥ 0: element of an array */
	uint64_t seen[4];                 /* bitmap over the object's members by position */
	struct error *err;
	bool *failed;
	bool failed_here;
};

/* Starts at the root; j must be an object. Check r->failed via json_ok(). */
void json_reader_init(struct json_reader *r, const cJSON *j, const char *name, struct error *err);
bool json_ok(const struct json_reader *r);
/* Sets ERR_INVALID "<path>.<key>: <text>"; returns -1. */
int json_fail(struct json_reader *r, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* 0 when no unknown key and nothing failed. */
int json_end(struct json_reader *r);

enum json_need { JSON_REQUIRED, JSON_OPTIONAL }; /* optional: absent or null leaves *ret as it is */

void json_get_str(struct json_reader *r, const char *key, enum json_need need, size_t max, char **ret); /* frees the old *ret */
void json_get_i64(struct json_reader *r, const char *key, enum json_need need, int64_t min, int64_t max, int64_t *ret);
void json_get_u32(struct json_reader *r, const char *key, enum json_need need, uint32_t min, uint32_t max, uint32_t *ret);
void json_get_bool(struct json_reader *r, const char *key, enum json_need need, bool *ret);
void json_get_strv(struct json_reader *r, const char *key, enum json_need need, size_t max_items, size_t max, struct strv *ret);
void json_get_map(struct json_reader *r, const char *key, enum json_need need, size_t max_items, size_t max, struct map *ret);
/* An enum word; parse is one of the model's X_parse. */
#define json_get_enum(r, key, need, type, ret) \
	do { \
		char *word_ = NULL; \
		json_get_str((r), (key), (need), 64, &word_); \
		if (word_ && type##_parse(word_, (ret)) != 0) \
			json_fail((r), (key), "'%s' is not one of the known values", word_); \
		free(word_); \
	} while (0)
/* Child object: false when absent (and optional) or failed. The child shares the failure state. */
bool json_get_object(struct json_reader *r, const char *key, enum json_need need, struct json_reader *ret_child);
/* Child array: its length (0 when absent), elements by json_element. */
size_t json_get_array(struct json_reader *r, const char *key, enum json_need need, size_t max_items, const cJSON **ret_array);
bool json_element(struct json_reader *r, const char *key, const cJSON *array, size_t i, struct json_reader *ret_child);

/* Adders that cannot fail. NULL text becomes null. */
void json_add_str(cJSON *object, const char *key, const char *value);
void json_add_i64(cJSON *object, const char *key, int64_t value); /* exact for |value| < 2^53 */
void json_add_bool(cJSON *object, const char *key, bool value);
void json_add_strv(cJSON *object, const char *key, const struct strv *v);
void json_add_map(cJSON *object, const char *key, const struct map *m);
void json_add_time(cJSON *object, const char *key, int64_t us); /* RFC 3339; 0 becomes null */
/* Bytes: as text under key when valid UTF-8 without NUL, else key holds a lossy text (U+FFFD, NUL as \ufffd too) and
 * key_base64 the exact bytes. */
void json_add_bytes(cJSON *object, const char *key, const void *p, size_t n);

/* base64 (RFC 4648, padded). Decoding is strict. */
char *base64_encode(const void *p, size_t n);
int base64_decode(const char *text, struct buf *ret, struct error *err);

#endif
