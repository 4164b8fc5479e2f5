/*
 * The route table (routes.def): the only place that says which calls exist, who may make them, how large their bodies
 * are and what they mean. The server, docs/api.md and docs/openapi.json all come from it.
 * To add a call: a row in routes.def, a handler in one of the handlers_*.c, schemas in schemas.def; then `make generate`.
 * tests/unit/test_routes.c walks the table against a real server.
 */
#ifndef SANDBOX_DAEMON_API_ROUTES_H
#define SANDBOX_DAEMON_API_ROUTES_H

#include "daemon/api/target.h"
#include "shared/model/enums.h"

#include <stdbool.h>
#include <stddef.h>

struct request;
struct answer;

/* Who a route is for. Everything but public needs an authenticated caller of that class. */
enum caller_class { CALLER_PUBLIC, CALLER_OPERATOR, CALLER_EDGE, CALLER_NODE, CALLER_PEER };
enum body_kind {
	BODY_NONE,      /* any body is refused */
	BODY_JSON,      /* one JSON document */
	BODY_JSON_OPT,  /* the same, or none */
	BODY_STREAM,    /* handed to the handler piece by piece */
};
enum { ROUTE_PARAMS_MAX = 4 };

struct route {
	const char *id;       /* handler name without prefix, also the OpenAPI operationId */
	const char *method;
	const char *pattern;  /* "{x}" takes one segment, a last "{x...}" the rest */
	enum caller_class class;
	enum role role;       /* the least that may call */
	enum body_kind body;
	size_t body_max;
	const char *query;    /* known query parameters, blank separated; "name*" may repeat */
	int status;           /* of success */
	const char *request;  /* schema of the body, NULL: none */
	const char *answer;   /* schema of the answer, NULL: none */
	const char *summary;
	const char *detail;
	/* 0: `answer` is filled (or the request was suspended); -1: err. Must not block: see request_block(). */
	int (*handle)(struct request *r, struct answer *a, struct error *err);
};

extern const struct route routes[];
extern const size_t routes_len;

/* Path parameters of a match, in order; borrowed from the target but for a {x...} tail, which is owned. */
struct route_params {
	const char *value[ROUTE_PARAMS_MAX];
	char *tail;
};

/* The row for method and path (HEAD finds GET). NULL: nothing; then *ret_allow (a buffer) lists the methods the path has. */
const struct route *route_find(const char *method, const struct target *t, struct route_params *ret, struct buf *ret_allow);
/* Refuses query names the route does not know, and repeats of those that may not. */
int route_check_query(const struct route *r, const struct target *t, struct error *err);
const char *caller_class_text(enum caller_class c);

/* Documents generated from the table. */
void api_doc_markdown(struct buf *out);
void api_doc_openapi(struct buf *out);

#endif
