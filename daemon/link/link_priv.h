/* The controller's end of links, inside: link_server.c (connections), link_calls.c (what workers ask), node_port_remote.c (what is asked of them). */
#ifndef SANDBOX_DAEMON_LINK_LINK_PRIV_H
#define SANDBOX_DAEMON_LINK_LINK_PRIV_H

#include "daemon/link/call.h"
#include "daemon/link/link_server.h"
#include "daemon/worker/idmap.h"
#include "daemon/worker/muxconn.h"

#include <pthread.h>
#include <stdatomic.h>

struct event;

/* One connection. */
struct node_link {
	struct link_server *s;
	struct node_link *prev, *next; /* loop thread */
	struct muxconn *conn;          /* loop thread; NULL: gone */
	struct id node;
	char who[128], from[64];
	atomic_int refs;
	_Atomic int64_t heard_ms;      /* monotonic */
	_Atomic int64_t epoch;         /* 0: it has not greeted */
};

/* What stays of a node while the daemon runs. */
struct remote_node {
	struct node_port port;
	struct link_server *s;
	struct caller_link *calls;
	struct node_link *current; /* loop thread; NULL: no link */
	bool ready;                /* loop thread: streams may be opened */
	struct mux *via_mux;       /* loop thread: the connection to the controller that has its link; NULL: none */
	atomic_bool reachable;     /* one of the two ways is open; for other threads */
	atomic_bool notified;      /* a word about work is on its way */
};

struct link_server {
	struct link_server_options o;
	struct call_pool *pool;
	struct node_link *links;   /* loop thread */
	struct event *ev_silence;
	pthread_mutex_t lock;      /* guards nodes */
	struct idmap nodes;        /* id → struct remote_node */
	bool stopping;             /* loop thread */
};

void link_unref(struct node_link *l);
/* The node's state, made when it is the first link. Any thread. */
struct remote_node *remote_node_find(struct link_server *s, const struct id *node); /* NULL: there was none */
/* Loop thread: the connection to another controller that has its link; NULL: none. */
void remote_node_via(struct remote_node *n, struct mux *m);
struct remote_node *remote_node_get(struct link_server *s, const struct id *node, const char *name);

/* link_calls.c: answers what a worker asks. A call_handler; ctx is the struct node_link. */
int link_answer(void *ctx, struct call_in *c, struct buf *answer, struct error *err);
/* Posts to the loop: the link greeted, or is ready for streams. */
void link_greeted(struct node_link *l, struct remote_node *n);
void link_ready(struct node_link *l, struct remote_node *n);

/* node_port_remote.c */
extern const struct node_ops remote_node_ops;
/* Loop thread: tells the worker that there may be work. */
void remote_node_notify(struct remote_node *n);

#endif
