/* Numbers, sizes, durations: see parse.h. Values are exact: 128-bit arithmetic, then the range check. */
#include "shared/base/parse.h"

#include "shared/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SHOWN_MAX = 64 };

/* A user's text inside a message: short and harmless. */
#define SHOWN(text) text_escape((text), strnlen((text), SHOWN_MAX), (char[SHOWN_MAX * 4 + 1]){ 0 }, SHOWN_MAX * 4 + 1)

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z');
}

int parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret, struct error *err)
{
	const char *p = text;
	bool negative = min < 0 && *p == '-';
	p += negative;
	bool number = is_digit(*p), over = false;
	int64_t value = 0;
	for (; is_digit(*p); p++)
		over = over || __builtin_mul_overflow(value, 10, &value) ||
		       (negative ? __builtin_sub_overflow(value, *p - '0', &value) : __builtin_add_overflow(value, *p - '0', &value));
	if (!number || *p)
		return error_set(err, ERR_INVALID, "%s: '%s' is not a whole number (allowed: %" PRId64 " to %" PRId64 ")", what, SHOWN(text),
				 min, max);
	if (over || value < min || value > max)
		return error_set(err, ERR_INVALID, "%s: %s is out of range (allowed: %" PRId64 " to %" PRId64 ")", what, SHOWN(text), min,
				 max);
	*ret = value;
	return 0;
}

struct unit {
	const char *word;
	int64_t factor;
};

/* "12", "1.5": digits with up to 9 decimals, as value = whole + fraction / scale. Advances *p; -1 when there is no number. */
struct decimal {
	int64_t whole, fraction, scale;
	bool over;
};

static int scan_decimal(const char **p, struct decimal *ret)
{
	struct decimal d = { .scale = 1 };
	const char *s = *p;
	if (!is_digit(*s))
		return -1;
	for (; is_digit(*s); s++)
		d.over = d.over || __builtin_mul_overflow(d.whole, 10, &d.whole) || __builtin_add_overflow(d.whole, *s - '0', &d.whole);
	if (*s == '.') {
		if (!is_digit(*++s))
			return -1;
		for (; is_digit(*s); s++) {
			if (d.scale >= 1000000000)
				return -1;
			d.fraction = d.fraction * 10 + (*s - '0');
			d.scale *= 10;
		}
	}
	*p = s;
	*ret = d;
	return 0;
}

/* Scaled and rounded down; false when it does not fit. */
static bool scale_decimal(const struct decimal *d, int64_t factor, int64_t *ret)
{
	__int128 value = (__int128)d->whole * factor + (__int128)d->fraction * factor / d->scale;
	if (d->over || value > INT64_MAX)
		return false;
	*ret = (int64_t)value;
	return true;
}

char *duration_format(int64_t ms, char out[static 32])
{
	static const struct unit units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } };
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (ms != 0 && ms % units[i].factor == 0) {
			snprintf(out, 32, "%" PRId64 "%s", ms / units[i].factor, units[i].word);
			return out;
		}
	}
	snprintf(out, 32, "%" PRId64 "ms", ms);
	return out;
}

static int64_t duration_unit(const char *word)
{
	static const struct unit units[] = { { "", 1000 }, { "s", 1000 }, { "ms", 1 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(word, units[i].word) == 0)
			return units[i].factor;
	return 0;
}

int parse_duration_ms(const char *what, const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms, struct error *err)
{
	char low[32], high[32];
	const char *p = text;
	struct decimal d;
	int64_t factor = scan_decimal(&p, &d) == 0 ? duration_unit(p) : 0;
	if (factor == 0)
		return error_set(err, ERR_INVALID, "%s: '%s' is not a duration (write 90, 90s, 1.5h, 30m, 2d or 500ms; allowed: %s to %s)", what,
				 SHOWN(text), duration_format(min_ms, low), duration_format(max_ms, high));
	int64_t value;
	if (!scale_decimal(&d, factor, &value) || value < min_ms || value > max_ms)
		return error_set(err, ERR_INVALID, "%s: %s is out of range (allowed: %s to %s)", what, SHOWN(text), duration_format(min_ms, low),
				 duration_format(max_ms, high));
	*ret_ms = value;
	return 0;
}

char *size_format(int64_t bytes, char out[static 32])
{
	static const struct unit units[] = { { "TiB", 1LL << 40 }, { "GiB", 1LL << 30 }, { "MiB", 1LL << 20 }, { "KiB", 1LL << 10 } };
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (bytes != 0 && bytes % units[i].factor == 0) {
			snprintf(out, 32, "%" PRId64 "%s", bytes / units[i].factor, units[i].word);
			return out;
		}
	}
	snprintf(out, 32, "%" PRId64, bytes);
	return out;
}

