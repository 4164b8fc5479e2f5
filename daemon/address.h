/* Addresses of the configuration: where to listen, which networks are trusted. Numbers only: names would need a resolver. */
#ifndef SANDBOX_DAEMON_ADDRESS_H
#define SANDBOX_DAEMON_ADDRESS_H

#include "shared/base/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ADDRESS_TEXT_MAX = 64 };

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} sa;
	socklen_t len;
};

/* "127.0.0.1:PORT", "[::]:PORT" or "localhost:PORT". `what` names the value in the message. */
int address_parse(const char *what, const char *text, struct address *ret, struct error *err);
bool address_loopback(const struct address *a);
/* The numeric host without port or brackets; a mapped IPv6 address as the IPv4 one it stands for. "" for other families. */
void address_host(const struct sockaddr *sa, char out[static ADDRESS_TEXT_MAX]);

/* "10.0.0.0/8, ::1": networks, comma separated. */
struct subnet {
	uint8_t bytes[16]; /* IPv4 as mapped IPv6 */
	unsigned bits;     /* of 128 */
};
struct subnets {
	struct subnet *items;
	size_t len;
};
int subnets_parse(const char *what, const char *text, struct subnets *ret, struct error *err);
void subnets_done(struct subnets *n);
/* host: a numeric address as of address_host; false for anything else. */
bool subnets_hold(const struct subnets *n, const char *host);

#endif
