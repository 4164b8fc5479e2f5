/*
 * Network `open`: a sandbox's network namespace gets one interface, the end of a pair whose other end is this machine's, and the rules of
 * firewall.h say where its packets go. Nothing of it has to be taken away: the pair goes with the namespace. Offered only after a probe has
 * seen the rules hold. Job threads and the maintainer only.
 */
#ifndef SANDBOX_DAEMON_WORKER_OPEN_NET_H
#define SANDBOX_DAEMON_WORKER_OPEN_NET_H

#include "daemon/config.h"
#include "shared/base/id.h"

#include <stdbool.h>
#include <sys/types.h>

struct open_net;

struct open_net *open_net_new(const struct daemon_config *config, const struct id *node);
void open_net_free(struct open_net *o); /* rules stay: sandboxes go on */

/* Puts the rules in force and sends packets through them, unless it is not configured. ret_reason: what was seen, or why it is not offered. */
bool open_net_probe(struct open_net *o, char *ret_reason, size_t n);
/* What a sandbox's /etc/resolv.conf says. */
void open_net_resolv(const struct open_net *o, struct buf *out);
/* Gives the namespace of a process its interface; nothing when it has one. */
int open_net_join(struct open_net *o, const struct id *sandbox, pid_t pid, struct error *err);
/* Puts rules back that another program took away, when there are sandboxes that live by them. */
void open_net_check(struct open_net *o);

#endif
