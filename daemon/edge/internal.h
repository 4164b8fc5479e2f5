/*
 * Inside of the edge: edge.c (thread, listeners, limits), table.c (the table), visitor.c (a visitor's connection),
 * requests.c, inside.c (the stream to the server inside and its answers), links.c (mux connections), rewrite.c (heads), auth.c, page.c.
 * Edge thread only.
 */
#ifndef SANDBOX_DAEMON_EDGE_INTERNAL_H
#define SANDBOX_DAEMON_EDGE_INTERNAL_H

#include "daemon/address.h"
#include "daemon/edge/edge.h"
#include "daemon/edge/http.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/buf.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum {
	EDGE_WINDOW = 1024 * 1024, /* of each stream: what a slow visitor can pin, and what is under way to a fast one */
	EDGE_LISTENERS_MAX = 8,
	PIECE = 64 * 1024,
};

struct route {
	struct edge_route r;
	struct route *next; /* of its bucket */
	bool seen;          /* while the table is read again */
	bool gone;          /* not in the table any more; freed with its last user */
	bool answered;      /* its server took a connection once */
	int64_t added_ms;
	unsigned users;     /* requests and idle streams */
	struct idle_list { struct origin *first; size_t n; } idle;
	int64_t failures_since_ms;
	unsigned failures;  /* of visitors' secrets */
};

/* One mux connection to the daemon. */
struct link {
	struct edge *e;
	struct link *next;
	struct muxconn *conn;
	size_t streams;
};

/* A stream to a server inside; with a visitor, or idle in its route's list. */
struct origin {
	struct stream stream;
	struct edge *e;
	struct link *link;
	struct route *route;
	struct visitor *v; /* NULL: idle */
	struct origin *next_idle;
	bool accepted;
	bool used;         /* has answered a request before */
	bool ended;        /* its server said that nothing more comes */
	uint64_t received;
	int64_t idle_ms;
};

enum visitor_state {
	V_HEAD,   /* a request's head is awaited */
	V_FORM,   /* the body of a password form */
	V_SEND,   /* the request's body is passed on */
	V_WAIT,   /* the request is sent; its answer comes */
	V_RAW,    /* after an upgrade: bytes both ways */
	V_FLUSH,  /* what is written goes out, then it ends */
	V_LINGER, /* the visitor may still be sending what nobody wants */
};

struct visitor {
	struct edge *e;
	TAILQ_ENTRY(visitor) link; /* in waiting or busy */
	bool waiting;
	int fd;
	struct event *read, *write;
	struct event *again;      /* dials once more; NULL before it is needed */
	char peer[ADDRESS_TEXT_MAX];
	bool trusted;
	enum visitor_state state;
	struct buf in;
	size_t looked;            /* bytes of `in` that hold no end of a head */
	struct buf out;
	size_t out_head;
	bool in_eof, reading, seen_request;
	int64_t since_ms, moved_ms;
	/* the request at hand */
	struct route *route;
	struct origin *origin;
	struct buf request;       /* its head, until the first byte of the answer */
	size_t request_sent;
	struct body body;
	struct chunked chunks;
	bool keep, head_only, old, upgrade, repeatable;
	bool client_old;          /* HTTP/1.0 */
	/* the answer at hand */
	struct buf answer;        /* its head while it is not complete */
	bool answering;           /* bytes of the final answer were written */
	bool answer_keep;         /* the server keeps its connection */
	bool unchunk;             /* the visitor does not know chunks */
	bool in_body;
	struct body answer_body;
	struct chunked answer_chunks;
};

TAILQ_HEAD(visitors, visitor);

struct listener {
	int fd;
	bool local; /* a unix socket: peers are trusted */
	struct event *ev;
	struct edge *e;
	char *path; /* unix: removed at the end */
};

enum { BUCKETS = 1024 };

