/* Adders: see json.h. What they add is always valid JSON: text that is not UTF-8 is repaired, integers stay exact. */
#include "shared/json/json.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd";

/* Invalid bytes and NUL become U+FFFD; what is good between them is copied in one piece. */
static void add_lossy(struct buf *out, const char *p, size_t n)
{
	size_t good = 0;
	while (good < n) {
		size_t len = utf8_next(p + good, n - good);
		if (len > 0 && p[good] != '\0') {
			good += len;
			continue;
		}
		buf_add(out, p, good);
		buf_adds(out, REPLACEMENT);
		p += good + 1;
		n -= good + 1;
		good = 0;
	}
	buf_add(out, p, n);
}

static cJSON *text_item(const char *value)
{
	size_t n = strlen(value);
	if (utf8_valid(value, n))
		return cJSON_CreateString(value);
	auto_buf b = BUF_INIT;
	add_lossy(&b, value, n);
	return cJSON_CreateString(buf_str(&b));
}

void json_add_str(cJSON *object, const char *key, const char *value)
{
	cJSON_AddItemToObject(object, key, value ? text_item(value) : cJSON_CreateNull());
}

void json_add_i64(cJSON *object, const char *key, int64_t value)
{
	/* From 10^15 on cJSON may print an exponent, which integer readers refuse. */
	const int64_t plain_max = INT64_C(999999999999999);
	char text[24];
	if (value >= -plain_max && value <= plain_max) {
		cJSON_AddNumberToObject(object, key, (double)value);
		return;
	}
	snprintf(text, sizeof(text), "%" PRId64, value);
	cJSON_AddRawToObject(object, key, text);
}

void json_add_bool(cJSON *object, const char *key, bool value)
{
	cJSON_AddBoolToObject(object, key, value);
}

void json_add_strv(cJSON *object, const char *key, const struct strv *v)
{
	cJSON *array = cJSON_AddArrayToObject(object, key);
	for (size_t i = 0; i < v->len; i++)
		cJSON_AddItemToArray(array, text_item(v->items[i]));
}

void json_add_map(cJSON *object, const char *key, const struct map *m)
{
	cJSON *child = cJSON_AddObjectToObject(object, key);
	for (size_t i = 0; i < m->len; i++)
		json_add_str(child, m->items[i].key, m->items[i].value);
}

void json_add_time(cJSON *object, const char *key, int64_t us)
{
	char text[RFC3339_MAX];
	json_add_str(object, key, us ? time_rfc3339(us, text) : NULL);
}

void json_add_bytes(cJSON *object, const char *key, const void *p, size_t n)
{
	auto_buf text = BUF_INIT;
	add_lossy(&text, p, n);
	json_add_str(object, key, buf_str(&text));
	if (text.len == n && (n == 0 || memcmp(text.data, p, n) == 0))
		return;
	auto_free char *name = xasprintf("%s_base64", key);
	auto_free char *encoded = base64_encode(p, n);
	json_add_str(object, name, encoded);
}