/* "", "b", or k, m, g, t alone or followed by "b" or "ib", in any case; 0 for anything else. */
static int64_t size_unit(const char *word)
{
	static const char letters[] = "kmgt";
	if (*word == '\0' || strcasecmp(word, "b") == 0)
		return 1;
	const char *letter = strchr(letters, is_alpha(*word) ? *word | 0x20 : '?');
	if (!letter || !(word[1] == '\0' || strcasecmp(word + 1, "b") == 0 || strcasecmp(word + 1, "ib") == 0))
		return 0;
	return 1LL << (10 * (letter - letters + 1));
}

int parse_size(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret_bytes, struct error *err)
{
	char low[32], high[32];
	const char *p = text;
	struct decimal d;
	int64_t factor = scan_decimal(&p, &d) == 0 ? size_unit(p) : 0;
	if (factor == 0)
		return error_set(err, ERR_INVALID, "%s: '%s' is not a size (write 1048576, 64m, 512MiB or 1g; allowed: %s to %s)", what,
				 SHOWN(text), size_format(min, low), size_format(max, high));
	int64_t value;
	if (!scale_decimal(&d, factor, &value) || value < min || value > max)
		return error_set(err, ERR_INVALID, "%s: %s is out of range (allowed: %s to %s%s)", what, SHOWN(text), size_format(min, low),
				 size_format(max, high), *p ? "" : "; a number alone is bytes");
	*ret_bytes = value;
	return 0;
}

int parse_bool(const char *what, const char *text, bool *ret, struct error *err)
{
	static const char *const words[][2] = { { "false", "true" }, { "no", "yes" }, { "off", "on" }, { "0", "1" } };
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (strcmp(text, words[i][value]) == 0) {
				*ret = value;
				return 0;
			}
		}
	}
	return error_set(err, ERR_INVALID, "%s: '%s' is not true or false (also: yes/no, on/off, 1/0)", what, SHOWN(text));
}

bool name_valid(const char *s)
{
	if (!s || !is_lower(*s))
		return false;
	size_t n = 0;
	bool id_like = true; /* only what could also be part of an id */
	for (; s[n]; n++) {
		if (n >= 63 || !(is_lower(s[n]) || is_digit(s[n]) || s[n] == '-'))
			return false;
		id_like = id_like && (is_digit(s[n]) || s[n] == '-' || s[n] <= 'f');
	}
	/* Fewer than four digits never stand for an id. */
	return !id_like || n < 4;
}

bool tenant_valid(const char *s)
{
	if (!s || !(is_lower(*s) || is_digit(*s)))
		return false;
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-");
	return s[n] == '\0' && n <= 63;
}

bool label_key_valid(const char *s)
{
	if (!s || !(is_alpha(*s) || is_digit(*s)))
		return false;
	for (size_t n = 0; s[n]; n++)
		if (n >= 128 || !(is_alpha(s[n]) || is_digit(s[n]) || strchr("._/-", s[n])))
			return false;
	return true;
}

bool label_value_valid(const char *s)
{
	size_t n = s ? strnlen(s, 257) : 257;
	if (n > 256)
		return false;
	char shown[256 * 4 + 1];
	return strcmp(text_escape(s, n, shown, sizeof(shown)), s) == 0;
}

bool env_key_valid(const char *s)
{
	if (!s || !(is_alpha(*s) || *s == '_'))
		return false;
	while (is_alpha(*s) || is_digit(*s) || *s == '_')
		s++;
	return *s == '\0';
}

static bool word_of(const char *s, size_t max)
{
	size_t n = s ? strnlen(s, max + 1) : 0;
	if (n < 1 || n > max)
		return false;
	for (; *s; s++)
		if (!is_alpha(*s) && !is_digit(*s) && *s != '.' && *s != '_' && *s != '-')
			return false;
	return true;
}

bool secret_name_valid(const char *s)
{
	return word_of(s, 63) && (is_alpha(*s) || *s == '_');
}

bool secret_file_valid(const char *s)
{
	return word_of(s, 128) && *s != '.';
}
