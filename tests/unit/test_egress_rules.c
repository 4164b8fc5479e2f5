/* Egress targets and rules: what is written exactly is understood, everything else refused; the first rule that matches decides. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "shared/base/mem.h"
#include "shared/model/egress.h"

#include <string.h>

static void targets(void **state)
{
	static const struct {
		const char *text, *want; /* NULL: refused */
	} cases[] = {
		{ "example.com:443", "example.com:443" },
		{ "EXAMPLE.com.:80", "example.com:80" },
		{ "a_b.example-1.com:1", "a_b.example-1.com:1" },
		{ "192.0.2.1:65535", "192.0.2.1:65535" },
		{ "[2001:DB8::1]:443", "[2001:db8::1]:443" },
		{ "[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.1]:80" },
		{ "example.com", NULL },
		{ "example.com:", NULL },
		{ "example.com:0", NULL },
		{ "example.com:65536", NULL },
		{ "example.com: 443", NULL },
		{ "example.com:+443", NULL },
		{ "example.com:443/", NULL },
		{ "", NULL },
		{ ":443", NULL },
		{ "a..b:443", NULL },
		{ ".a:443", NULL },
		{ "a-.b:443", NULL },
		{ "user@example.com:443", NULL },
		{ "exa mple.com:443", NULL },
		{ "ex%61mple.com:443", NULL },
		{ "\xc3\xa9.com:443", NULL },
		{ "2001:db8::1:443", NULL },
		{ "[2001:db8::1%eth0]:443", NULL },
		{ "[127.0.0.1]:443", NULL },
		{ "[example.com]:443", NULL },
		{ "[::1]443", NULL },
		{ "[::1:443", NULL },
		/* other notations of 127.0.0.1 */
		{ "2130706433:80", NULL },
		{ "127.1:80", NULL },
		{ "0x7f.0.0.1:80", NULL },
		{ "0x7f000001:80", NULL },
		{ "0177.0.0.1:80", NULL },
		{ "127.0.0.1.:80", NULL },
		{ "127.0.0.0x1:80", NULL },
		{ "1.2.3.4.5:80", NULL },
		{ "256.0.0.1:80", NULL },
		{ "0x:80", NULL },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct egress_target t;
		struct error err = ERROR_INIT;
		char text[EGRESS_RULE_TEXT_MAX];
		int rc = egress_target_parse(cases[i].text, 0, &t, &err);
		if ((rc == 0) != (cases[i].want != NULL))
			fail_msg("'%s': %s", cases[i].text, rc ? err.message : "was taken");
		if (rc == 0)
			assert_string_equal(egress_target_text(&t, text), cases[i].want);
	}
}

static void names_have_their_length(void **state)
{
	struct egress_target t;
	char name[400];
	(void)state;
	memset(name, 'a', sizeof(name));
	for (size_t i = 63; i < sizeof(name); i += 64)
		name[i] = '.';
	snprintf(name + 253, sizeof(name) - 253, ":443");
	assert_int_equal(egress_target_parse(name, 0, &t, NULL), 0);
	memset(name, 'a', 254);
	for (size_t i = 63; i < 254; i += 64)
		name[i] = '.';
	snprintf(name + 254, sizeof(name) - 254, ":443");
	assert_int_equal(egress_target_parse(name, 0, &t, NULL), -1);
	memset(name, 'a', 64);
	snprintf(name + 64, sizeof(name) - 64, ".b:443");
	assert_int_equal(egress_target_parse(name, 0, &t, NULL), -1);
}

