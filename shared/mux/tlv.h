/*
 * TLV fields: number u16, length u32, bytes; big-endian. Built into a buffer, parsed in place.
 * A struct tlv is a view: `data` is borrowed when parsed, owned when built (tlv_done frees only then).
 */
#ifndef SANDBOX_MUX_TLV_H
#define SANDBOX_MUX_TLV_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/mux/kinds.h"

struct tlv {
	struct buf own;      /* when built */
	const uint8_t *data; /* when parsed; NULL when built */
	size_t len;
};

#define TLV_INIT { .data = NULL }

void tlv_done(struct tlv *t);
#define auto_tlv __attribute__((cleanup(tlv_done))) struct tlv

void tlv_add_u64(struct tlv *t, enum mux_field f, uint64_t v); /* shortest form */
void tlv_add_bytes(struct tlv *t, enum mux_field f, const void *p, size_t n);
void tlv_add_str(struct tlv *t, enum mux_field f, const char *s); /* NULL adds nothing */

/* The encoded fields, built or parsed; borrowed. */
const void *tlv_raw(const struct tlv *t, size_t *ret_len);

/* Checks structure once (lengths, no trailing bytes), then the getters cannot fail on it. */
int tlv_parse(struct tlv *t, const void *p, size_t n, struct error *err);
/* Refuses any field whose number is not in allowed[n]. */
int tlv_only(const struct tlv *t, const enum mux_field *allowed, size_t n, struct error *err);

/* The first field f: its value, or fallback when absent or longer than 8 bytes. */
uint64_t tlv_u64(const struct tlv *t, enum mux_field f, uint64_t fallback);
bool tlv_has(const struct tlv *t, enum mux_field f);
/* Borrowed bytes; NULL when absent. */
const void *tlv_bytes(const struct tlv *t, enum mux_field f, size_t *ret_len);
/* A C string copy; NULL when absent. -1 when it holds a NUL or is longer than max. */
int tlv_str(const struct tlv *t, enum mux_field f, size_t max, char **ret, struct error *err);
/* All values of a repeated field as C strings, at most max_items of max bytes each, no NUL. */
int tlv_strv(const struct tlv *t, enum mux_field f, size_t max_items, size_t max, struct strv *ret, struct error *err);

#endif
