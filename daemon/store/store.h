/*
 * The records: typed queries over daemon/store/db.h. It keeps and finds; it decides nothing (that is daemon/controller).
 *
 * Every function that takes a transaction may be called only by its owner. Times are microseconds of store_now(). State
 * changes go through store_sandbox_move and store_op_move, which refuse what the model's tables do not allow.
 */
#ifndef SANDBOX_DAEMON_STORE_H
#define SANDBOX_DAEMON_STORE_H

#include "daemon/store/db.h"
#include "shared/base/error.h"
#include "shared/model/model.h"

struct store;

struct store_options {
	const char *path;      /* SQLite's file; used when url is NULL or "" */
	const char *url;       /* PostgreSQL; with password_file, connections and timeout_ms as in db_options */
	const char *password_file;
	int connections;
	int64_t timeout_ms;
	const char *state_dir; /* locked against a second daemon, made with mode 0700; NULL: no lock */
};

/* Opens, locks and migrates. ERR_CONFLICT when another daemon uses the state directory (names its pid), ERR_UNAVAILABLE
 * and ERR_SYSTEM as db_open_sqlite, ERR_CONFLICT when a newer version wrote the schema. */
int store_open(const struct store_options *options, struct store **ret, struct error *err);
void store_close(struct store *s);

/* Wall-clock microseconds, never backward: see clock.h. Any thread. */
int64_t store_now(struct store *s);
/* When t of store_now() comes, on the wall clock: what a timer that reads clock_wall_us() should wait for. */
int64_t store_wall(struct store *s, int64_t t);
const char *store_boot_id(const struct store *s);
/* "sqlite 3.40.1, schema 1". */
const char *store_describe(const struct store *s);
/* Several daemons may work on it: what is in memory may be old. */
bool store_shared(const struct store *s);
/* Does it answer? For readiness. */
int store_ping(struct store *s, struct error *err);
int store_begin(struct store *s, enum db_mode mode, struct db_tx **ret, struct error *err);
/* As db_flush. */
int store_flush(struct store *s, struct error *err);

/* --- several daemons on one store: see store_bus.c --- */

enum store_news {
	NEWS_OPERATION = 'o', /* ended; the id is its */
	NEWS_WORK = 'w',      /* there may be something to lease; the node's */
	NEWS_DEADLINE = 'd',  /* a deadline may have moved earlier */
	NEWS_EVENT = 'e',     /* events were added */
	NEWS_ROUTES = 'r',    /* tunnels were added or removed */
	NEWS_ANY = '.',       /* from time to time, and when news may have been missed: look for yourself */
};
/* Called from a thread of the store's own. */
typedef void (*store_news_fn)(void *ctx, enum store_news what, const struct id *id);
/* Hears what other daemons tell. Does nothing when the store is not shared. */
int store_listen(struct store *s, store_news_fn fn, void *ctx, struct error *err);
void store_unlisten(struct store *s);
/* Tells the others, soon; never waits. Nobody may rely on it: news can be lost. */
void store_tell(struct store *s, enum store_news what, const struct id *id);
/* Whether this daemon does what only one should: reaping, publishing. Always, when the store is not shared. */
bool store_leads(const struct store *s);

/* --- sandboxes --- */

/* In a shared store: nobody else changes this sandbox or its operations before the transaction ends; what was read before
 * may be old. Lock several in the order of their ids. Not needed (and free) otherwise. */
int store_lock_sandbox(struct db_tx *tx, const struct id *id, struct error *err);


/* The small part of a row that decisions need. */
struct sandbox_head {
	struct id id;
	char tenant[TENANT_MAX_LEN + 1];
	char name[NAME_MAX_LEN + 1]; /* "": none */
	enum sandbox_state state;
	struct id node;
	int64_t expires_us, ended_us;
	enum outcome end_reason;     /* also of one that is still stopping */
	bool writable_root;
	struct id delete_op;         /* "": none */
};

