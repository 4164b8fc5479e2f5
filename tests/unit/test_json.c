/* JSON: what is refused, what survives, and the model's wire form. */
#include "shared/json/model_json.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static cJSON *parse(const char *text)
{
	struct error err = ERROR_INIT;
	cJSON *j = NULL;
	if (json_parse(text, strlen(text), &j, &err) != 0)
		fail_msg("%.100s: %s", text, err.message);
	return j;
}

static void what_is_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "", "ends" },
		{ " ", "ends" },
		{ "{", "double quotes" },
		{ "{}x", "after the end" },
		{ "{} {}", "after the end" },
		{ "\xef\xbb\xbf{}", "value expected" },
		{ "{\"a\":1,}", "double quotes" },
		{ "[1,]", "value expected" },
		{ "[1 2]", "',' or ']'" },
		{ "{\"a\" 1}", "':'" },
		{ "{a:1}", "double quotes" },
		{ "{'a':1}", "double quotes" },
		{ "nul", "value expected" },
		{ "nullx", "after the end" },
		{ "True", "value expected" },
		{ "NaN", "value expected" },
		{ "Infinity", "value expected" },
		{ "01", "malformed" },
		{ "-", "value expected" },
		{ "-01", "malformed" },
		{ "+1", "value expected" },
		{ ".5", "value expected" },
		{ "1.", "decimal point" },
		{ "1.2.3", "malformed" },
		{ "1e", "exponent" },
		{ "1e+", "exponent" },
		{ "0x10", "after the end" },
		{ "{\"ttl\":1e400}", "in 'ttl': the number is too large" },
		{ "{\"ttl\":-1e400}", "too large" },
		{ "{\"a\":{\"b\":[1,1e999]}}", "in 'b'" },
		{ "1.0000000000000000000001", "more digits" },
		{ "4503599627370497.3", "more digits" },
		{ "1e-400", "more digits" },
		{ "0.0000000000000000000000000000000000000000000000000000000000001", "too long" },
		{ "\"a\nb\"", "control byte" },
		{ "\"a", "ends inside" },
		{ "\"\\x\"", "escape" },
		{ "\"\\u12g4\"", "hexadecimal" },
		{ "\"\\u12", "hexadecimal" },
		{ "\"\\u0000\"", "NUL" },
		{ "{\"\\u0000\":1}", "NUL" },
		{ "\"\\ud800\"", "surrogate" },
		{ "\"\\udc00\"", "surrogate" },
		{ "\"\\ud800\\u0041\"", "surrogate" },
		{ "\"\\ud800\\ud800\"", "surrogate" },
		{ "\"\xff\"", "UTF-8" },
		{ "\"\xed\xa0\x80\"", "UTF-8" },
		{ "\"\xc0\x80\"", "UTF-8" },
		{ "{\"image\":\"a\",\"image\":\"b\"}", "'image' is given twice" },
		{ "{\"a\":1,\"\\u0061\":2}", "'a' is given twice" },
		{ "[{\"x\":{\"k\":1,\"k\":1}}]", "'k' is given twice" },
		{ "/**/{}", "value expected" },
		{ "{}//", "after the end" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		cJSON *j = NULL;
		int r = json_parse(rows[i].text, strlen(rows[i].text), &j, &err);
		if (r == 0 || j || !strstr(err.message, rows[i].says))
			fail_msg("row %zu: %s: %d, %s", i, rows[i].text, r, err.message);
		assert_int_equal(err.code, ERR_INVALID);
	}
	cJSON *j = NULL;
	assert_int_equal(json_parse("\"a\0b\"", 5, &j, NULL), -1);
	assert_int_equal(json_parse("{}\0", 3, &j, NULL), -1);
}

