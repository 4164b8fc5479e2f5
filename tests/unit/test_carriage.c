/* The network's forms around a plain stream: WebSocket frames, addresses, Host names, forwarded clients. */
#include "daemon/address.h"
#include "daemon/api/server.h"
#include "shared/base/id.h"
#include "shared/base/mem.h"
#include "shared/http/ws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

/* --- WebSocket --- */

static void bytes_cross_whatever_the_pieces(void **state)
{
	(void)state;
	static const size_t sizes[] = { 0, 1, 125, 126, 127, 4096, 65535, 65536 };
	struct ws *ends[2] = { ws_new(true), ws_new(false) };
	uint8_t *sent = xmalloc(65536);
	random_bytes(sent, 65536);
	for (int from = 0; from < 2; from++) {
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
			for (size_t step = 1; step <= 70000; step = step * 7 + 3) {
				auto_buf wire = BUF_INIT, data = BUF_INIT, back = BUF_INIT;
				ws_send(ends[from], sent, sizes[i], &wire);
				for (size_t at = 0; at < wire.len; at += step) {
					size_t n = wire.len - at < step ? wire.len - at : step;
					assert_int_equal(ws_feed(ends[!from], wire.data + at, n, &data, &back, NULL), 0);
				}
				assert_int_equal(data.len, sizes[i]);
				assert_int_equal(back.len, 0);
				if (data.len)
					assert_memory_equal(data.data, sent, data.len);
			}
		}
	}
	free(sent);
	ws_free(ends[0]);
	ws_free(ends[1]);
}

static void pings_are_answered_and_closing_is_mutual(void **state)
{
	(void)state;
	struct ws *client = ws_new(true), *server = ws_new(false);
	auto_buf wire = BUF_INIT, data = BUF_INIT, back = BUF_INIT, none = BUF_INIT;
	ws_ping(client, &wire);
	ws_close(client, 1000, &wire);
	ws_close(client, 1000, &wire);
	ws_send(client, "late", 4, &wire);
	assert_int_equal(ws_feed(server, wire.data, wire.len, &data, &back, NULL), 0);
	assert_true(ws_ended(server));
	assert_int_equal(data.len, 0);
	/* A pong of no bytes and a close with its code. */
	assert_int_equal(back.len, 2 + 4);
	assert_memory_equal(back.data, "\x8a\x00\x88\x02\x03\xe8", 6);
	assert_int_equal(ws_feed(client, back.data, back.len, &data, &none, NULL), 0);
	assert_true(ws_ended(client));
	assert_int_equal(none.len, 0);
	ws_free(client);
	ws_free(server);
}

