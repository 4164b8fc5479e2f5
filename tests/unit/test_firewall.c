/* The rules of open networks as nft is given them, and that nft takes them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/egress/addresses.h"
#include "daemon/worker/firewall.h"
#include "daemon/worker/tool.h"
#include "shared/base/error.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

static const struct firewall_terms terms = { .table = "sandbox_test", .prefix = "sabcdef", .pool = "198.18.0.0/16", .resolvers = "9.9.9.9, 10.0.0.53",
					     .opened = "10.20.0.0/16", .closed = "11.1.2.3" };

/* Where in the text, so that the order of rules can be told. */
static size_t place(const struct buf *text, const char *what)
{
	const char *at = strstr(buf_str(text), what);
	assert_non_null(at);
	return (size_t)(at - buf_str(text));
}

static void refusals_come_before_what_is_let_through(void **state)
{
	auto_buf text = BUF_INIT;
	(void)state;
	firewall_text(&terms, &text);
	size_t leaving = place(&text, "chain leaving"), six = place(&text, "meta nfproto != ipv4"), spoofed = place(&text, "ip saddr != 198.18.0.0/16"),
	       sibling = place(&text, "oifname \"sabcdef*\" counter name refused reject"), established = place(&text, "ct state established,related accept\n\t\tip daddr"),
	       dns = place(&text, "ip daddr { 9.9.9.9, 10.0.0.53 } meta l4proto { tcp, udp } th dport 53 accept"), open = place(&text, "ip daddr { 10.20.0.0/16 } accept"),
	       closed = place(&text, "ip daddr @closed counter name refused");
	assert_true(leaving < six && six < spoofed && spoofed < sibling && sibling < established && established < dns && dns < open && open < closed);
	place(&text, "169.254.169.254/32");
	place(&text, "100.64.0.0/10");
	place(&text, ", 11.1.2.3 }");
}

static void nothing_is_opened_that_is_not_asked(void **state)
{
	struct firewall_terms bare = terms;
	auto_buf text = BUF_INIT;
	(void)state;
	bare.resolvers = bare.opened = bare.closed = "";
	firewall_text(&bare, &text);
	assert_null(strstr(buf_str(&text), "dport 53"));
	assert_null(strstr(buf_str(&text), "} accept"));
	assert_null(strstr(buf_str(&text), ",  }"));
}

/* --check: the kernel is asked, and nothing is changed. */
static void nft_takes_them(void **state)
{
	static const char *const check[] = { "nft", "--check", "-f", "-", NULL };
	auto_buf text = BUF_INIT;
	struct error err = ERROR_INIT;
	(void)state;
	if (geteuid() != 0)
		skip();
	firewall_text(&terms, &text);
	int rc = tool_run(check, buf_str(&text), -1, NULL, &err);
	if (rc != 0 && err.code == ERR_NOT_FOUND)
		skip();
	assert_string_equal(err.message, "");
	assert_int_equal(rc, 0);
	assert_int_equal(tool_run(check, "no such words\n", -1, NULL, &err), -1);
	assert_non_null(strstr(err.message, "nft failed: "));
}

static void tools_are_told_apart(void **state)
{
	static const char *const none[] = { "no-such-tool-anywhere", NULL }, *const cat[] = { "cat", NULL };
	auto_buf out = BUF_INIT;
	struct error err = ERROR_INIT;
	(void)state;
	assert_int_equal(tool_run(none, NULL, -1, NULL, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(tool_run(cat, "given", -1, &out, &err), 0);
	assert_string_equal(buf_str(&out), "given");
}

static const char *refused(const char *host)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct subnets open = { .items = NULL };
	assert_int_equal(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return address_refused((struct sockaddr *)&a, &open);
}

static void a_controller_elsewhere_is_refused(void **state)
{
	(void)state;
	assert_null(refused("11.1.2.3"));
	addresses_close("11.1.2.3, 2a00::1");
	assert_string_equal(refused("11.1.2.3"), "the controller's");
	assert_null(refused("11.1.2.4"));
	addresses_close("");
	assert_null(refused("11.1.2.3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals_come_before_what_is_let_through), cmocka_unit_test(nothing_is_opened_that_is_not_asked),
		cmocka_unit_test(nft_takes_them),			    cmocka_unit_test(tools_are_told_apart),
		cmocka_unit_test(a_controller_elsewhere_is_refused),
	};
	return cmocka_run_group_tests_name("firewall", tests, NULL, NULL);
}
