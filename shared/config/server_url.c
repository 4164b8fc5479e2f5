/* Server addresses: see server_url.h. */
#include "shared/config/server_url.h"

#include "shared/base/buf.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { URL_MAX = 2048, HOST_MAX = 253 };

static int refuse(const char *text, struct error *err, const char *why)
{
	char shown[160];
	return error_set(err, ERR_INVALID, "'%s' is not a server address: %s", text_escape(text, strlen(text), shown, sizeof(shown)), why);
}

static int parse_unix(const char *text, const char *path, struct server_url *ret, struct error *err)
{
	if (path[0] == '/' && path[1] == '/')
		path += 2;
	if (path[0] != '/' || !path[1])
		return refuse(text, err, "give unix:///absolute/path");
	ret->path = xstrdup(path);
	ret->url = xasprintf("unix://%s", path);
	ret->origin = xstrdup(ret->url);
	ret->loopback = true;
	return 0;
}

static bool host_valid(const char *host, size_t n)
{
	bool dot_before = true; /* no empty labels */
	if (n == 0 || n > HOST_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (host[i] == '.' ? dot_before : !isalnum((unsigned char)host[i]) && host[i] != '-' && host[i] != '_')
			return false;
		dot_before = host[i] == '.';
	}
	return true;
}

/* Text that inet_pton reads, between brackets. */
static bool ipv6_valid(const char *host, size_t n)
{
	struct in6_addr a;
	auto_free char *inner = n > 2 ? xstrndup(host + 1, n - 2) : NULL;
	return inner && host[n - 1] == ']' && inet_pton(AF_INET6, inner, &a) == 1;
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	auto_free char *inner = host[0] == '[' ? xstrndup(host + 1, strlen(host) - 2) : NULL;
	if (strcmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inner && inet_pton(AF_INET6, inner, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* host[:port] at p[0..n). */
static int parse_authority(const char *text, const char *p, size_t n, bool tls, struct server_url *ret, struct error *err)
{
	const char *host_end = p[0] == '[' ? memchr(p, ']', n) : memchr(p, ':', n);
	size_t host_n = !host_end ? n : (size_t)(host_end - p) + (p[0] == '[');
	int64_t port = tls ? 443 : 80;
	bool given = host_n < n;
	if (p[0] == '[' ? !ipv6_valid(p, host_n) : !host_valid(p, host_n))
		return refuse(text, err, "the host's name is malformed (names in other scripts are written xn--...)");
	if (given) {
		auto_free char *digits = xstrndup(p + host_n + 1, n - host_n - 1);
		if (p[host_n] != ':' || parse_i64("port", digits, 1, 65535, &port, NULL) != 0)
			return refuse(text, err, "the port is not a number from 1 to 65535");
	}
	auto_free char *host = xstrndup(p, host_n);
	for (char *c = host; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	ret->tls = tls;
	ret->loopback = is_loopback(host);
	if (port == (tls ? 443 : 80))
		ret->origin = xasprintf("%s://%s", tls ? "https" : "http", host);
	else
		ret->origin = xasprintf("%s://%s:%lld", tls ? "https" : "http", host, (long long)port);
	return 0;
}

static int check_characters(const char *text, struct error *err)
{
	if (strlen(text) > URL_MAX)
		return error_set(err, ERR_INVALID, "a server address has at most %d bytes", URL_MAX);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p <= ' ' || *p == 127)
			return refuse(text, err, "it holds blanks or control characters");
		if (*p > 127)
			return refuse(text, err, "names in other scripts are written xn--...");
	}
	return *text ? 0 : error_set(err, ERR_INVALID, "the server address is empty");
}

static int parse_http(const char *text, const char *rest, bool tls, struct server_url *ret, struct error *err)
{
	size_t n = strcspn(rest, "/?#");
	if (memchr(rest, '@', n))
		return error_set(err, ERR_INVALID, "a server address holds no user name or password; `sandbox login` takes the token");
	if (strpbrk(rest, "?#"))
		return refuse(text, err, "it has a query or a fragment");
	if (parse_authority(text, rest, n, tls, ret, err) != 0)
		return -1;
	const char *path = rest + n;
	size_t len = strlen(path);
	while (len && path[len - 1] == '/')
		len--;
	if (len && (strstr(path, "//") || strstr(path, "/..") || strstr(path, "/./")))
		return refuse(text, err, "its path has empty or relative parts");
	ret->url = xasprintf("%s%.*s", ret->origin, (int)len, path);
	return 0;
}

int server_url_parse(const char *text, struct server_url *ret, struct error *err)
{
	struct server_url u = { .url = NULL };
	int rc;
	const char *scheme_end = strstr(text, "://");
	if (check_characters(text, err) != 0)
		return -1;
	if (text[0] == '/')
		rc = parse_unix(text, text, &u, err);
	else if (strncasecmp(text, "unix:", 5) == 0)
		rc = parse_unix(text, text + 5, &u, err);
	else if (strncasecmp(text, "https://", 8) == 0)
		rc = parse_http(text, text + 8, true, &u, err);
	else if (strncasecmp(text, "http://", 7) == 0)
		rc = parse_http(text, text + 7, false, &u, err);
	else if (scheme_end)
		rc = refuse(strchr(text, '@') ? "..." : text, err, "schemes are https, http and unix");
	else
		rc = parse_http(text, text, true, &u, err);
	if (rc != 0) {
		server_url_done(&u);
		return -1;
	}
	*ret = u;
	return 0;
}

void server_url_done(struct server_url *u)
{
	free(u->url);
	free(u->origin);
	free(u->path);
	*u = (struct server_url){ .url = NULL };
}
