/*
 * A strict RFC 8259 scanner: see scan.h. cJSON afterwards only builds the tree, so whatever it would tolerate or
 * mangle (bad UTF-8, control bytes, lone surrogates, NUL, odd numbers, trailing text) has to be refused here.
 */
#include "shared/json/scan.h"

#include "shared/base/limits.h"
#include "shared/base/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cJSON copies a number into 64 bytes and cuts longer ones. */
enum { NUMBER_TEXT_MAX = 62 };

struct scan {
	const char *start, *p, *end;
	const char *key; /* of the member being scanned, for messages */
	size_t key_len;
	size_t values;
	int depth;
	struct error *err;
};

static int fail(const struct scan *s, const char *text)
{
	size_t at = (size_t)(s->p - s->start) + 1;
	if (!s->key)
		return error_set(s->err, ERR_INVALID, "JSON: byte %zu: %s", at, text);
	char key[64 * 4 + 1];
	text_escape(s->key, s->key_len < 64 ? s->key_len : 64, key, sizeof(key));
	return error_set(s->err, ERR_INVALID, "JSON: byte %zu, in '%s': %s", at, key, text);
}

static int peek(const struct scan *s)
{
	return s->p < s->end ? (unsigned char)*s->p : -1;
}

static bool take(struct scan *s, char c)
{
	if (s->p >= s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static void skip_blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static int scan_hex4(struct scan *s, unsigned *ret)
{
	unsigned v = 0;
	for (int i = 0; i < 4; i++, s->p++) {
		int c = peek(s);
		if (c >= '0' && c <= '9')
			v = v * 16 + (unsigned)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v = v * 16 + (unsigned)((c | 0x20) - 'a' + 10);
		else
			return fail(s, "\\u needs four hexadecimal digits");
	}
	*ret = v;
	return 0;
}

static int scan_unicode_escape(struct scan *s)
{
	unsigned high, low;
	if (scan_hex4(s, &high) != 0)
		return -1;
	if (high == 0)
		return fail(s, "NUL is not allowed in text");
	if (high >= 0xdc00 && high <= 0xdfff)
		return fail(s, "a lone surrogate is no character");
	if (high < 0xd800 || high > 0xdbff)
		return 0;
	if (!take(s, '\\') || !take(s, 'u'))
		return fail(s, "a lone surrogate is no character");
	if (scan_hex4(s, &low) != 0)
		return -1;
	return low >= 0xdc00 && low <= 0xdfff ? 0 : fail(s, "a lone surrogate is no character");
}

static int scan_string(struct scan *s)
{
	if (!take(s, '"'))
		return fail(s, "text in double quotes expected");
	for (;;) {
		int c = peek(s);
		if (c < 0)
			return fail(s, "the document ends inside text");
		if (c < 0x20)
			return fail(s, "a control byte inside text must be escaped");
		if (c == '"') {
			s->p++;
			return 0;
		}
		if (c != '\\') {
			size_t len = utf8_next(s->p, (size_t)(s->end - s->p));
			if (len == 0)
				return fail(s, "text is not valid UTF-8");
			s->p += len;
			continue;
		}
		s->p++;
		c = peek(s);
		if (c <= 0 || !strchr("\"\\/bfnrtu", c))
			return fail(s, "unknown escape");
		s->p++;
		if (c == 'u' && scan_unicode_escape(s) != 0)
			return -1;
	}
}

static size_t skip_digits(struct scan *s)
{
	const char *from = s->p;
	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return (size_t)(s->p - from);
}

/* Whether the literal's value, taken exactly, is a whole number: no digit but zeros stands right of the final point. */
static bool literal_is_whole(const char *text)
{
	long point = 0, last = 0, digits = 0;
	bool fraction = false;
	const char *p = text + (*text == '-');
	for (; *p && (*p | 0x20) != 'e'; p++) {
		if (*p == '.') {
			fraction = true;
			continue;
		}
		digits++;
		point += !fraction;
		if (*p != '0')
			last = digits;
	}
	if (last == 0)
		return true;
	return last <= point + (*p ? strtol(p + 1, NULL, 10) : 0);
}

/* The tree keeps doubles: a literal that rounds to a whole number without being one would pass for it. */
static int check_exact(struct scan *s, const char *from, size_t n)
{
	char text[NUMBER_TEXT_MAX + 1];
	memcpy(text, from, n);
	text[n] = '\0';
	double v = strtod(text, NULL);
	if (!isfinite(v))
		return fail(s, "the number is too large");
	if (json_is_whole(v) && !literal_is_whole(text))
		return fail(s, "the number has more digits than can be kept");
	return 0;
}

static int scan_number(struct scan *s)
{
	const char *from = s->p;
	take(s, '-');
	if (!take(s, '0') && skip_digits(s) == 0)
		return fail(s, "a value expected");
	if (take(s, '.') && skip_digits(s) == 0)
		return fail(s, "digits expected after the decimal point");
	if (take(s, 'e') || take(s, 'E')) {
		if (!take(s, '+'))
			take(s, '-');
		if (skip_digits(s) == 0)
			return fail(s, "digits expected in the exponent");
	}
	int c = peek(s);
	if ((c >= '0' && c <= '9') || c == '.')
		return fail(s, "malformed number");
	size_t n = (size_t)(s->p - from);
	if (n > NUMBER_TEXT_MAX)
		return fail(s, "the number is too long");
	return check_exact(s, from, n);
}

static int scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return fail(s, "a value expected");
	s->p += n;
	return 0;
}

static int scan_value(struct scan *s);

static int scan_member(struct scan *s)
{
	skip_blanks(s);
	const char *key = s->p + 1, *outer = s->key;
	size_t outer_len = s->key_len;
	if (scan_string(s) != 0)
		return -1;
	s->key = key;
	s->key_len = (size_t)(s->p - key) - 1;
	skip_blanks(s);
	if (!take(s, ':'))
		return fail(s, "':' expected");
	if (scan_value(s) != 0)
		return -1;
	s->key = outer;
	s->key_len = outer_len;
	return 0;
}

/* An object or array after its bracket was seen. */
static int scan_container(struct scan *s, char close, int (*item)(struct scan *))
{
	if (++s->depth > LIMIT_JSON_DEPTH_MAX)
		return fail(s, "nested deeper than 64 levels");
	_Static_assert(LIMIT_JSON_DEPTH_MAX == 64, "the message says so");
	s->p++;
	skip_blanks(s);
	bool more = !take(s, close);
	while (more) {
		if (item(s) != 0)
			return -1;
		skip_blanks(s);
		more = take(s, ',');
		if (!more && !take(s, close))
			return fail(s, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
	}
	s->depth--;
	return 0;
}

static int scan_value(struct scan *s)
{
	skip_blanks(s);
	if (++s->values > LIMIT_JSON_VALUES_MAX)
		return fail(s, "the document holds too many values");
	switch (peek(s)) {
	case -1:
		return fail(s, "the document ends where a value is expected");
	case '{':
		return scan_container(s, '}', scan_member);
	case '[':
		return scan_container(s, ']', scan_value);
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return scan_number(s);
	}
}

int json_scan(const char *p, size_t n, struct error *err)
{
	struct scan s = { .start = p, .p = p, .end = p + n, .err = err };
	if (scan_value(&s) != 0)
		return -1;
	skip_blanks(&s);
	return s.p == s.end ? 0 : fail(&s, "text after the end of the document");
}
