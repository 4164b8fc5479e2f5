/*
 * The way to the server: address resolution, the local daemon's start, requests, and what failures mean.
 *
 * Address: --server, SANDBOX_URL (unix:///path, or https://host, for which session_remote.h loads a module), else the local socket: of root /run/sandbox/sandboxd.sock; of others $XDG_RUNTIME_DIR/sandbox/sandboxd.sock
 * (or sandboxd.sock in the state directory), and when nothing answers there but a system daemon's socket is usable, that one.
 * When no address was given and nothing answers, the user's daemon is started once, with a note on stderr.
 */
#ifndef SANDBOX_CLI_SESSION_H
#define SANDBOX_CLI_SESSION_H

#include "cli/cli.h"
#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct call {
	const char *method;
	const char *target;    /* path and query, already encoded (session_path) */
	const cJSON *body;     /* NULL: none */
	const char *key;       /* Idempotency-Key, NULL: none */
	int64_t timeout_ms;    /* 0: the default of 60 s */
	bool no_start;         /* never start the daemon for this call */
};

/* One call. A 2xx with a JSON body gives *ret (caller frees); with ret NULL the body does not matter. Any other answer is an error by the
 * server's code and message (its body is kept in cli->error_body), or ERR_PROTOCOL when it is not this API.
 * An interrupt (cli/interrupt.h) while waiting: ERR_TIMEOUT with err->sys == EINTR. */
int session_call(struct cli *cli, const struct call *c, cJSON **ret, struct error *err);

/* Answers of many lines (application/x-ndjson), given to `line` as they come; body_fd >= 0 is sent as the request's body.
 * `line` returns 0 to go on, -1 with err to stop. */
struct line_call {
	const char *method, *target;
	const cJSON *body;
	int body_fd;           /* -1: none */
	int (*line)(void *ctx, cJSON *j, struct error *err);
	void *ctx;
};
int session_lines(struct cli *cli, const struct line_call *c, struct error *err);

/* Opens a mux connection (GET /v1/mux): `early` frames are sent right behind the request head. ret_fd is blocking, close-on-exec and the
 * caller's; ret_rest (initialised) gets bytes that followed the answer's head. A fresh connection each time: use it for resuming too
 * (pass restart = true: then a daemon that is coming back is waited for until deadline_ms (monotonic), and none is started). */
struct upgrade {
	const void *early;
	size_t early_n;
	bool restart;
	int64_t deadline_ms;
};
int session_upgrade(struct cli *cli, const struct upgrade *u, int *ret_fd, struct buf *ret_rest, struct error *err);

/* "/v1/sandboxes/" REF "/exec": fmt with every %s percent-encoded as one path segment or query value. Only %s and %% are allowed.
 * Caller frees. An empty segment is the caller's to refuse. */
char *session_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The socket this session uses or would use; borrowed. ERR_INVALID for an address this build cannot speak to. */
int session_socket(struct cli *cli, const char **ret, struct error *err);
void session_close(struct cli *cli);

/* Whether a server answers now, without starting one; ERR_UNREACHABLE, ERR_FORBIDDEN … */
int session_probe(struct cli *cli, struct error *err);

/* An idempotency key for one user action: a retry within this process re-uses it. */
struct idem {
	char text[40];
};
struct idem idem_new(void);

#endif
