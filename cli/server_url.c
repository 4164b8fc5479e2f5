/* Taking a server's address apart: see server_url.h. Whatever could be read in two ways is refused with the reason. */
#include "cli/server_url.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

static size_t scheme_len(const char *text)
{
	if (strncasecmp(text, "https://", 8) == 0)
		return 8;
	return strncasecmp(text, "http://", 7) == 0 ? 7 : 0;
}

bool server_url_is(const char *text)
{
	return scheme_len(text) > 0;
}

static const char *forbidden_part(const char *text, size_t skip)
{
	for (const char *p = text; *p; p++) {
		if (isspace((unsigned char)*p))
			return "it holds a blank";
		if ((unsigned char)*p < ' ' || *p == 127 || *p == '\\')
			return "it holds a control byte or backslash";
		if ((unsigned char)*p >= 128)
			return "it holds characters beyond ASCII (write such a host name in its xn-- form)";
	}
	if (strchr(text + skip, '?'))
		return "it holds a query (?…)";
	if (strchr(text + skip, '#'))
		return "it holds a fragment (#…)";
	size_t authority = strcspn(text + skip, "/");
	return memchr(text + skip, '@', authority) ? "it holds a user or password; give the token in SANDBOX_TOKEN" : NULL;
}

static bool host_chars(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)p[i]) && !strchr("-._", p[i]))
			return false;
	return n > 0 && p[0] != '.' && p[0] != '-';
}

/* The host at p[0..n); *ret_used its length. */
static int take_host(const char *p, size_t n, struct server_url *u, size_t *ret_used, struct error *err)
{
	struct in6_addr v6;
	size_t len = strcspn(p, ":/");
	if (p[0] == '[') {
		const char *close = memchr(p, ']', n);
		len = close ? (size_t)(close + 1 - p) : 0;
	}
	if (len > n)
		len = n;
	if (len == 0 || len >= sizeof(u->host))
		return error_set(err, ERR_INVALID, "it names no host");
	for (size_t i = 0; i < len; i++)
		u->host[i] = (char)tolower((unsigned char)p[i]);
	u->host[len] = '\0';
	if (p[0] != '[') {
		struct in_addr v4;
		if (!host_chars(p, len))
			return error_set(err, ERR_INVALID, "'%.64s' is no host name (IPv6 stands in brackets)", u->host);
		u->loopback = strcmp(u->host, "localhost") == 0 || (inet_pton(AF_INET, u->host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
	} else {
		auto_free char *inner = xstrndup(u->host + 1, len - 2);
		if (inet_pton(AF_INET6, inner, &v6) != 1)
			return error_set(err, ERR_INVALID, "'%.64s' is no IPv6 address", u->host);
		u->loopback = IN6_IS_ADDR_LOOPBACK(&v6);
	}
	*ret_used = len;
	return 0;
}

static int take_authority(const char *p, size_t n, struct server_url *u, struct error *err)
{
	size_t used = 0;
	int64_t port = u->tls ? 443 : 80;
	if (take_host(p, n, u, &used, err) != 0)
		return -1;
	if (used < n) {
		auto_free char *text = xstrndup(p + used, n - used);
		if (text[0] != ':' || parse_i64("its port", text + 1, 1, 65535, &port, err) != 0)
			return text[0] == ':' ? -1 : error_set(err, ERR_INVALID, "'%.64s' stands behind the host", text);
	}
	u->port = (uint16_t)port;
	return 0;
}

static int parse(const char *text, struct server_url *u, struct error *err)
{
	size_t skip = scheme_len(text);
	const char *why = forbidden_part(text, skip);
	if (why)
		return error_set(err, ERR_INVALID, "%s", why);
	if (skip == 0)
		return error_set(err, ERR_INVALID, "it has no scheme: write https://%.100s", strstr(text, "://") ? "HOST" : text);
	u->tls = skip == 8;
	size_t authority = strcspn(text + skip, "/");
	if (take_authority(text + skip, authority, u, err) != 0)
		return -1;
	const char *path = text + skip + authority;
	size_t len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	u->base = xasprintf("%s://%s:%u%.*s", u->tls ? "https" : "http", u->host, u->port, (int)len, path);
	return 0;
}

int server_url_parse(const char *text, struct server_url *ret, struct error *err)
{
	struct server_url u = { .base = NULL };
	struct error e = ERROR_INIT;
	if (parse(text, &u, &e) != 0)
		return error_set(err, ERR_INVALID, "the server address cannot be used: %s", e.message);
	*ret = u;
	return 0;
}

void server_url_done(struct server_url *u)
{
	free(u->base);
	u->base = NULL;
}
