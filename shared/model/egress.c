/* Targets and rules of egress: see egress.h. Whatever is not written exactly as it says is refused, never guessed. */
#include "shared/model/egress.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 63, PORT_MAX = 65535, V4_BITS = 32, ALL_BITS = 128 };

/* A user's text inside a message: short and harmless. */
#define SHOWN(text) text_escape((text), strnlen((text), 80), (char[321]){ 0 }, 321)

/* --- hosts --- */

/* Returns the bits of the family, 0 for what is no address in its one usual notation. */
static unsigned parse_address(const char *text, bool brackets, uint8_t ret[static 16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint8_t bytes[16];
	memcpy(bytes, mapped, sizeof(mapped));
	if (!brackets && inet_pton(AF_INET, text, bytes + 12) == 1) {
		memcpy(ret, bytes, sizeof(bytes));
		return V4_BITS;
	}
	if (!brackets || inet_pton(AF_INET6, text, bytes) != 1)
		return 0;
	memcpy(ret, bytes, sizeof(bytes));
	return ALL_BITS;
}

static bool label_valid(const char *p, size_t n)
{
	if (n < 1 || n > LABEL_MAX || p[0] == '-' || p[n - 1] == '-')
		return false;
	return strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-_") >= n;
}

/* Digits alone, or 0x and hex digits: resolvers take a host that ends so for an address. */
static bool looks_numeric(const char *p, size_t n)
{
	if (n >= 2 && p[0] == '0' && p[1] == 'x')
		return strspn(p + 2, "0123456789abcdef") >= n - 2;
	return strspn(p, "0123456789") >= n;
}

/* Copies a host name, lower case and without the dot that may end it. False when it is none. */
static bool take_name(const char *text, size_t n, char out[static EGRESS_HOST_MAX + 1])
{
	if (n > 0 && text[n - 1] == '.')
		n--;
	if (n < 1 || n > EGRESS_HOST_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 'a' - 'A') : text[i];
	out[n] = '\0';
	const char *label = out;
	for (;;) {
		size_t len = strcspn(label, ".");
		if (!label_valid(label, len))
			return false;
		if (!label[len])
			return !looks_numeric(label, len);
		label += len + 1;
	}
}

/* Splits "host:port" and "[v6]:port": *ret_n is the host's length (without brackets), the rest begins at *ret_rest. */
static bool split_host(const char *text, const char **ret_host, size_t *ret_n, bool *ret_brackets, const char **ret_rest)
{
	*ret_brackets = text[0] == '[';
	if (*ret_brackets) {
		const char *close = strchr(text, ']');
		if (!close)
			return false;
		*ret_host = text + 1;
		*ret_n = (size_t)(close - text - 1);
		*ret_rest = close + 1;
		return true;
	}
	*ret_host = text;
	*ret_n = strcspn(text, ":/");
	*ret_rest = text + *ret_n;
	return true;
}

static int bad_target(const char *text, struct error *err)
{
	return error_set(err, ERR_INVALID, "'%s' is not HOST:PORT (a name, an IPv4 address, or an IPv6 address in brackets)", SHOWN(text));
}

int egress_target_parse(const char *text, uint16_t default_port, struct egress_target *ret, struct error *err)
{
	struct egress_target t = { .port = default_port };
	const char *host, *rest;
	size_t n;
	bool brackets;
	int64_t port;
	if (!split_host(text, &host, &n, &brackets, &rest) || n < 1 || n > EGRESS_HOST_MAX)
		return bad_target(text, err);
	if (*rest == ':') {
		if (parse_i64("port", rest + 1, 1, PORT_MAX, &port, NULL) != 0)
			return bad_target(text, err);
		t.port = (uint16_t)port;
	} else if (*rest || default_port == 0) {
		return bad_target(text, err);
	}
	snprintf(t.host, sizeof(t.host), "%.*s", (int)n, host);
	t.numeric = parse_address(t.host, brackets, t.address) != 0;
	if (t.numeric)
		inet_ntop(brackets ? AF_INET6 : AF_INET, brackets ? t.address : t.address + 12, t.host, sizeof(t.host));
	else if (brackets || !take_name(host, n, t.host))
		return bad_target(text, err);
	*ret = t;
	return 0;
}

char *egress_target_text(const struct egress_target *t, char out[static EGRESS_RULE_TEXT_MAX])
{
	bool six = t->numeric && strchr(t->host, ':');
	snprintf(out, EGRESS_RULE_TEXT_MAX, "%s%s%s:%u", six ? "[" : "", t->host, six ? "]" : "", t->port);
	return out;
}

/* --- rules --- */

static int bad_rule(const char *text, const char *why, struct error *err)
{
	return error_set(err, ERR_INVALID, "'%s' is no egress rule: %s", SHOWN(text), why);
}

/* ":443", ":8000-8100", ":*", or nothing. */
static bool parse_ports(const char *p, struct egress_rule *r)
{
	int64_t first, last;
	if (!*p) {
		r->first = r->deny ? 1 : 443;
		r->last = r->deny ? PORT_MAX : 443;
		return true;
	}
	if (*p++ != ':')
		return false;
	if (strcmp(p, "*") == 0) {
		r->first = 1;
		r->last = PORT_MAX;
		return true;
	}
	size_t n = strcspn(p, "-");
	auto_free char *low = xstrndup(p, n);
	if (parse_i64("port", low, 1, PORT_MAX, &first, NULL) != 0)
		return false;
	last = first;
	if (p[n] && (parse_i64("port", p + n + 1, 1, PORT_MAX, &last, NULL) != 0 || last < first))
		return false;
	r->first = (uint16_t)first;
	r->last = (uint16_t)last;
	return true;
}

/* "/8" behind an address, or nothing; *p moves behind it. */
static bool parse_prefix(const char **p, unsigned family_bits, struct egress_rule *r)
{
	int64_t bits = family_bits;
	if (**p == '/') {
		size_t n = strspn(*p + 1, "0123456789");
		auto_free char *digits = xstrndup(*p + 1, n);
		if (parse_i64("prefix", digits, 0, family_bits, &bits, NULL) != 0)
			return false;
		*p += 1 + n;
	}
	r->bits = ALL_BITS - family_bits + (unsigned)bits;
	return true;
}

static bool parse_what(const char *text, struct egress_rule *r, const char **ret_ports)
{
	const char *host, *rest;
	size_t n;
	bool brackets;
	if (!split_host(text, &host, &n, &brackets, &rest) || n < 1 || n > EGRESS_HOST_MAX + 2)
		return false;
	auto_free char *word = xstrndup(host, n);
	unsigned family = parse_address(word, brackets, r->net);
	if (family != 0) {
		r->kind = EGRESS_NET;
		*ret_ports = rest;
		return parse_prefix(ret_ports, family, r);
	}
	*ret_ports = rest;
	if (brackets)
		return false;
	if (strcmp(word, "*") == 0) {
		r->kind = EGRESS_ANY;
		return true;
	}
	r->kind = strncmp(word, "*.", 2) == 0 ? EGRESS_BELOW : EGRESS_NAME;
	size_t skip = r->kind == EGRESS_BELOW ? 2 : 0;
	return take_name(word + skip, n - skip, r->name);
}

int egress_rule_parse(const char *text, struct egress_rule *ret, struct error *err)
{
	struct egress_rule r = { .deny = text[0] == '!' };
	const char *ports;
	if (!parse_what(text + r.deny, &r, &ports))
		return bad_rule(text, "want a name, *.name, *, an address or a network, then perhaps :PORT", err);
	if (!parse_ports(ports, &r))
		return bad_rule(text, "the port is not 1 to 65535, FROM-TO or *", err);
	*ret = r;
	return 0;
}

static bool net_holds(const struct egress_rule *r, const uint8_t address[static 16])
{
	unsigned whole = r->bits / 8, rest = r->bits % 8;
	if (memcmp(r->net, address, whole) != 0)
		return false;
	return rest == 0 || ((r->net[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

static bool name_below(const char *name, const char *parent)
{
	size_t n = strlen(name), p = strlen(parent);
	return n > p + 1 && name[n - p - 1] == '.' && strcmp(name + n - p, parent) == 0;
}

bool egress_rule_matches(const struct egress_rule *r, const struct egress_target *t)
{
	if (t->port < r->first || t->port > r->last)
		return false;
	switch (r->kind) {
	case EGRESS_ANY:
		return true;
	case EGRESS_NAME:
		return !t->numeric && strcmp(t->host, r->name) == 0;
	case EGRESS_BELOW:
		return !t->numeric && name_below(t->host, r->name);
	case EGRESS_NET:
		return t->numeric && net_holds(r, t->address);
	}
	return false;
}

/* --- lists --- */

void egress_rules_done(struct egress_rules *r)
{
	free(r->items);
	strv_done(&r->texts);
	*r = (struct egress_rules)EGRESS_RULES_INIT;
}

int egress_rules_from(const char *what, const struct strv *texts, struct egress_rules *ret, struct error *err)
{
	auto_egress_rules list = EGRESS_RULES_INIT;
	if (texts->len > LIMIT_EGRESS_RULES_MAX)
		return error_set(err, ERR_INVALID, "%s: %zu rules, at most %d are allowed", what, texts->len, LIMIT_EGRESS_RULES_MAX);
	list.items = xcalloc(texts->len + 1, sizeof(*list.items));
	for (size_t i = 0; i < texts->len; i++)
		if (egress_rule_parse(texts->items[i], &list.items[list.len++], err) != 0)
			return error_wrap(err, "%s", what);
	strv_copy(&list.texts, texts);
	egress_rules_done(ret);
	*ret = list;
	list = (struct egress_rules)EGRESS_RULES_INIT;
	return 0;
}

int egress_rules_from_text(const char *what, const char *text, struct egress_rules *ret, struct error *err)
{
	auto_strv words = STRV_INIT;
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ", \t");
		if (n)
			strv_take(&words, xstrndup(p, n));
		p += n + (p[n] != '\0');
	}
	return egress_rules_from(what, &words, ret, err);
}

int egress_rules_find(const struct egress_rules *r, const struct egress_target *t)
{
	for (size_t i = 0; i < r->len; i++)
		if (egress_rule_matches(&r->items[i], t))
			return (int)i;
	return -1;
}

void egress_terms_done(struct egress_terms *t)
{
	free(t->server);
	free(t->tenant);
	free(t->standard);
	free(t->open);
	strv_done(&t->sandbox);
	*t = (struct egress_terms)EGRESS_TERMS_INIT;
}