struct edge {
	struct edge_options o;
	char *domain, *scheme;
	char origin_suffix[300]; /* ".domain[:port]" of public addresses */
	struct subnets trusted;
	struct event_base *base;
	struct muxloop *muxloop;
	pthread_t thread;
	bool running;
	struct event *tick, *notify;
	struct listener listeners[EDGE_LISTENERS_MAX];
	size_t n_listeners;
	uint16_t port;        /* of the first TCP listener */
	unsigned public_port;
	struct visitors waiting, busy;
	size_t n_visitors;
	size_t queued; /* bytes in the visitors' queues */
	struct link *links;
	struct route *buckets[BUCKETS];
	struct route *gone; /* by next */
	atomic_bool stale;
	int64_t complained_ms;
	atomic_ullong requests, refused, failed, certified, uncertified;
	atomic_size_t connections;
	char piece[PIECE];
};

/* --- table.c --- */
/* By the first label of a host below the domain; NULL. Reads the table again first when it has changed. */
struct route *edge_table_find(struct edge *e, const char *host);
void edge_table_refresh(struct edge *e);
void route_release(struct edge *e, struct route *r);
void edge_table_free(struct edge *e);

/* --- links.c --- */
/* A stream to the route's port. NULL with err when there is no way to the daemon. */
struct origin *origin_open(struct edge *e, struct route *r, struct error *err);
/* An idle one of the route, NULL: none. */
struct origin *origin_take_idle(struct route *r);
void origin_give_idle(struct origin *o);
void origin_close(struct origin *o); /* NULL is fine; its visitor is not told */
void origin_reap_idle(struct route *r, int64_t now); /* those idle for too long; now 0: all */
void links_free(struct edge *e);

/* --- inside.c --- */
extern const struct stream_ops origin_ops;
/* Sends what of the request waits. */
void origin_push(struct visitor *v);
void origin_consumed(struct visitor *v);

/* --- visitor.c --- */
void visitor_reading(struct visitor *v, bool on);
void visitor_enter(struct visitor *v, enum visitor_state state);
/* Drops the request at hand; ends when what was written is out. */
void visitor_end(struct visitor *v);
void visitor_new(struct edge *e, int take_fd, const char *peer, bool trusted);
void visitor_free(struct visitor *v);
/* Ends the connection at once, by a reset when bytes of an answer are missing. */
void visitor_abort(struct visitor *v);
void visitor_write(struct visitor *v, const void *p, size_t n);
/* Dials once more in a moment; the request waits. */
void visitor_dial_later(struct visitor *v);
/* The answer is complete. */
void visitor_answered(struct visitor *v);
/* The request is over: the next one, or the end of the connection when what was written is out. */
void visitor_next(struct visitor *v, bool keep);
/* An answer of the edge's own ends the request at hand. */
void visitor_page(struct visitor *v, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void visitor_tick(struct visitor *v, int64_t now);
void visitor_busy(struct visitor *v, bool busy);

/* --- requests.c --- */
/* Goes on with what came: requests, bodies. */
void visitor_process(struct visitor *v);
/* Sends the request to a stream, again when it was given one that had just ended. */
void visitor_dial(struct visitor *v, bool fresh);
/* Answers what is no good request and ends the connection. */
void visitor_refuse(struct visitor *v, int status, const char *why);

/* --- rewrite.c --- */
void rewrite_request(const struct visitor *v, const struct head *h, bool drop_authorization, struct buf *out);
/* keep: whether the visitor's connection stays. */
void rewrite_answer(const struct visitor *v, const struct head *h, bool keep, struct buf *out);

/* --- auth.c --- */
#define EDGE_COOKIE "sandbox_visitor"
#define EDGE_LOGIN "/.sandbox/login"
enum verdict { VERDICT_IN, VERDICT_ANSWERED, VERDICT_FORM };
/* IN: go on; *ret_authorization: the Authorization header was for the edge. ANSWERED: the visitor has a page. FORM: the login form's body
 * is to be read. */
enum verdict auth_check(struct visitor *v, const struct head *h, bool *ret_authorization);
/* The body of the form. */
void auth_form(struct visitor *v, const char *body, size_t n);
bool auth_cookie_name(struct span cookie); /* "NAME=…" is the edge's own */

/* --- page.c --- */
/* A whole answer. extra: header lines with CRLF, or "". */
void page_write(struct visitor *v, int status, const char *type, const char *extra, const char *text);
const char *status_reason(int status);

#endif
