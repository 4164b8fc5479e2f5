/* Records of a fleet: nodes' credentials and links, and the tokens nodes join with. As store.h: it keeps and finds, it decides nothing. */
#ifndef SANDBOX_DAEMON_STORE_FLEET_H
#define SANDBOX_DAEMON_STORE_FLEET_H

#include "daemon/store/identity.h"

enum { LINK_TEXT_MAX = 127 };

/* What a node is beside what it offers. */
struct node_identity {
	struct id id;
	char name[NAME_MAX_LEN + 1];
	char credential[TOKEN_HASH_LEN + 1], next_credential[TOKEN_HASH_LEN + 1]; /* SHA-256, hex; "": none */
	bool draining;
	int64_t joined_us, linked_us, link_epoch; /* 0: never */
	char link_controller[LINK_TEXT_MAX + 1];  /* the controller that has the link, or had it last */
	char session[ID_TEXT_LEN + 1], boot_id[64], version[64];
	uint32_t sandboxes;
};
/* By id or name. 1, 0, -1. */
int store_node_identity(struct db_tx *tx, const char *ref, struct node_identity *ret, struct error *err);
/* The one that has this credential, or has it as its next. 1, 0, -1. */
int store_node_by_credential(struct db_tx *tx, const char *hash, struct node_identity *ret, struct error *err);
/* A node joins, or joins again: made when it is not there. */
int store_node_join(struct db_tx *tx, const struct node_identity *n, int64_t now, struct error *err);
int store_node_credentials(struct db_tx *tx, const struct id *node, const char *credential, const char *next, struct error *err);
/* A link comes up: notes session, boot_id, version, link_controller of n, and counts its epoch up. */
/* The link of this epoch is gone: nobody has it. */
int store_node_unlink(struct db_tx *tx, const struct id *node, int64_t epoch, struct error *err);
/* Where the links of all joined nodes are; the caller frees items. */
struct node_place {
	struct id id;
	char name[NAME_MAX_LEN + 1], controller[LINK_TEXT_MAX + 1];
};
struct node_place_list {
	struct node_place *items;
	size_t len;
};
int store_node_places(struct db_tx *tx, struct node_place_list *ret, struct error *err);
int store_node_link(struct db_tx *tx, const struct node_identity *n, int64_t now, struct error *err);
int store_node_drain(struct db_tx *tx, const struct id *node, bool draining, struct error *err);
int store_node_remove(struct db_tx *tx, const struct id *node, struct error *err);

struct join_token {
	struct id id;
	char name[NAME_MAX_LEN + 1];   /* of the node */
	char hash[TOKEN_HASH_LEN + 1];
	char pin[LINK_TEXT_MAX + 1];   /* "": none */
	char created_by[128];
	int64_t created_us, expires_us, used_us;
};
int store_join_token_add(struct db_tx *tx, const struct join_token *t, struct error *err);
int store_join_token_by_hash(struct db_tx *tx, const char *hash, struct join_token *ret, struct error *err); /* 1, 0, -1 */
/* 1: it is used now; 0: it was before. */
int store_join_token_use(struct db_tx *tx, const struct id *id, int64_t now, struct error *err);
int store_join_token_prune(struct db_tx *tx, int64_t before, struct error *err);

#endif
