/* Server addresses as people spell them. */
#include "cli/server_url.h"

#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static void good_addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *base;
		bool loopback;
	} cases[] = {
		{ "https://h", "https://h:443", false },
		{ "https://h/", "https://h:443", false },
		{ "https://h//", "https://h:443", false },
		{ "https://h/pre", "https://h:443/pre", false },
		{ "https://h/pre/", "https://h:443/pre", false },
		{ "https://h/a/b%20c//", "https://h:443/a/b%20c", false },
		{ "HTTPS://H.Example:8443/Pre", "https://h.example:8443/Pre", false },
		{ "http://[::1]:80", "http://[::1]:80", true },
		{ "http://[2001:DB8::1]", "http://[2001:db8::1]:80", false },
		{ "http://localhost:1", "http://localhost:1", true },
		{ "http://127.8.9.1", "http://127.8.9.1:80", true },
		{ "http://128.0.0.1", "http://128.0.0.1:80", false },
		{ "https://localhost.evil", "https://localhost.evil:443", false },
		{ "https://127.0.0.1.evil", "https://127.0.0.1.evil:443", false },
		{ "https://h:65535", "https://h:65535", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct server_url u;
		struct error err = ERROR_INIT;
		if (server_url_parse(cases[i].text, &u, &err) != 0)
			fail_msg("%s: %s", cases[i].text, err.message);
		assert_string_equal(u.base, cases[i].base);
		assert_int_equal(u.loopback, cases[i].loopback);
		server_url_done(&u);
	}
}

static void bad_addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "h", "write https://h" },	       { "h:8443", "write https://h:8443" }, { "[::1]:80", "write https://[::1]:80" },
		{ "ftp://h", "write https://HOST" },   { "https://", "no host" },	     { "https:///x", "no host" },
		{ "https://:80", "no host" },	       { "https://h:", "port" },	     { "https://h:0", "port" },
		{ "https://h:99999", "1 to 65535" },   { "https://h:8 443", "blank" },	     { " https://h ", "blank" },
		{ "https://h?x", "query" },	       { "https://h/x?y", "query" },	     { "https://h#x", "fragment" },
		{ "https://u:secret@h", "password" },  { "https://u@h", "password" },	     { "https://\xc3\xa9.example", "xn--" },
		{ "https://[::1", "no host" },	       { "https://[zz]", "IPv6" },	     { "https://::1", "no host" },
		{ "https://[::1]x:80", "behind" },     { "https://h\\evil", "backslash" },   { "https://h\nx", "blank" },
		{ "https://-h", "no host name" },      { "https://a_b!c", "no host name" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct server_url u;
		struct error err = ERROR_INIT;
		if (server_url_parse(cases[i].text, &u, &err) == 0)
			fail_msg("'%s' was taken", cases[i].text);
		assert_int_equal(err.code, ERR_INVALID);
		if (!strstr(err.message, cases[i].why))
			fail_msg("'%s': %s", cases[i].text, err.message);
		assert_null(strstr(err.message, "secret"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(good_addresses), cmocka_unit_test(bad_addresses) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
