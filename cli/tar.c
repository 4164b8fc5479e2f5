/* ustar headers and pax records (POSIX.1-2017, pax): building and parsing. */
#include "cli/tar.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/mux/records.h"

#include <string.h>

/* Offsets and lengths of the fields of a header block. */
enum {
	NAME_AT = 0, NAME_LEN = 100, MODE_AT = 100, UID_AT = 108, GID_AT = 116, SIZE_AT = 124, SIZE_LEN = 12, MTIME_AT = 136, MTIME_LEN = 12,
	SUM_AT = 148, TYPE_AT = 156, LINK_AT = 157, LINK_LEN = 100, MAGIC_AT = 257, PREFIX_AT = 345, PREFIX_LEN = 155, SHORT_LEN = 8,
};

/* The key that GNU tar, star and bsdtar agree on. */
#define XATTR_KEY "SCHILY.xattr."

static const uint64_t OCTAL_MAX = 077777777777ull; /* of an 11-digit field */

/* --- writing --------------------------------------------------------------------------------------------------------------- */

static void put_octal(unsigned char *field, size_t len, uint64_t v)
{
	char text[32];
	snprintf(text, sizeof(text), "%0*llo", (int)len - 1, (unsigned long long)v);
	memcpy(field, text, len);
}

static void add_block(struct buf *out, char type, const char *path, const char *link, unsigned mode, uint64_t size, uint64_t sec)
{
	unsigned char b[TAR_BLOCK] = { 0 };
	size_t n = strlen(path), l = strlen(link);
	memcpy(b + NAME_AT, path, n < NAME_LEN ? n : NAME_LEN);
	memcpy(b + LINK_AT, link, l < LINK_LEN ? l : LINK_LEN);
	put_octal(b + MODE_AT, SHORT_LEN, mode);
	put_octal(b + UID_AT, SHORT_LEN, 0);
	put_octal(b + GID_AT, SHORT_LEN, 0);
	put_octal(b + SIZE_AT, SIZE_LEN, size);
	put_octal(b + MTIME_AT, MTIME_LEN, sec);
	b[TYPE_AT] = (unsigned char)type;
	memcpy(b + MAGIC_AT, "ustar\00000", 8);
	memset(b + SUM_AT, ' ', SHORT_LEN);
	unsigned sum = 0;
	for (size_t i = 0; i < sizeof(b); i++)
		sum += b[i];
	put_octal(b + SUM_AT, SHORT_LEN - 1, sum);
	b[SUM_AT + SHORT_LEN - 1] = ' ';
	buf_add(out, b, sizeof(b));
}

/* "LEN KEY=VALUE\n", where LEN counts itself. */
static void add_pax_bytes(struct buf *out, const char *key, const void *value, size_t n)
{
	size_t rest = strlen(key) + n + 3, len = rest + 1;
	char digits[24];
	for (size_t before = 0; before != len;) {
		before = len;
		len = rest + (size_t)snprintf(digits, sizeof(digits), "%zu", before);
	}
	buf_addf(out, "%zu %s=", len, key);
	buf_add(out, value, n);
	buf_addc(out, '\n');
}

static void add_pax(struct buf *out, const char *key, const char *value)
{
	add_pax_bytes(out, key, value, strlen(value));
}

void tar_add_xattr(struct buf *xattrs, const char *name, const void *value, size_t n)
{
	auto_free char *key = xasprintf(XATTR_KEY "%s", name);
	add_pax_bytes(xattrs, key, value, n);
}

static void pax_records(const struct tar_entry *e, struct buf *pax)
{
	char text[64];
	bool long_path = strlen(e->path) > NAME_LEN, long_link = strlen(e->link) > LINK_LEN;
	/* Names are bytes; pax has them in UTF-8 unless told so. */
	if ((long_path && !utf8_valid(e->path, strlen(e->path))) || (long_link && !utf8_valid(e->link, strlen(e->link))))
		add_pax(pax, "hdrcharset", "BINARY");
	if (long_path)
		add_pax(pax, "path", e->path);
	if (long_link)
		add_pax(pax, "linkpath", e->link);
	if (e->size > OCTAL_MAX) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)e->size);
		add_pax(pax, "size", text);
	}
	if (e->nsec || e->sec < 0 || (uint64_t)e->sec > OCTAL_MAX) {
		/* The fraction counts forward from the second below, also before 1970. */
		bool negative = e->sec < 0 && e->nsec;
		long long sec = (long long)e->sec + negative;
		unsigned long nsec = negative ? 1000000000ul - e->nsec : e->nsec;
		snprintf(text, sizeof(text), "%s%lld.%09lu", negative && sec == 0 ? "-" : "", sec, nsec);
		add_pax(pax, "mtime", text);
	}
}

