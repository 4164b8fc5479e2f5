/*
 * Starting a command in a sandbox, shared by exec, run and shell: the options they have in common, the OPEN they become, and the
 * run of its stream up to the exit status.
 */
#ifndef SANDBOX_CLI_LAUNCH_H
#define SANDBOX_CLI_LAUNCH_H

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/stream.h"
#include "shared/base/limits.h"

struct launch_options {
	struct strv env, env_file;
	const char *cwd, *user;
	int64_t timeout_ms;
	bool no_stdin, interactive, tty;
	const char *escape;     /* one character or "none"; NULL: ~ */
	int64_t status_fd;      /* -1: none */
};

#define LAUNCH_DEFAULTS .status_fd = -1

/* Option rows for a struct T whose member m is a struct launch_options. */
#define LAUNCH_ROWS(T, m) \
	OPT_LIST('e', "env", T, m.env, "NAME[=VALUE]", "variable; NAME alone takes the local value, if set"), \
	OPT_LIST(0, "env-file", T, m.env_file, "FILE", "read NAME=VALUE lines, literally (# comments)"), \
	OPT_TEXT('w', "cwd", T, m.cwd, "DIR", "working directory, an absolute path"), \
	OPT_TEXT('u', "user", T, m.user, "USER[:GROUP]", "run as this user, by name or number"), \
	OPT_DURATION(0, "timeout", T, m.timeout_ms, "TIME", 1, 1000LL * LIMIT_TTL_MAX_SECONDS, "end the command after TIME (exit status 124)"), \
	OPT_FLAG('t', "tty", T, m.tty, "give the command a terminal"), \
	OPT_FLAG('i', "interactive", T, m.interactive, "accepted for habit: input is passed on anyway"), \
	OPT_FLAG(0, "no-stdin", T, m.no_stdin, "leave standard input alone: the command's is empty"), \
	OPT_INT(0, "status-fd", T, m.status_fd, "N", 0, 1 << 20, "write how it ended as a JSON line to descriptor N"), \
	OPT_TEXT(0, "escape", T, m.escape, "KEY", "escape key on a terminal, or none (default ~)")

struct launch {
	const char *sandbox;    /* id, name, prefix or suffix */
	const struct launch_options *options;
	const struct words *argv;
	bool shell_fallback;    /* /bin/sh when the program is missing */
	bool detach;
	bool must_return;       /* something is cleaned up afterwards */
};

/*
 * Checks the request, runs it, reports on stderr and on the status descriptor, prints the operation with --json. Returns the exit
 * status, or -1 with err when nothing was started. With detach it prints the operation's id once the server has taken it.
 */
int launch_run(struct cli *cli, const struct launch *l, struct error *err);

#endif
