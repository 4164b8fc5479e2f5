/*
 * A client for the Docker Engine API over its unix socket, on libcurl: a connection for each call, a
 * deadline on every call, bodies streamed from a descriptor and to a callback, answers of bounded size.
 * Any thread; blocking. Daemon only: loading libcurl costs milliseconds the CLI does not have.
 */
#ifndef SANDBOX_HTTP_ENGINE_CLIENT_H
#define SANDBOX_HTTP_ENGINE_CLIENT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* path: absolute path of the socket. Connects when first used. ERR_INVALID for anything but a path: remote engines are
 * refused, because limits and mounts are checked on this machine. */
int engine_new(const char *path, struct engine **ret, struct error *err);
void engine_free(struct engine *e);

struct engine_request {
	const char *method;
	const char *path;         /* "/containers/json?all=1"; the API version goes before it unless unversioned is set */
	bool unversioned;
	const char *json;         /* body, NULL: none */
	const void *body;         /* or bytes, with content_type */
	size_t body_len;
	int body_fd;              /* or, when body_from_fd, a descriptor read to its end */
	bool body_from_fd;
	const char *content_type; /* NULL: application/json */
	const char *auth;         /* X-Registry-Auth, NULL: none */
	int64_t timeout_ms;       /* the whole call; 0: ENGINE_TIMEOUT_MS, < 0: none (then stall_ms or the callback ends it) */
	int64_t stall_ms;         /* ends when not a byte moved for so long; 0: none */
	/* The answer's body piece by piece when its status is 2xx, instead of in ret->body. n = 0 about once a second
	 * while nothing comes. False stops the call: ERR_CONFLICT. */
	bool (*on_data)(void *ctx, const char *p, size_t n);
	void *ctx;
};

enum { ENGINE_TIMEOUT_MS = 30 * 1000, ENGINE_ANSWER_MAX = 16 * 1024 * 1024 };

struct engine_answer {
	int status;
	struct buf body;
};
void engine_answer_done(struct engine_answer *a);
#define auto_engine_answer __attribute__((cleanup(engine_answer_done))) struct engine_answer

/* 0 whenever an HTTP answer came, whatever its status. ERR_UNREACHABLE, ERR_TIMEOUT, ERR_TOO_LARGE, ERR_PROTOCOL. */
int engine_call(struct engine *e, const struct engine_request *r, struct engine_answer *ret, struct error *err);

/* The API version in use, "1.41": the engine's own, at most the newest we know. ERR_UNAVAILABLE when the engine is
 * older than what we need. Asked once, and again after the engine had gone. */
int engine_version(struct engine *e, char ret[static 16], struct error *err);

/* Percent-encodes a path segment or query value. Caller frees. */
char *engine_escape(const char *text);

#endif
