/* Public or not: see addresses.h. The ranges are those of IANA's special-purpose registries; for IPv6 only what is global unicast passes. */
#include "daemon/egress/addresses.h"

#include "shared/base/mem.h"

#include <ifaddrs.h>
#include <pthread.h>
#include <string.h>

struct range4 {
	uint32_t net;
	unsigned bits;
	const char *kind;
};

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* The first that holds an address names it. */
static const struct range4 ranges4[] = {
	{ V4(169, 254, 169, 254), 32, "metadata" },
	{ V4(169, 254, 170, 2), 32, "metadata" },
	{ V4(100, 100, 100, 200), 32, "metadata" },
	{ V4(168, 63, 129, 16), 32, "metadata" },
	{ V4(0, 0, 0, 0), 8, "unspecified" },
	{ V4(10, 0, 0, 0), 8, "private" },
	{ V4(100, 64, 0, 0), 10, "carrier-private" },
	{ V4(127, 0, 0, 0), 8, "loopback" },
	{ V4(169, 254, 0, 0), 16, "link-local" },
	{ V4(172, 16, 0, 0), 12, "private" },
	{ V4(192, 0, 0, 0), 24, "reserved" },
	{ V4(192, 0, 2, 0), 24, "documentation" },
	{ V4(192, 88, 99, 0), 24, "6to4" },
	{ V4(192, 168, 0, 0), 16, "private" },
	{ V4(198, 18, 0, 0), 15, "benchmark" },
	{ V4(198, 51, 100, 0), 24, "documentation" },
	{ V4(203, 0, 113, 0), 24, "documentation" },
	{ V4(224, 0, 0, 0), 4, "multicast" },
	{ V4(240, 0, 0, 0), 4, "reserved" },
};

struct range6 {
	uint8_t net[16];
	unsigned bits;
	const char *kind;
};

static const struct range6 ranges6[] = {
	{ { [15] = 1 }, 128, "loopback" },
	{ { 0 }, 128, "unspecified" },
	{ { [10] = 0xff, [11] = 0xff }, 96, "mapped" },
	{ { 0 }, 96, "IPv4-compatible" },
	{ { 0x00, 0x64, 0xff, 0x9b }, 32, "NAT64" },
	{ { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54 }, 128, "metadata" },
	{ { 0xfc }, 7, "private" },
	{ { 0xfe, 0x80 }, 10, "link-local" },
	{ { 0xfe, 0xc0 }, 10, "site-local" },
	{ { 0xff }, 8, "multicast" },
	{ { 0x20, 0x02 }, 16, "6to4" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, "Teredo" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 23, "reserved" },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, "documentation" },
	{ { 0x3f, 0xff }, 20, "documentation" },
};

/* Known only once the worker runs, and asked on its loop. */
static pthread_mutex_t closed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct subnets closed;

static const uint8_t global_unicast[16] = { 0x20 };

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;
	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static const char *kind4(uint32_t a)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges4); i++)
		if ((a ^ ranges4[i].net) >> (32 - ranges4[i].bits) == 0)
			return ranges4[i].kind;
	return NULL;
}

static const char *kind6(const uint8_t *a)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges6); i++)
		if (same_bits(a, ranges6[i].net, ranges6[i].bits))
			return ranges6[i].kind;
	return same_bits(a, global_unicast, 3) ? NULL : "reserved";
}

const char *address_kind(const struct sockaddr *sa)
{
	const struct address *a = (const void *)sa;
	if (sa->sa_family == AF_INET)
		return kind4(ntohl(a->sa.v4.sin_addr.s_addr));
	if (sa->sa_family == AF_INET6)
		return kind6(a->sa.v6.sin6_addr.s6_addr);
	return "unknown";
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct address *x = (const void *)a, *y = (const void *)b;
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return x->sa.v4.sin_addr.s_addr == y->sa.v4.sin_addr.s_addr;
	return a->sa_family == AF_INET6 && memcmp(&x->sa.v6.sin6_addr, &y->sa.v6.sin6_addr, sizeof(x->sa.v6.sin6_addr)) == 0;
}

bool address_own(const struct sockaddr *sa)
{
	struct ifaddrs *all = NULL;
	bool own = false;
	/* When the kernel does not say, nothing is known to be foreign. */
	if (getifaddrs(&all) != 0)
		return true;
	for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next)
		own = i->ifa_addr && same_host(i->ifa_addr, sa);
	freeifaddrs(all);
	return own;
}

void addresses_close(const char *list)
{
	struct subnets fresh;
	if (subnets_parse("the controller's addresses", list, &fresh, NULL) != 0)
		return;
	pthread_mutex_lock(&closed_lock);
	struct subnets old = closed;
	closed = fresh;
	pthread_mutex_unlock(&closed_lock);
	subnets_done(&old);
}

static bool is_closed(const char *host)
{
	pthread_mutex_lock(&closed_lock);
	bool yes = subnets_hold(&closed, host);
	pthread_mutex_unlock(&closed_lock);
	return yes;
}

const char *address_refused(const struct sockaddr *sa, const struct subnets *open)
{
	char host[ADDRESS_TEXT_MAX];
	const char *kind = address_kind(sa);
	address_host(sa, host);
	/* A mapped one reads like the address it stands for: nothing opens it, since nobody needs it. */
	if (subnets_hold(open, host) && !(sa->sa_family == AF_INET6 && strchr(host, '.')))
		return NULL;
	if (kind)
		return kind;
	return address_own(sa) ? "the worker's own" : is_closed(host) ? "the controller's" : NULL;
}

void addresses_refused_text(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(ranges4); i++) {
		uint32_t a = ranges4[i].net;
		buf_addf(out, "%s%u.%u.%u.%u/%u", i ? ", " : "", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255, ranges4[i].bits);
	}
}
