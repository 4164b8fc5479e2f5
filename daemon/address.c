/* Addresses of the configuration: see address.h. IPv4 is held as mapped IPv6, so that one comparison serves both. */
#include "daemon/address.h"

#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static int not_an_address(const char *what, const char *text, struct error *err)
{
	return error_set(err, ERR_INVALID, "%s: '%.100s' is not ADDRESS:PORT (127.0.0.1:8443, [::]:8443, localhost:8443)", what, text);
}

int address_parse(const char *what, const char *text, struct address *ret, struct error *err)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	char host[INET6_ADDRSTRLEN + 2];
	int64_t port;
	if (n == 0 || n >= sizeof(host))
		return not_an_address(what, text, err);
	if (parse_i64("port", colon + 1, 0, 65535, &port, err) != 0)
		return error_wrap(err, "%s", what);
	snprintf(host, sizeof(host), "%.*s", (int)n, text);
	if (strcmp(host, "localhost") == 0)
		snprintf(host, sizeof(host), "127.0.0.1");
	struct address a = { .len = sizeof(a.sa.v4), .sa.v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) } };
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		a.len = sizeof(a.sa.v6);
		a.sa.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
		if (inet_pton(AF_INET6, host + 1, &a.sa.v6.sin6_addr) != 1)
			return not_an_address(what, text, err);
	} else if (inet_pton(AF_INET, host, &a.sa.v4.sin_addr) != 1) {
		return not_an_address(what, text, err);
	}
	*ret = a;
	return 0;
}

bool address_loopback(const struct address *a)
{
	if (a->sa.any.sa_family == AF_INET)
		return ntohl(a->sa.v4.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&a->sa.v6.sin6_addr);
}

void address_host(const struct sockaddr *sa, char out[static ADDRESS_TEXT_MAX])
{
	const struct address *a = (const void *)sa;
	out[0] = '\0';
	if (sa->sa_family == AF_INET)
		inet_ntop(AF_INET, &a->sa.v4.sin_addr, out, ADDRESS_TEXT_MAX);
	else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->sa.v6.sin6_addr))
		inet_ntop(AF_INET, a->sa.v6.sin6_addr.s6_addr + 12, out, ADDRESS_TEXT_MAX);
	else if (sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a->sa.v6.sin6_addr, out, ADDRESS_TEXT_MAX);
}

/* Returns the bits of the family (32, 128); 0: no address. */
static unsigned host_bytes(const char *host, uint8_t ret[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	memcpy(ret, mapped, sizeof(mapped));
	if (inet_pton(AF_INET, host, ret + 12) == 1)
		return 32;
	return inet_pton(AF_INET6, host, ret) == 1 ? 128 : 0;
}

static int subnet_parse(const char *what, char *text, struct subnet *ret, struct error *err)
{
	char *slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	unsigned width = host_bytes(text, ret->bytes);
	int64_t bits = width;
	if (width == 0)
		return error_set(err, ERR_INVALID, "%s: '%.64s' is no address", what, text);
	if (slash && parse_i64("prefix length", slash + 1, 0, width, &bits, err) != 0)
		return error_wrap(err, "%s", what);
	ret->bits = 128 - width + (unsigned)bits;
	return 0;
}

int subnets_parse(const char *what, const char *text, struct subnets *ret, struct error *err)
{
	struct subnets list = { .items = NULL };
	auto_free char *copy = xstrdup(text);
	char *state = NULL;
	for (char *word = strtok_r(copy, ", \t", &state); word; word = strtok_r(NULL, ", \t", &state)) {
		list.items = xrealloc(list.items, list.len + 1, sizeof(*list.items));
		if (subnet_parse(what, word, &list.items[list.len++], err) != 0) {
			subnets_done(&list);
			return -1;
		}
	}
	*ret = list;
	return 0;
}

void subnets_done(struct subnets *n)
{
	free(n->items);
	*n = (struct subnets){ .items = NULL };
}

static bool subnet_holds(const struct subnet *n, const uint8_t bytes[16])
{
	unsigned whole = n->bits / 8, rest = n->bits % 8;
	if (memcmp(n->bytes, bytes, whole) != 0)
		return false;
	return rest == 0 || ((n->bytes[whole] ^ bytes[whole]) >> (8 - rest)) == 0;
}

bool subnets_hold(const struct subnets *n, const char *host)
{
	uint8_t bytes[16];
	if (host_bytes(host, bytes) == 0)
		return false;
	for (size_t i = 0; i < n->len; i++)
		if (subnet_holds(&n->items[i], bytes))
			return true;
	return false;
}
