/*
 * Egress, the parts that judge: addresses, the proxy's requests and the bodies behind them, TLS hellos, lists of rules that must agree.
 * Whole connections are in tests/e2e/egress.bats.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/egress/addresses.h"
#include "daemon/egress/hello.h"
#include "daemon/egress/policy.h"
#include "daemon/egress/request.h"
#include "daemon/egress/resolve.h"
#include "shared/base/mem.h"

#include <arpa/inet.h>
#include <string.h>

/* --- addresses --- */

static struct address address_of(const char *text)
{
	struct address a = { .len = sizeof(a.sa.v4), .sa.v4 = { .sin_family = AF_INET } };
	if (inet_pton(AF_INET, text, &a.sa.v4.sin_addr) == 1)
		return a;
	a = (struct address){ .len = sizeof(a.sa.v6), .sa.v6 = { .sin6_family = AF_INET6 } };
	if (inet_pton(AF_INET6, text, &a.sa.v6.sin6_addr) != 1)
		fail_msg("%s", text);
	return a;
}

static void only_public_addresses_pass(void **state)
{
	static const struct {
		const char *address, *kind;
	} cases[] = {
		{ "1.1.1.1", NULL },
		{ "9.255.255.255", NULL },
		{ "11.0.0.0", NULL },
		{ "100.63.255.255", NULL },
		{ "100.128.0.0", NULL },
		{ "126.255.255.255", NULL },
		{ "172.15.255.255", NULL },
		{ "172.32.0.0", NULL },
		{ "192.167.255.255", NULL },
		{ "192.169.0.0", NULL },
		{ "223.255.255.255", NULL },
		{ "0.0.0.0", "unspecified" },
		{ "0.1.2.3", "unspecified" },
		{ "10.0.0.0", "private" },
		{ "10.255.255.255", "private" },
		{ "100.64.0.0", "carrier-private" },
		{ "100.127.255.255", "carrier-private" },
		{ "127.0.0.1", "loopback" },
		{ "127.255.255.254", "loopback" },
		{ "169.254.0.1", "link-local" },
		{ "169.254.169.254", "metadata" },
		{ "169.254.170.2", "metadata" },
		{ "100.100.100.200", "metadata" },
		{ "168.63.129.16", "metadata" },
		{ "172.16.0.0", "private" },
		{ "172.31.255.255", "private" },
		{ "192.168.255.255", "private" },
		{ "192.0.0.170", "reserved" },
		{ "192.0.2.1", "documentation" },
		{ "192.88.99.1", "6to4" },
		{ "198.19.0.1", "benchmark" },
		{ "224.0.0.1", "multicast" },
		{ "240.0.0.1", "reserved" },
		{ "255.255.255.255", "reserved" },
		{ "2606:4700:4700::1111", NULL },
		{ "2a00::1", NULL },
		{ "::", "unspecified" },
		{ "::1", "loopback" },
		{ "::ffff:1.1.1.1", "mapped" },
		{ "::ffff:127.0.0.1", "mapped" },
		{ "::7f00:1", "IPv4-compatible" },
		{ "64:ff9b::7f00:1", "NAT64" },
		{ "64:ff9b:1::1", "NAT64" },
		{ "2002:7f00:1::1", "6to4" },
		{ "2001:0:1::1", "Teredo" },
		{ "2001:1::1", "reserved" },
		{ "2001:db8::1", "documentation" },
		{ "fc00::1", "private" },
		{ "fd00:ec2::254", "metadata" },
		{ "fdff::1", "private" },
		{ "fe80::1", "link-local" },
		{ "fec0::1", "site-local" },
		{ "ff02::1", "multicast" },
		{ "100::1", "reserved" },
		{ "4000::1", "reserved" },
		{ "5f00::1", "reserved" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct address a = address_of(cases[i].address);
		const char *kind = address_kind(&a.sa.any);
		if (!kind != !cases[i].kind || (kind && strcmp(kind, cases[i].kind) != 0))
			fail_msg("%s is %s", cases[i].address, kind ? kind : "public");
	}
}

static void the_server_may_open_networks(void **state)
{
	struct subnets open;
	struct address in = address_of("10.1.2.3"), out = address_of("10.2.0.1"), own = address_of("127.0.0.1");
	(void)state;
	assert_int_equal(subnets_parse("open", "10.1.0.0/16", &open, NULL), 0);
	assert_null(address_refused(&in.sa.any, &open));
	assert_string_equal(address_refused(&out.sa.any, &open), "private");
	assert_true(address_own(&own.sa.any));
	assert_false(address_own(&out.sa.any));
	subnets_done(&open);
}

/* --- requests --- */

static void requests_that_mean_one_thing(void **state)
{
	static const struct {
		const char *in, *target, *out; /* out NULL: CONNECT */
	} cases[] = {
		{ "CONNECT example.com:443 HTTP/1.1\r\n\r\n", "example.com:443", NULL },
		{ "CONNECT example.com:443 HTTP/1.0\r\nHost: other:1\r\nProxy-Connection: keep-alive\r\n\r\n", "example.com:443", NULL },
		{ "CONNECT [2001:db8::1]:22 HTTP/1.1\r\nHost: x\r\n\r\n", "[2001:db8::1]:22", NULL },
		{ "GET http://Example.com/a?b HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\n\r\n", "example.com:80",
		  "GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n" },
		{ "GET http://example.com:8080 HTTP/1.0\r\n\r\n", "example.com:8080", "GET / HTTP/1.0\r\nHost: example.com:8080\r\nConnection: close\r\n\r\n" },
		{ "POST http://example.com?q HTTP/1.1\r\nContent-Length: 3\r\n\r\n", "example.com:80",
		  "POST /?q HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\nConnection: close\r\n\r\n" },
		{ "GET HTTP://example.com/ HTTP/1.1\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nX-Secret-2: 2\r\nProxy-Authorization: a\r\nTE: x\r\nUpgrade: h2c\r\n\r\n",
		  "example.com:80", "GET / HTTP/1.1\r\nHost: example.com\r\nX-Secret-2: 2\r\nConnection: close\r\n\r\n" },
		{ "PUT http://example.com/ HTTP/1.1\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: Chunked\r\n\r\n", "example.com:80",
		  "PUT / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_proxy_request r = { .head = BUF_INIT };
		struct error err = ERROR_INIT;
		char text[EGRESS_RULE_TEXT_MAX];
		int status;
		size_t n = strlen(cases[i].in);
		assert_int_equal(proxy_head_length(cases[i].in, n), n);
		assert_int_equal(proxy_head_length(cases[i].in, n - 1), 0);
		if (proxy_request_parse(cases[i].in, n, &r, &status, &err) != 0)
			fail_msg("%s: %s", cases[i].in, err.message);
		assert_string_equal(egress_target_text(&r.target, text), cases[i].target);
		assert_int_equal(r.connect, !cases[i].out);
		if (cases[i].out)
			assert_string_equal(buf_str(&r.head), cases[i].out);
	}
}

static void requests_that_could_mean_two_are_refused(void **state)
{
	static const char *const cases[] = {
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET https://example.com/ HTTP/1.1\r\n\r\n",
		"GET ftp://example.com/ HTTP/1.1\r\n\r\n",
		"GET http:///x HTTP/1.1\r\n\r\n",
		"GET http://user@example.com/ HTTP/1.1\r\n\r\n",
		"GET http://example.com:0/ HTTP/1.1\r\n\r\n",
		"GET http://example.com:99999/ HTTP/1.1\r\n\r\n",
		"GET http://example.com/#x HTTP/1.1\r\n\r\n",
		"GET http://2130706433/ HTTP/1.1\r\n\r\n",
		"GET http://0x7f.1/ HTTP/1.1\r\n\r\n",
		"CONNECT example.com HTTP/1.1\r\n\r\n",
		"CONNECT example.com:443/ HTTP/1.1\r\n\r\n",
		"CONNECT http://example.com:443 HTTP/1.1\r\n\r\n",
		"CONNECT  example.com:443 HTTP/1.1\r\n\r\n",
		"CONNECT example.com:443  HTTP/1.1\r\n\r\n",
		"CONNECT example.com:443 HTTP/2.0\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1 \r\n\r\n",
		"CONNECT example.com:443\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\n folded: x\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nA : b\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\n: b\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nA\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\nA: b\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nA: b\rc\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nA: b\x01\r\n\r\n",
		"C@NNECT example.com:443 HTTP/1.1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET http://example.com/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nConnection: a\r\nConnection: b\r\n\r\n",
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_proxy_request r = { .head = BUF_INIT };
		int status = 0;
		size_t n = proxy_head_length(cases[i], strlen(cases[i]));
		if (proxy_request_parse(cases[i], n, &r, &status, NULL) == 0)
			fail_msg("%s", cases[i]);
		assert_int_equal(status, 400);
	}
}

static void too_many_headers_are_refused(void **state)
{
	auto_buf b = BUF_INIT;
	int status;
	(void)state;
	buf_adds(&b, "CONNECT a.example:1 HTTP/1.1\r\n");
	for (int i = 0; i < PROXY_HEADERS_MAX; i++)
		buf_adds(&b, "A: b\r\n");
	buf_adds(&b, "\r\n");
	auto_proxy_request r = { .head = BUF_INIT };
	assert_int_equal(proxy_request_parse(b.data, b.len, &r, &status, NULL), 0);
	buf_consume(&b, b.len - 0);
	buf_adds(&b, "CONNECT a.example:1 HTTP/1.1\r\n");
	for (int i = 0; i <= PROXY_HEADERS_MAX; i++)
		buf_adds(&b, "A: b\r\n");
	buf_adds(&b, "\r\n");
	assert_int_equal(proxy_request_parse(b.data, b.len, &r, &status, NULL), -1);
}

/* How much of text is the body of kind, fed in pieces of n; -1: malformed. */
static ssize_t body_length(struct proxy_body b, const char *text, size_t piece)
{
	size_t len = strlen(text), at = 0;
	while (at < len && !b.done) {
		size_t n = len - at < piece ? len - at : piece;
		ssize_t took = proxy_body_take(&b, text + at, n);
		if (took < 0)
			return -1;
		at += (size_t)took;
	}
	return b.done ? (ssize_t)at : -2;
}

static void bodies_end_where_they_end(void **state)
{
	static const struct {
		const char *text;
		ssize_t want; /* -1: malformed, -2: not over */
	} cases[] = {
		{ "0\r\n\r\n", 5 },
		{ "3\r\nabc\r\n0\r\n\r\nGET http://b/", 13 },
		{ "A;x=y\r\n0123456789\r\n00\r\nTrailer: x\r\n\r\nmore", 37 },
		{ "3\r\nab", -2 },
		{ "0\r\n", -2 },
		{ "\r\n", -1 },
		{ "g\r\n", -1 },
		{ " 3\r\nabc\r\n", -1 },
		{ "3 \r\nabc\r\n", -1 },
		{ "0x3\r\nabc\r\n", -1 },
		{ "-1\r\n", -1 },
		{ "3\nabc\r\n0\r\n\r\n", -1 },
		{ "3\r\nabcd\r\n0\r\n\r\n", -1 },
		{ "3\r\nabc\n0\r\n\r\n", -1 },
		{ "ffffffffffffffff\r\n", -1 },
		{ "0\r\n\rx", -1 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (size_t piece = 1; piece < 8; piece++)
			if (body_length((struct proxy_body){ .kind = BODY_CHUNKED }, cases[i].text, piece) != cases[i].want)
				fail_msg("'%s' in pieces of %zu", cases[i].text, piece);
	assert_int_equal(body_length((struct proxy_body){ .kind = BODY_SIZED, .left = 3 }, "abcGET", 2), 3);
}

/* --- TLS --- */

/* A ClientHello with these extensions, in records of at most `record` bytes. */
static void hello(struct buf *out, const void *extensions, size_t n, size_t record)
{
	auto_buf m = BUF_INIT;
	size_t len = 2 + 32 + 1 + 2 + 2 + 2 + 2 + n;
	buf_add(&m, (char[]){ 1, 0, (char)(len >> 8), (char)len, 3, 3 }, 6);
	for (int i = 0; i < 32; i++)
		buf_addc(&m, (char)i);
	buf_add(&m, (char[]){ 0, 0, 2, 0x13, 1, 1, 0, (char)(n >> 8), (char)n }, 9);
	buf_add(&m, extensions, n);
	for (size_t at = 0; at < m.len; at += record) {
		size_t k = m.len - at < record ? m.len - at : record;
		buf_add(out, (char[]){ 22, 3, 1, (char)(k >> 8), (char)k }, 5);
		buf_add(out, m.data + at, k);
	}
}

static const char named[] = "\0\x17\0\0\0\0\0\x10\0\x0e\0\0\x0b" "example.com";

static void a_hello_names_its_server(void **state)
{
	char name[HELLO_NAME_MAX + 1];
	static const size_t records[] = { 1, 3, 7, 64, 16000 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(records); i++) {
		auto_buf b = BUF_INIT;
		hello(&b, named, sizeof(named) - 1, records[i]);
		const uint8_t *p = (const uint8_t *)b.data;
		assert_int_equal(hello_read(p, b.len, name), HELLO_READ);
		assert_string_equal(name, "example.com");
		for (size_t n = 0; n < b.len; n++)
			assert_int_equal(hello_read(p, n, name), HELLO_MORE);
	}
	auto_buf none = BUF_INIT;
	hello(&none, "", 0, 1000);
	assert_int_equal(hello_read((const uint8_t *)none.data, none.len, name), HELLO_READ);
	assert_string_equal(name, "");
}

static void what_is_no_hello_is_refused(void **state)
{
	char name[HELLO_NAME_MAX + 1];
	static const char twice[] = "\0\0\0\x06\0\x04\0\0\x01" "a" "\0\0\0\x06\0\x04\0\0\x01" "b";
	static const char two_names[] = "\0\0\0\x0a\0\x08\0\0\x01" "a" "\0\0\x01" "b";
	static const char zero[] = "\0\0\0\x08\0\x06\0\0\x03" "a\0b";
	static const char long_list[] = "\0\0\0\x06\0\x05\0\0\x01" "a";
	static const struct {
		const char *p;
		size_t n;
	} bad[] = { { twice, sizeof(twice) - 1 }, { two_names, sizeof(two_names) - 1 }, { zero, sizeof(zero) - 1 }, { long_list, sizeof(long_list) - 1 } };
	(void)state;
	assert_int_equal(hello_read((const uint8_t *)"GET / HTTP/1.1\r\n", 16, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"SSH-2.0-x\r\n", 11, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\xff\xff", 5, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\0\0", 5, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"\x16\x02\x01\0\x04", 5, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\0\x04\x02\0\0\0", 9, name), HELLO_BAD);
	assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\0\x04\x01\xff\xff\xff", 9, name), HELLO_BAD);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf b = BUF_INIT;
		hello(&b, bad[i].p, bad[i].n, 1000);
		assert_int_equal(hello_read((const uint8_t *)b.data, b.len, name), HELLO_BAD);
	}
}

/* --- lists that must agree --- */

static struct egress_verdict decide(const char *server, const char *tenant, const char *standard, const char *sandbox, const char *target)
{
	struct egress_terms t = { .server = xstrdup(server), .tenant = xstrdup0(tenant), .standard = xstrdup(standard), .open = xstrdup("") };
	struct egress_policy p = { .standard = false };
	struct egress_target to;
	struct egress_verdict v;
	struct error err = ERROR_INIT;
	if (sandbox)
		strv_add(&t.sandbox, sandbox);
	if (egress_policy_from(&t, &p, &err) != 0 || egress_target_parse(target, 0, &to, &err) != 0)
		fail_msg("%s", err.message);
	egress_decide(&p, &to, &v);
	egress_policy_done(&p);
	egress_terms_done(&t);
	return v;
}

static void a_request_can_only_narrow(void **state)
{
	(void)state;
	assert_true(decide("*:*", NULL, "", "a.example", "a.example:443").allowed);
	assert_false(decide("*:80", NULL, "", "a.example", "a.example:443").allowed);
	assert_int_equal(decide("*:80", NULL, "", "a.example", "a.example:443").level, EGRESS_SERVER);
	assert_false(decide("!a.example *:*", NULL, "", "a.example", "a.example:443").allowed);
	assert_false(decide("*:*", "b.example", "", "a.example", "a.example:443").allowed);
	assert_int_equal(decide("*:*", "b.example", "", "a.example", "a.example:443").level, EGRESS_TENANT);
	assert_true(decide("*:*", "*.example", "", "a.example", "a.example:443").allowed);
	assert_false(decide("*:*", "*.example", "", "a.example", "c.example:443").allowed);
}

static void without_rules_the_default_counts(void **state)
{
	(void)state;
	assert_false(decide("*:*", NULL, "", NULL, "a.example:443").allowed);
	assert_true(decide("*:*", NULL, "a.example", NULL, "a.example:443").allowed);
	assert_false(decide("*:*", NULL, "a.example", "b.example", "a.example:443").allowed);
	assert_true(decide("*:*", "a.example", "", NULL, "a.example:443").allowed);
	assert_false(decide("*:*", "", "a.example", NULL, "a.example:443").allowed);
	assert_non_null(strstr(decide("*:*", NULL, "", NULL, "a.example:443").why, "egress.default"));
}

/* --- names with fixed addresses --- */

static void fixed_names(void **state)
{
	struct resolver *r;
	struct egress_target t;
	struct addresses found = { .len = 0 };
	(void)state;
	assert_int_equal(resolver_new(NULL, "a.test=192.0.2.1, B.test=2001:db8::1", &r, NULL), 0);
	assert_int_equal(egress_target_parse("b.TEST:8443", 0, &t, NULL), 0);
	assert_int_equal(resolve_now(r, &t, &found, NULL), 0);
	assert_int_equal(found.len, 1);
	assert_int_equal(ntohs(found.items[0].sa.v6.sin6_port), 8443);
	resolver_free(r);
	static const char *const bad[] = { "a.test", "a.test=", "=1.2.3.4", "a.test=b.test", "1.2.3.4=1.2.3.4", "a b=1.2.3.4" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(resolve_check_hosts("egress.hosts", bad[i], NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_public_addresses_pass),
		cmocka_unit_test(the_server_may_open_networks),
		cmocka_unit_test(requests_that_mean_one_thing),
		cmocka_unit_test(requests_that_could_mean_two_are_refused),
		cmocka_unit_test(too_many_headers_are_refused),
		cmocka_unit_test(bodies_end_where_they_end),
		cmocka_unit_test(a_hello_names_its_server),
		cmocka_unit_test(what_is_no_hello_is_refused),
		cmocka_unit_test(a_request_can_only_narrow),
		cmocka_unit_test(without_rules_the_default_counts),
		cmocka_unit_test(fixed_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