static void add_padding(struct buf *out, size_t n)
{
	static const char zeros[TAR_BLOCK];
	buf_add(out, zeros, (TAR_BLOCK - n % TAR_BLOCK) % TAR_BLOCK);
}

void tar_add_header(struct buf *out, const struct tar_entry *e)
{
	auto_buf pax = BUF_INIT;
	uint64_t sec = e->sec < 0 ? 0 : (uint64_t)e->sec;
	pax_records(e, &pax);
	buf_add(&pax, buf_str(&e->xattrs), e->xattrs.len);
	if (pax.len > 0) {
		add_block(out, 'x', "PaxHeaders/entry", "", 0644, pax.len, 0);
		buf_add(out, pax.data, pax.len);
		add_padding(out, pax.len);
	}
	add_block(out, e->type, e->path, e->link, e->mode & 07777, e->size > OCTAL_MAX ? 0 : e->size, sec > OCTAL_MAX ? OCTAL_MAX : sec);
}

/* --- reading --------------------------------------------------------------------------------------------------------------- */

/* Octal digits between blanks and NULs, or a binary number behind a set top bit (GNU). */
static bool get_number(const unsigned char *field, size_t len, int64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;
	if (field[0] & 0x80) {
		if (field[0] != 0x80 && field[0] != 0xff)
			return false;
		bool negative = field[0] == 0xff;
		v = negative ? UINT64_MAX : 0;
		for (i = len - 8; i < len; i++)
			v = v << 8 | field[i];
		*ret = (int64_t)v;
		return negative == (*ret < 0);
	}
	while (i < len && field[i] == ' ')
		i++;
	for (; i < len && field[i] >= '0' && field[i] <= '7'; i++) {
		if (v >> 60)
			return false;
		v = v * 8 + (uint64_t)(field[i] - '0');
	}
	while (i < len && (field[i] == ' ' || field[i] == '\0'))
		i++;
	*ret = (int64_t)v;
	return i == len;
}

static bool checksum_holds(const unsigned char *b)
{
	int64_t stated;
	int64_t sum = 0;
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= SUM_AT && i < SUM_AT + SHORT_LEN ? ' ' : b[i];
	return get_number(b + SUM_AT, SHORT_LEN, &stated) && stated == sum;
}

static char *get_text(const unsigned char *field, size_t len)
{
	return xstrndup((const char *)field, strnlen((const char *)field, len));
}

static char *get_path(const unsigned char *b)
{
	auto_free char *name = get_text(b + NAME_AT, NAME_LEN);
	bool ustar = memcmp(b + MAGIC_AT, "ustar\0", 6) == 0;
	if (!ustar || !b[PREFIX_AT])
		return steal(&name);
	auto_free char *prefix = get_text(b + PREFIX_AT, PREFIX_LEN);
	return xasprintf("%s/%s", prefix, name);
}

int tar_parse_header(const unsigned char block[static TAR_BLOCK], struct tar_entry *ret, bool *ret_end, struct error *err)
{
	static const unsigned char zeros[TAR_BLOCK];
	int64_t mode, size, sec;
	*ret_end = memcmp(block, zeros, TAR_BLOCK) == 0;
	if (*ret_end)
		return 0;
	if (block[0] == 0x1f && block[1] == 0x8b)
		return error_set(err, ERR_INVALID, "the tar stream is compressed; pipe it through gzip -d first");
	if (!checksum_holds(block))
		return error_set(err, ERR_INVALID, "the input is not a tar stream, or is damaged");
	if (!get_number(block + MODE_AT, SHORT_LEN, &mode) || !get_number(block + SIZE_AT, SIZE_LEN, &size) || size < 0 ||
	    !get_number(block + MTIME_AT, MTIME_LEN, &sec))
		return error_set(err, ERR_INVALID, "a header of the tar stream holds no numbers where they belong");
	*ret = (struct tar_entry){
		.type = block[TYPE_AT] ? (char)block[TYPE_AT] : '0', .mode = (unsigned)mode & 07777, .size = (uint64_t)size, .sec = sec,
		.path = get_path(block), .link = get_text(block + LINK_AT, LINK_LEN),
	};
	return 0;
}

