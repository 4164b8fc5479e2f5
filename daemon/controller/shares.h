/*
 * Shares: ports of users' own machines under a public name for as long as they stay connected. In memory: a share is its connection.
 * Any thread.
 */
#ifndef SANDBOX_DAEMON_CONTROLLER_SHARES_H
#define SANDBOX_DAEMON_CONTROLLER_SHARES_H

#include "daemon/controller/tunnels.h"

struct share_request {
	uint16_t port;     /* on the user's machine */
	const char *label; /* NULL: the server chooses one that cannot be guessed */
	bool keep_host;
	int64_t until_us;  /* the end an earlier connection of this share was told, on the wall clock; 0: none. Only makes it shorter */
};

/* *ret: id, label, address, end (on the wall clock as it stands now); its sandbox is the share's own id, which the edge dials. A
 * caller's own share of the same label is replaced: *ret_old is then its id, else "". ERR_UNAVAILABLE: not offered; ERR_EXPIRED: until_us is past; ERR_FORBIDDEN;
 * ERR_CONFLICT: the label is taken; ERR_RATE_LIMITED. */
int controller_share_begin(struct controller *c, const struct caller *who, const struct share_request *q, struct tunnel *ret, struct id *ret_old,
			   struct error *err);
void controller_share_end(struct controller *c, const struct id *share);

#endif
