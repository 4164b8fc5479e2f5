/* Inside sandbox-ssh.so: one connection (which may go through another), its waits, and what failures mean. */
#ifndef SANDBOX_CLI_SSH_INTERNAL_H
#define SANDBOX_CLI_SSH_INTERNAL_H

#include "cli/ssh/ssh.h"

#include <libssh2.h>

struct ssh {
	struct ssh *via;              /* the jump host this one is reached through, owned; NULL: a socket of our own */
	LIBSSH2_CHANNEL *through;     /* on via */
	int fd;                       /* the outermost socket; owned when via is NULL */
	LIBSSH2_SESSION *session;
	char *user, *host;
	uint16_t port;
	int interrupt_fd;
	int64_t deadline_ms;          /* of what is being done now, monotonic */
	const struct ssh_options *o;  /* while opening */
	bool target;                  /* not a jump host */
	const struct secret *typing;  /* while keyboard-interactive asks */
	struct buf out;               /* not yet taken by the socket or by via; see connect.c */
	size_t out_at;
	char piece[16 * 1024];        /* of out, given to via's channel: the same until it was taken */
	size_t piece_n;
};

/* Until one of the sessions may go on. -1: the deadline passed (ERR_TIMEOUT), or the wait was interrupted (ERR_TIMEOUT with EINTR). */
int ssh_wait(struct ssh *s, const char *doing, struct error *err);
/* libssh2's last error: ERR_UNAVAILABLE when the connection is gone, ERR_PROTOCOL else. */
int ssh_fail(struct ssh *s, const char *doing, struct error *err);

/* Repeats a libssh2 call as long as it says EAGAIN; its result is then in rc. Ends the function with -1 when waiting fails. */
#define SSH_RETRY(s, rc, call, doing, err) \
	while (((rc) = (call)) == LIBSSH2_ERROR_EAGAIN) \
		if (ssh_wait((s), (doing), (err)) != 0) \
			return -1

/* A TCP connection, non-blocking. */
int ssh_connect(struct ssh *s, struct error *err);
/* Makes s's session send and receive by ours: over the socket, or over a channel of s->via, which this opens. */
int ssh_carry(struct ssh *s, struct error *err);
/* Hands on what libssh2 sent, as far as it is taken now. */
void ssh_flush(struct ssh *s);
/* So much waits that no more should be sent now. */
bool ssh_backlog(const struct ssh *s);
/* The key types known for the host, to be offered first; NULL: no preference. The caller frees. */
char *ssh_known_types(const struct ssh *s);
int ssh_check_host(struct ssh *s, struct error *err);
int ssh_authenticate(struct ssh *s, struct error *err);
int ssh_run(struct ssh *s, const struct ssh_command *c, struct ssh_result *ret, struct error *err);

#endif
