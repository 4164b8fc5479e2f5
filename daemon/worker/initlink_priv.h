/* Links, inside: initlink.c has the table and the calls of others, initlink_gate.c what a connection passes to be a link. */
#ifndef SANDBOX_DAEMON_INITLINK_PRIV_H
#define SANDBOX_DAEMON_INITLINK_PRIV_H

#include "daemon/worker/idmap.h"
#include "daemon/worker/initlink.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"

#include <event2/event.h>
#include <limits.h>
#include <pthread.h>

enum { INIT_KEY_LEN = 32, PENDING_MAX = 4 };

struct link;

/* A connection that has not passed the gates. */
struct pending {
	struct link *link;
	int fd; /* held until the pid is known; -1 when conn reads it */
	struct muxconn *conn;
	struct event *ev_late;
	bool done; /* the slot is free */
};

struct link {
	struct initlinks *owner;
	struct id sandbox;
	char dir[PATH_MAX];
	int listen_fd;
	struct event *ev_accept, *ev_pause;
	bool expected;
	bool key_only;
	pid_t pid;
	int64_t deadline_us; /* 0: init knows */
	bool has_key;
	uint8_t key[INIT_KEY_LEN];
	struct pending pending[PENDING_MAX];
	struct muxconn *conn; /* the greeted one */
	int netns;            /* its peer's, -1: not to be entered */
	int64_t logged_ms;
	unsigned refused; /* since the last log line */
};

struct initlinks {
	struct event_base *base;
	char *state_dir;
	struct muxloop *loop;
	struct mailbox *box;
	struct idmap links; /* loop thread */
	initlink_up up;
	void *up_ctx;
	initlink_opened opened;
	void *opened_ctx;
	pthread_mutex_t lock; /* guards greeted; changed is signalled with it */
	pthread_cond_t changed;
	struct idmap greeted; /* values are not used */
};

/* --- initlink.c --- */
void link_set_greeted(struct link *k, bool yes);

/* --- initlink_gate.c, loop thread --- */
void link_init_pending(struct link *k);
void link_load_key(struct link *k); /* any thread, before the link is shared */
/* Accepts connections from the listening socket; also on a link that has accepted from another. */
void link_watch(struct link *k);
void link_unwatch(struct link *k);
/* The pid is known: connections that were held meet the gates. */
void link_check_held(struct link *k);
/* Drops everything that is not a link yet. */
void link_drop_pending(struct link *k);
/* One line per sandbox and a few seconds, whatever comes. */
void link_log_refused(struct link *k, const char *why);

#endif