static void broken_frames_end_the_connection(void **state)
{
	(void)state;
	/* To a server unless said otherwise; mask key 0. */
	static const struct {
		const char *name, *bytes;
		size_t n;
		bool to_client;
		unsigned code;
	} cases[] = {
		{ "unmasked to a server", "\x82\x01x", 3, false, 1002 },
		{ "masked to a client", "\x82\x81\0\0\0\0x", 7, true, 1002 },
		{ "text", "\x81\x81\0\0\0\0x", 7, false, 1003 },
		{ "reserved bit", "\xc2\x81\0\0\0\0x", 7, false, 1002 },
		{ "unknown opcode", "\x83\x81\0\0\0\0x", 7, false, 1002 },
		{ "continuation of nothing", "\x80\x81\0\0\0\0x", 7, false, 1002 },
		{ "message in a message", "\x02\x81\0\0\0\0x\x82\x81\0\0\0\0x", 14, false, 1002 },
		{ "fragmented ping", "\x09\x80\0\0\0\0", 6, false, 1002 },
		{ "long ping", "\x89\xfe\x00\x7e\0\0\0\0", 8, false, 1002 },
		{ "length not shortest", "\x82\xfe\x00\x05\0\0\0\0hello", 13, false, 1002 },
		{ "length negative", "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 14, false, 1002 },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ws *w = ws_new(cases[i].to_client);
		struct error err = ERROR_INIT;
		auto_buf data = BUF_INIT, wire = BUF_INIT;
		if (ws_feed(w, cases[i].bytes, cases[i].n, &data, &wire, &err) == 0)
			fail_msg("%s was taken", cases[i].name);
		assert_int_equal(err.code, ERR_PROTOCOL);
		assert_true(ws_ended(w));
		size_t body = cases[i].to_client ? 6 : 2; /* behind a mask that is random */
		assert_int_equal(wire.len, body + 2);
		assert_int_equal((uint8_t)wire.data[0], 0x88);
		if (!cases[i].to_client)
			assert_int_equal((uint8_t)wire.data[2] << 8 | (uint8_t)wire.data[3], cases[i].code);
		ws_free(w);
	}
}

static void handshake_keys(void **state)
{
	(void)state;
	char accept[WS_ACCEPT_LEN + 1], key[WS_KEY_LEN + 1];
	/* The example of RFC 6455. */
	ws_accept("dGhlIHNhbXBsZSBub25jZQ==", accept);
	assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	ws_key(key);
	assert_true(ws_key_valid(key));
	assert_false(ws_key_valid(NULL));
	assert_false(ws_key_valid(""));
	assert_false(ws_key_valid("dGhlIHNhbXBsZSBub25jZQ="));
	assert_false(ws_key_valid("dGhlIHNhbXBsZSBub25jZ+===="));
	assert_true(ws_header_has("keep-alive, Upgrade", "upgrade"));
	assert_true(ws_header_has("a,sandbox-mux ,b", "sandbox-mux"));
	assert_false(ws_header_has("sandbox-mux2", "sandbox-mux"));
	assert_false(ws_header_has(NULL, "x"));
	assert_false(ws_header_has("", "x"));
}

/* --- addresses --- */

static void addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *host;
		bool loopback;
	} good[] = {
		{ "127.0.0.1:80", "127.0.0.1", true },	{ "localhost:0", "127.0.0.1", true }, { "[::1]:8443", "::1", true },
		{ "0.0.0.0:443", "0.0.0.0", false },	{ "[::]:443", "::", false },	      { "127.9.9.9:1", "127.9.9.9", true },
		{ "[::ffff:10.0.0.1]:1", "10.0.0.1", false },
	};
	static const char *const bad[] = { "", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "::1:80", "[::1:80", "host:80",
					   "1.2.3:80", "[]:80" };
	struct address a;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		char host[ADDRESS_TEXT_MAX];
		assert_int_equal(address_parse("listen", good[i].text, &a, NULL), 0);
		address_host(&a.sa.any, host);
		assert_string_equal(host, good[i].host);
		assert_int_equal(address_loopback(&a), good[i].loopback);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct error err = ERROR_INIT;
		if (address_parse("listen", bad[i], &a, &err) == 0)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(err.message, "listen"));
	}
}

