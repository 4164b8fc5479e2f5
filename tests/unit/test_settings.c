/* Ini files that keep what people wrote, server addresses, the parser's hooks. */
#include "cli/command.h"
#include "cli/settings.h"
#include "shared/base/mem.h"
#include "shared/config/ini_doc.h"
#include "shared/config/server_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct ini_doc *parsed(const char *text)
{
	struct ini_doc *d = NULL;
	struct error err = ERROR_INIT;
	if (ini_doc_parse("f", text, strlen(text), &d, &err) != 0)
		fail_msg("%s", err.message);
	return d;
}

static void assert_prints(const struct ini_doc *d, const char *want)
{
	auto_buf out = BUF_INIT;
	ini_doc_print(d, &out);
	assert_string_equal(buf_str(&out), want);
}

static void test_comments_blanks_and_order_survive(void **state)
{
	static const char text[] = "# mine\n\n[a]\n  x=1  \n; note\ny = 2 # not a comment\n\n[b]\nx = 3\n";
	auto_ini *d = parsed(text);
	(void)state;
	assert_prints(d, text);
	assert_string_equal(ini_doc_get(d, "a", "x"), "1");
	assert_string_equal(ini_doc_get(d, "a", "y"), "2 # not a comment");
	assert_null(ini_doc_get(d, "a", "z"));
	assert_int_equal(ini_doc_set(d, "a", "x", "9", NULL), 0);
	assert_int_equal(ini_doc_set(d, "a", "z", "new", NULL), 0);
	assert_true(ini_doc_unset(d, "b", "x"));
	assert_false(ini_doc_unset(d, "b", "x"));
	assert_prints(d, "# mine\n\n[a]\nx = 9\n; note\ny = 2 # not a comment\nz = new\n\n[b]\n");
}

static void test_sections_come_go_and_are_renamed(void **state)
{
	auto_ini *d = parsed("[a]\nx = 1\n");
	(void)state;
	assert_int_equal(ini_doc_add_section(d, "b", NULL), 0);
	assert_int_equal(ini_doc_add_section(d, "b", NULL), 0);
	assert_true(ini_doc_rename_section(d, "a", "c"));
	assert_true(ini_doc_remove_section(d, "b"));
	assert_false(ini_doc_remove_section(d, "b"));
	assert_prints(d, "[c]\nx = 1\n\n");
}

static void test_what_is_no_ini_is_refused_by_line(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "[a]\nnothing\n", "f:2: 'nothing' is neither" }, { "x = 1\n", "f:1: 'x' stands before" }, { "[a\n", "f:1: a section" },
		{ "[]\n", "f:1: a section" }, { "[a]\n= 1\n", "f:2:" }, { "[a]\nx = \xff\n", "no text" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ini_doc *d = NULL;
		struct error err = ERROR_INIT;
		assert_int_equal(ini_doc_parse("f", rows[i].text, strlen(rows[i].text), &d, &err), -1);
		if (!strstr(err.message, rows[i].why))
			fail_msg("'%s' does not hold '%s'", err.message, rows[i].why);
	}
}

static void test_values_that_would_not_read_back_are_refused(void **state)
{
	auto_ini *d = ini_doc_new();
	(void)state;
	assert_int_equal(ini_doc_set(d, "a", "x", " 1", NULL), -1);
	assert_int_equal(ini_doc_set(d, "a", "x", "1\n[b]", NULL), -1);
	assert_int_equal(ini_doc_set(d, "a", "x=y", "1", NULL), -1);
	assert_int_equal(ini_doc_set(d, "a", "#x", "1", NULL), -1);
	assert_int_equal(ini_doc_set(d, "a]b", "x", "1", NULL), -1);
	assert_prints(d, "");
}

