/*
 * The model as the API's JSON (docs/api.md). Encoders return new trees (the caller frees); decoders of
 * requests refuse unknown fields, decoders of answers (what the CLI reads) ignore them.
 */
#ifndef SANDBOX_JSON_MODEL_JSON_H
#define SANDBOX_JSON_MODEL_JSON_H

#include "shared/json/json.h"
#include "shared/model/model.h"

cJSON *spec_to_json(const struct spec *s);
/* A lifetime that is not whole seconds is carried exactly in ttl_ms, beside ttl_seconds rounded up.
 * strict: refuse unknown fields. ret must be initialised (spec_init); it is replaced on success. Does not validate ranges beyond types: call spec_validate. */
int spec_from_json(const cJSON *j, const char *name, bool strict, struct spec *ret, struct error *err);

/* {argv, cwd, user, timeout_seconds|null, tty, env_keys:[]}: values of variables are never shown. */
cJSON *command_to_json(const struct command *c);
/* REST body: {argv, cwd, env:{}, timeout_seconds, user}. */
int command_from_json(const cJSON *j, const char *name, struct command *ret, struct error *err);

/* {id, container_port, protocol, subdomain, hostname, public_url, authenticated, state, failure, sandbox_id, auth, host_header, created_at, expires_at} */
cJSON *tunnel_to_json(const struct tunnel *t);

/* {id, spec, state, node_id, isolation, tier, risk_score, created_at, updated_at, expires_at, failure, tunnels:[], name, node_name, unreachable, end_reason, image_digest, decision?} */
cJSON *sandbox_to_json(const struct sandbox *s);
int sandbox_from_json(const cJSON *j, const char *name, struct sandbox *ret, struct error *err);

/*
 * {id, sandbox_id, kind, state, outcome|null, command?, output|null, error, error_code, progress, created_at, updated_at} with
 * output {exit_code, stdout, stderr, truncated, stdout_bytes, stderr_bytes, signal, oom_killed}. stdout holds the kept
 * bytes; when some are missing, stdout_gap_at is the offset (in the bytes of stdout, or of stdout_base64 when it is there)
 * behind which they are left out. stdout_base64 stands beside output that is not text. The same for stderr.
 */
cJSON *operation_to_json(const struct operation *o);
int operation_from_json(const cJSON *j, const char *name, struct operation *ret, struct error *err);

/* {code, message, request_id} */
cJSON *error_to_json(const struct error *e, const char *request_id);
/* Reads an error body into err (code by wire word, message); false when it is not one of ours. */
bool error_from_json(const cJSON *j, struct error *err);

#endif