static void matching(void **state)
{
	static const struct {
		const char *rule, *target;
		bool want;
	} cases[] = {
		{ "example.com", "example.com:443", true },
		{ "example.com", "example.com:80", false },
		{ "example.com:80", "example.com:80", true },
		{ "example.com:*", "example.com:22", true },
		{ "example.com:8000-8100", "example.com:8000", true },
		{ "example.com:8000-8100", "example.com:8100", true },
		{ "example.com:8000-8100", "example.com:8101", false },
		{ "Example.COM.", "example.com:443", true },
		{ "example.com", "www.example.com:443", false },
		{ "example.com", "notexample.com:443", false },
		{ "*.example.com", "www.example.com:443", true },
		{ "*.example.com", "a.b.example.com:443", true },
		{ "*.example.com", "example.com:443", false },
		{ "*.example.com", "evilexample.com:443", false },
		{ "*.example.com", "www.example.com.evil.net:443", false },
		{ "*", "example.com:443", true },
		{ "*", "example.com:80", false },
		{ "*:*", "192.0.2.1:1", true },
		{ "!*", "192.0.2.1:1", true },
		{ "192.0.2.0/24:*", "192.0.2.255:9", true },
		{ "192.0.2.0/24:*", "192.0.3.0:9", false },
		{ "192.0.2.128/25:*", "192.0.2.127:9", false },
		{ "192.0.2.1", "192.0.2.1:443", true },
		{ "0.0.0.0/0:*", "8.8.8.8:53", true },
		{ "0.0.0.0/0:*", "[2001:db8::1]:53", false },
		{ "[2001:db8::]/32", "[2001:db8:1::2]:443", true },
		{ "[2001:db8::]/33", "[2001:db8:8000::2]:443", false },
		{ "[::1]:80", "[::1]:80", true },
		{ "192.0.2.0/24:*", "example.com:443", false },
		{ "example.com:*", "192.0.2.1:443", false },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct egress_rule r;
		struct egress_target t;
		struct error err = ERROR_INIT;
		if (egress_rule_parse(cases[i].rule, &r, &err) != 0 || egress_target_parse(cases[i].target, 0, &t, &err) != 0)
			fail_msg("%s", err.message);
		if (egress_rule_matches(&r, &t) != cases[i].want)
			fail_msg("'%s' and '%s'", cases[i].rule, cases[i].target);
	}
}

static void bad_rules(void **state)
{
	static const char *const rules[] = { "",	 "!",		 "!!a",		     "a b",	     "http://a",    "a/b",	    "a:443:1",
					     "a:",	 "a:0",		 "a:443-",	     "a:-443",	     "a:2-1",	    "*.",	    "**.a",
					     "a.*",	 "a.*.b",	 "10.0.0.0/33",	     "10.0.0.0/",    "10.0.0/8",    "[::1",	    "[::1]/129",
					     "::1",	 "[10.0.0.1]",	 "a/8",		     "*.10.0.0.1",   "10.0.0.0/8x", "*x.example", "127.1" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		struct egress_rule r;
		if (egress_rule_parse(rules[i], &r, NULL) == 0)
			fail_msg("'%s' was taken", rules[i]);
	}
}

static int find(const char *rules, const char *target)
{
	auto_egress_rules r = EGRESS_RULES_INIT;
	struct egress_target t;
	struct error err = ERROR_INIT;
	if (egress_rules_from_text("rules", rules, &r, &err) != 0 || egress_target_parse(target, 0, &t, &err) != 0)
		fail_msg("%s", err.message);
	return egress_rules_find(&r, &t);
}

static void the_first_that_matches_decides(void **state)
{
	(void)state;
	assert_int_equal(find("!bad.example.com *.example.com, *.example.com:80", "bad.example.com:443"), 0);
	assert_int_equal(find("!bad.example.com *.example.com, *.example.com:80", "good.example.com:443"), 1);
	assert_int_equal(find("!bad.example.com *.example.com, *.example.com:80", "good.example.com:80"), 2);
	assert_int_equal(find("!bad.example.com *.example.com, *.example.com:80", "other.net:443"), -1);
	assert_int_equal(find("", "other.net:443"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets),
		cmocka_unit_test(names_have_their_length),
		cmocka_unit_test(matching),
		cmocka_unit_test(bad_rules),
		cmocka_unit_test(the_first_that_matches_decides),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
