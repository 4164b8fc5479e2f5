/* Lines between a daemon and an edge of its own process: what one writes the other reads, and nothing else. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/edge/wire.h"
#include "shared/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID "0197a0a0-0000-7000-8000-000000000001"

static void a_route_comes_back_as_it_was(void **state)
{
	static const enum edge_auth auths[] = { EDGE_AUTH_NONE, EDGE_AUTH_TOKEN, EDGE_AUTH_PASSWORD };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(auths); i++) {
		struct edge_route a = { .tunnel = id_new(), .target = id_new(), .port = (uint16_t)(i ? 65535 : 1), .auth = auths[i], .keep_host = i & 1 }, b;
		auto_buf text = BUF_INIT;
		memset(a.label, 'a', EDGE_LABEL_MAX);
		snprintf(a.hash, sizeof(a.hash), "%s", auths[i] == EDGE_AUTH_NONE ? "" : HASH);
		edge_wire_add_route(&text, &a);
		assert_true(text.len < EDGE_WIRE_LINE_MAX);
		auto_free char *line = edge_wire_line(&text);
		assert_non_null(line);
		assert_int_equal(text.len, 0);
		assert_int_equal(edge_wire_route(line, &b), 0);
		assert_string_equal(b.tunnel.text, a.tunnel.text);
		assert_string_equal(b.target.text, a.target.text);
		assert_string_equal(b.label, a.label);
		assert_string_equal(b.hash, a.hash);
		assert_int_equal(b.port, a.port);
		assert_int_equal(b.auth, a.auth);
		assert_int_equal(b.keep_host, a.keep_host);
	}
}

static void other_lines_are_none(void **state)
{
	static const char *const bad[] = {
		"", "route", "route " ID " a " ID " 0 none keep -", "route " ID " a " ID " 65536 none keep -", "route x a " ID " 80 none keep -",
		"route " ID " a " ID " 80 other keep -", "route " ID " a " ID " 80 none maybe -", "route " ID " a " ID " 80 token keep -",
		"route " ID " a " ID " 80 token keep abc", "route " ID " a " ID " 80 none keep - more", "routes " ID " a " ID " 80 none keep -",
	};
	struct edge_route r;
	uint64_t n;
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(edge_wire_route(bad[i], &r), -1);
	assert_int_equal(edge_wire_route("route " ID " a " ID " 80 none keep -", &r), 0);
	assert_int_equal(edge_wire_number("have 17", "have", &n), 0);
	assert_int_equal(n, 17);
	assert_int_equal(edge_wire_number("have 0", "have", &n), -1);
	struct edge_about a = { .version = "1.2.3", .stats = { 1, 2, 3, 4, 5, 6 } }, b;
	auto_buf text = BUF_INIT;
	edge_wire_add_about(&text, &a);
	auto_free char *line = edge_wire_line(&text);
	assert_int_equal(edge_wire_about(line, &b), 0);
	assert_string_equal(b.version, "1.2.3");
	assert_memory_equal(&b.stats, &a.stats, sizeof(a.stats));
	assert_int_equal(edge_wire_about("about 1 2 3 4 5 6", &b), -1);
	assert_int_equal(edge_wire_about("about 1 2 3 4 5 6 7 8", &b), -1);
	assert_int_equal(edge_wire_about("about 1 2 -3 4 5 6 7", &b), -1);
	assert_int_equal(edge_wire_about("about 1234567890123456789012345678901234567890 2 3 4 5 6 7", &b), -1);
	assert_int_equal(edge_wire_number("have -1", "have", &n), -1);
	assert_int_equal(edge_wire_number("have", "have", &n), -1);
	assert_int_equal(edge_wire_number("haven 1", "have", &n), -1);
}

static void a_line_is_taken_when_it_is_whole(void **state)
{
	auto_buf in = BUF_INIT;
	(void)state;
	buf_adds(&in, "have");
	assert_null(edge_wire_line(&in));
	buf_adds(&in, " 1\nhave 2\nha");
	auto_free char *first = edge_wire_line(&in), *second = edge_wire_line(&in);
	assert_string_equal(first, "have 1");
	assert_string_equal(second, "have 2");
	assert_null(edge_wire_line(&in));
	assert_int_equal(in.len, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_route_comes_back_as_it_was),
		cmocka_unit_test(other_lines_are_none),
		cmocka_unit_test(a_line_is_taken_when_it_is_whole),
	};
	return cmocka_run_group_tests_name("edge_wire", tests, NULL, NULL);
}
