/* Byte buffers, string vectors, text maps: see buf.h. */
#include "shared/base/buf.h"

#include "shared/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_done(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
	b->overflow = false;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->overflow = false;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
	if (b->overflow)
		return NULL;
	if ((b->max && (n > b->max || b->len > b->max - n)) || n > SIZE_MAX - b->len - 1) {
		b->overflow = true;
		return NULL;
	}
	size_t need = b->len + n + 1;
	if (need > b->cap) {
		size_t cap = b->cap ? b->cap : 64;
		while (cap < need)
			cap = cap > SIZE_MAX / 2 ? need : cap * 2;
		b->data = xrealloc(b->data, cap, 1);
		b->cap = cap;
	}
	return b->data + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_reserve(b, n);
	if (!to)
		return;
	if (n)
		memcpy(to, p, n);
	buf_commit(b, n);
}

void buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	char *to = n >= 0 ? buf_reserve(b, (size_t)n) : NULL;
	if (to) {
		vsnprintf(to, (size_t)n + 1, fmt, again);
		buf_commit(b, (size_t)n);
	}
	va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
	} else {
		memmove(b->data, b->data + n, b->len - n);
		b->len -= n;
	}
	if (b->data)
		b->data[b->len] = '\0';
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_steal(struct buf *b)
{
	char *s = b->data ? b->data : xstrdup("");
	b->data = NULL;
	b->len = b->cap = 0;
	return s;
}

void strv_done(struct strv *v)
{
	for (size_t i = 0; i < v->len; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct strv)STRV_INIT;
}

void strv_take(struct strv *v, char *take_s)
{
	if (v->len + 2 > v->cap) {
		v->cap = v->cap ? v->cap * 2 : 8;
		v->items = xrealloc(v->items, v->cap, sizeof(*v->items));
	}
	v->items[v->len++] = take_s;
	v->items[v->len] = NULL;
}

void strv_add(struct strv *v, const char *s)
{
	strv_take(v, xstrdup(s));
}

void strv_copy(struct strv *dst, const struct strv *src)
{
	struct strv copy = STRV_INIT;
	for (size_t i = 0; i < src->len; i++)
		strv_add(&copy, src->items[i]);
	strv_done(dst);
	*dst = copy;
}

bool strv_has(const struct strv *v, const char *s)
{
	for (size_t i = 0; i < v->len; i++)
		if (strcmp(v->items[i], s) == 0)
			return true;
	return false;
}

void map_done(struct map *m)
{
	for (size_t i = 0; i < m->len; i++) {
		free(m->items[i].key);
		free(m->items[i].value);
	}
	free(m->items);
	*m = (struct map)MAP_INIT;
}

void map_set(struct map *m, const char *key, const char *value)
{
	for (size_t i = 0; i < m->len; i++) {
		if (strcmp(m->items[i].key, key) == 0) {
			char *copy = xstrdup(value);
			free(m->items[i].value);
			m->items[i].value = copy;
			return;
		}
	}
	if (m->len == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 8;
		m->items = xrealloc(m->items, m->cap, sizeof(*m->items));
	}
	m->items[m->len++] = (struct kv){ xstrdup(key), xstrdup(value) };
}

const char *map_get(const struct map *m, const char *key)
{
	for (size_t i = 0; i < m->len; i++)
		if (strcmp(m->items[i].key, key) == 0)
			return m->items[i].value;
	return NULL;
}

void map_copy(struct map *dst, const struct map *src)
{
	struct map copy = MAP_INIT;
	for (size_t i = 0; i < src->len; i++)
		map_set(&copy, src->items[i].key, src->items[i].value);
	map_done(dst);
	*dst = copy;
}
