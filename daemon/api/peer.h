/* Rights by credentials: the peer of a unix socket, and the daemon's own admin token. */
#ifndef SANDBOX_DAEMON_API_PEER_H
#define SANDBOX_DAEMON_API_PEER_H

#include "daemon/controller/controller.h"

/* Own uid and root are admin in tenant "default"; members of the group are operators in a tenant of their own name.
 * ERR_FORBIDDEN for everybody else. group may be "" or not exist. */
int peer_caller(int fd, const char *group, struct caller *ret, struct error *err);

/* The tenant of a user: the name when it is a tenant name nobody else can get, else "uid-N". */
void peer_tenant(const char *user, uid_t uid, char ret[static TENANT_MAX_LEN + 1]);

/* The admin token in STATE/api-token: made (mode 0600) when missing. */
struct admin_token;
int admin_token_load(const char *state_dir, struct admin_token **ret, struct error *err);
void admin_token_free(struct admin_token *t);
/* ERR_UNAUTHORIZED when it is another one. */
int admin_token_caller(const struct admin_token *t, const char *token, struct caller *ret, struct error *err);

/* The group's id; -1 when the name is empty or none has it. */
int peer_group_id(const char *name, gid_t *ret);

#endif
