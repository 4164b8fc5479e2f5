/* What one invocation of the CLI knows: the global options, how it may print, and the session it opened. No file-level state. */
#ifndef SANDBOX_CLI_CLI_H
#define SANDBOX_CLI_CLI_H

#include "cli/options.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

struct session;

struct cli {
	/* global options; text borrowed from argv or the environment, NULL when not given */
	const char *server;  /* --server, else SANDBOX_URL */
	const char *tenant;  /* --tenant, else SANDBOX_TENANT */
	const char *json;    /* --json: "" for all, else the fields selected; NULL: not JSON */
	bool quiet;          /* -q: ids only, no notes */
	bool debug;          /* --debug, SANDBOX_DEBUG: requests on stderr */
	/* surroundings */
	bool out_tty, err_tty;
	bool colour;         /* on stdout; never under NO_COLOR, CI or without a terminal */
	bool progress;       /* a redrawn line on stderr: a terminal, not quiet, not CI */
	/* state */
	struct session *session; /* opened by the first call; cli/session.h */
	cJSON *error_body;   /* the last error body the server sent ({code, message, request_id, …}), owned; NULL: none */
	char *hint;          /* one line on how to go on after the error being returned, owned; NULL: chosen by its code */
};

extern const struct option_row cli_globals[];

/* Replaces cli->hint (printf). */
void cli_hint(struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
