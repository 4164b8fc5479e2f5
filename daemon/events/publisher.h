/*
 * The publisher: gives the outbox to NATS, when that is configured. At least once, in the order in which events became true, the
 * event's id as message id (Nats-Msg-Id). Nothing waits for it: while NATS is away events stay in the store, and it catches up.
 */
#ifndef SANDBOX_DAEMON_EVENTS_PUBLISHER_H
#define SANDBOX_DAEMON_EVENTS_PUBLISHER_H

#include "daemon/controller/controller.h"
#include "shared/base/error.h"

struct daemon_config;
struct publisher;

/* *ret is NULL without events.nats_url. ERR_UNAVAILABLE when the library is not installed. */
int publisher_start(struct controller *c, const struct daemon_config *config, struct publisher **ret, struct error *err);
void publisher_stop(struct publisher *p);

#endif
