/*
 * One request on its way through the server, and its answer. A handler runs on a server thread and must not block:
 * it answers at once, suspends (long polls), hands slow work to a thread (request_block), or streams (stream.h).
 */
#ifndef SANDBOX_DAEMON_API_REQUEST_H
#define SANDBOX_DAEMON_API_REQUEST_H

#include "daemon/api/routes.h"
#include "daemon/controller/controller.h"
#include "shared/json/json.h"

struct MHD_Connection;
struct MHD_Response;
struct api;
struct upload;

struct answer {
	int status;
	char *body; /* owned; NULL: none */
	size_t len;
	struct map headers;
	struct MHD_Response *response; /* a stream or an upgrade: sent instead of body; owned */
};

void answer_done(struct answer *a);
/* Takes the tree. */
void answer_json(struct answer *a, int status, cJSON *take_j);
/* The error body; its HTTP status is the table's. */
void answer_error(struct answer *a, const struct error *e, const char *request_id);

struct request {
	struct api *api;
	struct MHD_Connection *conn;
	bool tcp;
	bool head_seen;
	bool suspended;
	bool counted; /* among the server's suspended ones */
	bool refused; /* answer holds why, to be sent when the body is read */
	int64_t started_us; /* monotonic */
	const char *method; /* borrowed from the connection */
	const struct route *route;
	struct target target;
	bool target_bad;
	struct route_params params;
	struct caller caller;
	struct buf body;
	struct upload *upload; /* BODY_STREAM */
	/* Set by handlers that suspended: called once when the connection runs again. */
	int (*resume)(struct request *r, struct answer *a, struct error *err);
	void *state;                 /* of the handler */
	void (*state_free)(void *);
	/* A job thread's work and result. */
	int (*job)(struct request *r, struct answer *a, struct error *err);
	int job_rc;
	struct answer answer;
	struct error err;
	struct create_wait *create; /* waits for capacity */
	struct create_result *created; /* waits for its end */
	char audit_target[128]; /* what a mutation was about; "": the first path parameter */
};

struct request *request_new(struct api *api, bool tcp, const char *raw_target);
void request_free(struct request *r);

/* The body as JSON: its root object in *ret (caller frees with json_freep). */
int request_json(struct request *r, cJSON **ret, struct error *err);
const char *request_header(struct request *r, const char *name); /* NULL when absent */
/* The Idempotency-Key header: NULL when absent; ERR_INVALID when longer than 128 bytes or not printable. */
int request_idempotency_key(struct request *r, const char **ret, struct error *err);
/* Query values. Absent leaves *ret as it is. */
int request_query_bool(struct request *r, const char *name, bool *ret, struct error *err);
int request_query_i64(struct request *r, const char *name, int64_t min, int64_t max, int64_t *ret, struct error *err);

/* Stops reading this connection until request_resume; `resume` runs then, on a server thread. */
void request_suspend(struct request *r, int (*resume)(struct request *r, struct answer *a, struct error *err));
void request_resume(struct request *r); /* any thread, once per suspend */
/* Runs fn on a thread of its own and answers with its result. ERR_RATE_LIMITED when too many are under way. */
int request_block(struct request *r, int (*fn)(struct request *r, struct answer *a, struct error *err), struct error *err);

#endif
