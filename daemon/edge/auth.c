/*
 * Visitors' secrets. A token or password opens one tunnel; its hash is all that is here. A browser is given a cookie for the tunnel's own
 * host, an authenticated time stamp and nothing else: another secret makes all cookies worthless.
 */
#include "daemon/edge/internal.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

enum { SECRET_MAX = 256, COOKIE_HOURS = 12, FAILURES_MAX = 30, FAILURES_MS = 60 * 1000, MAC_TEXT = 2 * crypto_auth_hmacsha256_BYTES + 1 };

static bool secret_fits(struct route *r, const char *secret, size_t n)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char text[EDGE_HASH_LEN + 1];
	crypto_hash_sha256(hash, (const unsigned char *)secret, n);
	sodium_bin2hex(text, sizeof(text), hash, sizeof(hash));
	return strlen(r->r.hash) == EDGE_HASH_LEN && sodium_memcmp(text, r->r.hash, EDGE_HASH_LEN) == 0;
}

/* --- cookies --- */

static void mac(const struct route *r, int64_t until, char out[static MAC_TEXT])
{
	crypto_auth_hmacsha256_state s;
	unsigned char sum[crypto_auth_hmacsha256_BYTES];
	char text[EDGE_LABEL_MAX + 32];
	int n = snprintf(text, sizeof(text), "%s %" PRId64, r->r.label, until);
	crypto_auth_hmacsha256_init(&s, (const unsigned char *)r->r.hash, strlen(r->r.hash));
	crypto_auth_hmacsha256_update(&s, (const unsigned char *)text, (unsigned long long)n);
	crypto_auth_hmacsha256_final(&s, sum);
	sodium_bin2hex(out, MAC_TEXT, sum, sizeof(sum));
}

static bool cookie_fits(const struct route *r, struct span value)
{
	char text[160], want[MAC_TEXT];
	int64_t until;
	if (value.n >= sizeof(text))
		return false;
	snprintf(text, sizeof(text), "%.*s", (int)value.n, value.p);
	char *dot = strchr(text, '.');
	if (!dot)
		return false;
	*dot++ = '\0';
	if (parse_i64("", text, 1, INT64_MAX, &until, NULL) != 0 || until < clock_wall_us() / 1000000 || strlen(dot) != MAC_TEXT - 1)
		return false;
	mac(r, until, want);
	return sodium_memcmp(dot, want, MAC_TEXT - 1) == 0;
}

bool auth_cookie_name(struct span c)
{
	size_t n = strlen(EDGE_COOKIE);
	return c.n > n && memcmp(c.p, EDGE_COOKIE, n) == 0 && c.p[n] == '=';
}

static bool has_cookie(const struct route *r, const struct head *h)
{
	for (size_t i = 0; i < h->n; i++) {
		const char *p = h->fields[i].value.p, *end = p + h->fields[i].value.n;
		if (!span_is(h->fields[i].name, "Cookie"))
			continue;
		while (p < end) {
			const char *semi = memchr(p, ';', (size_t)(end - p)), *stop = semi ? semi : end;
			while (p < stop && *p == ' ')
				p++;
			struct span one = { p, (size_t)(stop - p) };
			size_t skip = strlen(EDGE_COOKIE) + 1;
			if (auth_cookie_name(one) && cookie_fits(r, (struct span){ one.p + skip, one.n - skip }))
				return true;
			p = semi ? semi + 1 : end;
		}
	}
	return false;
}

/* Back to a path of this host, with the cookie. */
static void welcome(struct visitor *v, const char *to)
{
	char extra[4600], sum[MAC_TEXT];
	int64_t until = clock_wall_us() / 1000000 + COOKIE_HOURS * 3600;
	mac(v->route, until, sum);
	snprintf(extra, sizeof(extra), "Location: %.4000s\r\nSet-Cookie: " EDGE_COOKIE "=%" PRId64 ".%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax%s\r\n", to,
		 until, sum, COOKIE_HOURS * 3600, strcmp(v->e->scheme, "https") == 0 ? "; Secure" : "");
	page_write(v, 303, "text/plain", extra, "");
}

