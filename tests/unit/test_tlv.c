/* TLV fields: building, parsing, and everything a hostile peer may send instead. */
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/tlv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void u64_round_trip(void **state)
{
	static const uint64_t values[] = { 0, 1, 127, 128, 255, 256, 65535, 65536, UINT32_MAX, 1ULL << 40, UINT64_MAX };
	static const size_t lengths[] = { 1, 1, 1, 1, 1, 2, 2, 3, 4, 6, 8 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		auto_tlv t = TLV_INIT;
		struct tlv view;
		size_t n;
		tlv_add_u64(&t, MUX_F_PID, values[i]);
		const void *raw = tlv_raw(&t, &n);
		assert_int_equal(n, 6 + lengths[i]);
		assert_int_equal(tlv_parse(&view, raw, n, NULL), 0);
		assert_true(tlv_u64(&view, MUX_F_PID, 7) == values[i]);
		assert_true(tlv_u64(&t, MUX_F_PID, 7) == values[i]);
		assert_int_equal(tlv_u64(&view, MUX_F_ROWS, 7), 7);
	}
}

static void numbers_that_are_none_fall_back(void **state)
{
	auto_tlv t = TLV_INIT;
	(void)state;
	tlv_add_bytes(&t, MUX_F_ROWS, "", 0);
	tlv_add_bytes(&t, MUX_F_COLS, "123456789", 9);
	assert_int_equal(tlv_u64(&t, MUX_F_ROWS, 5), 5);
	assert_int_equal(tlv_u64(&t, MUX_F_COLS, 6), 6);
}

static void strings_and_lists_keep_bytes_and_order(void **state)
{
	auto_tlv t = TLV_INIT;
	auto_strv v = STRV_INIT;
	auto_free char *cwd = NULL, *none = (char *)1;
	(void)state;
	tlv_add_str(&t, MUX_F_ARG, "printf");
	tlv_add_str(&t, MUX_F_CWD, "/w\n\xff");
	tlv_add_str(&t, MUX_F_ARG, "");
	tlv_add_str(&t, MUX_F_ARG, " a b ");
	tlv_add_str(&t, MUX_F_USER, NULL);
	assert_int_equal(tlv_strv(&t, MUX_F_ARG, 3, 100, &v, NULL), 0);
	assert_int_equal(v.len, 3);
	assert_string_equal(v.items[1], "");
	assert_string_equal(v.items[2], " a b ");
	assert_null(v.items[3]);
	assert_int_equal(tlv_str(&t, MUX_F_CWD, 100, &cwd, NULL), 0);
	assert_string_equal(cwd, "/w\n\xff");
	assert_int_equal(tlv_str(&t, MUX_F_USER, 100, &none, NULL), 0);
	assert_null(none);
	assert_false(tlv_has(&t, MUX_F_USER));
}

static void limits_are_named(void **state)
{
	auto_tlv t = TLV_INIT;
	auto_strv v = STRV_INIT;
	char *s = NULL;
	struct error err = ERROR_INIT;
	(void)state;
	tlv_add_str(&t, MUX_F_ARG, "12345");
	tlv_add_str(&t, MUX_F_ARG, "1");
	tlv_add_bytes(&t, MUX_F_CWD, "a\0b", 3);
	assert_int_equal(tlv_strv(&t, MUX_F_ARG, 1, 100, &v, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_int_equal(tlv_strv(&t, MUX_F_ARG, 2, 4, &v, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_int_equal(v.len, 0);
	assert_int_equal(tlv_str(&t, MUX_F_CWD, 100, &s, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_null(s);
}

static void unknown_fields_are_seen(void **state)
{
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_ARG };
	auto_tlv t = TLV_INIT;
	struct error err = ERROR_INIT;
	(void)state;
	tlv_add_u64(&t, MUX_F_KIND, 1);
	tlv_add_str(&t, MUX_F_ARG, "x");
	assert_int_equal(tlv_only(&t, allowed, 2, &err), 0);
	tlv_add_bytes(&t, (enum mux_field)999, "", 0);
	assert_int_equal(tlv_only(&t, allowed, 2, &err), -1);
	assert_non_null(strstr(err.message, "999"));
}

static void every_cut_is_refused(void **state)
{
	auto_tlv t = TLV_INIT;
	size_t n;
	(void)state;
	tlv_add_u64(&t, MUX_F_KIND, 300);
	tlv_add_str(&t, MUX_F_ARG, "hello");
	const uint8_t *raw = tlv_raw(&t, &n);
	for (size_t cut = 0; cut <= n; cut++) {
		auto_free uint8_t *copy = xmemdup(raw, cut); /* exact size: an over-read shows under ASan */
		struct tlv view = TLV_INIT;
		bool whole = cut == 0 || cut == 8 || cut == n;
		assert_int_equal(tlv_parse(&view, copy, cut, NULL), whole ? 0 : -1);
	}
	static const uint8_t huge[] = { 0, 14, 0xff, 0xff, 0xff, 0xff, 'x' };
	struct tlv view = TLV_INIT;
	assert_int_equal(tlv_parse(&view, huge, sizeof(huge), NULL), -1);
}

static void a_builder_over_the_limit_says_so(void **state)
{
	auto_tlv t = TLV_INIT;
	auto_free char *big = xcalloc(1, LIMIT_MUX_FIELDS_MAX);
	(void)state;
	tlv_add_bytes(&t, MUX_F_ARG, big, LIMIT_MUX_FIELDS_MAX - 6);
	assert_false(t.own.overflow);
	tlv_add_u64(&t, MUX_F_KIND, 1);
	assert_true(t.own.overflow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(u64_round_trip),
		cmocka_unit_test(numbers_that_are_none_fall_back),
		cmocka_unit_test(strings_and_lists_keep_bytes_and_order),
		cmocka_unit_test(limits_are_named),
		cmocka_unit_test(unknown_fields_are_seen),
		cmocka_unit_test(every_cut_is_refused),
		cmocka_unit_test(a_builder_over_the_limit_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
