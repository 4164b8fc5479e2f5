/*
 * Speaking to remote servers by libcurl and wslay. The command line has it as a module, sandbox-remote.so, loaded when a server
 * address is http or https and never else: loading it costs more than a whole call over the local socket. The daemon links it.
 *
 * It holds one kept connection for requests. Each stream has a connection and a thread of its own, which carries bytes between
 * WebSocket messages and a socket pair, so that who uses the stream sees a descriptor as from a unix socket.
 */
#ifndef SANDBOX_CLI_REMOTE_REMOTE_H
#define SANDBOX_CLI_REMOTE_REMOTE_H

#include "shared/http/unix_client.h"

#define REMOTE_ENTRY "sandbox_remote_module"

struct remote;

struct remote_options {
	const char *base;     /* "https://host:port/prefix" */
	const char *token;    /* NULL: none */
	const char *tenant;   /* to act in; NULL: the token's first */
	const char *ca_file;  /* NULL: the system's */
	const char *pin;      /* "sha256//BASE64" of the public key the server must have; NULL: any. Without ca_file only the pin counts */
	bool loopback;        /* no proxy then */
};

struct remote_module {
	const char *version;  /* must be the program's own */
	int (*open)(const struct remote_options *o, struct remote **ret, struct error *err); /* copies the options */
	/* As unix_client_send; redirects are answers like others. ERR_UNREACHABLE, ERR_TIMEOUT, ERR_PROTOCOL, ERR_TOO_LARGE. */
	int (*send)(struct remote *r, const struct http_request *q, struct http_answer *ret, struct error *err);
	/* GET target as WebSocket; `early` is sent as soon as the server agreed. 0: *ret_fd carries the raw bytes (blocking, the
	 * caller's); 1: *ret_refusal is the answer instead; -1: err. */
	int (*stream)(struct remote *r, const char *target, const void *early, size_t n, int *ret_fd, struct http_answer *ret_refusal,
	              struct error *err);
	/* Waits end when fd is readable, as unix_client_set_interrupt. */
	void (*set_interrupt)(struct remote *r, int fd);
	/* Waits a moment until what was written to the streams is on its way. NULL is fine. */
	void (*free)(struct remote *r);
};

/* The module's only symbol: REMOTE_ENTRY. */
typedef const struct remote_module *(*remote_entry)(void);
__attribute__((visibility("default"))) const struct remote_module *sandbox_remote_module(void);

#endif
