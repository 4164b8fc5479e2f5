/* Other controllers, inside: peers.c (dialling them), peers_serve.c (what they ask). */
#ifndef SANDBOX_DAEMON_LINK_PEERS_PRIV_H
#define SANDBOX_DAEMON_LINK_PEERS_PRIV_H

#include "daemon/link/link_priv.h"
#include "daemon/link/peers.h"

#include <pthread.h>

enum { PEERS_MAX = 64 };

/* Another controller that is dialled. As long as the peers. */
struct peer_link {
	struct peers *all;
	struct peer_link *next; /* the looking thread's; never removed */
	char *url;
	struct caller_link *calls; /* its own, to see that it is there */
	pthread_t thread;
	bool alive;                 /* under the lock */
	struct muxconn *conn;       /* loop thread, and what follows */
	struct remote_node **nodes; /* whose links it has */
	size_t n_nodes;
};

/* A node's link is there now; at NULL: here, or nowhere. */
struct placed {
	struct remote_node *node;
	struct peer_link *at, *first;
};

/* A connection from another one; loop thread. */
struct visitor;

struct peers {
	struct peers_options o;
	char *secret;
	pthread_t thread;
	bool started;
	int interrupt_fd;
	struct peer_link *first;
	struct idmap places;        /* of the looking thread: node → url of another controller */
	struct visitor *visitors;   /* loop thread */
	struct event *ev_silence;
	pthread_mutex_t lock;       /* guards what follows, and `alive` */
	pthread_cond_t changed;
	bool stopping;
};

static inline void peer_forget(struct peer_link *x, const struct remote_node *n)
{
	for (size_t i = 0; i < x->n_nodes; i++)
		if (x->nodes[i] == n)
			x->nodes[i--] = x->nodes[--x->n_nodes];
}

/* peers_serve.c */
void peers_listen(struct peers *p);
void peers_deafen(struct peers *p);  /* the loop runs */
void peers_hang_up(struct peers *p); /* it has ended */

#endif
