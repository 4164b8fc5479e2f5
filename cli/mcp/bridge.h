/* Inside the bridge: what serve.c, intake.c and calls.c share. Only the first thread touches it, but for `posted`, under `lock`. */
#ifndef SANDBOX_CLI_MCP_BRIDGE_H
#define SANDBOX_CLI_MCP_BRIDGE_H

#include "cli/mcp/mcp.h"
#include "shared/base/limits.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
	LINE_MAX_BYTES = LIMIT_JSON_BYTES_MAX,
	CALLS_MAX = 16,           /* tool calls at a time */
	LEFT_MAX = 256,           /* commands that go on without a waiting call */
	OUT_HIGH = 1024 * 1024,   /* answers that wait for the client: above, nothing more is read */
	IDLE_SESSIONS = 4,
};

/* Requests of one array, answered together. */
struct batch {
	size_t waiting;
	struct buf out;
};

struct running {
	struct tool_call call;
	const struct tool *tool;
	cJSON *message;           /* owns the arguments */
	char *id;                 /* JSON text */
	struct batch *batch;
	int cancel_fd;            /* an eventfd, readable once cancelled */
	atomic_bool cancelled;
	bool silent;              /* cancelled by the client: no answer */
	struct buf answer;
	struct running *next;
};

/* What threads hand to the first one, in their order. */
struct posted {
	char *text;               /* a message, or NULL */
	struct running *ended;    /* or a call that has ended */
	struct posted *next;
};

struct bridge {
	const struct cli *settings;
	int64_t wait_ms;
	int in, out, wake_fd;
	bool out_socket;
	struct rpc_version version;
	struct buf line;          /* input that has not ended in a newline yet */
	bool skipping;            /* the rest of a line over the limit */
	struct buf output;
	size_t output_at;
	bool reader_gone;
	struct running *calls;
	size_t call_count;
	pthread_mutex_t lock;
	struct posted *posted, **posted_end;
	struct strv left;         /* operations that go on; under lock */
	struct cli idle[IDLE_SESSIONS]; /* sessions kept for the next call */
	size_t idle_count;
};

/* Bytes from the client, in any cut. */
void intake(struct bridge *b, const char *p, size_t n);
/* One message to the client. */
void bridge_send(struct bridge *b, const char *text, size_t n);
/* An answer, collected when it belongs to a batch. */
void bridge_answer(struct bridge *b, struct batch *batch, const char *text, size_t n);
void batch_finish(struct bridge *b, struct batch *take_batch);

/* Takes the message. False: not started, *f says why. */
bool calls_start(struct bridge *b, struct batch *batch, cJSON **take_message, const struct rpc_message *m, const char *raw, size_t n,
		 struct rpc_failure *f);
bool calls_has_id(const struct bridge *b, const char *id);
void calls_cancel(struct bridge *b, const char *id);
void calls_cancel_all(struct bridge *b);
/* Sends what threads posted, and buries ended calls. */
void calls_collect(struct bridge *b);
/* Ends commands that were left running. */
void calls_end_left(struct bridge *b, int64_t deadline_ms);

#endif
