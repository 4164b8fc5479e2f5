/*
 * What a sandbox says to the egress proxy: whatever comes, a head is understood whole or refused, a body ends within what was given, a TLS name is
 * bounded text, and a rule that was taken matches without reading beyond its text.
 * fuzz-archives: daemon
 */
#include "daemon/egress/hello.h"
#include "daemon/egress/request.h"

#include "shared/base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void target_holds(const struct egress_target *t)
{
	struct egress_target again;
	char text[EGRESS_RULE_TEXT_MAX];
	/* What was understood is written in one way, and read back as the same. */
	if (egress_target_parse(egress_target_text(t, text), 0, &again, NULL) != 0 || strcmp(again.host, t->host) != 0 || again.port != t->port ||
	    again.numeric != t->numeric)
		abort();
}

static void body(struct proxy_body b, const char *p, size_t n)
{
	size_t at = 0;
	while (at < n && !b.done) {
		ssize_t took = proxy_body_take(&b, p + at, n - at);
		if (took < 0)
			return;
		if (took == 0 && !b.done)
			abort();
		at += (size_t)took;
		if (at > n)
			abort();
	}
}

static void head(const char *p, size_t n)
{
	auto_proxy_request r = { .head = BUF_INIT };
	struct error err = ERROR_INIT;
	int status = 0;
	size_t len = proxy_head_length(p, n);
	if (len == 0 || len > PROXY_HEAD_MAX)
		return;
	if (proxy_request_parse(p, len, &r, &status, &err) != 0) {
		if (status < 400 || err.code == ERR_NONE)
			abort();
		return;
	}
	target_holds(&r.target);
	if (r.connect)
		return;
	if (proxy_head_length(r.head.data, r.head.len) != r.head.len)
		abort();
	body(r.body, p + len, n - len);
}

static void rule(const char *p, size_t n)
{
	auto_free char *text = xstrndup(p, n);
	struct egress_rule r;
	struct egress_target t;
	if (egress_target_parse(text, 443, &t, NULL) == 0)
		target_holds(&t);
	else
		egress_target_parse("192.0.2.1:80", 0, &t, NULL);
	if (egress_rule_parse(text, &r, NULL) == 0)
		(void)egress_rule_matches(&r, &t);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char name[HELLO_NAME_MAX + 1] = "";
	head((const char *)p, n);
	rule((const char *)p, n);
	if (hello_read(p, n, name) == HELLO_READ && strnlen(name, sizeof(name)) > HELLO_NAME_MAX)
		abort();
	return 0;
}
