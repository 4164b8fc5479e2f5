/* Inside of daemon/egress: egress.c (sandboxes and what is known of them), conn.c (one connection), relay.c (its bytes). Loop thread. */
#ifndef SANDBOX_DAEMON_EGRESS_PRIV_H
#define SANDBOX_DAEMON_EGRESS_PRIV_H

#include "daemon/egress/egress.h"
#include "daemon/egress/policy.h"
#include "daemon/egress/request.h"
#include "daemon/egress/resolve.h"
#include "daemon/worker/idmap.h"
#include "daemon/worker/muxconn.h"

#include <event2/event.h>
#include <pthread.h>

enum {
	ATTEMPTS_KEPT = 200,
	RECENT_TARGETS = 16,
	EVENTS_PER_MINUTE = 20,
};

/* How often a rule decided; rules that are gone keep their counts until the sandbox ends. */
struct tally {
	enum egress_level level;
	char *rule; /* "": none matched */
	uint64_t allowed, denied;
};

/* One attempt, as the log shows it. */
struct attempt {
	int64_t at_us;
	char target[EGRESS_RULE_TEXT_MAX];
	bool allowed;
	char *why;
	uint64_t number;
	uint64_t sent, received; /* bytes out of and into the sandbox */
};

struct egress_box {
	struct egress *owner;
	struct id sandbox;
	struct egress_policy policy;
	struct conn *conns;
	unsigned n_conns;
	struct tally *tallies;
	size_t n_tallies;
	struct attempt attempts[ATTEMPTS_KEPT]; /* a ring; number % ATTEMPTS_KEPT */
	uint64_t n_attempts;
	int64_t since_us;
	int64_t minute_ms; /* monotonic: since when `told` counts */
	unsigned told;
	char recent[RECENT_TARGETS][EGRESS_RULE_TEXT_MAX]; /* told in this minute */
};

struct egress {
	struct event_base *base;
	struct initlinks *links;
	struct mailbox *mail;
	struct resolver *resolver;
	struct idmap boxes;
	unsigned n_conns;
	pthread_mutex_t lock; /* held while denied runs */
	egress_denied denied;
	void *denied_ctx;
	uint8_t *buffer; /* RELAY_CHUNK */
};

enum { RELAY_CHUNK = 128 * 1024, EGRESS_WINDOW = 256 * 1024 };

enum conn_state {
	CONN_HEAD,       /* the request is coming */
	CONN_RESOLVING,
	CONN_CONNECTING,
	CONN_HELLO,      /* connected; the client's TLS hello must name where it goes */
	CONN_RELAY,
	CONN_ENDING,     /* an answer of ours is on its way, what comes is dropped */
};

struct conn {
	struct egress_box *box;
	struct conn *next;
	struct stream stream;
	enum conn_state state;
	struct proxy_request request;
	uint64_t attempt; /* its number in the log; 0: none yet */
	struct lookup *lookup;
	struct addresses found;
	size_t at; /* the address being tried */
	int fd;    /* -1: none */
	struct event *ev_read, *ev_write, *ev_timer;
	struct buf in;      /* from the sandbox, from offset in_base on, not passed on */
	uint64_t in_base;
	bool in_eof, shut;  /* the sandbox sends no more; the far side was told */
	struct buf prefix;  /* for the far side, before anything of in: a rewritten head */
	struct buf out;     /* for the sandbox: an answer of ours */
	bool out_eof, eof_sent;
	int64_t active_ms;
};

/* --- egress.c --- */
/* Counts the decision and writes it into the log; tells of a refusal. Returns its number. */
uint64_t box_note(struct egress_box *b, const struct egress_target *t, const struct egress_verdict *v);
/* A rule allowed it, something else refuses. */
void box_refuse(struct egress_box *b, uint64_t number, const struct egress_target *t, const char *why);
struct attempt *box_attempt(struct egress_box *b, uint64_t number); /* NULL: it is no longer kept */

/* --- conn.c --- */
void conn_open(struct egress_box *b, struct mux *m, uint32_t stream);
void conn_free(struct conn *c);
/* Answers with a status and a line for people, then ends. */
void conn_answer(struct conn *c, int status, const char *text);
/* Ends it at once. */
void conn_abort(struct conn *c, const char *why);
/* What was read of the sandbox was used up to here. */
void conn_used(struct conn *c, size_t n);
void conn_touch(struct conn *c);

/* --- relay.c --- */
/* Connected: the descriptor is watched. */
int relay_begin(struct conn *c);
/* Moves what can be moved now, in both directions. May free c. */
void relay_pump(struct conn *c);
/* Sends what is left of out. True: all of it is sent. */
bool relay_flush_out(struct conn *c);

#endif
