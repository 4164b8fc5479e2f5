/*
 * The thread that carries bytes between the network's forms and plain streams: TLS (front.h) and WebSocket (wsbridge.h). An
 * event loop of its own, so that cryptography and masking delay no command.
 */
#ifndef SANDBOX_DAEMON_API_CARRIER_H
#define SANDBOX_DAEMON_API_CARRIER_H

#include "shared/base/error.h"

struct carrier;
struct event_base;

int carrier_start(struct carrier **ret, struct error *err);
struct event_base *carrier_base(const struct carrier *c);
/* Ends the thread; what hangs on the base is to be freed before carrier_free. NULL is fine. */
void carrier_stop(struct carrier *c);
void carrier_free(struct carrier *c);
/* 64 KiB for whatever callback runs now. */
enum { CARRIER_PIECE = 64 * 1024 };
char *carrier_scratch(const struct carrier *c);

#endif
