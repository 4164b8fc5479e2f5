/*
 * The worker's end of its link: dials the controller, greets, asks, and serves what the controller asks by this process's own port.
 * It keeps dialling, with pauses that grow and differ, as long as it runs.
 */
#ifndef SANDBOX_DAEMON_LINK_UPLINK_H
#define SANDBOX_DAEMON_LINK_UPLINK_H

#include "daemon/link/node_port.h"
#include "daemon/link/upstream.h"

struct daemon_config;
struct mailbox;
struct muxloop;
struct uplink;

struct uplink_options {
	const struct daemon_config *config;
	struct muxloop *loop;
	struct mailbox *mail;
	struct id node;
};

/* Has or gets a credential: joins with the join token when there is none (waits for a controller that does not answer; a signal ends
 * that). ERR_UNAUTHORIZED, ERR_FORBIDDEN, ERR_CONFLICT: the controller refused; ERR_INVALID: nothing to join with. */
int uplink_new(const struct uplink_options *o, struct uplink **ret, struct error *err);
/* As long as the uplink. Its free does nothing. */
struct upstream *uplink_upstream(struct uplink *u);
/* Begins to dial; what the controller asks goes to own. */
int uplink_start(struct uplink *u, struct node_port *own, struct error *err);
/* Ends the link and the thread (the loop runs). Calls that wait fail. */
void uplink_stop(struct uplink *u);
void uplink_free(struct uplink *u); /* after the loop ended */
/* For doctor: one line of how the link stands. True: it is up. */
bool uplink_describe(struct uplink *u, char *ret, size_t n);

#endif
