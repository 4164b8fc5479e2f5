/* TLV fields: see tlv.h. */
#include "shared/mux/tlv.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

enum { FIELD_HEAD = 6 };

void tlv_done(struct tlv *t)
{
	buf_done(&t->own);
	t->data = NULL;
	t->len = 0;
}

void tlv_add_bytes(struct tlv *t, enum mux_field f, const void *p, size_t n)
{
	t->own.max = LIMIT_MUX_FIELDS_MAX;
	if (n > LIMIT_MUX_FIELDS_MAX) {
		t->own.overflow = true;
		return;
	}
	char *to = buf_reserve(&t->own, FIELD_HEAD + n);
	if (!to)
		return;
	uint8_t head[FIELD_HEAD] = { (uint8_t)(f >> 8), (uint8_t)f, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n };
	memcpy(to, head, FIELD_HEAD);
	if (n)
		memcpy(to + FIELD_HEAD, p, n);
	buf_commit(&t->own, FIELD_HEAD + n);
}

void tlv_add_u64(struct tlv *t, enum mux_field f, uint64_t v)
{
	uint8_t be[8];
	size_t n = 0;
	for (int shift = 56; shift >= 0; shift -= 8)
		if (n || shift == 0 || v >> shift)
			be[n++] = (uint8_t)(v >> shift);
	tlv_add_bytes(t, f, be, n);
}

void tlv_add_str(struct tlv *t, enum mux_field f, const char *s)
{
	if (s)
		tlv_add_bytes(t, f, s, strlen(s));
}

const void *tlv_raw(const struct tlv *t, size_t *ret_len)
{
	*ret_len = t->data ? t->len : t->own.len;
	return t->data ? (const void *)t->data : t->own.data;
}

struct field {
	unsigned number;
	const uint8_t *value;
	size_t len;
};

/* The field at *at, which then points behind it. False at the end, or when what is left is no field. */
static bool next_field(const uint8_t *p, size_t n, size_t *at, struct field *ret)
{
	if (n - *at < FIELD_HEAD)
		return false;
	const uint8_t *h = p + *at;
	size_t len = (size_t)h[2] << 24 | (size_t)h[3] << 16 | (size_t)h[4] << 8 | h[5];
	if (len > n - *at - FIELD_HEAD)
		return false;
	*ret = (struct field){ (unsigned)h[0] << 8 | h[1], h + FIELD_HEAD, len };
	*at += FIELD_HEAD + len;
	return true;
}

int tlv_parse(struct tlv *t, const void *p, size_t n, struct error *err)
{
	struct field f;
	size_t at = 0;
	while (next_field(p, n, &at, &f))
		;
	if (at != n)
		return error_set(err, ERR_PROTOCOL, "fields are cut short at byte %zu of %zu", at, n);
	*t = (struct tlv){ .data = n ? p : (const uint8_t *)"", .len = n };
	return 0;
}

static bool find(const struct tlv *t, enum mux_field want, struct field *ret)
{
	size_t n, at = 0;
	const uint8_t *p = tlv_raw(t, &n);
	while (next_field(p, n, &at, ret))
		if (ret->number == (unsigned)want)
			return true;
	return false;
}

int tlv_only(const struct tlv *t, const enum mux_field *allowed, size_t count, struct error *err)
{
	struct field f;
	size_t n, at = 0;
	const uint8_t *p = tlv_raw(t, &n);
	while (next_field(p, n, &at, &f)) {
		size_t i = 0;
		while (i < count && (unsigned)allowed[i] != f.number)
			i++;
		if (i == count)
			return error_set(err, ERR_INVALID, "field %u is not allowed here", f.number);
	}
	return 0;
}

uint64_t tlv_u64(const struct tlv *t, enum mux_field want, uint64_t fallback)
{
	struct field f;
	if (!find(t, want, &f) || f.len == 0 || f.len > 8)
		return fallback;
	uint64_t v = 0;
	for (size_t i = 0; i < f.len; i++)
		v = v << 8 | f.value[i];
	return v;
}

bool tlv_has(const struct tlv *t, enum mux_field want)
{
	struct field f;
	return find(t, want, &f);
}

const void *tlv_bytes(const struct tlv *t, enum mux_field want, size_t *ret_len)
{
	struct field f;
	if (!find(t, want, &f))
		return NULL;
	*ret_len = f.len;
	return f.value;
}

static int take_str(const struct field *f, size_t max, char **ret, struct error *err)
{
	if (f->len > max)
		return error_set(err, ERR_TOO_LARGE, "field %u has %zu bytes, the limit is %zu", f->number, f->len, max);
	if (memchr(f->value, 0, f->len))
		return error_set(err, ERR_INVALID, "field %u holds a NUL byte", f->number);
	*ret = xstrndup((const char *)f->value, f->len);
	return 0;
}

int tlv_str(const struct tlv *t, enum mux_field want, size_t max, char **ret, struct error *err)
{
	struct field f;
	if (!find(t, want, &f)) {
		*ret = NULL;
		return 0;
	}
	return take_str(&f, max, ret, err);
}

int tlv_strv(const struct tlv *t, enum mux_field want, size_t max_items, size_t max, struct strv *ret, struct error *err)
{
	auto_strv v = STRV_INIT;
	struct field f;
	size_t n, at = 0;
	const uint8_t *p = tlv_raw(t, &n);
	while (next_field(p, n, &at, &f)) {
		char *s;
		if (f.number != (unsigned)want)
			continue;
		if (v.len == max_items)
			return error_set(err, ERR_TOO_LARGE, "field %u is given more than %zu times", f.number, max_items);
		if (take_str(&f, max, &s, err) < 0)
			return -1;
		strv_take(&v, s);
	}
	strv_done(ret);
	*ret = v;
	v = (struct strv)STRV_INIT;
	return 0;
}