/* ERR_CONFLICT when a live sandbox of the tenant has the name. */
int store_sandbox_insert(struct db_tx *tx, const struct sandbox *s, struct error *err);
/* 1: found, 0: no such id, -1: error. The spec is decoded. */
int store_sandbox_get(struct db_tx *tx, const struct id *id, struct sandbox *ret, struct error *err);
int store_sandbox_head(struct db_tx *tx, const struct id *id, struct sandbox_head *ret, struct error *err);

enum match_by { MATCH_NAME, MATCH_PREFIX, MATCH_SUFFIX };
/* Newest first, at most max; tenant NULL: all. Returns how many, -1 on error. Texts of ids are lower case. */
int store_sandbox_match(struct db_tx *tx, enum match_by by, const char *text, bool live, const char *tenant,
			struct sandbox_head *ret, size_t max, struct error *err);

struct sandbox_change {
	enum sandbox_state to;
	enum outcome end_reason;  /* kept from the head when NONE */
	const char *failure;      /* NULL: kept */
	const char *image_digest; /* NULL: kept */
};
/* The only way to another state. Updates h. A state outside live ends it (ended_us = now). ERR_INTERNAL for a move the table
 * does not allow. */
int store_sandbox_move(struct db_tx *tx, struct sandbox_head *h, const struct sandbox_change *change, int64_t now, struct error *err);
/* Which operation deletes it and why (DELETED or EXPIRED). */
int store_sandbox_set_delete(struct db_tx *tx, struct sandbox_head *h, const struct id *op, enum outcome why, int64_t now,
			     struct error *err);
int store_sandbox_set_expiry(struct db_tx *tx, struct sandbox_head *h, int64_t expires_us, int64_t now, struct error *err);
/* Another node gets the sandbox that operation creates. */
struct sandbox_place {
	const struct id *sandbox, *node;
	const char *node_name;
	enum tier tier;
	const char *decision;
};
int store_sandbox_replace(struct db_tx *tx, const struct sandbox_place *p, const struct id *operation, int64_t now, struct error *err);

/* One page, newest first. Specs are kept as text until store_page_decode, which needs no transaction. */
struct sandbox_page {
	struct sandbox *items;
	char **specs;
	size_t len;
};
struct page_query {
	const char *tenant;  /* NULL: all */
	const struct id *node; /* not NULL: the live ones of this node, whatever tenant says */
	bool all;            /* ended ones too */
	const char *before;  /* id; NULL: from the newest */
	size_t limit;
};
int store_sandbox_page(struct db_tx *tx, const struct page_query *q, struct sandbox_page *ret, struct error *err);
int store_page_decode(struct sandbox_page *p, struct error *err);
void store_page_done(struct sandbox_page *p);

/* Up to max of those whose time has come and whose end nobody has asked for. Returns how many, -1 on error. */
int store_sandbox_due(struct db_tx *tx, int64_t now, struct sandbox_head *ret, size_t max, struct error *err);
/* The earliest deadline, 0 for none. */
int store_sandbox_next_due(struct db_tx *tx, int64_t *ret, struct error *err);

/* --- sandboxes that wait in a pool: live, of the tenant "", to be found by nothing but these (and the queries of a node's work) --- */

struct warm_row {
	struct id id, node;
	enum sandbox_state state;
	const char *pool, *key; /* the key is all that a request must equal */
};
/* Makes a row that was just inserted one of them. */
int store_warm_mark(struct db_tx *tx, const struct id *sandbox, const char *pool, const char *key, struct error *err);
typedef void (*warm_fn)(void *ctx, const struct warm_row *w);
int store_warm_each(struct db_tx *tx, warm_fn fn, void *ctx, struct error *err);
/* The next running one after an id ("" from the first) that does not expire before; in a shared store locked, and those that others have
 * locked are passed over. 1, 0 or -1. */
int store_warm_next(struct db_tx *tx, const char *key, int64_t usable_until_us, const struct id *after, struct id *ret, struct id *ret_node,
		    struct error *err);
