/*
 * The machine's own git, over bare repositories of ours. Nothing that a sandbox wrote is configuration to it: no settings of the system,
 * the user or a work tree, no hooks, no attributes, no programs of diff drivers. Its messages are read, never passed to the terminal.
 */
#ifndef SANDBOX_CLI_GIT_H
#define SANDBOX_CLI_GIT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <sys/types.h>

/* Borrowed texts. */
struct git {
	const char *dir;       /* the repository; made by git_init */
	const char *objects;   /* of another repository, read too; NULL: none */
	const char *work_tree; /* for check-ignore and checkout; NULL: none */
};

enum git_pipes { GIT_IN = 1, GIT_OUT = 2 };

/* A running git: in and out are close-on-exec and -1 where not asked for. */
struct git_child {
	const struct git *git;
	const char *what;
	pid_t pid;
	int in, out;
};

#define GIT_CHILD_INIT { .pid = -1, .in = -1, .out = -1 }

/* An empty bare repository with nobody else's access; its parent directory exists. ERR_NOT_FOUND: there is no git here. */
int git_init(const struct git *g, struct error *err);
/* args: a NULL-ended list behind `git`, its first word the command. */
int git_start(const struct git *g, const char *const *args, unsigned pipes, struct git_child *ret, struct error *err);
/* Closes the pipes and waits. ERR_SYSTEM with git's own words when it failed. Nothing to do for one that never started. */
int git_end(struct git_child *c, struct error *err);
/* Runs to the end, standard output into out (of at most its maximum: ERR_TOO_LARGE). */
int git_capture(const struct git *g, const char *const *args, struct buf *out, struct error *err);

#endif
