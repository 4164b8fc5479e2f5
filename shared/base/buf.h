/*
 * Growable byte buffers with a maximum, and string vectors.
 *
 * Invariants: `data` is NULL or NUL-terminated at data[len] (the NUL is not counted), so a buffer
 * without embedded NULs is also a C string. A write that would pass `max` sets `overflow`, adds
 * nothing, and every later write is ignored too: check once at the end.
 */
#ifndef SANDBOX_BASE_BUF_H
#define SANDBOX_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max; /* 0: no maximum of its own */
	bool overflow;
};

#define BUF_INIT { .data = NULL }
#define BUF_INIT_MAX(n) { .max = (n) }

void buf_done(struct buf *b); /* frees; the buffer is empty and usable again */
void buf_reset(struct buf *b); /* len = 0, keeps the memory */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for n more bytes at data + len (NULL when over the maximum); then add them with buf_commit. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
/* The content as a C string, never NULL; borrowed until the next change. */
const char *buf_str(const struct buf *b);
/* Hands the memory to the caller (a C string, never NULL) and leaves the buffer empty. */
char *buf_steal(struct buf *b);

#define auto_buf __attribute__((cleanup(buf_done))) struct buf

/* An array of owned C strings; `items[len]` is NULL once anything was added, so it serves as argv. */
struct strv {
	char **items;
	size_t len;
	size_t cap;
};

#define STRV_INIT { .items = NULL }

void strv_done(struct strv *v);
void strv_add(struct strv *v, const char *s); /* copies */
void strv_take(struct strv *v, char *take_s); /* owns */
void strv_copy(struct strv *dst, const struct strv *src); /* replaces dst */
bool strv_has(const struct strv *v, const char *s);

#define auto_strv __attribute__((cleanup(strv_done))) struct strv

/* An ordered map of text to text; keys are unique. */
struct kv {
	char *key;
	char *value;
};

struct map {
	struct kv *items;
	size_t len;
	size_t cap;
};

#define MAP_INIT { .items = NULL }

void map_done(struct map *m);
void map_set(struct map *m, const char *key, const char *value); /* replaces */
const char *map_get(const struct map *m, const char *key); /* NULL when absent */
void map_copy(struct map *dst, const struct map *src);

#define auto_map __attribute__((cleanup(map_done))) struct map

#endif
