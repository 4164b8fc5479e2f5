/* Lines of the console into words. */
#include "cli/console/console.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_words_are_a_shells_without_expansion(void **state)
{
	static const struct {
		const char *line, *words; /* joined by | */
	} rows[] = {
		{ "", "" }, { "  \t ", "" }, { "a b", "a|b" }, { "  a\t b  ", "a|b" }, { "a 'b c' d", "a|b c|d" }, { "a \"b c\"", "a|b c" },
		{ "a'b'\"c\"d", "abcd" }, { "a\\ b", "a b" }, { "''", "" }, { "a ''", "a|" }, { "'\\n'", "\\n" }, { "\"\\n\\\"\\\\\"", "\\n\"\\" },
		{ "$HOME *", "$HOME|*" }, { "a # b", "a" }, { "a#b", "a#b" }, { "# b", "" }, { "a\\", "a\\" }, { "run -- sh -c 'echo \"x y\"'", "run|--|sh|-c|echo \"x y\"" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_strv words = STRV_INIT;
		auto_buf joined = BUF_INIT;
		struct error err = ERROR_INIT;
		assert_int_equal(console_split(rows[i].line, &words, &err), 0);
		for (size_t w = 0; w < words.len; w++)
			buf_addf(&joined, "%s%s", w ? "|" : "", words.items[w]);
		assert_string_equal(buf_str(&joined), rows[i].words);
	}
}

static void test_an_open_quote_is_refused(void **state)
{
	static const char *const bad[] = { "'", "a \"b", "a 'b\"", "\"\\\"" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_strv words = STRV_INIT;
		struct error err = ERROR_INIT;
		assert_int_equal(console_split(bad[i], &words, &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_are_a_shells_without_expansion),
		cmocka_unit_test(test_an_open_quote_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
