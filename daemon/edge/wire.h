/*
 * Between a daemon and an edge in a process of its own, on a unix socket. The edge says what a connection is for by its first line:
 * EDGE_WIRE_STREAMS, after which mux follows, or EDGE_WIRE_ROUTES, after which the daemon tells all routes, again whenever they change, in
 * lines of words:
 *
 *   table GENERATION
 *   route TUNNEL LABEL TARGET PORT AUTH HOST HASH     AUTH none|token|password, HOST keep|rewrite, HASH - without
 *   end GENERATION
 *
 * and the edge answers each table that is in force with "have GENERATION". Each second it says what it is and did:
 *
 *   about VERSION REQUESTS REFUSED FAILED CERTIFIED UNCERTIFIED CONNECTIONS
 */
#ifndef SANDBOX_DAEMON_EDGE_WIRE_H
#define SANDBOX_DAEMON_EDGE_WIRE_H

#include "daemon/edge/edge.h"
#include "shared/base/buf.h"

#define EDGE_WIRE_ROUTES "routes 1"
#define EDGE_WIRE_STREAMS "streams 1"
enum { EDGE_WIRE_LINE_MAX = 512 };

void edge_wire_add_route(struct buf *out, const struct edge_route *r);
/* A line without its end. -1: no such line. */
int edge_wire_route(const char *line, struct edge_route *ret);
/* "WORD NUMBER", the number above 0. -1: something else. */
int edge_wire_number(const char *line, const char *word, uint64_t *ret);
struct edge_about {
	char version[32];
	struct edge_stats stats;
};
void edge_wire_add_about(struct buf *out, const struct edge_about *a);
int edge_wire_about(const char *line, struct edge_about *ret);
/* The first line of `in`, taken from it, its end cut off; NULL: none is complete. The caller frees. */
char *edge_wire_line(struct buf *in);

#endif
