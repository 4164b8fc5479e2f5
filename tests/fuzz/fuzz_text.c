/* Any bytes as the small texts people and peers write: numbers, durations, sizes, times, ids, names, base64; and as text to escape. */
#include "shared/base/clock.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
	if (!good)
		abort();
}

static void numbers(const char *text)
{
	struct error err = ERROR_INIT;
	char out[32], when[RFC3339_MAX];
	int64_t v = 0, again = -1;
	bool b;
	if (parse_i64("x", text, -1000, 1000, &v, &err) == 0)
		check(v >= -1000 && v <= 1000);
	else
		check(err.message[0] != '\0');
	if (parse_duration_ms("x", text, 1, 1000000, &v, &err) == 0)
		check(parse_duration_ms("x", duration_format(v, out), 1, 1000000, &again, &err) == 0 && again == v);
	if (parse_size("x", text, 0, INT64_MAX, &v, &err) == 0)
		check(parse_size("x", size_format(v, out), 0, INT64_MAX, &again, &err) == 0 && again == v);
	parse_bool("x", text, &b, &err);
	if (time_parse_rfc3339(text, &v) == 0 && v >= -62135596800000000 && v <= 253402300799999999)
		check(time_parse_rfc3339(time_rfc3339(v, when), &again) == 0 && again == v);
}

static void names(const char *text)
{
	struct id id;
	if (name_valid(text))
		check(tenant_valid(text) && !id_valid(text));
	if (id_parse(text, &id) == 0)
		check(strcmp(id.text, text) == 0);
	label_key_valid(text);
	env_key_valid(text);
	if (label_value_valid(text))
		check(utf8_valid(text, strlen(text)));
	auto_buf decoded = BUF_INIT;
	if (base64_decode(text, &decoded, NULL) == 0) {
		auto_free char *again = base64_encode(decoded.data, decoded.len);
		check(strcmp(again, text) == 0);
	}
}

/* Escaped text is valid UTF-8 without control bytes, and stays what it is when escaped again. */
static void escapes(const char *p, size_t n)
{
	size_t room = n * 4 + 1;
	auto_free char *once = xmalloc(room), *small = xmalloc(n / 2 + 1), *twice = xmalloc(room);
	text_escape(p, n, once, room);
	size_t len = strlen(once);
	check(utf8_valid(once, len));
	for (size_t i = 0; i < len; i++)
		check((unsigned char)once[i] >= 0x20 && once[i] != 0x7f);
	check(strcmp(text_escape(once, len, twice, room), once) == 0);
	text_escape(p, n, small, n / 2 + 1);
	check(strncmp(small, once, strlen(small)) == 0);
	size_t cut = utf8_cut(p, n);
	check(cut <= n && n - cut <= 3);
	if (utf8_valid(p, n))
		check(cut == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *exact = xmemdup(data, size), *text = xstrndup((const char *)data, size);
	numbers(text);
	names(text);
	escapes(exact, size);
	return 0;
}