/* It becomes x: a sandbox that was scheduled just now, with nothing of its past but its id, its node and its reservation. ERR_CONFLICT as
 * store_sandbox_insert. */
int store_warm_claim(struct db_tx *tx, const struct sandbox *x, struct error *err);
struct warm_failure {
	int64_t at_us; /* of the last one */
	char *why;     /* its reason; the caller frees */
	int64_t count;
};
/* Those of the pool that failed since then, not counting what was ended for being out of date. 1, 0 when there are none, -1. */
int store_warm_failed(struct db_tx *tx, const char *pool, int64_t since_us, struct warm_failure *ret, struct error *err);
/* Creates that somebody waits for and no worker has ended yet. */
int store_creates_open(struct db_tx *tx, int64_t *ret, struct error *err);

/* --- nodes and reservations --- */

struct node_row {
	struct id id;
	char name[NAME_MAX_LEN + 1];
	char region[64];
	struct resources total, used;
	uint32_t max_sandboxes, sandboxes;
	const char *offers; /* JSON text */
	int64_t seen_us;    /* read only: when it was written; so are the next two */
	bool draining;
	const char *boot_id; /* "": of the controller's own machine */
};
int store_node_put(struct db_tx *tx, const struct node_row *n, int64_t now, struct error *err);
typedef void (*node_row_fn)(void *ctx, const struct node_row *n);
int store_node_each(struct db_tx *tx, node_row_fn fn, void *ctx, struct error *err);

struct reservation {
	struct id sandbox, node;
	struct resources resources;
	struct strv anti_affinity;
};
void reservation_done(struct reservation *r);
/* Takes from the node in one statement, guarded by what it has. 1: taken, 0: does not fit (nothing changed), -1: error. */
int store_reserve(struct db_tx *tx, const struct reservation *r, struct error *err);
/* Gives back once. 1: given back, 0: there was none. ret (may be NULL) is what was held. */
int store_release(struct db_tx *tx, const struct id *sandbox, struct reservation *ret, struct error *err);
typedef void (*reservation_fn)(void *ctx, const struct reservation *r);
int store_reservation_each(struct db_tx *tx, reservation_fn fn, void *ctx, struct error *err);

/* --- operations --- */

struct op_head {
	struct id id, sandbox, node;
	char tenant[TENANT_MAX_LEN + 1];
	enum op_kind kind;
	enum op_state state;
	uint32_t attempt;
};

/* What the row of a new operation says. The environment's values are never stored. */
struct op_new {
	struct id id;
	const struct sandbox_head *sandbox;
	enum op_kind kind;
	enum op_state state;
	const struct command *command; /* EXEC */
	const char *boot_id;           /* EXEC; NULL: "" */
	bool detached;                 /* EXEC */
	uint32_t attempts;             /* how many there were already */
	const char *actor;             /* who asked; NULL: the system */
};
int store_op_insert(struct db_tx *tx, const struct op_new *op, int64_t now, struct error *err);
/* 1, 0 or -1 as store_sandbox_get. With the captured output. */
int store_op_get(struct db_tx *tx, const struct id *id, struct operation *ret, struct error *err);
int store_op_head(struct db_tx *tx, const struct id *id, struct op_head *ret, struct error *err);
/* By the last digits of the id, among the latest thousands; as store_sandbox_match. */
int store_op_match(struct db_tx *tx, const char *suffix, const char *tenant, struct operation *ret, size_t max, struct error *err);

struct op_change {
	enum op_state to;
	uint32_t attempt;
	int64_t not_before_us;       /* pending: not leased before */
	const struct result *result; /* NULL: none */
	enum error_code code;        /* NONE: none */
	const char *error;
};
/* The only way to another state, as store_sandbox_move. Updates h. */
int store_op_move(struct db_tx *tx, struct op_head *h, const struct op_change *change, int64_t now, struct error *err);

