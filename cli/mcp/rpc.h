/* JSON-RPC 2.0 messages as text: reading the envelope, writing answers. Pure; fuzzed by tests/fuzz/fuzz_mcp.c. */
#ifndef SANDBOX_CLI_MCP_RPC_H
#define SANDBOX_CLI_MCP_RPC_H

#include "shared/base/buf.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum rpc_code {
	RPC_PARSE_ERROR = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_METHOD_NOT_FOUND = -32601,
	RPC_INVALID_PARAMS = -32602,
	RPC_NOT_FOUND = -32002, /* a resource */
};

struct rpc_failure {
	enum rpc_code code;
	char message[300];
};

void rpc_fail(struct rpc_failure *f, enum rpc_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The protocol version agreed on; text is static. */
struct rpc_version {
	const char *text; /* NULL before initialize */
	bool batches;     /* arrays of messages belong to it */
};

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };

/* One message of a line. Text borrowed from the tree and the line. */
struct rpc_message {
	enum rpc_kind kind;
	char *id;           /* of a request: its JSON text exactly as sent; owned */
	const char *method;
	const cJSON *params; /* an object, or NULL */
};

void rpc_message_done(struct rpc_message *m);
/* j is the parsed message, raw[0..n) its text. False: not valid, *ret_failure says why; m->id is the id to answer with, or NULL for null. */
bool rpc_read(const cJSON *j, const char *raw, size_t n, struct rpc_message *m, struct rpc_failure *ret_failure);

/* The text of a member's value inside an object's text, found at the top level; NULL when absent. raw must be valid JSON. */
const char *rpc_raw_member(const char *raw, size_t n, const char *key, size_t *ret_n);
/* The texts of an array's elements, one after the other: *at starts at 0. NULL at the end. */
const char *rpc_raw_element(const char *raw, size_t n, size_t *at, size_t *ret_n);

/* {"jsonrpc":"2.0","id":…,"result":…}; id NULL: null. */
void rpc_add_result(struct buf *out, const char *id, const char *result, size_t n);
void rpc_add_error(struct buf *out, const char *id, const struct rpc_failure *f);
/* text as a JSON string. */
void rpc_add_string(struct buf *out, const char *text);

#endif
