/*
 * What the API and a controller need of a node's worker: in the same process, or at the other end of a link. The only way from a
 * controller to a worker. A table finds the port of the node that a sandbox is on.
 */
#ifndef SANDBOX_DAEMON_LINK_NODE_PORT_H
#define SANDBOX_DAEMON_LINK_NODE_PORT_H

#include "daemon/controller/controller.h"
#include "daemon/runtime/runtime.h"
#include "daemon/worker/worker.h"
#include "shared/mux/mux.h"

enum { STREAM_OWNER_MAX = 191 };

struct muxconn;
struct node_port;

/* A stream towards a node as the server established it: never what a client wrote. */
struct node_stream {
	enum mux_kind kind;
	struct id sandbox;
	struct muxconn *conn;             /* the client's connection; NULL: no client */
	const struct id *node;            /* through another controller: whose worker it is for; NULL: the one at the other end */
	char owner[STREAM_OWNER_MAX + 1]; /* who may resume it: tenant and caller */
	/* EXEC */
	const struct exec_grant *grant;
	const struct command *command;
	unsigned flags;                   /* of enum mux_open_flag, beyond what the command says */
	bool detached;
	/* RESUME, ATTACH */
	const struct operation *operation; /* NULL: the sandbox's start command */
	uint64_t from[2];                  /* offsets of stdout and stderr */
	bool times;                        /* ATTACH: tell when bytes arrived */
	int64_t since_us;                  /* ATTACH: only what arrived then or later; 0: all */
	/* the others */
	const struct tlv *fields;          /* for sandbox-init, the kind among them */
};

struct node_ops {
	/* Answers the client's stream, now or later. -1: nothing was done to it, err says why. Event loop thread only. */
	int (*open)(struct node_port *n, struct mux *client, uint32_t stream, const struct node_stream *what, struct error *err);

	/* Any thread; they do not wait. ERR_UNAVAILABLE: commands cannot be handed to it now. */
	int (*reachable)(struct node_port *n, struct error *err);
	/* A granted command without a reader: it always ends, at least as not started. */
	void (*start_detached)(struct node_port *n, const struct exec_grant *grant, const struct command *cmd);
	void (*deadline_moved)(struct node_port *n, const struct id *sandbox);

	/* May the node pull this? Does not wait. NULL: only the pull itself tells. */
	int (*image_allowed)(struct node_port *n, const char *name, struct error *err);

	/* Any thread but the event loop's; they may wait. */
	int (*cancel)(struct node_port *n, const struct id *operation, int signal, struct error *err);
	/* As worker_network and worker_network_changed. */
	int (*network)(struct node_port *n, const struct id *sandbox, const char *target, cJSON **ret, struct error *err);
	void (*network_changed)(struct node_port *n, const struct id *sandbox);
	int (*stats)(struct node_port *n, const struct id *sandbox, struct runtime_stats *ret, struct error *err);
	size_t (*checks)(struct node_port *n, struct check_row *ret, size_t max);
	int (*leaks)(struct node_port *n, worker_leak_fn fn, void *ctx, struct error *err);
	int (*reconcile)(struct node_port *n, struct error *err);
	int (*image_list)(struct node_port *n, struct image_list *ret, struct error *err);
	int (*image_remove)(struct node_port *n, const char *name, struct error *err);
	/* ret: the one image. */
	int (*image_pull)(struct node_port *n, const struct image_pull *p, struct image_list *ret, struct error *err);
	/* As worker_image_save, _mark, _load. */
	int (*image_save)(struct node_port *n, const char *name, image_sink sink, void *ctx, struct error *err);
	int (*image_mark)(struct node_port *n, const char *name, struct error *err);
	int (*image_load)(struct node_port *n, const char *name, int fd, struct image_list *ret, struct error *err);
	int (*image_import)(struct node_port *n, const char *name, int fd, struct image_list *ret, struct error *err);
};

struct node_port {
	const struct node_ops *ops;
	struct id id;
	char name[NAME_MAX_LEN + 1];
};

/* The worker of this process. */
struct node_port *node_port_local(struct worker *w, struct execs *e, const struct id *node, const char *name);
void node_port_local_free(struct node_port *n);

/* --- the table; any thread. A port, once added, stays valid until the table is freed. --- */

struct node_ports;
struct node_ports *node_ports_new(void);
void node_ports_free(struct node_ports *all); /* not the ports */
void node_ports_add(struct node_ports *all, struct node_port *n);
/* No longer found; the port itself stays. */
void node_ports_remove(struct node_ports *all, const struct id *node);
/* ERR_UNAVAILABLE: this node is not connected. */
struct node_port *node_ports_find(struct node_ports *all, const struct id *node, struct error *err);
/* Of struct exec_request; ctx is the table. */
int node_ports_reachable(void *all, const struct id *node, struct error *err);
/* By name or id; NULL: the only one there is. ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_INVALID when one must be named. */
struct node_port *node_ports_named(struct node_ports *all, const char *name, struct error *err);
/* Copies at most max; returns how many there are. */
size_t node_ports_list(struct node_ports *all, struct node_port **ret, size_t max);

#endif
