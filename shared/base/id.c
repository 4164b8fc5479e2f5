/* UUIDv7: see id.h. One 60-bit word, milliseconds and counter, advanced by compare-and-swap: no lock, strictly increasing. */
#include "shared/base/id.h"

#include "shared/base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { COUNTER_BITS = 12 };

void random_bytes(void *p, size_t n)
{
	unsigned char *to = p;
	while (n > 0) {
		ssize_t got = getrandom(to, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			static const char text[] = "the kernel has no random bytes\n";
			fwrite(text, 1, sizeof(text) - 1, stderr);
			abort();
		}
		to += got;
		n -= (size_t)got;
	}
}

/*
 * The counter starts in its lower half, so that a millisecond has at least 2048 ids before it borrows from the next; a clock set
 * back keeps counting on from the last id.
 */
static uint64_t next_stamp(uint64_t random)
{
	static _Atomic uint64_t last;
	uint64_t now = (uint64_t)(clock_wall_us() / 1000) << COUNTER_BITS | (random & 0x7ff);
	uint64_t seen = atomic_load(&last), next;
	do {
		next = now > seen ? now : seen + 1;
	} while (!atomic_compare_exchange_weak(&last, &seen, next));
	return next;
}

struct id id_new(void)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char b[16];
	uint64_t random[2];
	random_bytes(random, sizeof(random));
	uint64_t stamp = next_stamp(random[0]), ms = stamp >> COUNTER_BITS;
	for (int i = 0; i < 6; i++)
		b[i] = (unsigned char)(ms >> (40 - 8 * i));
	b[6] = (unsigned char)(0x70 | (stamp >> 8 & 0x0f));
	b[7] = (unsigned char)stamp;
	memcpy(b + 8, &random[1], 8);
	b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));

	struct id id;
	char *out = id.text;
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = hex[b[i] >> 4];
		*out++ = hex[b[i] & 0x0f];
	}
	*out = '\0';
	return id;
}

bool id_valid(const char *text)
{
	if (!text)
		return false;
	for (int i = 0; i < ID_TEXT_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = text[i];
		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return text[ID_TEXT_LEN] == '\0';
}

int id_parse(const char *text, struct id *ret)
{
	if (!id_valid(text))
		return -1;
	memcpy(ret->text, text, sizeof(ret->text));
	return 0;
}

const char *id_short(const struct id *id)
{
	size_t n = strnlen(id->text, ID_TEXT_LEN);
	return n < ID_SHORT_LEN ? id->text : id->text + n - ID_SHORT_LEN;
}
