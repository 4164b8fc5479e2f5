/* Records of tunnels. As store.h: it keeps and finds, it decides nothing. */
#ifndef SANDBOX_DAEMON_STORE_TUNNELS_H
#define SANDBOX_DAEMON_STORE_TUNNELS_H

#include "daemon/store/store.h"

enum { TUNNEL_HASH_LEN = 64 };

struct tunnel_row {
	struct tunnel t;                 /* without host name and address */
	char hash[TUNNEL_HASH_LEN + 1]; /* SHA-256 of the visitors' secret, hex; "" without */
};

/* ERR_CONFLICT when a live tunnel has the label. */
int store_tunnel_add(struct db_tx *tx, const struct tunnel_row *t, struct error *err);
/* 1, 0 or -1. */
int store_tunnel_get(struct db_tx *tx, const struct id *id, struct tunnel_row *ret, struct error *err);
int store_tunnel_by_label(struct db_tx *tx, const char *label, struct tunnel_row *ret, struct error *err); /* live */
typedef void (*tunnel_row_fn)(void *ctx, const struct tunnel_row *t);
/* Of a sandbox, of a tenant (all it has), or all live ones when both are NULL; oldest first. */
int store_tunnel_each(struct db_tx *tx, const struct id *sandbox, const char *tenant, tunnel_row_fn fn, void *ctx, struct error *err);
/* Those of a sandbox that wait for it, or its live ones, go to a state; failure: of FAILED, else NULL. *ret_n: how many. */
int store_tunnel_move_all(struct db_tx *tx, const struct id *sandbox, enum tunnel_state to, const char *failure, int64_t *ret_n, struct error *err);
int store_tunnel_set_hash(struct db_tx *tx, const struct id *id, const char *hash, struct error *err);
int store_tunnel_drop(struct db_tx *tx, const struct id *id, struct error *err);
int store_tunnel_drop_all(struct db_tx *tx, const struct id *sandbox, int64_t *ret_n, struct error *err);
/* The next whose time has come. 1, 0 or -1. */
int store_tunnel_due(struct db_tx *tx, int64_t now, struct tunnel_row *ret, struct error *err);
int store_tunnel_next_due(struct db_tx *tx, int64_t *ret, struct error *err); /* 0: none */

/* Whose a chosen label is. 1: *ret_tenant until *ret_until_us; 0: nobody's; -1. */
int store_tunnel_name_get(struct db_tx *tx, const char *label, char ret_tenant[static TENANT_MAX_LEN + 1], int64_t *ret_until_us, struct error *err);
int store_tunnel_name_put(struct db_tx *tx, const char *label, const char *tenant, int64_t until_us, struct error *err);
/* Names that are free again, and tunnels of sandboxes that are forgotten. */
int store_tunnel_prune(struct db_tx *tx, int64_t now, struct error *err);

#endif
