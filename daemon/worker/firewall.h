/*
 * The rules that open networks live by, one nftables table of this worker's for all of them: whatever comes from one of their interfaces may
 * go to public addresses and to the resolvers, nothing that is not an answer comes in, and nothing reaches this machine or another sandbox.
 * Sandboxes are told by the names of their interfaces, so the rules are there before any of them. Job threads and the maintainer only.
 */
#ifndef SANDBOX_DAEMON_WORKER_FIREWALL_H
#define SANDBOX_DAEMON_WORKER_FIREWALL_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { FIREWALL_NAME_MAX = 32, FIREWALL_PROBE_PORT = 9 };

struct firewall_terms {
	const char *table;    /* its name */
	const char *prefix;   /* interfaces PREFIX* are sandboxes' */
	const char *pool;     /* their addresses, a.b.c.d/n */
	const char *resolvers; /* IPv4 addresses, by commas; may be empty */
	const char *opened;   /* IPv4 networks reached although they are not public, by commas; may be empty */
	const char *closed;   /* IPv4 networks that are not reached although they are public; may be empty */
};
/* The whole table as nft reads it, replacing one that is there in one step. */
void firewall_text(const struct firewall_terms *t, struct buf *out);
/* Puts it in force, and lets the engine's own chain for such rules, when there is one, pass what it has let through. */
int firewall_apply(const struct firewall_terms *t, struct error *err);
/* Whether it is still there: another program may have flushed it. */
bool firewall_there(const char *table);

struct firewall_counts {
	uint64_t refused; /* packets from sandboxes that were to go where they may not */
	uint64_t probes;  /* those to UDP port FIREWALL_PROBE_PORT that every rule of this machine let through; they are dropped there */
};
int firewall_counts(const char *table, struct firewall_counts *ret, struct error *err);

#endif