/* --- refusals --- */

static bool too_many(struct route *r)
{
	int64_t now = clock_mono_ms();
	if (now - r->failures_since_ms > FAILURES_MS) {
		r->failures_since_ms = now;
		r->failures = 0;
	}
	return r->failures >= FAILURES_MAX;
}

static void form_page(struct visitor *v, int status, const char *next, const char *note)
{
	auto_buf page = BUF_INIT;
	buf_addf(&page, "<!doctype html><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>Password</title>"
			"<body style=\"font:1rem system-ui;margin:15vh auto;max-width:20rem\"><form method=post action=\"" EDGE_LOGIN "\">"
			"<p>%s<p><label>Password <input type=password name=password autofocus></label> <button>Open</button><input type=hidden name=next value=\"",
		 note);
	for (const char *p = next; *p; p++) {
		if (strchr("&<>\"'", *p))
			buf_addf(&page, "&#%d;", *p);
		else
			buf_addc(&page, *p);
	}
	buf_adds(&page, "\"></form>\n");
	page_write(v, status, "text/html; charset=utf-8", status == 401 ? "WWW-Authenticate: Basic realm=\"tunnel\", charset=\"UTF-8\"\r\n" : "", buf_str(&page));
}

static void refuse(struct visitor *v, const struct head *h)
{
	char next[2048];
	atomic_fetch_add(&v->e->refused, 1);
	if (v->route->r.auth == EDGE_AUTH_TOKEN) {
		page_write(v, 401, "text/plain; charset=utf-8", "WWW-Authenticate: Bearer realm=\"tunnel\"\r\n",
			   "this address needs a token: Authorization: Bearer TOKEN, or ?sandbox_token=TOKEN in a browser\n");
		return;
	}
	bool page = span_equals(h->method, "GET") && h->target.n < sizeof(next);
	snprintf(next, sizeof(next), "%.*s", page ? (int)h->target.n : 1, page ? h->target.p : "/");
	/* A browser that is told of Basic asks with a window of its own; who asks for pages gets the form alone. */
	form_page(v, head_lists(h, "Accept", "text/html") ? 403 : 401, next, "This address needs a password.");
}

/* --- secrets in requests --- */

static bool bearer(struct route *r, const struct head *h, bool *ret_authorization)
{
	const struct field *a = head_find(h, "Authorization"), *own = head_find(h, "X-Sandbox-Token");
	if (own && secret_fits(r, own->value.p, own->value.n))
		return true;
	if (!a || !span_begins(a->value, "Bearer ") || a->value.n > SECRET_MAX || !secret_fits(r, a->value.p + 7, a->value.n - 7))
		return false;
	*ret_authorization = true;
	return true;
}

