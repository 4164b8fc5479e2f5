/* What is used of libnats, loaded only when it is configured: an idle daemon does not carry it. */
#ifndef SANDBOX_DAEMON_EVENTS_NATS_H
#define SANDBOX_DAEMON_EVENTS_NATS_H

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct nats;

struct nats_options {
	const char *url;         /* several by commas */
	const char *credentials; /* file of a user's JWT and seed; NULL or "": none */
	const char *ca;          /* file of certificates a tls:// server must have; NULL or "": the system's */
};

/* Connects in the background, again and again, with jitter. ERR_UNAVAILABLE: no library; ERR_INVALID: the options. */
int nats_open(const struct nats_options *o, struct nats **ret, struct error *err);
void nats_close(struct nats *n);
bool nats_connected(struct nats *n);
/* Queues one message. */
int nats_publish(struct nats *n, const char *subject, const char *id, const char *text, struct error *err);
/* 0: the server has all that was published. */
int nats_flush(struct nats *n, int64_t timeout_ms, struct error *err);

#endif