static void subnets(void **state)
{
	(void)state;
	struct subnets n;
	assert_int_equal(subnets_parse("p", "10.0.0.0/8, 192.168.1.7 ::1,2001:db8::/33", &n, NULL), 0);
	assert_int_equal(n.len, 4);
	static const char *const in[] = { "10.255.0.1", "192.168.1.7", "::1", "2001:db8:7fff::1", "::ffff:10.1.1.1" };
	static const char *const out[] = { "11.0.0.1", "192.168.1.8", "::2", "2001:db8:8000::1", "127.0.0.1", "", "x" };
	for (size_t i = 0; i < ARRAY_LEN(in); i++)
		assert_true(subnets_hold(&n, in[i]));
	for (size_t i = 0; i < ARRAY_LEN(out); i++)
		assert_false(subnets_hold(&n, out[i]));
	subnets_done(&n);
	assert_int_equal(subnets_parse("p", "0.0.0.0/0", &n, NULL), 0);
	assert_true(subnets_hold(&n, "8.8.8.8"));
	assert_false(subnets_hold(&n, "2001::1"));
	subnets_done(&n);
	static const char *const bad[] = { "10.0.0.0/33", "x", "::/129", "10.0.0.0/", "10.0.0.0/-1" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(subnets_parse("p", bad[i], &n, NULL), -1);
}

static void clients_behind_proxies(void **state)
{
	(void)state;
	static const struct {
		const char *peer, *forwarded, *want;
	} cases[] = {
		{ "203.0.113.1", "198.51.100.1", "203.0.113.1" }, /* not a proxy: whatever it says */
		{ "10.0.0.1", "198.51.100.1", "198.51.100.1" },
		{ "10.0.0.1", NULL, "10.0.0.1" },
		{ "10.0.0.1", "", "10.0.0.1" },
		{ "10.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1" }, /* the client's own claim stands further left */
		{ "10.0.0.1", "198.51.100.1,10.0.0.2 , 10.0.0.3", "198.51.100.1" },
		{ "10.0.0.1", "10.0.0.3", "10.0.0.3" },
		{ "10.0.0.1", "198.51.100.1, unknown", "10.0.0.1" },
		{ "10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1" },
		{ "10.0.0.1", "198.51.100.1:99", "198.51.100.1" },
		{ "10.0.0.1", ",", "10.0.0.1" },
		{ "10.0.0.1", "evil\" by=\"root", "10.0.0.1" },
	};
	struct origins o;
	assert_int_equal(origins_parse("10.0.0.0/8", "", &o, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char got[ADDRESS_TEXT_MAX];
		origins_client(&o, cases[i].peer, cases[i].forwarded, got);
		assert_string_equal(got, cases[i].want);
	}
	origins_done(&o);
}

static void host_names(void **state)
{
	(void)state;
	struct origins any, listed;
	struct listener plain = { .tcp = true, .loopback = true, .port = 80 }, wide = { .tcp = true, .port = 80 };
	struct listener certified = { .tcp = true, .loopback = true, .tls = true, .port = 443 };
	assert_int_equal(origins_parse("", "", &any, NULL), 0);
	assert_int_equal(origins_parse("", "sandbox.example, [2001:db8::1]", &listed, NULL), 0);
	assert_true(origins_host_allowed(&any, &plain, "localhost"));
	assert_true(origins_host_allowed(&any, &plain, "LOCALHOST:80"));
	assert_true(origins_host_allowed(&any, &plain, "[::1]:80"));
	assert_false(origins_host_allowed(&any, &plain, "localhost:81"));
	assert_false(origins_host_allowed(&any, &plain, "localhost.evil"));
	assert_false(origins_host_allowed(&any, &plain, "evil"));
	assert_true(origins_host_allowed(&any, &wide, "whatever.example"));
	/* Also for the first request, which may come before the front is known to be up. */
	assert_true(origins_host_allowed(&any, &certified, "whatever.example"));
	assert_true(origins_host_allowed(&listed, &wide, "Sandbox.Example:8443"));
	assert_true(origins_host_allowed(&listed, &wide, "[2001:db8::1]"));
	assert_true(origins_host_allowed(&listed, &wide, "127.0.0.1"));
	assert_false(origins_host_allowed(&listed, &wide, "whatever.example"));
	assert_false(origins_host_allowed(&listed, &wide, ""));
	origins_done(&any);
	origins_done(&listed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_cross_whatever_the_pieces),
		cmocka_unit_test(pings_are_answered_and_closing_is_mutual),
		cmocka_unit_test(broken_frames_end_the_connection),
		cmocka_unit_test(handshake_keys),
		cmocka_unit_test(addresses),
		cmocka_unit_test(subnets),
		cmocka_unit_test(clients_behind_proxies),
		cmocka_unit_test(host_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
