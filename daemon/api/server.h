/* Inside of the API server, shared by its files: listeners, slow work, waiting connections. */
#ifndef SANDBOX_DAEMON_API_SERVER_H
#define SANDBOX_DAEMON_API_SERVER_H

#include "daemon/api/api.h"
#include "daemon/api/request.h"

#include <pthread.h>
#include <stdatomic.h>

struct MHD_Daemon;
struct stream;

struct listener {
	struct api *api;
	bool tcp;
	uint16_t port; /* TCP */
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
	char profile[32];        /* the policy's; the configuration's own text may change under a reload */
	struct poll_wait *polls; /* waiting long polls */
	struct stream *streams;  /* open line streams */
};

/* Slow work: a thread with a small stack, counted. fn must not outlive what it uses without counting. ERR_RATE_LIMITED when
 * too many run, ERR_UNAVAILABLE when the daemon stops. */
int api_thread(struct api *a, void *(*fn)(void *), void *arg, struct error *err);
void api_thread_end(struct api *a); /* the last thing such a thread does */

void api_suspended(struct api *a, int change);
bool api_stopping(struct api *a);
void api_profile(struct api *a, char ret[static 32]);

#endif