static bool basic(struct route *r, const struct head *h, bool *ret_authorization)
{
	const struct field *a = head_find(h, "Authorization");
	char plain[SECRET_MAX];
	size_t n;
	if (!a || !span_begins(a->value, "Basic ") || a->value.n > SECRET_MAX ||
	    sodium_base642bin((unsigned char *)plain, sizeof(plain), a->value.p + 6, a->value.n - 6, NULL, &n, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		return false;
	const char *colon = memchr(plain, ':', n);
	*ret_authorization = colon && secret_fits(r, colon + 1, n - (size_t)(colon + 1 - plain));
	sodium_memzero(plain, sizeof(plain));
	return *ret_authorization;
}

/* "//host" and "/\\host" would be another one. */
static bool own_path(const char *p)
{
	for (const char *c = p; *c; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || *c == '\\')
			return false;
	return p[0] == '/' && p[1] != '/';
}

/* "?…&sandbox_token=X&…" of a page that is opened: the secret leaves the address at once. */
static bool query_token(struct visitor *v, const struct head *h)
{
	static const char key[] = "sandbox_token=";
	auto_buf to = BUF_INIT;
	if (!span_equals(h->method, "GET") && !span_equals(h->method, "HEAD"))
		return false;
	auto_free char *target = xstrndup(h->target.p, h->target.n);
	char *query = strchr(target, '?'), *at = query ? strstr(query, key) : NULL;
	if (!at || (at[-1] != '?' && at[-1] != '&'))
		return false;
	size_t n = strcspn(at + strlen(key), "&#");
	if (!secret_fits(v->route, at + strlen(key), n))
		return false;
	const char *rest = at + strlen(key) + n;
	buf_add(&to, target, (size_t)(at - target) - (*rest != '&'));
	buf_adds(&to, *rest == '&' ? rest + 1 : rest);
	welcome(v, own_path(buf_str(&to)) ? buf_str(&to) : "/");
	return true;
}

static bool is_login(const struct head *h)
{
	return span_equals(h->method, "POST") && span_equals(h->target, EDGE_LOGIN);
}

static bool presents(const struct head *h)
{
	return head_find(h, "Authorization") || head_find(h, "X-Sandbox-Token") || memmem(h->target.p, h->target.n, "sandbox_token=", 14);
}

enum verdict auth_check(struct visitor *v, const struct head *h, bool *ret_authorization)
{
	struct route *r = v->route;
	if (has_cookie(r, h))
		return VERDICT_IN;
	if ((presents(h) || is_login(h)) && too_many(r)) {
		page_write(v, 429, "text/plain; charset=utf-8", "Retry-After: 60\r\n", "too many wrong secrets: wait a minute\n");
		return VERDICT_ANSWERED;
	}
	if (r->r.auth == EDGE_AUTH_PASSWORD && is_login(h) && v->body.kind == BODY_LENGTH)
		return VERDICT_FORM;
	if (r->r.auth == EDGE_AUTH_TOKEN && query_token(v, h))
		return VERDICT_ANSWERED;
	if (r->r.auth == EDGE_AUTH_TOKEN ? bearer(r, h, ret_authorization) : basic(r, h, ret_authorization))
		return VERDICT_IN;
	r->failures += presents(h);
	refuse(v, h);
	return VERDICT_ANSWERED;
}

/* --- the form --- */

static int unhex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of a form's field, decoded; "" when it is not there. */
static void form_value(const char *body, size_t n, const char *name, char *out, size_t out_size)
{
	const char *end = body + n, *p = body;
	size_t k = strlen(name), len = 0;
	for (; p && (size_t)(end - p) > k && (memcmp(p, name, k) != 0 || p[k] != '='); p = p ? p + 1 : NULL)
		p = memchr(p, '&', (size_t)(end - p));
	for (p = p && (size_t)(end - p) > k ? p + k + 1 : end; p < end && *p != '&' && len + 1 < out_size; p++) {
		bool coded = *p == '%' && end - p > 2 && unhex(p[1]) >= 0 && unhex(p[2]) >= 0;
		out[len++] = coded ? (char)(unhex(p[1]) * 16 + unhex(p[2])) : *p == '+' ? ' ' : *p;
		p += coded ? 2 : 0;
	}
	out[len] = '\0';
}

void auth_form(struct visitor *v, const char *body, size_t n)
{
	char password[SECRET_MAX], next[2048];
	form_value(body, n, "password", password, sizeof(password));
	form_value(body, n, "next", next, sizeof(next));
	if (secret_fits(v->route, password, strlen(password))) {
		welcome(v, own_path(next) ? next : "/");
	} else {
		v->route->failures++;
		atomic_fetch_add(&v->e->refused, 1);
		form_page(v, 403, own_path(next) ? next : "/", "That was not the password.");
	}
	sodium_memzero(password, sizeof(password));
}
