/*
 * The controller: authorisation, policy, AEGIS, durable records. It decides; it never touches a runtime.
 * All functions may be called from any thread; they take the store's lock for microseconds and never block on a
 * runtime or the network. The worker side of the interface is at the end: in role `all` the local worker calls it
 * directly, a remote one through its link.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_H
#define SANDBOX_DAEMON_CONTROLLER_H

#include "daemon/aegis/aegis.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/model/model.h"

struct controller;
struct store;
struct daemon_config;

/* Who asks, as established by the server. */
struct caller {
	enum role role;
	bool peer;                       /* another controller of the same store: it opens its connection, and nothing else */
	bool edge;                       /* the edge: it may dial what routes lead to, and nothing else */
	char tenant[TENANT_MAX_LEN + 1]; /* the tenant they act in by default */
	bool all_tenants;                /* admins */
	bool tenant_asked;               /* they named the tenant: lists, names and parts of ids are then of that one alone */
	char who[128];                   /* for audit and logs: "uid 1000", "token ci" */
	char from[64];                   /* the client's address, or "unix" */
	struct id node;                  /* a worker's credential: this node's; "": not one */
	char request_id[ID_TEXT_LEN + 1];
};

/* Moves an established caller to the tenant they asked for; NULL or "": they stay. ERR_INVALID, ERR_FORBIDDEN. */
int access_act_in(struct caller *who, const char *asked, struct error *err);

int controller_new(const struct daemon_config *config, struct store *store, struct controller **ret, struct error *err);
void controller_free(struct controller *c);
/* Takes over what of the configuration decides here (policy, longest lifetime, retention). Call it after daemon_config_reload. */
void controller_reload(struct controller *c, const struct daemon_config *config);
struct store *controller_store(struct controller *c);

/* --- operators --- */

struct create_result {
	struct sandbox sandbox;
	struct operation operation;
	struct decision decision; /* always filled, also when refused */
	bool replayed;            /* the idempotency key had been seen */
	struct map secrets;       /* of its tunnels' visitors, by tunnel id: told here alone */
	bool yielded;             /* refused, but what waits in a pool is being ended for it: it fits in a moment */
};
void create_result_init(struct create_result *r);
void create_result_done(struct create_result *r);

/* spec.tenant NULL or "": the caller's. explain_only: decide, store nothing (ids are empty). idempotency_key NULL: none.
 * ERR_INVALID, ERR_FORBIDDEN, ERR_CONFLICT (name taken, key reused with another body), ERR_NO_CAPACITY; on those two the
 * decision says why. */
int controller_create(struct controller *c, const struct caller *who, const struct spec *spec, bool explain_only,
                      const char *idempotency_key, struct create_result *ret, struct error *err);
/*
 * A create that waits while nothing fits. Those that wait are tried in the order of their coming whenever something was freed, and
 * before every create that comes meanwhile; one that does not fit yet does not hold up those behind it.
 * alive: is the client still there? done: it has an answer. Both run on any thread under a lock of the controller, and may call
 * nothing of it.
 */
struct create_wait;
struct create_waiter {
	const struct caller *who;   /* these three are copied */
	const struct spec *spec;
	const char *key;            /* NULL: none */
	bool (*alive)(void *ctx);
	void (*done)(void *ctx);    /* once */
	void *ctx;
};
/* ERR_RATE_LIMITED when too many wait. *ret is set before `done` can run. */
int controller_create_wait(struct controller *c, const struct create_waiter *from, struct create_wait **ret, struct error *err);
/* The answer as of controller_create; without one yet the last refusal, and then the place is kept for some seconds: the next wait with
 * the same tenant, key and spec takes it. ret NULL: given up. Neither hook runs after this. take_w may be NULL. */
int controller_create_end(struct controller *c, struct create_wait *take_w, struct create_result *ret, struct error *err);

/* --- warm pools --- */

struct pool_view {
	const char *name;
	const struct spec *spec;
	enum tier tier;         /* what policy makes of it */
	size_t size, ready, starting;
	int64_t max_age_ms;
	uint64_t claims, misses; /* since this daemon started, here */
	const char *why;        /* why it is not full; NULL: it is, or will be */
};
typedef void (*pool_view_fn)(void *ctx, const struct pool_view *v);
/* Calls fn for each configured pool, in the order of the configuration. */
int controller_pools(struct controller *c, pool_view_fn fn, void *ctx, struct error *err);

/* ref: id, exact name, unique prefix or suffix (≥ 4 digits) of an id, among what the caller may see; live first.
 * ERR_NOT_FOUND; ERR_CONFLICT when ambiguous (the message lists candidates). */
