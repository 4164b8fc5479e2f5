/*
 * Running commands: one job per exec, with one bounded spool that serves the live reader, attach, logs and the record.
 * Event loop thread only, except where said. The job survives its reader: a foreground command waits RESUME_GRACE for
 * its client to come back; a detached one has no reader. After a daemon restart jobs are rebuilt from the spool
 * directory and init's retained state, or end as lost.
 */
#ifndef SANDBOX_DAEMON_EXEC_H
#define SANDBOX_DAEMON_EXEC_H

#include "daemon/controller/controller.h"
#include "daemon/worker/initlink.h"
#include "shared/model/model.h"

struct execs;
struct image_config;

struct execs *execs_new(struct event_base *base, struct controller *c, struct initlinks *links, const char *state_dir);
void execs_free(struct execs *e); /* running commands keep running */

/* What the image and spec give every command of the sandbox: environment, user, directory (any thread). Persisted. */
int execs_set_defaults(struct execs *e, const struct sandbox *s, const struct image_config *image, struct error *err);
/* The sandbox goes: its jobs end with this outcome (any thread). */
void execs_drop(struct execs *e, const struct id *sandbox, enum outcome why);
/* Runs the spec's start command once the link is greeted (any thread). */
int execs_start_main(struct execs *e, const struct sandbox *s, struct error *err);
/* Takes over the unfinished execs of a node after a restart (any thread, before serving). */
void execs_recover(struct execs *e, const struct operation_list *unfinished);

/* Starts a granted command without a reader: the REST path (any thread). */
void execs_start_detached(struct execs *e, const struct exec_grant *grant, const struct command *cmd);
/* TERM, then KILL, to the tree of a running command; outcome canceled (any thread). ERR_NOT_FOUND, ERR_CONFLICT when it ended. */
int execs_cancel(struct execs *e, const struct id *operation, int signal, struct error *err);

/* Serves a client's mux connection after the upgrade: takes the descriptor and the bytes read so far (any thread). */
void execs_serve_client(struct execs *e, const struct caller *who, int take_fd, const void *early, size_t n, void (*gone)(void *ctx), void *ctx);

#endif
