/* Request targets: see target.h. */
#include "daemon/api/target.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <string.h>

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int decode(const char *p, size_t n, bool plus_is_space, struct strv *to, struct error *err)
{
	auto_free char *out = xmalloc(n + 1);
	size_t len = 0;
	for (size_t i = 0; i < n; i++) {
		int c = (unsigned char)p[i];
		if (c == '%') {
			int hi = n - i > 2 ? hex(p[i + 1]) : -1;
			int lo = n - i > 2 ? hex(p[i + 2]) : -1;
			if (hi < 0 || lo < 0)
				return error_set(err, ERR_INVALID, "the request target holds a broken %%-escape");
			c = hi * 16 + lo;
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		if (c == '\0')
			return error_set(err, ERR_INVALID, "the request target holds a NUL");
		out[len++] = (char)c;
	}
	out[len] = '\0';
	if (!utf8_valid(out, len))
		return error_set(err, ERR_INVALID, "the request target is not valid UTF-8");
	strv_take(to, steal(&out));
	return 0;
}

static int parse_path(const char *p, size_t n, struct target *t, struct error *err)
{
	size_t at = 1;
	for (;;) {
		const char *slash = memchr(p + at, '/', n - at);
		size_t end = slash ? (size_t)(slash - p) : n;
		if (t->segments.len == TARGET_SEGMENTS_MAX)
			return error_set(err, ERR_INVALID, "the path has more than %d segments", TARGET_SEGMENTS_MAX);
		if (decode(p + at, end - at, false, &t->segments, err) != 0)
			return -1;
		if (!slash)
			return 0;
		at = end + 1;
	}
}

static int parse_query(const char *p, struct target *t, struct error *err)
{
	while (*p) {
		size_t n = strcspn(p, "&");
		if (n > 0) {
			const char *eq = memchr(p, '=', n);
			size_t name = eq ? (size_t)(eq - p) : n;
			if (t->names.len == TARGET_QUERY_MAX)
				return error_set(err, ERR_INVALID, "more than %d query parameters", TARGET_QUERY_MAX);
			if (decode(p, name, true, &t->names, err) != 0)
				return -1;
			if (decode(eq ? eq + 1 : "", eq ? n - name - 1 : 0, true, &t->values, err) != 0)
				return -1;
		}
		p += n + (p[n] == '&');
	}
	return 0;
}

int target_parse(const char *raw, struct target *ret, struct error *err)
{
	struct target t = TARGET_INIT;
	if (raw[0] != '/')
		return error_set(err, ERR_INVALID, "the request target must be a path");
	size_t path = strcspn(raw, "?");
	if (parse_path(raw, path, &t, err) != 0 || (raw[path] == '?' && parse_query(raw + path + 1, &t, err) != 0)) {
		target_done(&t);
		return -1;
	}
	*ret = t;
	return 0;
}

void target_done(struct target *t)
{
	strv_done(&t->segments);
	strv_done(&t->names);
	strv_done(&t->values);
}

const char *target_query(const struct target *t, const char *name)
{
	for (size_t i = 0; i < t->names.len; i++)
		if (strcmp(t->names.items[i], name) == 0)
			return t->values.items[i];
	return NULL;
}
