/*
 * Nodes as people and links see them: joining, credentials, links with their epochs, draining, removal. Any thread.
 *
 * A join token lets one worker join once, under the name it was made for. The worker then has a credential of its own, of which the
 * store knows the hash: it opens links for this node and does nothing else.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_FLEET_H
#define SANDBOX_DAEMON_CONTROLLER_FLEET_H

#include "daemon/controller/controller.h"
#include "daemon/store/fleet.h"

enum { NODE_SECRET_LEN = 4 + 64, JOIN_LIFETIME_MS = 3600 * 1000 };

#define NODE_SECRET_PREFIX "sbn_"
#define JOIN_SECRET_PREFIX "sbj_"

/* --- people --- */

struct node_info {
	struct node_identity identity;
	char region[64];
	struct resources total, used;
	uint32_t max_sandboxes;
	int64_t seen_us;
	bool up;          /* heard of lately */
	double pressure;
	struct tier_offer_bits tiers[TIER_COUNT];
	bool network[NETWORK_COUNT];
	struct map labels;
};
struct node_info_list {
	struct node_info *items;
	size_t len;
};
void node_info_list_done(struct node_info_list *l);
/* ref: name or id; NULL: all, by id. ERR_NOT_FOUND. */
int controller_nodes(struct controller *c, const struct caller *who, const char *ref, struct node_info_list *ret, struct error *err);
/* A draining node keeps what it has and gets nothing new. */
int controller_node_drain(struct controller *c, const struct caller *who, const char *ref, bool draining, struct id *ret, struct error *err);
/* Its credential is worth nothing afterwards. ERR_CONFLICT while it holds sandboxes, unless force: those are failed then, their
 * commands lost. */
int controller_node_remove(struct controller *c, const struct caller *who, const char *ref, bool force, struct id *ret, struct error *err);
/* pin: what the worker has to see of the controller's key, NULL: none. The secret is told here and never again. */
int controller_join_token(struct controller *c, const struct caller *who, const char *name, const char *pin, int64_t lifetime_ms,
                          struct join_token *ret, char secret[static NODE_SECRET_LEN + 1], struct error *err);

/* --- workers --- */

struct join_request {
	const char *token, *name, *pin; /* pin: what the worker saw, NULL: it checked a certificate */
	struct id node;
};
/* ERR_UNAUTHORIZED: the token is unknown, used or expired; ERR_FORBIDDEN: it is for another name or pin; ERR_CONFLICT: another node
 * has the name. */
int controller_node_join(struct controller *c, const struct join_request *q, char secret[static NODE_SECRET_LEN + 1], struct error *err);
/* Fills node, who and tenant of a caller that can do nothing but open this node's link. ERR_UNAUTHORIZED. */
int controller_node_caller(struct controller *c, const char *secret, struct caller *ret, struct error *err);
/* A second credential; the first one ends when the second is first used. */
int controller_node_rotate(struct controller *c, const struct id *node, char secret[static NODE_SECRET_LEN + 1], struct error *err);

struct link_opening {
	struct id node;
	const char *session, *boot_id, *version, *controller;
	const struct strv *held; /* operations that this session still has in its hands */
};
/* A node's link is up: what its worker no longer has goes back to be leased again, what ran before its machine restarted is lost,
 * and links before it are stale. */
int controller_link_open(struct controller *c, const struct link_opening *o, int64_t *ret_epoch, struct error *err);
/* ERR_CONFLICT: another link of the node came up, or the node was removed: nothing that comes over this one counts. */
int controller_link_check(struct controller *c, const struct id *node, int64_t epoch, struct error *err);

/* This controller no longer has a link of the node, which had this epoch: what others write of it counts again. */
void controller_link_closed(struct controller *c, const struct id *node, int64_t epoch);

/* --- controllers --- */

#define PEER_SECRET_PREFIX "sbp_"

/* Every node whose worker joined, and the address of the controller that has its link ("": none). */
typedef void (*link_place_fn)(void *ctx, const struct id *node, const char *name, const char *controller);
int controller_link_places(struct controller *c, link_place_fn fn, void *ctx, struct error *err);

#endif
