/* Chunks of a serial port: see serial.h. Pure: it touches no descriptor. */
#include "shared/mux/serial.h"

#include <string.h>

#define CONTROL_BIT 0x80000000u

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

/* The bytes of the chunk whose head is complete that belong to the head buffer; 0: no chunk. */
static size_t head_len(uint32_t head)
{
	if (head >= 1 && head <= SERIAL_DATA_MAX)
		return SERIAL_HEAD_LEN;
	if (head == (CONTROL_BIT | SERIAL_READY) || head == (CONTROL_BIT | SERIAL_DETACH))
		return SERIAL_HEAD_LEN;
	return head == (CONTROL_BIT | SERIAL_ATTACH) ? SERIAL_CONTROL_MAX : 0;
}

static size_t take_head(struct serial_reader *r, const uint8_t *p, size_t n, size_t want)
{
	size_t take = want - r->have < n ? want - r->have : n;

	memcpy(r->head + r->have, p, take);
	r->have += take;
	return take;
}

size_t serial_read(struct serial_reader *r, const void *p, size_t n, struct serial_event *ret, bool *ret_some)
{
	const uint8_t *at = p;
	size_t used = 0, want;
	uint32_t head;

	*ret_some = false;
	if (r->left > 0) {
		used = r->left < n ? r->left : n;
		*ret = (struct serial_event){ .p = at, .n = used };
		*ret_some = true;
		r->left -= used;
		return used;
	}
	if (r->have < SERIAL_HEAD_LEN)
		used = take_head(r, at, n, SERIAL_HEAD_LEN);
	if (r->have < SERIAL_HEAD_LEN)
		return used;
	head = get_u32(r->head);
	want = head_len(head);
	if (want == 0)
		return 0;
	used += take_head(r, at + used, n - used, want);
	if (r->have < want)
		return used;
	r->have = 0;
	if (!(head & CONTROL_BIT)) {
		r->left = head;
		return used;
	}
	*ret = (struct serial_event){ .control = (enum serial_control)(head & ~CONTROL_BIT), .p = r->head + SERIAL_HEAD_LEN, .n = want - SERIAL_HEAD_LEN };
	*ret_some = true;
	return used;
}

void serial_data_head(uint8_t out[static SERIAL_HEAD_LEN], size_t n)
{
	put_u32(out, (uint32_t)n);
}

size_t serial_control_chunk(uint8_t out[static SERIAL_CONTROL_MAX], enum serial_control c, const uint8_t *nonce)
{
	put_u32(out, CONTROL_BIT | (uint32_t)c);
	if (c != SERIAL_ATTACH)
		return SERIAL_HEAD_LEN;
	memcpy(out + SERIAL_HEAD_LEN, nonce, SERIAL_NONCE_LEN);
	return SERIAL_CONTROL_MAX;
}