int controller_resolve(struct controller *c, const struct caller *who, const char *ref, struct sandbox *ret, struct error *err);

struct sandbox_list {
	struct sandbox *items;
	size_t len;
};
void sandbox_list_done(struct sandbox_list *l);
struct list_query {
	const char *tenant;  /* NULL: all the caller may see */
	bool all;            /* also ended ones (within their retention) */
	const struct map *labels; /* NULL or must match */
	size_t limit;        /* 0: all */
	const char *after;   /* id cursor, NULL: from the newest */
};
int controller_list(struct controller *c, const struct caller *who, const struct list_query *q, struct sandbox_list *ret, struct error *err);

/* Accepted in every state, idempotent: a second delete answers the operation of the first. */
int controller_delete(struct controller *c, const struct caller *who, const char *ref, struct operation *ret, struct error *err);
/* Moves the deadline later (or earlier: only this call may); from now. */
int controller_extend(struct controller *c, const struct caller *who, const char *ref, int64_t ttl_ms, struct sandbox *ret, struct error *err);
/* ref: the id, or its last digits (at least 4) when no other operation the caller sees ends so. */
int controller_operation(struct controller *c, const struct caller *who, const char *ref, struct operation *ret, struct error *err);
/* The node that an operation is, or was, on. ERR_NOT_FOUND. */
int controller_operation_node(struct controller *c, const struct id *operation, struct id *ret, struct error *err);
/* The same of a sandbox. */
int controller_sandbox_node(struct controller *c, const struct id *sandbox, struct id *ret, struct error *err);
struct operation_list {
	struct operation *items;
	size_t len;
};
void operation_list_done(struct operation_list *l);
/* sandbox_ref NULL: all visible. Newest first; limit 0: LIST_PAGE_MAX. Without captured output (`truncated` says so where
 * there was some). */
int controller_operations(struct controller *c, const struct caller *who, const char *sandbox_ref, size_t limit, struct operation_list *ret, struct error *err);

/* Calls fn once, from any thread, when the operation has ended (at once when it has). The watch is gone then.
 * controller_unwatch guarantees that fn does not run after it returned, and is true when it had not run. */
typedef void (*operation_watch)(void *ctx, const struct id *operation);
int controller_watch(struct controller *c, const struct id *operation, operation_watch fn, void *ctx, uint64_t *ret_watch, struct error *err);
bool controller_unwatch(struct controller *c, uint64_t watch);

/* A command about to be handed to the worker: checks the caller, the sandbox's state and deadline, writes the running
 * operation. The caller must then start it or call controller_exec_end. ERR_EXPIRED and ERR_NOT_FOUND told apart. */
struct exec_grant {
	struct id operation;
	struct id sandbox;
	struct id node;
	int64_t deadline_us;  /* the sandbox's, wall clock */
	bool writable_root;
};
int controller_exec_begin(struct controller *c, const struct caller *who, const char *sandbox_ref, const struct command *cmd,
                          struct exec_grant *ret, struct error *err);
/* The same for a request with an Idempotency-Key (NULL: none). *ret_seen: the key began this operation before, do not start
 * it again. ERR_CONFLICT when the key came with another command. */
struct exec_request {
	const char *sandbox;
	const struct command *command;
	const char *idempotency_key;
	bool detached; /* no client holds it */
	/* Asked before anything is recorded: can the node be told? NULL: yes. It must not wait. */
	int (*reachable)(void *ctx, const struct id *node, struct error *err);
	void *ctx;
};
int controller_exec_begin_once(struct controller *c, const struct caller *who, const struct exec_request *req, struct exec_grant *ret,
                               bool *ret_seen, struct error *err);
/* The command's end: the result (NULL: it was not started), with an error text for people (NULL: none). Succeeded only when it
 * exited with 0. Later calls for the same operation change nothing and return 0. On failure (the store) the row is still
 * running: call again. */
int controller_exec_end(struct controller *c, const struct id *operation, const struct result *result,
                        enum error_code code, const char *error, struct error *err);

/* --- workers --- */

struct node_report {
	struct id node;
	char name[NAME_MAX_LEN + 1];
	struct resources total;
	uint32_t max_sandboxes;
	double pressure; /* 0..1 */
	struct tier_offer_bits { bool offered; char reason[256]; } tiers[TIER_COUNT];
	bool network[NETWORK_COUNT];
	char network_reason[NETWORK_COUNT][256];
	struct map labels;
	char region[64];
};
int controller_heartbeat(struct controller *c, const struct node_report *r, struct error *err);

