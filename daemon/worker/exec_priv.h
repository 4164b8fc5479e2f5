/*
 * Inside of the exec data plane: exec.c (the table and the public calls), exec_open.c (defaults, the OPEN for init),
 * exec_run.c (one command towards init), exec_deadlines.c (what it may not wait for longer), exec_end.c (outcome and record), serve.c (clients' streams), reader.c (those
 * that watch), relay.c (those that are only passed on), dial.c (connections to a sandbox's ports). Event loop thread only.
 */
#ifndef SANDBOX_DAEMON_EXEC_PRIV_H
#define SANDBOX_DAEMON_EXEC_PRIV_H

#include "daemon/link/refusal.h"
#include "daemon/worker/exec.h"
#include "daemon/worker/idmap.h"
#include "daemon/worker/muxconn.h"
#include "daemon/worker/ring.h"
#include "daemon/worker/spool.h"
#include "shared/crypto/secret_values.h"

#include <pthread.h>

struct event;
struct mailbox;

/* What image and spec give every command of a sandbox. */
struct defaults {
	struct strv env; /* "K=V", unique keys */
	char *user;	 /* NULL: root */
	char *cwd;	 /* never NULL */
	bool secrets;	 /* it uses some */
};

/* What is in hand for one sandbox. */
struct box {
	struct id sandbox;
	struct exec *execs; /* list by box_next */
	size_t n_execs;
	struct relay *relays;	   /* list */
	struct dial *dials;	   /* list */
	struct defaults *defaults; /* NULL: not read yet */
	struct secret_values secrets;
	bool has_secrets;	   /* they were said */
	bool dropped;		   /* the sandbox is gone */
	bool busy;		   /* somebody walks it: not to be freed now */
};

/* Stdin on its way: bytes [acked, received) are kept, so that another link can be given them again. */
struct stdin_pipe {
	struct ring ring;
	uint64_t acked;	   /* consumed inside */
	uint64_t sent;	   /* handed to the link */
	uint64_t received; /* from the client */
	bool eof, eof_sent;
};

enum exec_state {
	EXEC_WAITING, /* for a link */
	EXEC_OPENING, /* OPEN or RESUME is on its way */
	EXEC_RUNNING,
	EXEC_ENDED,
};

struct exec {
	struct execs *all;
	struct box *box;
	struct exec *box_next;
	struct exec *dirty_next;
	bool dirty;
	struct id key; /* the operation; the sandbox's own id for its start command */
	enum exec_state state;
	bool delivered; /* OPEN was sent once: from then on only RESUME */
	bool resuming;	/* the stream to init began with RESUME */
	bool resumable; /* init answered: the stdin offset is known */
	bool has_stdin;
	bool held; /* a foreground reader, present or in its grace, holds the producer back */
	bool canceling;
	bool warned; /* the spool's trouble was logged */
	struct spool_info info;
	struct tlv open; /* fields for init, until delivered */
	struct stream init;
	struct spool *spool; /* NULL until there is something to keep */
	bool eof[SPOOL_CHANNELS];
	uint64_t acked[SPOOL_CHANNELS]; /* what init may forget */
	uint64_t asked[SPOOL_CHANNELS]; /* where the last RESUME asked output to go on */
	struct stdin_pipe in;
	uint64_t signals;	/* not yet sent, bit n: signal n */
	uint16_t rows, cols;	/* not yet sent, 0: none */
	struct reader *owner;	/* the foreground reader; also in readers */
	struct reader *readers; /* list */
	struct event *timer;
	int64_t timeout_ms; /* init enforces it */
	pid_t supervisor; /* as init said, 0: it did not */
	bool rescued;        /* its processes were, or are to be, ended from outside */
	/* Monotonic, 0: none. overdue: init should have ended the command by then; rescue: by then where nothing is in its way. */
	int64_t link_by_ms, resume_by_ms, rescue_ms, overdue_ms, record_at_ms;
	struct spool_end end;
	bool whole;    /* the record will hold all its output */
	bool reporting; /* the controller was told and has not answered */
	bool recorded; /* the store has it */
	bool told;     /* the outcome may be told */
	unsigned record_tries;
};

/* A client's stream that shows an exec. */
struct reader {
	struct stream stream;
	struct exec *exec;
	struct reader *next;
	bool owner;   /* foreground: its stdin, signals and acknowledgements count */
	bool starter; /* of a detached command: told whether it started and how it ended, no output */
	bool accepted;
	uint64_t pos[SPOOL_CHANNELS]; /* next spool byte to send */
	bool eof[SPOOL_CHANNELS];
	bool times;   /* is told when bytes arrived */
	int64_t time_us[SPOOL_CHANNELS]; /* told last; -1: nothing yet */
};

struct execs {
	struct event_base *base;
	struct upstream *up;
	struct initlinks *links;
	struct mailbox *mail;
	char *state_dir;
	struct idmap table; /* key → struct exec */
	struct idmap boxes; /* sandbox → struct box */
	struct exec *dirty; /* to be settled on this turn of the loop */
	struct event *ev_dirty;
	struct keeper *keeper;
	pthread_mutex_t rescuer_lock; /* held while it runs */
	const struct execs_rescuer *rescuer;
	void *rescuer_ctx;
	char *live_dir; /* spools of running commands, in memory where there is a place for it */
};

/* --- exec.c --- */
struct box *box_get(struct execs *e, const struct id *sandbox); /* made when absent */
void box_release(struct execs *e, struct box *b);		/* frees an empty one */
/* Starts what was granted. It always comes back: a command that cannot start has ended (and is freed later this turn). */
struct exec *exec_start(struct execs *e, const struct exec_grant *grant, const struct command *cmd, unsigned flags, bool detached,
			const char *owner);