static void test_server_addresses_have_one_spelling(void **state)
{
	static const struct {
		const char *text, *url, *origin;
	} rows[] = {
		{ "https://h", "https://h", "https://h" },
		{ "https://h/", "https://h", "https://h" },
		{ "https://h//", "https://h", "https://h" },
		{ "https://h/pre", "https://h/pre", "https://h" },
		{ "https://h/pre/", "https://h/pre", "https://h" },
		{ "HTTPS://H", "https://h", "https://h" },
		{ "h", "https://h", "https://h" },
		{ "h:8443", "https://h:8443", "https://h:8443" },
		{ "https://h:443", "https://h", "https://h" },
		{ "http://[::1]:80", "http://[::1]", "http://[::1]" },
		{ "[::1]:80", "https://[::1]:80", "https://[::1]:80" },
		{ "/run/x.sock", "unix:///run/x.sock", "unix:///run/x.sock" },
		{ "unix:///run/x.sock", "unix:///run/x.sock", "unix:///run/x.sock" },
		{ "unix:/run/x.sock", "unix:///run/x.sock", "unix:///run/x.sock" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_server_url u = { .url = NULL };
		struct error err = ERROR_INIT;
		if (server_url_parse(rows[i].text, &u, &err) != 0)
			fail_msg("%s: %s", rows[i].text, err.message);
		assert_string_equal(u.url, rows[i].url);
		assert_string_equal(u.origin, rows[i].origin);
	}
}

static void test_addresses_that_mean_nothing_are_refused_and_secrets_not_repeated(void **state)
{
	static const char *const bad[] = {
		"", " https://h ", "https://h?x", "https://h#x", "https://u:secret@h", "u:secret@h", "ftp://u:secret@h", "https://h:99999", "https://h:0",
		"https://h:x", "https://\xc3\xa9.example", "https://", "https://h..x", "https://[::1", "https://h/../x", "ssh://h", "unix://x", "unix:///",
		"https://h/a//b", "https://h h",
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_server_url u = { .url = NULL };
		struct error err = ERROR_INIT;
		if (server_url_parse(bad[i], &u, &err) == 0)
			fail_msg("'%s' was taken as %s", bad[i], u.url);
		assert_null(strstr(err.message, "secret"));
	}
}

static void test_loopback_is_known_by_address(void **state)
{
	static const struct {
		const char *text;
		bool loopback;
	} rows[] = {
		{ "http://localhost:1", true }, { "http://127.9.0.1", true }, { "http://[::1]", true }, { "/x", true },
		{ "http://127.0.0.1.example", false }, { "http://localhost.example", false }, { "http://10.0.0.1", false },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_server_url u = { .url = NULL };
		assert_int_equal(server_url_parse(rows[i].text, &u, NULL), 0);
		assert_int_equal(u.loopback, rows[i].loopback);
	}
}

static void test_context_names(void **state)
{
	(void)state;
	assert_int_equal(context_name_check("a-b_c.9", NULL), 0);
	assert_int_equal(context_name_check("9", NULL), 0);
	assert_int_equal(context_name_check("", NULL), -1);
	assert_int_equal(context_name_check("a b", NULL), -1);
	assert_int_equal(context_name_check("*", NULL), -1);
	assert_int_equal(context_name_check("../x", NULL), -1);
	assert_int_equal(context_name_check("a]", NULL), -1);
}

/* --- hooks ------------------------------------------------------------------------------------------------------ */

static int refuse(void *ctx, const struct verb *v, void *options, struct error *err)
{
	(void)ctx, (void)v, (void)options;
	return error_set(err, ERR_INVALID, "broken file");
}

static const char *web(void *ctx)
{
	(void)ctx;
	return "web";
}

static int parse(const char *const *words, const struct parse_hooks *hooks, struct parse_result *r, struct error *err)
{
	char *argv[16] = { (char *)"sandbox" };
	int argc = 1;
	struct cli cli = { .server = NULL };
	for (; *words; words++)
		argv[argc++] = (char *)*words;
	return parse_with_hooks(argc, argv, cli_globals, &cli, hooks, r, err);
}

static void test_a_sandbox_left_out_is_the_directorys(void **state)
{
	static const struct {
		const char *words[5];
		bool good;
	} rows[] = {
		{ { "inspect" }, true }, { { "exec", "--", "ls" }, true }, { { "logs" }, true }, { { "shell" }, true }, { { "exec", "ls" }, false },
		{ { "delete", "--help" }, true }, { { "wait" }, false },
	};
	struct parse_hooks hooks = { .sandbox = web };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct parse_result r;
		struct error err = ERROR_INIT;
		if ((parse(rows[i].words, &hooks, &r, &err) == 0) != rows[i].good)
			fail_msg("%s: %s", rows[i].words[0], err.message);
		parse_done(&r);
	}
}

static void test_a_refusing_hook_does_not_hide_help(void **state)
{
	static const char *const help[] = { "run", "--help", NULL }, *const plain[] = { "run", "ls", NULL };
	struct parse_hooks hooks = { .chosen = refuse };
	struct parse_result r;
	struct error err = ERROR_INIT;
	(void)state;
	assert_int_equal(parse(help, &hooks, &r, &err), 0);
	assert_true(r.help);
	parse_done(&r);
	assert_int_equal(parse(plain, &hooks, &r, &err), -1);
	assert_string_equal(err.message, "broken file");
	parse_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_comments_blanks_and_order_survive),
		cmocka_unit_test(test_sections_come_go_and_are_renamed),
		cmocka_unit_test(test_what_is_no_ini_is_refused_by_line),
		cmocka_unit_test(test_values_that_would_not_read_back_are_refused),
		cmocka_unit_test(test_server_addresses_have_one_spelling),
		cmocka_unit_test(test_addresses_that_mean_nothing_are_refused_and_secrets_not_repeated),
		cmocka_unit_test(test_loopback_is_known_by_address),
		cmocka_unit_test(test_context_names),
		cmocka_unit_test(test_a_sandbox_left_out_is_the_directorys),
		cmocka_unit_test(test_a_refusing_hook_does_not_hide_help),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
