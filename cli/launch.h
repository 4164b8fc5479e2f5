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

/* Option rows for a struct T whose member m is a struct launch_options: those people use, and the others. */
#define LAUNCH_ROWS_MAIN(T, m) \
	OPT_SECRETS('e', "env", T, m.env, "NAME[=VALUE]", "variable; NAME alone takes the local value, if set"), \
	OPT_TEXT('w', "cwd", T, m.cwd, "DIR", "working directory, an absolute path"), \
	OPT_TEXT('u', "user", T, m.user, "USER[:GROUP]", "run as this user, by name or number"), \
	OPT_DURATION(0, "timeout", T, m.timeout_ms, "TIME", 1, 1000LL * LIMIT_TTL_MAX_SECONDS, "end the command after TIME (status 124)"), \
	OPT_FLAG('t', "tty", T, m.tty, "give the command a terminal"), \
	OPT_FLAG(0, "no-stdin", T, m.no_stdin, "leave standard input alone")

#define LAUNCH_ROWS_REST(T, m) \
	OPT_LIST(0, "env-file", T, m.env_file, "FILE", "read NAME=VALUE lines, literally (# comments)"), \
	OPT_FLAG('i', "interactive", T, m.interactive, "accepted for habit: input is passed on anyway"), \
	OPT_INT(0, "status-fd", T, m.status_fd, "N", 0, 1 << 20, "write how it ended as a JSON line to descriptor N"), \
	OPT_TEXT(0, "escape", T, m.escape, "KEY", "escape key on a terminal, or none (default ~)")

/* What the man pages of these verbs say in common. */
#define LAUNCH_MANUAL \
	"Standard input is passed on as the command reads it; its end half-closes the command's input. The command's own end decides: it ends " \
	"the verb at once, however much local input is left. In a loop that reads its own input, use --no-stdin. Standard output and error " \
	"stay apart and byte-exact; with --tty they are one stream, as on any terminal.\n" \
	"\n" \
	"The arguments cross as they are: no shell takes part unless one is named (sh -c '...'). --env NAME without a value takes the local " \
	"value and is skipped when there is none; a later value replaces an earlier one. An environment file is literal: one NAME=VALUE a " \
	"line, no quoting, lines that start with # and empty lines skipped.\n" \
	"\n" \
	"INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded to the command's process group. A second one of the first four within a second, or " \
	"5 seconds without an end, cancels the command and leaves with 128 + number. When the reader of standard output goes away, the " \
	"command gets SIGPIPE and the status is 141.\n" \
	"\n" \
	"When the connection breaks (a daemon restart), the stream is resumed for up to 10 seconds without losing or repeating a byte.\n" \
	"\n" \
	"Exit status: the command's own; 128 + n when signal n ended it; 124 its --timeout; 125 the tool itself failed or the outcome is " \
	"unknown; 126 the program cannot be run, or the argument list is too long; 127 there is no such program."

/* And of terminals. */
#define LAUNCH_MANUAL_TTY \
	"On a local terminal the escape keys, typed after a newline, are ~. to leave (status 129), ~^Z to suspend, and ~~ for one ~. " \
	"--escape names another key, or none."

struct launch {
	const char *sandbox;    /* id, name, prefix or suffix */
	const struct launch_options *options;
	const struct words *argv;
	bool shell_fallback;    /* /bin/sh when the program is missing */
	bool detach;
	bool must_return;       /* something is cleaned up afterwards */
	const char *no_program; /* said when there is no such program; NULL: nothing */
};

/*
 * Checks the request, runs it, reports on stderr and on the status descriptor, prints the operation with --json. Returns the exit
 * status, or -1 with err when nothing was started. With detach it prints the operation's id once the server has taken it.
 */
int launch_run(struct cli *cli, const struct launch *l, struct error *err);

#endif
