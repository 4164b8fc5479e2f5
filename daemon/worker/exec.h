/*
 * Running commands: one job per exec, with one bounded spool that serves the live reader, attach, logs and the record.
 * Event loop thread only, except where said. The job survives its reader: a foreground command waits RESUME_GRACE for
 * its client to come back; a detached one has no reader. After a daemon restart jobs are rebuilt from the spool
 * directory and init's retained state, or end as lost.
 */
#ifndef SANDBOX_DAEMON_EXEC_H
#define SANDBOX_DAEMON_EXEC_H

#include "daemon/link/upstream.h"
#include "daemon/worker/initlink.h"
#include "shared/model/model.h"

struct execs;
struct image_config;
struct node_stream;
struct secret_values;

struct execs *execs_new(struct event_base *base, struct upstream *up, struct initlinks *links, const char *state_dir);
void execs_free(struct execs *e); /* running commands keep running */
/* How long the output of ended commands is kept (any thread); 24 hours when never called. */
void execs_set_retention(struct execs *e, int64_t retention_ms);

/* What the image and spec give every command of the sandbox (any thread). Kept in STATE/sandboxes/<id>/defaults.json.
 * Environment: a PATH, the image's, SANDBOX_ID, the spec's, then the command's, later wins; TERM=xterm with a terminal
 * when nobody set it. User: the command's, else the image's, else root. Directory: the command's, else the image's
 * WORKDIR, and /workspace when that is unset or "/". */
int execs_set_defaults(struct execs *e, const struct sandbox *s, const struct image_config *image, struct error *err);
/* What its commands get in their environment beyond that, kept in memory only (any thread; takes it). Until it was said, commands of a
 * sandbox that uses secrets are refused. */
void execs_set_secrets(struct execs *e, const struct id *sandbox, struct secret_values *take_v);
/* The sandbox goes: its jobs end with this outcome, and a lost one with the reason (NULL: none is known). They are recorded, with their output, when it returns (any thread;
 * an event loop that does not answer for seconds does it later). */
void execs_drop(struct execs *e, const struct id *sandbox, enum outcome why, const char *reason);
/* Runs the spec's start command once the link is greeted (any thread); nothing to do when it has none. It has no
 * operation: its spool carries the sandbox's id, and ATTACH with SANDBOX and without OPERATION shows it. */
int execs_start_main(struct execs *e, const struct sandbox *s, struct error *err);
/* Called (loop thread) when sandbox-init is late in ending a command. */
struct execs_rescuer {
	/* Perhaps it gets no turn. Whatever descends from this process of the sandbox, as the sandbox numbers it, may be ended from
	 * outside; init's word, so to be checked (0: it said none). given_up: the command has its outcome, but init could not end all
	 * of it: what cannot be ended from outside then, nobody ends but with the sandbox. */
	void (*starved)(void *ctx, const struct id *sandbox, pid_t supervisor, bool given_up);
	/* For good: only the runtime is left to end the sandbox. */
	void (*stuck)(void *ctx, const struct id *sandbox);
};
/* They run under a lock; after a call with NULL they do not run any more (any thread). r stays the caller's. */
void execs_on_late(struct execs *e, const struct execs_rescuer *r, void *ctx);
/* Takes over the unfinished execs of a node after a restart (any thread, before serving). */
void execs_recover(struct execs *e, const struct operation_list *unfinished);

/* Starts a granted command without a reader: the REST path (any thread). */
void execs_start_detached(struct execs *e, const struct exec_grant *grant, const struct command *cmd);
/* Signal 0: TERM, then KILL, to the tree of a running command; outcome canceled. Else: that signal to its foreground
 * process group; the outcome is what the command makes of it (any thread). ERR_NOT_FOUND, ERR_CONFLICT when it ended. */
int execs_cancel(struct execs *e, const struct id *operation, int signal, struct error *err);

/* Answers a stream, now or later (loop thread). -1: nothing was done to it, err says why. */
int execs_open(struct execs *e, struct mux *m, uint32_t stream, const struct node_stream *what, struct error *err);

#endif
