/* Client addresses and Host names: see origin.h. */
#include "daemon/api/origin.h"

#include "daemon/api/server.h"
#include "shared/base/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void split(const char *text, struct strv *ret)
{
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ", \t");
		if (n)
			strv_take(ret, xstrndup(p, n));
		p += n;
		p += strspn(p, ", \t");
	}
}

int origins_parse(const char *proxies, const char *hosts, struct origins *ret, struct error *err)
{
	struct origins o = { .hosts = STRV_INIT };
	if (subnets_parse("daemon.trusted_proxies", proxies, &o.proxies, err) != 0)
		return -1;
	split(hosts, &o.hosts);
	*ret = o;
	return 0;
}

void origins_done(struct origins *o)
{
	subnets_done(&o->proxies);
	strv_done(&o->hosts);
}

/* The length of the name in "name:port", "[v6]:port". */
static size_t name_len(const char *host)
{
	const char *close = host[0] == '[' ? strchr(host, ']') : NULL;
	return close ? (size_t)(close + 1 - host) : strcspn(host, ":");
}

static bool is_loopback_name(const struct listener *l, const char *host)
{
	static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
	char port[8];
	size_t n = name_len(host);
	snprintf(port, sizeof(port), ":%u", l->port);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == n && strncasecmp(host, names[i], n) == 0)
			return host[n] == '\0' || strcmp(host + n, port) == 0;
	return false;
}

bool origins_host_allowed(const struct origins *o, const struct listener *l, const char *host)
{
	size_t n = name_len(host);
	for (size_t i = 0; i < o->hosts.len; i++)
		if (strlen(o->hosts.items[i]) == n && strncasecmp(host, o->hosts.items[i], n) == 0)
			return true;
	/* A certificate already binds the name, and beyond loopback the names are the network's business. */
	if (o->hosts.len == 0 && (l->tls || !l->loopback))
		return true;
	return is_loopback_name(l, host);
}

/* One list entry, without brackets and port; "" when it is no address. */
static void entry_address(const char *p, size_t n, char out[static ADDRESS_TEXT_MAX])
{
	struct in6_addr any;
	char text[ADDRESS_TEXT_MAX] = "";
	if (n < sizeof(text))
		snprintf(text, sizeof(text), "%.*s", (int)n, p);
	char *end = text[0] == '[' ? strchr(text, ']') : NULL, *colon = strchr(text, ':');
	if (end)
		*end = '\0';
	else if (colon && !strchr(colon + 1, ':'))
		*colon = '\0';
	const char *host = end ? text + 1 : text;
	bool valid = inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
	snprintf(out, ADDRESS_TEXT_MAX, "%s", valid ? host : "");
}

void origins_client(const struct origins *o, const char *peer, const char *forwarded_for, char out[static ADDRESS_TEXT_MAX])
{
	snprintf(out, ADDRESS_TEXT_MAX, "%s", peer);
	const char *end = forwarded_for ? forwarded_for + strlen(forwarded_for) : NULL;
	while (end && subnets_hold(&o->proxies, out)) {
		char entry[ADDRESS_TEXT_MAX];
		const char *from = end;
		while (from > forwarded_for && from[-1] != ',')
			from--;
		const char *p = from + strspn(from, " \t");
		size_t n = (size_t)(end - p);
		while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
			n--;
		entry_address(p, n, entry);
		if (!entry[0])
			return;
		memcpy(out, entry, sizeof(entry));
		end = from > forwarded_for ? from - 1 : NULL;
	}
}