static bool parse_time(const char *text, struct tar_entry *e)
{
	bool negative = *text == '-';
	auto_free char *whole = xstrndup(text + negative, strcspn(text + negative, "."));
	const char *dot = strchr(text, '.');
	int64_t sec, unit = 100000000, nsec = 0;
	if (parse_i64("mtime", whole, 0, INT64_MAX / 2, &sec, NULL) != 0)
		return false;
	for (const char *p = dot ? dot + 1 : ""; *p; p++, unit /= 10) {
		if (*p < '0' || *p > '9')
			return false;
		nsec += (*p - '0') * unit;
	}
	e->sec = negative ? -sec - (nsec > 0) : sec;
	e->nsec = (uint32_t)(negative && nsec > 0 ? 1000000000 - nsec : nsec);
	return true;
}

static int apply_one(const char *key, const char *value, struct tar_entry *e, struct error *err)
{
	int64_t size;
	if (strcmp(key, "path") == 0 || strcmp(key, "linkpath") == 0) {
		char **at = key[0] == 'p' ? &e->path : &e->link;
		free(*at);
		*at = xstrdup(value);
	} else if (strcmp(key, "size") == 0) {
		if (parse_i64("size", value, 0, INT64_MAX, &size, err) != 0)
			return error_wrap(err, "a pax header of the tar stream");
		e->size = (uint64_t)size;
	} else if (strcmp(key, "mtime") == 0) {
		if (!parse_time(value, e))
			return error_set(err, ERR_INVALID, "a pax header of the tar stream holds no time where one belongs");
	} else if (strncmp(key, "GNU.sparse.", 11) == 0) {
		e->sparse = true;
	}
	return 0;
}

static int bad_pax(struct error *err)
{
	return error_set(err, ERR_INVALID, "a pax header of the tar stream is malformed");
}

static int apply_record(const char *key, const char *value, size_t n, struct tar_entry *e, struct error *err)
{
	static const size_t prefix = sizeof(XATTR_KEY) - 1;
	if (strncmp(key, XATTR_KEY, prefix) == 0) {
		const char *name = key + prefix;
		if (record_xattr_valid(name, strlen(name)) && n <= RECORD_XATTR_MAX)
			record_add_xattr(&e->xattrs, name, value, n);
		return 0;
	}
	/* A NUL inside would hide the rest of a name from every check. */
	return strlen(value) == n ? apply_one(key, value, e, err) : bad_pax(err);
}

int tar_apply_pax(const char *p, size_t n, struct tar_entry *e, struct error *err)
{
	while (n > 0) {
		size_t digits = 0;
		uint64_t len = 0;
		while (digits < n && digits < 9 && p[digits] >= '0' && p[digits] <= '9')
			len = len * 10 + (uint64_t)(p[digits++] - '0');
		if (digits == 0 || digits + 3 > len || len > n || p[digits] != ' ' || p[len - 1] != '\n')
			return bad_pax(err);
		size_t pair_len = (size_t)len - digits - 2;
		auto_free char *pair = xmalloc(pair_len + 1);
		memcpy(pair, p + digits + 1, pair_len);
		pair[pair_len] = '\0';
		char *eq = memchr(pair, '=', pair_len);
		if (!eq || memchr(pair, '\0', (size_t)(eq - pair)))
			return bad_pax(err);
		*eq = '\0';
		if (apply_record(pair, eq + 1, pair_len - (size_t)(eq + 1 - pair), e, err) != 0)
			return -1;
		p += len;
		n -= (size_t)len;
	}
	return 0;
}
