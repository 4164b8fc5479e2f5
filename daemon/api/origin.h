/* Where a TCP request comes from and whom it meant: the client's address behind trusted proxies, and the Host it named. */
#ifndef SANDBOX_DAEMON_API_ORIGIN_H
#define SANDBOX_DAEMON_API_ORIGIN_H

#include "daemon/address.h"
#include "shared/base/buf.h"

struct origins {
	struct subnets proxies;
	struct strv hosts;
};

int origins_parse(const char *proxies, const char *hosts, struct origins *ret, struct error *err);
void origins_done(struct origins *o);

struct listener;
/* May a request to this listener carry this Host? */
bool origins_host_allowed(const struct origins *o, const struct listener *l, const char *host);
/* The client: the peer, or when that is a trusted proxy the last address of the X-Forwarded-For list that is not one. Never
 * anything that is no address. */
void origins_client(const struct origins *o, const char *peer, const char *forwarded_for, char out[static ADDRESS_TEXT_MAX]);

#endif
