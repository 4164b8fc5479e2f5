/* Inside of the API server, shared by its files: listeners, slow work, waiting connections. */
#ifndef SANDBOX_DAEMON_API_SERVER_H
#define SANDBOX_DAEMON_API_SERVER_H

#include "daemon/api/api.h"
#include "daemon/api/origin.h"
#include "daemon/api/request.h"

#include <pthread.h>
#include <stdatomic.h>

struct MHD_Daemon;
struct bridges;
struct carrier;
struct front;
struct stream;
struct event_streams;

struct listener {
	struct api *api;
	bool tcp;
	bool loopback;       /* TCP: reachable from this machine alone */
	bool tls;            /* TCP; known before the first request, which front is not */
	uint16_t port;       /* TCP */
	struct front *front; /* TLS: it accepts; fd is -1 */
	int fd;
	struct MHD_Daemon *mhd;
	/* Of the unix socket, so that at the end only our own file is removed. */
	char *path;
	dev_t dev;
	ino_t ino;
};

enum { API_LISTENERS_MAX = 2 };

struct api {
	struct api_options o;
	struct listener listeners[API_LISTENERS_MAX];
	size_t n_listeners;
	pthread_mutex_t lock;
	pthread_cond_t idle;    /* one of the counts below became 0 */
	unsigned jobs;          /* threads doing slow work */
	unsigned suspended;     /* requests not on a server thread, or whose answer is not out yet */
	bool stopping;
	atomic_uint connections;
	atomic_bool crowded;     /* there were many since the last time there were none */
	/* The configuration's own texts may change under a reload. */
	char profile[32];
	struct origins origins;
	struct poll_wait *polls; /* waiting long polls */
	struct stream *streams;  /* open line streams */
	struct event_streams *events;
	struct carrier *carrier; /* with the first TCP listener */
	struct bridges *bridges; /* WebSocket connections */
	int64_t refusal_second;  /* in which … */
	unsigned refusals;       /* … so many refusals of unknown callers were noted */
};

/* Slow work: a thread with a small stack, counted. fn must not outlive what it uses without counting. ERR_RATE_LIMITED when
 * too many run, ERR_UNAVAILABLE when the daemon stops. */
int api_thread(struct api *a, void *(*fn)(void *), void *arg, struct error *err);
void api_thread_end(struct api *a); /* the last thing such a thread does */

/* Open streams of events: see handlers_events.c. */
struct event_streams *events_new(const struct api_options *o);
unsigned events_count(struct event_streams *all);
void events_stop(struct event_streams *all); /* each ends */
void events_free(struct event_streams *all, struct controller *c);

void api_suspended(struct api *a, int change);
bool api_stopping(struct api *a);
void api_profile(struct api *a, char ret[static 32]);
/* May one more refusal of an unknown caller go into the audit log now? */
bool api_refusal_budget(struct api *a);
/* Is this Host one of the listener's names? */
bool api_host_allowed(struct api *a, const struct listener *l, const char *host);
/* The client's address, behind trusted proxies too: see origins_client. */
void api_client_address(struct api *a, const char *peer, const char *forwarded_for, char out[static ADDRESS_TEXT_MAX]);

#endif