static void what_is_accepted(void **state)
{
	static const char *const texts[] = { "{}", " [ ] ", "null", "true", "-0", "0", "1.5", "1e3", "1E+3", "1.0", "-1.25e-2", "9007199254740993", "\"\\ud83d\\ude00\"",
					     "\"é\\n\\\"\\/\\b\\f\\r\\t\\\\\"", "{\"a\":{\"a\":1},\"A\":2,\"\":3}", "[[],[[]],{}]", "\r\n\t1\n", "0e99999" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		cJSON_Delete(parse(texts[i]));
	auto_json *j = parse("\"\\ud83d\\ude00\\u00e9\"");
	assert_string_equal(j->valuestring, "😀é");
}

static void bounds(void **state)
{
	struct error err = ERROR_INIT;
	cJSON *j = NULL;
	auto_buf b = BUF_INIT;
	(void)state;
	for (int i = 0; i < LIMIT_JSON_DEPTH_MAX; i++)
		buf_addc(&b, '[');
	for (int i = 0; i < LIMIT_JSON_DEPTH_MAX; i++)
		buf_addc(&b, ']');
	assert_int_equal(json_parse(b.data, b.len, &j, &err), 0);
	json_freep(&j);
	buf_reset(&b);
	for (int i = 0; i < 200000; i++)
		buf_addc(&b, '[');
	assert_int_equal(json_parse(b.data, b.len, &j, &err), -1);
	assert_non_null(strstr(err.message, "64 levels"));
	buf_reset(&b);
	buf_addc(&b, '[');
	for (int i = 0; i < LIMIT_JSON_VALUES_MAX; i++)
		buf_adds(&b, "0,");
	buf_adds(&b, "0]");
	assert_int_equal(json_parse(b.data, b.len, &j, &err), -1);
	assert_non_null(strstr(err.message, "too many values"));
	buf_reset(&b);
	while (b.len <= LIMIT_JSON_BYTES_MAX)
		buf_adds(&b, "                                                                ");
	assert_int_equal(json_parse(b.data, b.len, &j, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
}

/* Many keys in one object stay cheap: no quadratic search for duplicates. */
static void wide_objects(void **state)
{
	auto_buf b = BUF_INIT;
	(void)state;
	buf_addc(&b, '{');
	for (int i = 0; i < 100000; i++)
		buf_addf(&b, "\"k%d\":0,", i);
	buf_adds(&b, "\"k5\":1}");
	struct error err = ERROR_INIT;
	cJSON *j = NULL;
	assert_int_equal(json_parse(b.data, b.len, &j, &err), -1);
	assert_non_null(strstr(err.message, "'k5' is given twice"));
}

static void integers_are_exact(void **state)
{
	static const struct {
		const char *text;
		const char *refused; /* NULL: accepted as want */
		int64_t want;
	} rows[] = {
		{ "60", NULL, 60 },
		{ "-0", NULL, 0 },
		{ "6e1", NULL, 60 },
		{ "60.0", NULL, 60 },
		{ "1.5", "whole number", 0 },
		{ "\"60\"", "whole number", 0 },
		{ "true", "whole number", 0 },
		{ "[1]", "whole number", 0 },
		{ "101", "out of range (allowed: 0 to 100)", 0 },
		{ "-1", "out of range", 0 },
		{ "9007199254740993", "out of range", 0 },
		{ "1000000000000000000000000000000", "out of range", 0 },
		{ "null", "is required", 0 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		auto_free char *text = xasprintf("{\"spec\":{\"n\":%s}}", rows[i].text);
		auto_json *j = parse(text);
		struct json_reader r, child;
		int64_t v = -7;
		json_reader_init(&r, j, "", &err);
		assert_true(json_get_object(&r, "spec", JSON_REQUIRED, &child));
		json_get_i64(&child, "n", JSON_REQUIRED, 0, 100, &v);
		if (!rows[i].refused) {
			assert_true(json_ok(&r));
			assert_int_equal(v, rows[i].want);
			assert_int_equal(json_end(&child), 0);
			continue;
		}
		assert_false(json_ok(&r));
		assert_int_equal(v, -7);
		if (strncmp(err.message, "spec.n: ", 8) != 0 || !strstr(err.message, rows[i].refused))
			fail_msg("%s: %s", rows[i].text, err.message);
	}
	struct error err = ERROR_INIT;
	auto_json *j = parse("{\"n\":9007199254740993,\"m\":9007199254740991}");
	struct json_reader r;
	int64_t v = 0;
	json_reader_init(&r, j, "x", &err);
	json_get_i64(&r, "m", JSON_REQUIRED, 0, INT64_MAX, &v);
	assert_true(v == 9007199254740991);
	json_get_i64(&r, "n", JSON_REQUIRED, 0, INT64_MAX, &v);
	assert_false(json_ok(&r));
}

static void the_first_failure_is_kept(void **state)
{
	struct error err = ERROR_INIT;
	auto_json *j = parse("{\"a\":[{\"b\":1},{\"b\":\"x\",\"c\":2}],\"d\":1}");
	struct json_reader r, e;
	const cJSON *array = NULL;
	char *text = NULL;
	(void)state;
	json_reader_init(&r, j, "root", &err);
	assert_int_equal(json_get_array(&r, "a", JSON_REQUIRED, 5, &array), 2);
	assert_true(json_element(&r, "a", array, 1, &e));
	json_get_str(&e, "b", JSON_REQUIRED, 10, &text);
	assert_string_equal(text, "x");
	assert_int_equal(json_end(&e), -1);
	assert_string_equal(err.message, "root.a[1].c: unknown field");
	json_get_str(&r, "zzz", JSON_REQUIRED, 10, &text);
	assert_string_equal(err.message, "root.a[1].c: unknown field");
	assert_false(json_element(&r, "a", array, 0, &e));
	assert_int_equal(json_end(&r), -1);
	free(text);
	json_reader_init(&r, array, "list", &err);
	assert_string_equal(err.message, "list: must be an object");
}

static void optional_null_is_absent(void **state)
{
	auto_json *j = parse("{\"s\":null,\"n\":null,\"b\":null,\"v\":null,\"m\":null,\"o\":null}");
	struct json_reader r, child;
	char *text = xstrdup("kept");
	uint32_t n = 5;
	bool b = true;
	auto_strv v = STRV_INIT;
	auto_map m = MAP_INIT;
	(void)state;
	json_reader_init(&r, j, "", NULL);
	json_get_str(&r, "s", JSON_OPTIONAL, 10, &text);
	json_get_u32(&r, "n", JSON_OPTIONAL, 0, 10, &n);
	json_get_bool(&r, "b", JSON_OPTIONAL, &b);
	json_get_strv(&r, "v", JSON_OPTIONAL, 10, 10, &v);
	json_get_map(&r, "m", JSON_OPTIONAL, 10, 10, &m);
	assert_false(json_get_object(&r, "o", JSON_OPTIONAL, &child));
	assert_int_equal(json_end(&r), 0);
	assert_string_equal(text, "kept");
	assert_int_equal(n, 5);
	assert_true(b);
	free(text);
}

static void printed_values_are_valid(void **state)
{
	auto_json *j = cJSON_CreateObject();
	(void)state;
	json_add_i64(j, "big", INT64_C(9007199254740991));
	json_add_i64(j, "round", INT64_C(1000000000000000));
	json_add_i64(j, "low", INT64_MIN);
	json_add_str(j, "bad", "a\xff" "b");
	json_add_str(j, "none", NULL);
	json_add_time(j, "t", 0);
	json_add_bytes(j, "text", "na\xc3\xafve", 6);
	json_add_bytes(j, "bytes", "a\0b\xff", 4);
	json_add_bytes(j, "empty", NULL, 0);
	auto_free char *text = json_print(j);
	assert_string_equal(text, "{\"big\":9007199254740991,\"round\":1000000000000000,\"low\":-9223372036854775808,\"bad\":\"a\xef\xbf\xbd" "b\","
				  "\"none\":null,\"t\":null,\"text\":\"na\xc3\xafve\",\"bytes\":\"a\xef\xbf\xbd" "b\xef\xbf\xbd\","
				  "\"bytes_base64\":\"YQBi/w==\",\"empty\":\"\"}");
	auto_json *again = parse(text);
	assert_non_null(again);
}

static void base64(void **state)
{
	static const char *const bad[] = { "YQ", "YQ=", "YQ===", "Y===", "====", "YR==", "YWJ=", "Y Q=", "YQ==YQ==", "YQ\n=", "=QQQ", "YW-_" };
	static const char *const rows[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "foobar", "Zm9vYmFy" } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_free char *text = base64_encode(rows[i][0], strlen(rows[i][0]));
		auto_buf back = BUF_INIT;
		assert_string_equal(text, rows[i][1]);
		assert_int_equal(base64_decode(text, &back, NULL), 0);
		assert_string_equal(buf_str(&back), rows[i][0]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf back = BUF_INIT;
		if (base64_decode(bad[i], &back, NULL) == 0)
			fail_msg("'%s' was accepted", bad[i]);
	}
	unsigned char all[256];
	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	auto_free char *text = base64_encode(all, sizeof(all));
	auto_buf back = BUF_INIT;
	assert_int_equal(base64_decode(text, &back, NULL), 0);
	assert_int_equal(back.len, 256);
	assert_memory_equal(back.data, all, 256);
	auto_buf small = BUF_INIT_MAX(10);
	struct error err = ERROR_INIT;
	assert_int_equal(base64_decode(text, &small, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
}

static int decode_spec(const char *text, bool strict, struct spec *s, struct error *err)
{
	auto_json *j = parse(text);
	return spec_from_json(j, "spec", strict, s, err);
}

static void a_short_spec_gets_the_defaults(void **state)
{
	struct error err = ERROR_INIT;
	auto_spec s;
	(void)state;
	spec_init(&s);
	assert_int_equal(decode_spec("{\"tenant\":\"t\",\"image\":\"debian:12\",\"agent\":null}", true, &s, &err), 0);
	assert_int_equal(s.resources.disk_mib, 10240);
	assert_int_equal(s.ttl_ms, 3600000);
	assert_null(s.agent);
	assert_int_equal(spec_validate(&s, &err), 0);
	auto_json *j = spec_to_json(&s);
	auto_free char *text = json_print(j);
	assert_string_equal(text,
			    "{\"tenant\":\"t\",\"image\":\"debian:12\",\"name\":null,\"command\":[],\"env\":{},"
			    "\"resources\":{\"cpu_millis\":1000,\"memory_mib\":1024,\"disk_mib\":10240,\"pids\":256},"
			    "\"network\":\"deny\",\"isolation\":\"auto\",\"min_tier\":\"container\",\"sensitivity\":\"internal\","
			    "\"signals\":{\"untrusted_repository\":false,\"executes_generated_code\":false,\"needs_secrets\":false,"
			    "\"host_mounts\":false,\"privileged\":false},\"ttl_seconds\":3600,\"labels\":{},"
			    "\"placement\":{\"required_labels\":{},\"preferred_region\":null,\"anti_affinity_keys\":[]},"
			    "\"exposures\":[],\"secrets\":[],\"egress\":[],\"agent\":null,\"writable_root\":false}");
}

static const char FULL_SPEC[] =
	"{\"tenant\":\"platform\",\"image\":\"ghcr.io/a/b@sha256:00\",\"name\":\"web-1\",\"command\":[\"sh\",\"-c\",\"\"],\"env\":{\"A\":\"é\"},"
	"\"resources\":{\"cpu_millis\":2000,\"memory_mib\":4096,\"disk_mib\":512,\"pids\":64},\"network\":\"restricted_egress\","
	"\"isolation\":\"microvm\",\"min_tier\":\"gvisor\",\"sensitivity\":\"restricted\",\"signals\":{\"untrusted_repository\":true,"
	"\"executes_generated_code\":true,\"needs_secrets\":true,\"host_mounts\":true,\"privileged\":false},\"ttl_seconds\":2,\"ttl_ms\":1500,"
	"\"labels\":{\"team\":\"x\"},\"placement\":{\"required_labels\":{\"disk\":\"ssd\"},\"preferred_region\":\"eu\","
	"\"anti_affinity_keys\":[\"db\"]},\"exposures\":[{\"container_port\":8080,\"protocol\":\"tcp\",\"subdomain\":\"demo\","
	"\"authenticated\":true}],\"secrets\":[{\"name\":\"npm\",\"env\":\"NPM_TOKEN\",\"file\":null}],\"egress\":[\"!a.example\",\"*.example:8080\"],\"agent\":\"codex\",\"writable_root\":true}";

static void a_full_spec_survives(void **state)
{
	struct error err = ERROR_INIT;
	auto_spec s;
	(void)state;
	spec_init(&s);
	if (decode_spec(FULL_SPEC, true, &s, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(s.ttl_ms, 1500);
	auto_json *j = spec_to_json(&s);
	auto_free char *text = json_print(j);
	assert_string_equal(text, FULL_SPEC);
}

static void spec_mistakes_name_the_field(void **state)
{
	static const char *const rows[][2] = {
		{ "{\"tenant\":\"t\"}", "spec.image: is required" },
		{ "{\"image\":7}", "spec.image: must be text" },
		{ "{\"image\":\"a\",\"ttl\":5}", "spec.ttl: unknown field" },
		{ "{\"image\":\"a\",\"resources\":{\"cpus\":1}}", "spec.resources.cpus: unknown field" },
		{ "{\"image\":\"a\",\"resources\":{\"pids\":-1}}", "spec.resources.pids: out of range" },
		{ "{\"image\":\"a\",\"resources\":[]}", "spec.resources: must be an object" },
		{ "{\"image\":\"a\",\"network\":\"nope\"}", "spec.network: 'nope' is not one of" },
		{ "{\"image\":\"a\",\"ttl_seconds\":1.5}", "spec.ttl_seconds: must be a whole number" },
		{ "{\"image\":\"a\",\"ttl_seconds\":99999999999999999999}", "spec.ttl_seconds: out of range" },
		{ "{\"image\":\"a\",\"env\":{\"A\":1}}", "spec.env: must be text" },
		{ "{\"image\":\"a\",\"exposures\":[{\"protocol\":\"http\"}]}", "spec.exposures[0].container_port: is required" },
		{ "{\"image\":\"a\",\"exposures\":[1]}", "spec.exposures[0]: must be an object" },
		{ "{\"image\":\"a\",\"signals\":{\"x\":true}}", "spec.signals.x: unknown field" },
		{ "[]", "spec: must be an object" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct error err = ERROR_INIT;
		auto_spec s;
		spec_init(&s);
		assert_int_equal(decode_spec(rows[i][0], true, &s, &err), -1);
		if (strncmp(err.message, rows[i][1], strlen(rows[i][1])) != 0)
			fail_msg("%s: %s", rows[i][0], err.message);
	}
	struct error err = ERROR_INIT;
	auto_spec s;
	spec_init(&s);
	assert_int_equal(decode_spec("{\"image\":\"a\",\"future\":{},\"resources\":{\"gpus\":1}}", false, &s, &err), 0);
}

static void commands(void **state)
{
	static const char *const bad[][2] = {
		{ "{}", "command.argv: is required" },
		{ "{\"argv\":[1]}", "command.argv: must be text" },
		{ "{\"argv\":[\"a\"],\"timeout_seconds\":0}", "command.timeout_seconds: out of range (allowed: 1 to 86400)" },
		{ "{\"argv\":[\"a\"],\"env\":{\"A=B\":\"c\"}}", "command.env: 'A=B' is no variable name" },
		{ "{\"argv\":[\"a\"],\"shell\":true}", "command.shell: unknown field" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct error err = ERROR_INIT;
		auto_json *j = parse(bad[i][0]);
		auto_command c;
		command_init(&c);
		assert_int_equal(command_from_json(j, "command", &c, &err), -1);
		if (strncmp(err.message, bad[i][1], strlen(bad[i][1])) != 0)
			fail_msg("%s: %s", bad[i][0], err.message);
	}
	struct error err = ERROR_INIT;
	auto_json *j = parse("{\"argv\":[\"env\",\"\"],\"cwd\":null,\"env\":{\"TOKEN\":\"s3cret\"},\"user\":\"app\"}");
	auto_command c;
	command_init(&c);
	assert_int_equal(command_from_json(j, "command", &c, &err), 0);
	assert_int_equal(c.timeout_ms, 300000);
	assert_string_equal(c.env.items[0], "TOKEN=s3cret");
	auto_json *shown = command_to_json(&c);
	auto_free char *text = json_print(shown);
	assert_string_equal(text, "{\"argv\":[\"env\",\"\"],\"cwd\":null,\"user\":\"app\",\"timeout_seconds\":300,\"tty\":false,\"env_keys\":[\"TOKEN\"]}");
}

static void make_sandbox(struct sandbox *s)
{
	sandbox_init(s);
	id_parse("019a0000-0000-7000-8000-0123456789ab", &s->id);
	s->spec.tenant = xstrdup("t");
	s->spec.image = xstrdup("debian:12");
	s->state = SANDBOX_RUNNING;
	s->tier = TIER_GVISOR;
	s->risk_score = 10;
	s->created_us = s->updated_us = 1767323045678901;
	s->expires_us = 1767326645678901;
	s->decision = xstrdup("{\"score\":10}");
}

static void sandboxes(void **state)
{
	struct error err = ERROR_INIT;
	auto_sandbox s;
	auto_sandbox back;
	(void)state;
	make_sandbox(&s);
	sandbox_init(&back);
	auto_json *j = sandbox_to_json(&s);
	auto_free char *text = json_print(j);
	/* What clients of the original read: an isolation they know, tunnels, ids that parse. */
	assert_non_null(strstr(text, "\"isolation\":\"container\",\"tier\":\"gvisor\""));
	assert_non_null(strstr(text, "\"tunnels\":[]"));
	assert_non_null(strstr(text, "\"node_id\":\"00000000-0000-0000-0000-000000000000\""));
	assert_non_null(strstr(text, "\"failure\":null"));
	assert_non_null(strstr(text, "\"created_at\":\"2026-01-02T03:04:05.678901Z\""));
	assert_non_null(strstr(text, "\"decision\":{\"score\":10}"));
	if (sandbox_from_json(j, "sandbox", &back, &err) != 0)
		fail_msg("%s", err.message);
	assert_string_equal(back.id.text, s.id.text);
	assert_int_equal(back.tier, TIER_GVISOR);
	assert_int_equal(back.state, SANDBOX_RUNNING);
	assert_true(back.expires_us == s.expires_us);
	assert_string_equal(back.spec.image, "debian:12");
	assert_string_equal(back.node_id.text, "");
	assert_string_equal(back.decision, "{\"score\":10}");
}

/* As the original's server answers: no field of ours, a spec without them, unknown fields of a later one. */
static void answers_of_the_original_are_read(void **state)
{
	struct error err = ERROR_INIT;
	auto_sandbox s;
	auto_operation o;
	(void)state;
	sandbox_init(&s);
	operation_init(&o);
	auto_json *j = parse("{\"id\":\"019a0000-0000-7000-8000-0123456789ab\",\"spec\":{\"tenant\":\"acme\",\"image\":\"u:1\",\"agent\":null},"
			     "\"state\":\"running\",\"node_id\":\"019a0000-0000-7000-8000-0123456789ac\",\"isolation\":\"microvm\",\"risk_score\":60,"
			     "\"created_at\":\"2026-01-02T03:04:05.678901234Z\",\"updated_at\":\"2026-01-02T03:04:05Z\","
			     "\"expires_at\":\"2026-01-02T04:04:05Z\",\"failure\":null,\"tunnels\":[{\"id\":1}],\"later\":[1]}");
	if (sandbox_from_json(j, "sandbox", &s, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(s.tier, TIER_MICROVM);
	auto_json *p = parse("{\"id\":\"019a0000-0000-7000-8000-0123456789ab\",\"sandbox_id\":\"019a0000-0000-7000-8000-0123456789ac\","
			     "\"state\":\"failed\",\"output\":{\"exit_code\":3,\"stdout\":\"o\",\"stderr\":\"e\",\"truncated\":true},\"error\":null,"
			     "\"created_at\":\"2026-01-02T03:04:05Z\",\"updated_at\":\"2026-01-02T03:04:05Z\"}");
	if (operation_from_json(p, "operation", &o, &err) != 0)
		fail_msg("%s", err.message);
	assert_true(o.has_result);
	assert_int_equal(result_exit_status(&o.result), 3);
	assert_true(o.result.truncated);
	assert_string_equal(buf_str(&o.result.out.head), "o");
}

static void make_operation(struct operation *o, enum outcome outcome)
{
	operation_init(o);
	id_parse("019a0000-0000-7000-8000-0123456789ab", &o->id);
	id_parse("019a0000-0000-7000-8000-0123456789ac", &o->sandbox_id);
	o->kind = OPK_EXEC;
	o->state = OP_FAILED;
	o->has_result = true;
	o->result.outcome = outcome;
	o->created_us = o->updated_us = 1767323045678901;
	strv_add(&o->command.argv, "true");
}

static void fill(struct capture *c, const char *head, const char *tail, uint64_t total)
{
	buf_adds(&c->head, head);
	buf_adds(&c->tail, tail);
	c->total = total;
}

static void operations_carry_output(void **state)
{
	struct error err = ERROR_INIT;
	auto_operation o;
	auto_operation back;
	(void)state;
	make_operation(&o, OUTCOME_SIGNALED);
	operation_init(&back);
	o.result.signal = 9;
	o.result.oom_killed = true;
	fill(&o.result.out, "na\xc3", "\xafve", 6);  /* whole: the parts join to a character */
	fill(&o.result.err, "ab\xe2\x98", "\x95" "cd", 1000); /* a gap cuts characters on both sides */
	auto_json *j = operation_to_json(&o);
	auto_free char *text = json_print(j);
	assert_non_null(strstr(text, "\"exit_code\":137,\"stdout\":\"na\xc3\xafve\",\"stdout_bytes\":6,"
				     "\"stderr\":\"abcd\",\"stderr_gap_at\":2,\"stderr_bytes\":1000,\"truncated\":true,\"signal\":9,\"oom_killed\":true"));
	assert_non_null(strstr(text, "\"outcome\":\"signaled\""));
	assert_null(strstr(text, "base64"));
	if (operation_from_json(j, "operation", &back, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(back.result.outcome, OUTCOME_SIGNALED);
	assert_int_equal(result_exit_status(&back.result), 137);
	assert_string_equal(buf_str(&back.result.err.head), "ab");
	assert_string_equal(buf_str(&back.result.err.tail), "cd");
	assert_int_equal(back.result.err.total, 1000);
	assert_true(back.result.oom_killed);
	assert_string_equal(back.command.argv.items[0], "true");
}

static void binary_output_is_exact(void **state)
{
	auto_operation o;
	auto_operation back;
	(void)state;
	make_operation(&o, OUTCOME_EXITED);
	operation_init(&back);
	buf_add(&o.result.out.head, "a\0b\xff", 4);
	o.result.out.total = 4;
	auto_json *j = operation_to_json(&o);
	auto_free char *text = json_print(j);
	assert_non_null(strstr(text, "\"stdout_base64\":\"YQBi/w==\""));
	assert_non_null(strstr(text, "\"truncated\":false"));
	assert_int_equal(operation_from_json(j, "operation", &back, NULL), 0);
	assert_int_equal(back.result.out.head.len, 4);
	assert_memory_equal(back.result.out.head.data, "a\0b\xff", 4);
}

static void outcomes_without_a_status(void **state)
{
	static const struct {
		enum outcome outcome;
		const char *says;
	} rows[] = { { OUTCOME_TIMEOUT, "\"exit_code\":124" }, { OUTCOME_LOST, "\"exit_code\":125" }, { OUTCOME_EXPIRED, "\"exit_code\":125" } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_operation o;
		make_operation(&o, rows[i].outcome);
		auto_json *j = operation_to_json(&o);
		auto_free char *text = json_print(j);
		assert_non_null(strstr(text, rows[i].says));
	}
	auto_operation o;
	operation_init(&o);
	o.error = xstrdup("no such image");
	o.error_code = ERR_NOT_FOUND;
	auto_json *j = operation_to_json(&o);
	auto_free char *text = json_print(j);
	assert_non_null(strstr(text, "\"kind\":\"create\",\"state\":\"pending\",\"outcome\":null,\"output\":null,\"error\":\"no such image\",\"error_code\":\"not_found\""));
}

static void errors(void **state)
{
	struct error err = ERROR_INIT, back = ERROR_INIT;
	(void)state;
	error_set(&err, ERR_NO_CAPACITY, "no node");
	auto_json *j = error_to_json(&err, NULL);
	auto_free char *text = json_print(j);
	assert_string_equal(text, "{\"code\":\"no_capacity\",\"message\":\"no node\",\"request_id\":null}");
	assert_true(error_from_json(j, &back));
	assert_int_equal(back.code, ERR_NO_CAPACITY);
	assert_string_equal(back.message, "no node");
	auto_json *other = parse("{\"error\":\"x\"}");
	assert_false(error_from_json(other, &back));
	auto_json *list = parse("[]");
	assert_false(error_from_json(list, &back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(what_is_accepted),
		cmocka_unit_test(bounds),
		cmocka_unit_test(wide_objects),
		cmocka_unit_test(integers_are_exact),
		cmocka_unit_test(the_first_failure_is_kept),
		cmocka_unit_test(optional_null_is_absent),
		cmocka_unit_test(printed_values_are_valid),
		cmocka_unit_test(base64),
		cmocka_unit_test(a_short_spec_gets_the_defaults),
		cmocka_unit_test(a_full_spec_survives),
		cmocka_unit_test(spec_mistakes_name_the_field),
		cmocka_unit_test(commands),
		cmocka_unit_test(sandboxes),
		cmocka_unit_test(answers_of_the_original_are_read),
		cmocka_unit_test(operations_carry_output),
		cmocka_unit_test(binary_output_is_exact),
		cmocka_unit_test(outcomes_without_a_status),
		cmocka_unit_test(errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
