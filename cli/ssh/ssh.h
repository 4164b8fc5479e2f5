/*
 * The module that speaks SSH: sandbox-ssh.so, built from libssh2, loaded when a verb works on another machine's shell and never else.
 *
 * One connection, one command at a time. Every wait has a deadline and ends when interrupt_fd is readable. Nothing is believed of the login
 * shell on the other side but that it starts programs: see ssh_command.
 */
#ifndef SANDBOX_CLI_SSH_SSH_H
#define SANDBOX_CLI_SSH_SSH_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/crypto/secret.h"

#include <stdbool.h>
#include <stdint.h>

#define SSH_ENTRY "sandbox_ssh_module"

struct ssh;

struct ssh_target {
	char *user, *host;
	uint16_t port;
};

/* How people are asked. */
struct ssh_ask {
	void *ctx;
	/* A line without echo: 0, or -1 with ERR_INVALID when nobody can be asked. */
	int (*secret)(void *ctx, const char *prompt, struct secret *ret, struct error *err);
	/* 1 yes, 0 no, -1 nobody can be asked. */
	int (*confirm)(void *ctx, const char *question);
};

struct ssh_options {
	const struct ssh_target *target;
	const struct ssh_target *jumps; /* to go through, nearest first */
	size_t n_jumps;
	const char *identity;     /* private key file; NULL: the agent's keys and the usual files */
	const char *fingerprint;  /* SHA256:… the target's host key must have; NULL: known_hosts decides */
	struct ssh_ask ask;
	int interrupt_fd;         /* -1: none */
	int64_t timeout_ms;       /* of connecting and authenticating to one host */
};

struct ssh_command {
	const char *line;     /* given to the login shell: words that mean the same to every shell */
	const void *in;       /* standard input; NULL: none */
	size_t in_n;
	int in_fd;            /* sent after it, from its present offset; -1: nothing */
	const char *go;       /* in_fd is sent once this was seen on standard output */
	int64_t timeout_ms;
	size_t out_max;       /* of each stream that is kept; what comes beyond is read and dropped */
};

struct ssh_result {
	int status;           /* of the command; -1 when it was ended by a signal */
	struct buf out, err;
};

struct ssh_module {
	const char *version;  /* must be the program's own */
	/* ERR_UNREACHABLE, ERR_TIMEOUT, ERR_UNAUTHORIZED (no way of authentication worked), ERR_FORBIDDEN (host key unknown or wrong). */
	int (*open)(const struct ssh_options *o, struct ssh **ret, struct error *err);
	/* Whole output and the status, in bounded time; a connection that ends before the command is ERR_UNAVAILABLE. ret must be zeroed; the
	 * caller frees its buffers in any case. */
	int (*run)(struct ssh *s, const struct ssh_command *c, struct ssh_result *ret, struct error *err);
	const char *(*user)(const struct ssh *s); /* that was logged in as */
	void (*free)(struct ssh *s);
};

/* The module's only symbol. */
typedef const struct ssh_module *(*ssh_entry)(void);

#endif
