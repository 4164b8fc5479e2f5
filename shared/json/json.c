/* Parsing, printing and the strict reader: see json.h. The grammar is checked in scan.c; what needs the tree is checked here. */
#include "shared/json/json.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/scan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SMALL_OBJECT = 16, PATH_TEXT_MAX = 256 };

static const double EXACT_MAX = 9007199254740991.0; /* 2^53 - 1: above, a double may stand for several integers */

/* cJSON drops what it cannot allocate, and says so in a place where nobody looks: an object would lack a member. */
__attribute__((constructor)) static void allocate_or_end(void)
{
	cJSON_InitHooks(&(cJSON_Hooks){ .malloc_fn = xmalloc, .free_fn = free });
}

void json_freep(cJSON **j)
{
	cJSON_Delete(*j);
	*j = NULL;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int duplicate(const char *key, struct error *err)
{
	char shown[64 * 4 + 1];
	return error_set(err, ERR_INVALID, "JSON: the key '%s' is given twice in one object",
			 text_escape(key, strnlen(key, 64), shown, sizeof(shown)));
}

static int check_unique(const cJSON *object, struct error *err)
{
	size_t n = 0;
	const char *few[SMALL_OBJECT];
	auto_free const char **many = NULL;
	for (const cJSON *m = object->child; m; m = m->next)
		n++;
	const char **keys = n <= SMALL_OBJECT ? few : (many = xcalloc(n, sizeof(*many)));
	size_t i = 0;
	for (const cJSON *m = object->child; m; m = m->next)
		keys[i++] = m->string;
	if (n > 1)
		qsort(keys, n, sizeof(*keys), compare_keys);
	for (i = 1; i < n; i++)
		if (strcmp(keys[i - 1], keys[i]) == 0)
			return duplicate(keys[i], err);
	return 0;
}

/* Over the decoded keys, so that "a" and "\u0061" are the same. The scanner has bounded the depth. */
static int check_keys(const cJSON *j, struct error *err)
{
	if (cJSON_IsObject(j) && check_unique(j, err) != 0)
		return -1;
	for (const cJSON *m = j->child; m; m = m->next)
		if (m->child && check_keys(m, err) != 0)
			return -1;
	return 0;
}

int json_parse(const char *p, size_t n, cJSON **ret, struct error *err)
{
	if (n > LIMIT_JSON_BYTES_MAX)
		return error_set(err, ERR_TOO_LARGE, "JSON: %zu bytes, at most %d are allowed", n, LIMIT_JSON_BYTES_MAX);
	if (json_scan(p, n, err) != 0)
		return -1;
	auto_json *j = cJSON_ParseWithLength(p, n);
	if (!j)
		return error_set(err, ERR_INVALID, "JSON: the document cannot be read");
	if (check_keys(j, err) != 0)
		return -1;
	*ret = steal(&j);
	return 0;
}

char *json_print(const cJSON *j)
{
	char *text = cJSON_PrintUnformatted(j);
	if (!text)
		abort(); /* out of memory, as in mem.h */
	return text;
}

/* "spec.exposures[2]"; cut when it does not fit. */
static void path_text(const struct json_reader *r, char *out, size_t size)
{
	out[0] = '\0';
	if (r->parent)
		path_text(r->parent, out, size);
	size_t at = strlen(out);
	const char *dot = at > 0 && r->name[0] ? "." : "";
	if (r->index >= 0)
		snprintf(out + at, size - at, "%s%s[%d]", dot, r->name, r->index);
	else
		snprintf(out + at, size - at, "%s%s", dot, r->name);
}

int json_fail(struct json_reader *r, const char *key, const char *fmt, ...)
{
	if (*r->failed)
		return -1;
	*r->failed = true;
	char path[PATH_TEXT_MAX], shown[64 * 4 + 1] = "", text[512];
	path_text(r, path, sizeof(path));
	if (key)
		text_escape(key, strnlen(key, 64), shown, sizeof(shown));
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const char *dot = path[0] && shown[0] ? "." : "";
	if (!path[0] && !shown[0])
		return error_set(r->err, ERR_INVALID, "the document %s", text);
	return error_set(r->err, ERR_INVALID, "%s%s%s: %s", path, dot, shown, text);
}

static void reader_start(struct json_reader *r, const cJSON *j)
{
	if (!cJSON_IsObject(j))
		json_fail(r, NULL, "must be an object");
	else
		r->object = j;
}

void json_reader_init(struct json_reader *r, const cJSON *j, const char *name, struct error *err)
{
	*r = (struct json_reader){ .name = name ? name : "", .index = -1, .err = err };
	r->failed = &r->failed_here;
	reader_start(r, j);
}

bool json_ok(const struct json_reader *r)
{
	return !*r->failed;
}

/* The member, marked as known; NULL when absent. Members beyond the bitmap stay unmarked: no object of ours has so many keys. */
static const cJSON *find(struct json_reader *r, const char *key)
{
	if (*r->failed || !r->object)
		return NULL;
	size_t i = 0;
	for (const cJSON *m = r->object->child; m; m = m->next, i++) {
		if (strcmp(m->string, key) != 0)
			continue;
		if (i < 64 * ARRAY_LEN(r->seen))
			r->seen[i / 64] |= UINT64_C(1) << (i % 64);
		return m;
	}
	return NULL;
}

/* NULL when there is nothing to read: absent or null (a failure when required), or something failed before. */
static const cJSON *want(struct json_reader *r, const char *key, enum json_need need)
{
	const cJSON *m = find(r, key);
	if (m && !cJSON_IsNull(m))
		return m;
	if (need == JSON_REQUIRED)
		json_fail(r, key, "is required");
	return NULL;
}

int json_end(struct json_reader *r)
{
	if (*r->failed || !r->object)
		return -1;
	size_t i = 0;
	for (const cJSON *m = r->object->child; m; m = m->next, i++)
		if (i >= 64 * ARRAY_LEN(r->seen) || !(r->seen[i / 64] & UINT64_C(1) << (i % 64)))
			return json_fail(r, m->string, "unknown field");
	return 0;
}

static bool text_ok(struct json_reader *r, const char *key, const cJSON *m, size_t max)
{
	if (!cJSON_IsString(m)) {
		json_fail(r, key, "must be text");
		return false;
	}
	size_t n = strlen(m->valuestring);
	if (n > max)
		json_fail(r, key, "%zu bytes, at most %zu are allowed", n, max);
	return n <= max;
}

void json_get_str(struct json_reader *r, const char *key, enum json_need need, size_t max, char **ret)
{
	const cJSON *m = want(r, key, need);
	if (!m || !text_ok(r, key, m, max))
		return;
	free(*ret);
	*ret = xstrdup(m->valuestring);
}

void json_get_i64(struct json_reader *r, const char *key, enum json_need need, int64_t min, int64_t max, int64_t *ret)
{
	const cJSON *m = want(r, key, need);
	if (!m)
		return;
	double v = m->valuedouble;
	if (!cJSON_IsNumber(m) || !json_is_whole(v))
		json_fail(r, key, "must be a whole number (allowed: %" PRId64 " to %" PRId64 ")", min, max);
	else if (v > EXACT_MAX || v < -EXACT_MAX || (int64_t)v < min || (int64_t)v > max)
		json_fail(r, key, "out of range (allowed: %" PRId64 " to %" PRId64 ")", min, max);
	else
		*ret = (int64_t)v;
}

void json_get_u32(struct json_reader *r, const char *key, enum json_need need, uint32_t min, uint32_t max, uint32_t *ret)
{
	int64_t v = *ret;
	json_get_i64(r, key, need, min, max, &v);
	if (json_ok(r))
		*ret = (uint32_t)v;
}

void json_get_bool(struct json_reader *r, const char *key, enum json_need need, bool *ret)
{
	const cJSON *m = want(r, key, need);
	if (m && !cJSON_IsBool(m))
		json_fail(r, key, "must be true or false");
	else if (m)
		*ret = cJSON_IsTrue(m);
}

static size_t count_children(const cJSON *j)
{
	size_t n = 0;
	for (const cJSON *m = j->child; m; m = m->next)
		n++;
	return n;
}

size_t json_get_array(struct json_reader *r, const char *key, enum json_need need, size_t max_items, const cJSON **ret_array)
{
	const cJSON *m = want(r, key, need);
	if (!m)
		return 0;
	if (!cJSON_IsArray(m)) {
		json_fail(r, key, "must be a list");
		return 0;
	}
	size_t n = count_children(m);
	if (n > max_items) {
		json_fail(r, key, "%zu entries, at most %zu are allowed", n, max_items);
		return 0;
	}
	*ret_array = m;
	return n;
}

void json_get_strv(struct json_reader *r, const char *key, enum json_need need, size_t max_items, size_t max, struct strv *ret)
{
	const cJSON *array = NULL;
	json_get_array(r, key, need, max_items, &array);
	if (!array)
		return;
	auto_strv v = STRV_INIT;
	for (const cJSON *m = array->child; m; m = m->next) {
		if (!text_ok(r, key, m, max))
			return;
		strv_add(&v, m->valuestring);
	}
	strv_done(ret);
	*ret = v;
	v = (struct strv)STRV_INIT;
}

void json_get_map(struct json_reader *r, const char *key, enum json_need need, size_t max_items, size_t max, struct map *ret)
{
	const cJSON *object = want(r, key, need);
	if (!object)
		return;
	if (!cJSON_IsObject(object)) {
		json_fail(r, key, "must be an object");
		return;
	}
	size_t n = count_children(object);
	if (n > max_items) {
		json_fail(r, key, "%zu entries, at most %zu are allowed", n, max_items);
		return;
	}
	auto_map map = MAP_INIT;
	for (const cJSON *m = object->child; m; m = m->next) {
		if (strlen(m->string) > max)
			json_fail(r, key, "a key has more than %zu bytes", max);
		if (!json_ok(r) || !text_ok(r, key, m, max))
			return;
		map_set(&map, m->string, m->valuestring);
	}
	map_done(ret);
	*ret = map;
	map = (struct map)MAP_INIT;
}

static bool child_start(struct json_reader *r, const char *key, int index, const cJSON *j, struct json_reader *ret)
{
	*ret = (struct json_reader){ .parent = r, .name = key, .index = index, .err = r->err, .failed = r->failed };
	reader_start(ret, j);
	return json_ok(ret);
}

bool json_get_object(struct json_reader *r, const char *key, enum json_need need, struct json_reader *ret_child)
{
	const cJSON *m = want(r, key, need);
	return m && child_start(r, key, -1, m, ret_child);
}

bool json_element(struct json_reader *r, const char *key, const cJSON *array, size_t i, struct json_reader *ret_child)
{
	const cJSON *m = array->child;
	for (size_t k = 0; m && k < i; k++)
		m = m->next;
	return json_ok(r) && m && child_start(r, key, (int)i, m, ret_child);
}