/* Work for a node. */
struct lease {
	struct id operation;
	enum op_kind kind;   /* CREATE or DELETE */
	uint32_t attempt;
	struct sandbox sandbox;
};
void lease_done(struct lease *l);
/* 1: *ret filled (the operation is now running); 0: nothing to do. */
int controller_lease(struct controller *c, const struct id *node, struct lease *ret, struct error *err);
/* Called (any thread) whenever a lease may be available for the node. One per node; NULL removes, and fn does not run after that.
 * fn runs under a lock of the controller: it only signals, and must not call the controller; nor may a lock that fn takes be
 * held while calling the controller. The same holds for controller_on_deadline. */
void controller_on_work(struct controller *c, const struct id *node, void (*fn)(void *ctx), void *ctx);
/* True when a delete of this sandbox is wanted: a long create asks between its steps and stops. */
bool controller_wants_delete(struct controller *c, const struct id *sandbox);
/* When a live sandbox is to end, wall clock; 0: not known. It moves: what was leased may be older. */
int64_t controller_deadline(struct controller *c, const struct id *sandbox);

struct completion {
	struct id operation;
	uint32_t attempt;      /* stale attempts are ignored: returns 0, changes nothing */
	bool success;          /* a delete that failed goes back to pending and is leased again after a pause */
	enum error_code code;  /* of a failure */
	const char *error;     /* of a failure */
	const char *image_digest; /* of a create, may be NULL */
};
int controller_complete(struct controller *c, const struct completion *done, struct error *err);
/* Records what a running create is doing ("pulling 40 %"), shown by the operation; never fails. */
void controller_progress(struct controller *c, const struct id *operation, const char *text);
/* A running sandbox ended by itself (its process 1 exited, was killed): state failed with this text, its commands are lost, the
 * reservation is free; past its deadline it is an expiry, which removes what is left. Changes nothing in other states. */
int controller_sandbox_gone(struct controller *c, const struct id *sandbox, const char *why, struct error *err);

/* All live sandboxes of a node, and its unfinished exec operations, for reconciliation. */
int controller_desired(struct controller *c, const struct id *node, struct sandbox_list *ret_sandboxes,
                       struct operation_list *ret_execs, struct error *err);
/* After a restart: running create/delete operations of the node go back to pending. The next lease is another attempt; a
 * completion of the old one is ignored. */
int controller_requeue(struct controller *c, const struct id *node, struct error *err);

/* Deadlines: enqueues deletes (reason expired) for what is due, wakes workers for removals to be tried again, drops what is past
 * its retention. Returns the wall-clock us of the next deadline, 0: none. */
int64_t controller_reap(struct controller *c);
/* Called (any thread) when the next deadline may have moved earlier: it is after_us from now, 0: there is something to do at once. */
void controller_on_deadline(struct controller *c, void (*fn)(void *ctx, int64_t after_us), void *ctx);

/* Called (any thread) when events may have been added, until controller_off_event(ctx); otherwise as controller_on_work. */
void controller_on_event(struct controller *c, void (*fn)(void *ctx), void *ctx);
void controller_off_event(struct controller *c, void *ctx);

/* Everything it counts, in the text format of Prometheus. A store that does not answer leaves its own figures out. */
void controller_metrics(struct controller *c, struct buf *out);

/* --- events --- */

/* What happened to sandboxes and operations, in the order in which it became true; kept as long as records are. */
struct event_view {
	struct id id;
	const char *type;
	const char *tenant;
	struct id sandbox, operation; /* operation "": none */
	const char *detail, *actor;   /* NULL: none */
	int64_t created_us;
};
typedef void (*event_view_fn)(void *ctx, const struct event_view *e);
/* Calls fn for each event after *cursor ("": from the oldest) that the caller may see, among the next EVENTS_PAGE; *cursor is then the
 * last one read, seen or not. Returns how many were read; 0: there are no more. -1: error. */
enum { EVENTS_PAGE = 200 };
int controller_events(struct controller *c, const struct caller *who, struct id *cursor, event_view_fn fn, void *ctx, struct error *err);
/* How far the reader of this name has come ("": not begun), kept in the store. */
int controller_mark_get(struct controller *c, const char *name, struct id *ret, struct error *err);
int controller_mark_put(struct controller *c, const char *name, const struct id *event, struct error *err);
/* Whether this daemon does what only one of those on a store should. */
bool controller_leads(struct controller *c);
/* The newest event, "" when there is none. */
int controller_last_event(struct controller *c, struct id *ret, struct error *err);

#endif
