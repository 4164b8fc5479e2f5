/* Which addresses a sandbox may be connected to: public ones of the Internet that are not this machine's own. Any thread. */
#ifndef SANDBOX_DAEMON_EGRESS_ADDRESSES_H
#define SANDBOX_DAEMON_EGRESS_ADDRESSES_H

#include "daemon/address.h"
#include "shared/base/buf.h"

/* The kind of an address that is not public ("private", "link-local", "metadata", …); NULL for a public one. Addresses that carry another
 * inside (mapped, 6to4, NAT64, Teredo) are never public. */
const char *address_kind(const struct sockaddr *sa);
/* One of this machine's interfaces has it now. */
bool address_own(const struct sockaddr *sa);
/* More that are refused, numeric addresses by commas, replacing those said before: the controller's, when it is elsewhere. */
void addresses_close(const char *list);
/* The networks of IPv4 that are not public, "a.b.c.d/n, …". */
void addresses_refused_text(struct buf *out);
/* Why it is refused, NULL: it may be used. open: networks that the server's policy opens all the same. */
const char *address_refused(const struct sockaddr *sa, const struct subnets *open);

#endif