/* Init did not end what it had to: whoever asked to be told is told. */
void execs_stuck(struct execs *e, const struct id *sandbox);
void execs_starved(struct execs *e, const struct id *sandbox, pid_t supervisor, bool given_up);
/* In live_dir or (kept) STATE/execs: <operation>, or main-<sandbox> of a start command. */
enum spool_place { SPOOL_LIVE, SPOOL_KEPT };
int spool_path(const struct execs *e, enum spool_place place, const struct id *key, bool main, char *out, size_t n);

/* --- exec_open.c --- */
void defaults_free(struct defaults *d);
const struct defaults *box_defaults(struct execs *e, struct box *b, struct error *err);
/* Flags of enum mux_open_flag beyond what the command says. ERR_TOO_LARGE. */
int exec_build_open(struct exec *x, const struct command *cmd, bool keep_caps, unsigned flags, struct error *err);

/* What was built for init is of no more use: it may hold secrets. */
void exec_forget_open(struct exec *x);

/* --- exec_run.c --- */
struct exec *exec_new(struct execs *e, const struct id *key, const struct spool_info *info);
/* Removes it everywhere; its readers are gone. The spool file stays. */
void exec_free(struct exec *x);
/* Sends OPEN or RESUME when there is a link, else waits for one. */
void exec_dial(struct exec *x);
void exec_wait_link(struct exec *x, int64_t wait_ms);
struct spool *exec_spool(struct exec *x); /* made when absent */
uint64_t exec_total(const struct exec *x, unsigned ch);
/* init may forget what lies below offset. */
void exec_ack(struct exec *x, unsigned ch, uint64_t offset);
/* Init has to have ended it in_ms from now: what happens if not is armed. */
void exec_due(struct exec *x, int64_t in_ms);
/* Nobody holds the producer back any more. */
void exec_let_go(struct exec *x);
void exec_cancel(struct exec *x);
void exec_signal(struct exec *x, unsigned sig);
void exec_resize(struct exec *x, uint16_t rows, uint16_t cols);
/* The foreground reader went without a word: its grace begins. */
void exec_orphaned(struct exec *x);
/* -1: outside of what was granted. */
int exec_stdin(struct exec *x, uint64_t offset, const void *p, size_t n);
void exec_stdin_eof(struct exec *x);
void exec_arm(struct exec *x);

/* --- exec_end.c --- */
struct spool_end exec_end_text(enum outcome outcome, enum mux_error why, const char *text);
/* Ends it and records it; its readers get the rest and then the outcome. */
void exec_end(struct exec *x, const struct spool_end *end);
void exec_end_from_init(struct exec *x, const struct tlv *fields);
void exec_record(struct exec *x);
/* Later on this turn: serves all readers, and frees x when it ended and nobody is left. */
void exec_settle(struct exec *x);
void execs_settle_dirty(struct execs *e);
void exec_close_fields(const struct exec *x, struct tlv *fields);

/* --- reader.c --- */
struct reader *reader_new(struct exec *x, struct mux *m, uint32_t stream);
/* Takes it from its exec; the caller settles the exec. */
void reader_free(struct reader *r);
void reader_accept(struct reader *r);
void reader_pump(struct reader *r);
/* The owner of x from now on, from these offsets. */
void reader_take_over(struct reader *r, const uint64_t from[SPOOL_CHANNELS]);
void reader_follow(struct reader *r, const struct node_stream *what);

/* --- recover.c --- */
/* An exec that is not in the table, ended, from its record and spool. ERR_UNAVAILABLE: not ended, so not taken over yet. */
struct exec *exec_load_ended(struct execs *e, const struct operation *op, struct error *err);
/* The same for a start command. ERR_NOT_FOUND. */
struct exec *exec_load_main(struct execs *e, const struct id *sandbox, struct error *err);

/* --- relay.c --- */
struct relay;
/* Passes a client's stream on to init, once it is linked: within LIMIT_LINK_WAIT_MS, or the stream is refused. It is answered, now or
 * later. */
void relay_open(struct execs *e, struct box *b, struct mux *client, uint32_t stream, const struct tlv *init_fields);
/* Init is linked: what waited for that goes on. The caller keeps b from being freed. */
void relay_link_up(struct box *b, struct mux *far);
/* A client's stream on which nothing flows: closed when the sandbox ends. */
void relay_watch(struct execs *e, struct box *b, struct mux *client, uint32_t stream);
void relay_end_all(struct box *b, enum mux_error why, const char *text);

/* --- dial.c --- */
struct dial;
/* Connects to a port of the sandbox's own loopback without sandbox-init; the stream is answered, now or later. False: this process cannot. */
bool dial_open(struct execs *e, struct box *b, struct mux *client, uint32_t stream, uint16_t port);
void dial_end_all(struct box *b, enum mux_error why, const char *text);

/* --- live_dir.c --- */
/* NULL: there is none to be had. Removes those of state directories that are gone. */
char *live_dir_open(const char *state_dir);
/* Made again when somebody removed it, as session managers do with what a user leaves in /dev/shm. */
void live_dir_renew(const char *dir, const char *state_dir);
void live_dir_close(const char *dir); /* removes it when it holds no spool */

/* --- keeper.c --- */
/* live_dir and dir may be the same. */
struct keeper *keeper_new(struct event_base *base, const char *live_dir, const char *dir);
void keeper_free(struct keeper *k);				   /* waits for the work in hand */
void keeper_set_retention(struct keeper *k, int64_t retention_ms); /* any thread */
void keeper_archive(struct keeper *k, const char *from, const char *to);

#endif
