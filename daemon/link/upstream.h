/*
 * What a worker needs of its controller: in the same process, or at the other end of a link. The only way from a worker to a
 * controller. All calls may come from any thread but the event loop's, except exec_end; they may wait for the network, and then
 * fail with ERR_UNAVAILABLE when the controller does not answer.
 */
#ifndef SANDBOX_DAEMON_LINK_UPSTREAM_H
#define SANDBOX_DAEMON_LINK_UPSTREAM_H

#include "daemon/controller/controller.h"
#include "shared/crypto/secret_values.h"
#include "shared/model/egress.h"

struct upstream;

/* Called once, on the event loop thread, maybe before exec_end returns. err NULL: it is recorded. */
typedef void (*upstream_done)(void *ctx, const struct id *operation, const struct error *err);

/* How a command ended: what controller_exec_end wants to know. */
struct exec_report {
	struct id operation;
	const struct result *result; /* NULL: it was not started */
	enum error_code code;
	const char *error;           /* NULL: none */
};

/* As the functions of the same name in controller.h, where nothing else is said. */
struct upstream_ops {
	/* False: nobody can be asked now. */
	bool (*connected)(struct upstream *u);
	/* fn runs (any thread but the loop's) each time the controller can be asked again, before it sends any work or stream. */
	void (*on_connect)(struct upstream *u, int (*fn)(void *ctx, struct error *err), void *ctx);
	int (*heartbeat)(struct upstream *u, const struct node_report *r, struct error *err);
	int (*lease)(struct upstream *u, const struct id *node, struct lease *ret, struct error *err);
	void (*on_work)(struct upstream *u, const struct id *node, void (*fn)(void *ctx), void *ctx);
	/* False also when nobody can be asked. */
	bool (*wants_delete)(struct upstream *u, const struct id *sandbox);
	/* The last known one when nobody can be asked. */
	int64_t (*deadline)(struct upstream *u, const struct id *sandbox);
	int (*complete)(struct upstream *u, const struct completion *done, struct error *err);
	void (*progress)(struct upstream *u, const struct id *operation, const char *text);
	int (*sandbox_gone)(struct upstream *u, const struct id *sandbox, const char *why, struct error *err);
	int (*desired)(struct upstream *u, const struct id *node, struct sandbox_list *ret_sandboxes, struct operation_list *ret_execs,
	               struct error *err);
	/* As controller_secret_values. */
	int (*secrets)(struct upstream *u, const struct id *node, const struct id *sandbox, struct secret_values *ret, struct error *err);
	/* As controller_registry_login_for. */
	int (*registry_login)(struct upstream *u, const struct id *node, const struct id *sandbox, struct secret *ret, struct error *err);
	/* As controller_egress_terms and controller_egress_denied; the latter does not wait for an answer. */
	int (*egress)(struct upstream *u, const struct id *node, const struct id *sandbox, struct egress_terms *ret, struct error *err);
	void (*egress_denied)(struct upstream *u, const struct id *sandbox, const char *detail);
	/* Once, when the worker starts. */
	int (*requeue)(struct upstream *u, const struct id *node, struct error *err);
	/* Event loop thread. What the report points at is not used after it returned. */
	void (*exec_end)(struct upstream *u, const struct exec_report *r, upstream_done done, void *ctx);
	void (*free)(struct upstream *u);
};

struct upstream {
	const struct upstream_ops *ops;
};

/* The controller of this process. */
struct upstream *upstream_local(struct controller *c);

#endif
