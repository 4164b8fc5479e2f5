/* The route table expanded, and matching: see routes.h. */
#include "daemon/api/routes.h"

#include "daemon/api/handlers.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <string.h>

const struct route routes[] = {
#define ROUTE(name, verb, path, caller, least, kind, max, params, code, in, out, text, more) \
	{ .id = #name, \
	  .method = #verb, \
	  .pattern = path, \
	  .class = CALLER_##caller, \
	  .role = ROLE_##least, \
	  .body = BODY_##kind, \
	  .body_max = (max), \
	  .query = params, \
	  .status = (code), \
	  .request = in, \
	  .answer = out, \
	  .summary = text, \
	  .detail = more, \
	  .handle = handle_##name },
#include "daemon/api/routes.def"
#undef ROUTE
};
const size_t routes_len = ARRAY_LEN(routes);

const char *caller_class_text(enum caller_class c)
{
	static const char *const words[] = { "public", "operator", "edge", "node", "peer" };
	return words[c];
}

static char *join_tail(const struct target *t, size_t from)
{
	auto_buf b = BUF_INIT;
	for (size_t i = from; i < t->segments.len; i++) {
		if (i > from)
			buf_addc(&b, '/');
		buf_adds(&b, t->segments.items[i]);
	}
	return buf_steal(&b);
}

/* Fills params on a match; owns nothing when it does not match. */
static bool pattern_match(const char *pattern, const struct target *t, struct route_params *params)
{
	struct route_params p = { .tail = NULL };
	size_t at = 0, n = 0;
	for (const char *s = pattern; *s == '/'; at++) {
		size_t len = strcspn(++s, "/");
		if (at >= t->segments.len)
			return false;
		const char *have = t->segments.items[at];
		bool variable = s[0] == '{';
		bool tail = variable && len > 4 && strncmp(s + len - 4, "...}", 4) == 0;
		if (variable && *have == '\0')
			return false;
		if (!variable && (strlen(have) != len || strncmp(have, s, len) != 0))
			return false;
		if (tail) {
			p.tail = join_tail(t, at);
			p.value[n] = p.tail;
			*params = p;
			return true;
		}
		if (variable)
			p.value[n++] = have;
		s += len;
	}
	if (at != t->segments.len)
		return false;
	*params = p;
	return true;
}

static void allow(struct buf *b, const char *method)
{
	if (strstr(buf_str(b), method))
		return;
	if (b->len)
		buf_adds(b, ", ");
	buf_adds(b, method);
	if (strcmp(method, "GET") == 0)
		buf_adds(b, ", HEAD");
}

const struct route *route_find(const char *method, const struct target *t, struct route_params *ret, struct buf *ret_allow)
{
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (size_t i = 0; i < routes_len; i++) {
		struct route_params p;
		if (!pattern_match(routes[i].pattern, t, &p))
			continue;
		if (strcmp(routes[i].method, method) == 0) {
			*ret = p;
			return &routes[i];
		}
		free(p.tail);
		allow(ret_allow, routes[i].method);
	}
	return NULL;
}

/* 0: unknown, 1: once, 2: may repeat. */
static int query_known(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = list; *p;) {
		size_t len = strcspn(p, " ");
		bool repeats = len > 0 && p[len - 1] == '*';
		if (len - repeats == n && strncmp(p, name, n) == 0)
			return repeats ? 2 : 1;
		p += len;
		p += strspn(p, " ");
	}
	return 0;
}

int route_check_query(const struct route *r, const struct target *t, struct error *err)
{
	for (size_t i = 0; i < t->names.len; i++) {
		const char *name = t->names.items[i];
		int known = query_known(r->query, name);
		if (!known && r->query[0])
			return error_set(err, ERR_INVALID, "unknown query parameter '%s'; known here: %s", name, r->query);
		if (!known)
			return error_set(err, ERR_INVALID, "unknown query parameter '%s'; this call takes none", name);
		for (size_t j = 0; known == 1 && j < i; j++)
			if (strcmp(t->names.items[j], name) == 0)
				return error_set(err, ERR_INVALID, "query parameter '%s' stands twice", name);
	}
	return 0;
}