struct op_list {
	struct op_head *items;
	size_t len;
};
void op_list_done(struct op_list *l);
/* Unfinished ones, oldest first: of a node, of one sandbox on its node, or … */
struct op_filter {
	const struct id *node;
	const struct id *sandbox;
	bool creates;           /* … creates that somebody asked for, of all nodes, or … */
	const char *other_boot; /* … commands begun in another boot than this: of the node, else of those that did not join from elsewhere */
};
int store_op_open(struct db_tx *tx, const struct op_filter *f, struct op_list *ret, struct error *err);
/* Newest first; captured output is left out: `truncated` says so. sandbox and tenant NULL: all. */
int store_op_page(struct db_tx *tx, const struct id *sandbox, const char *tenant, size_t limit, struct operation **ret, size_t *ret_len,
		  struct error *err);
/* The unfinished commands of a node, whole. */
int store_op_open_execs(struct db_tx *tx, const struct id *node, struct operation **ret, size_t *ret_len, struct error *err);
int store_op_exec_count(struct db_tx *tx, const struct sandbox_head *h, int64_t *ret, struct error *err);
/* The next create or delete for a node. 1, 0 or -1. take: its sandbox is locked too; in a shared store one that somebody else
 * is changing is passed over, and the row must be read again. */
int store_op_next(struct db_tx *tx, const struct id *node, int64_t now, bool take, struct op_head *ret, struct error *err);
/* Calls fn for each delayed pending operation, the earliest first. */
typedef void (*op_retry_fn)(void *ctx, const struct id *node, int64_t not_before_us);
int store_op_retries(struct db_tx *tx, op_retry_fn fn, void *ctx, struct error *err);

/* For metrics: live sandboxes by state; commands that run. */
typedef void (*count_fn)(void *ctx, const char *word, int64_t n);
int store_sandbox_counts(struct db_tx *tx, count_fn fn, void *ctx, struct error *err);
int store_op_running(struct db_tx *tx, int64_t *ret, struct error *err);
struct db_stats store_stats(const struct store *s);

/* --- outbox, keys, retention --- */

struct event {
	struct id id;         /* filled by store_event_add */
	const char *type;     /* "sandbox.running", "operation.ended", … */
	const char *tenant;
	const struct id *sandbox;
	const struct id *operation; /* NULL: none */
	const char *detail;   /* NULL: none */
	const char *actor;    /* who asked; NULL: the system */
};
int store_event_add(struct db_tx *tx, struct event *e, int64_t now, struct error *err);
/* Before the first store_event_add of a transaction, late in it: holds back other writers of events until its end. */
int store_event_lock(struct db_tx *tx, struct error *err);
/* The newest event's id, "" when there is none. */
int store_event_last(struct db_tx *tx, struct id *ret, struct error *err);
/* How far the reader of this name has come; "" when it has not begun. */
int store_mark_get(struct db_tx *tx, const char *name, struct id *ret, struct error *err);
int store_mark_put(struct db_tx *tx, const char *name, const struct id *event, int64_t now, struct error *err);
/* Calls fn for up to limit events after the given id ("" from the first), oldest first. */
typedef void (*event_fn)(void *ctx, const struct event *e, int64_t created_us);
int store_event_each(struct db_tx *tx, const char *after, size_t limit, event_fn fn, void *ctx, struct error *err);

struct idem_key {
	const char *tenant, *route, *key;
	uint64_t body_hash;
	struct id sandbox, operation;
};
/* k names the key; 1: seen, the rest of k is filled; 0: new. */
int store_key_get(struct db_tx *tx, struct idem_key *k, struct error *err);
int store_key_add(struct db_tx *tx, const struct idem_key *k, int64_t now, struct error *err);
int store_key_drop(struct db_tx *tx, const struct idem_key *k, struct error *err);

/* Drops what ended before `before`, events and keys as old, and what is over the count limits; a bounded number of rows.
 * *ret_more: call again. */
int store_prune(struct db_tx *tx, int64_t before, bool *ret_more, struct error *err);
/* A moment before which no record's retention began, 0 when there is none. */
int store_oldest_end(struct db_tx *tx, int64_t *ret, struct error *err);

#endif
