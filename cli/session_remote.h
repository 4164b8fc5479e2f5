/* The remote end of a session: an http or https address, and the module (shared/http/remote/remote.h) that is loaded at the first use. */
#ifndef SANDBOX_CLI_SESSION_REMOTE_H
#define SANDBOX_CLI_SESSION_REMOTE_H

#include "cli/cli.h"
#include "shared/http/unix_client.h"

struct session_remote;

/* Checks the address and what may be sent there; loads nothing. ERR_INVALID. */
int session_remote_new(const struct cli *cli, const char *url, struct session_remote **ret, struct error *err);
void session_remote_free(struct session_remote *s); /* NULL is fine */
/* Waits end when fd is readable; -1: none. */
void session_remote_set_interrupt(struct session_remote *s, int fd);
/* The address for messages. */
const char *session_remote_shown(const struct session_remote *s);
int session_remote_send(struct session_remote *s, const struct http_request *q, struct http_answer *ret, struct error *err);
/* 0: *ret_fd; 1: *ret_refusal is the server's answer; -1: err. */
int session_remote_stream(struct session_remote *s, const char *target, const void *early, size_t n, int *ret_fd,
                          struct http_answer *ret_refusal, struct error *err);

#endif
