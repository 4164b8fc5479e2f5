/* UTF-8 and text that is safe to show: see parse.h. */
#include "shared/base/parse.h"

#include <string.h>

/* The length by the lead byte, 0 when it cannot begin a character; lo..hi bound the second byte (overlong forms, surrogates, > U+10FFFF). */
static size_t lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
	*lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	*hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	if (c < 0x80)
		return 1;
	if (c < 0xc2 || c > 0xf4)
		return 0;
	return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The character's length; 0 when invalid; *cut when p[0..n) is a proper prefix of one. */
static size_t char_len(const unsigned char *p, size_t n, bool *cut)
{
	unsigned char lo, hi;
	size_t len = lead(p[0], &lo, &hi);
	*cut = false;
	for (size_t i = 1; i < len; i++) {
		if (i == n) {
			*cut = true;
			return 0;
		}
		if (p[i] < lo || p[i] > hi)
			return 0;
		lo = 0x80;
		hi = 0xbf;
	}
	return len;
}

bool utf8_valid(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	bool cut;
	while (n > 0) {
		size_t len = char_len(p, n, &cut);
		if (len == 0)
			return false;
		p += len;
		n -= len;
	}
	return true;
}

size_t utf8_next(const char *p, size_t n)
{
	bool cut;
	return n > 0 ? char_len((const unsigned char *)p, n, &cut) : 0;
}

size_t utf8_cut(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	bool cut;
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		if ((p[n - back] & 0xc0) == 0x80)
			continue;
		char_len(p + n - back, back, &cut);
		return cut ? n - back : n;
	}
	return n;
}

/* C1 controls, line and paragraph separators, direction overrides and isolates: each can forge what a reader sees. */
static bool misleading(const unsigned char *p, size_t len)
{
	if (len == 2)
		return p[0] == 0xc2 && p[1] < 0xa0;
	if (len != 3 || p[0] != 0xe2)
		return false;
	return (p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) || (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
}

char *text_escape(const char *text, size_t n, char *out, size_t out_size)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *p = (const unsigned char *)text;
	size_t at = 0;
	bool cut;
	while (n > 0) {
		size_t len = char_len(p, n, &cut);
		bool plain = len > 1 ? !misleading(p, len) : len == 1 && p[0] >= 0x20 && p[0] != 0x7f;
		size_t take = plain ? len : 1;
		if (at + (plain ? len : 4) >= out_size)
			break;
		if (plain) {
			memcpy(out + at, p, len);
			at += len;
		} else {
			memcpy(out + at, (char[]){ '\\', 'x', hex[p[0] >> 4], hex[p[0] & 15] }, 4);
			at += 4;
		}
		p += take;
		n -= take;
	}
	if (out_size > 0)
		out[at] = '\0';
	return out;
}
