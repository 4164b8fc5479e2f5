/* base64 of RFC 4648, section 4. Decoding takes the canonical form alone: padded, no blanks, unused bits zero. */
#include "shared/json/json.h"

#include "shared/base/mem.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *p, size_t n)
{
	const unsigned char *from = p;
	char *out = xmalloc((n + 2) / 3 * 4 + 1), *to = out;
	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) | (left > 2 ? from[i + 2] : 0);
		*to++ = alphabet[v >> 18];
		*to++ = alphabet[v >> 12 & 63];
		*to++ = left > 1 ? alphabet[v >> 6 & 63] : '=';
		*to++ = left > 2 ? alphabet[v & 63] : '=';
	}
	*to = '\0';
	return out;
}

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* One group of four characters, `pad` of them '='. */
static int decode_group(const char *p, int pad, struct buf *out)
{
	uint32_t v = 0;
	for (int i = 0; i < 4 - pad; i++) {
		int d = digit(p[i]);
		if (d < 0)
			return -1;
		v |= (uint32_t)d << (18 - 6 * i);
	}
	if ((pad == 1 && (v & 0xff)) || (pad == 2 && (v & 0xffff)))
		return -1;
	buf_add(out, (unsigned char[]){ (unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v }, (size_t)(3 - pad));
	return 0;
}

int base64_decode(const char *text, struct buf *ret, struct error *err)
{
	size_t n = strlen(text);
	auto_buf out = BUF_INIT_MAX(ret->max);
	if (n % 4 != 0)
		return error_set(err, ERR_INVALID, "base64: the length is not a multiple of 4");
	for (size_t i = 0; i < n; i += 4) {
		int pad = i + 4 < n ? 0 : (text[n - 1] == '=') + (text[n - 1] == '=' && text[n - 2] == '=');
		if (decode_group(text + i, pad, &out) != 0)
			return error_set(err, ERR_INVALID, "base64: invalid at character %zu", i + 1);
	}
	if (out.overflow)
		return error_set(err, ERR_TOO_LARGE, "base64: more than %zu bytes", ret->max);
	buf_done(ret);
	*ret = out;
	out = (struct buf)BUF_INIT;
	return 0;
}
