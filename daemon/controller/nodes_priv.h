/*
 * Inside nodes.c: the table of nodes in memory. `views` is contiguous for AEGIS; everything here is called under `nodes.lock`.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_NODES_PRIV_H
#define SANDBOX_DAEMON_CONTROLLER_NODES_PRIV_H

#include "daemon/controller/internal.h"

struct node_extra {
	struct node_reasons reasons;
	struct map labels;
	struct strv keys;      /* anti-affinity keys of the sandboxes there, one entry per sandbox that has it */
	struct resources used;
	int64_t seen_ms;       /* monotonic; 0: not since this daemon started */
	char *stored;          /* what was last written, so that an unchanged report costs no write */
	int64_t stored_ms;
	bool ours;             /* reports to this controller */
	int64_t closed_ms;     /* monotonic: since when its link is gone; 0: not known to be */
	int64_t closed_us;     /* the same by the store's clock */
	char boot[BOOT_TEXT_MAX]; /* of its machine; "": this one's */
	int64_t row_seen_us;   /* of another controller's node: the row's mark of life, and what it said */
	char *row_offers;
};

/* NULL when there is none. Both stay valid until a node is added or forgotten. */
struct node_extra *node_find(const struct nodes *n, const struct id *id, struct node_view **ret_view);
struct node_extra *node_find_or_add(struct nodes *n, const struct id *id, struct node_view **ret_view);

/* Not heard of for too long, or its link has been gone for long enough. */
bool node_is_stale(const struct node_extra *x, int64_t now_ms);
/* A sign of life at seen_ms; its link is not known to be gone any more. */
void node_seen(struct nodes *n, struct node_view *v, struct node_extra *x, int64_t seen_ms);
void node_closed(struct nodes *n, struct node_extra *x, int64_t now_ms);
/* Marks the views of those that are stale; looks at each only when one may have become so. */
void nodes_age(struct nodes *n, int64_t now_ms);
/* Whether every node can be dialled into. */
void nodes_offer_tunnels(struct nodes *n, bool offered);

#endif
