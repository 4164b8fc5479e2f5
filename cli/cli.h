/* What one invocation of the CLI knows: the global options, how it may print, and the session it opened. No file-level state. */
#ifndef SANDBOX_CLI_CLI_H
#define SANDBOX_CLI_CLI_H

#include "cli/options.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

struct session;
struct ini_doc;

/* Where a value came from. */
enum origin { ORIGIN_DEFAULT, ORIGIN_CONTEXT, ORIGIN_ENVIRONMENT, ORIGIN_FLAG };

struct cli {
	/* global options; text borrowed from argv or the environment, NULL when not given */
	const char *server;  /* --server; after settings_resolve what counts, NULL: the local socket */
	const char *tenant;  /* --tenant; after settings_resolve what counts */
	const char *context; /* --context */
	const char *ca_file; /* --ca-file, else SANDBOX_CA_FILE */
	bool insecure_http;  /* --insecure-http, SANDBOX_INSECURE_HTTP: a token may go over plain http */
	const char *token;   /* SANDBOX_TOKEN; never an option: process lists show those to everybody */
	const char *json;    /* --json: "" for all, else the fields selected; NULL: not JSON */
	bool quiet;          /* -q: ids only, no notes */
	bool debug;          /* --debug, SANDBOX_DEBUG: requests on stderr */
	bool dry_run;        /* --dry-run: requests that change something are shown instead of sent */
	bool no_start;       /* the local daemon is never started */
	const char *format;  /* --format: a template for each result */
	bool tree;           /* --tree: list every command */
	/* settings (cli/settings.h, cli/place.h); texts owned */
	enum origin server_origin, tenant_origin;
	char *context_name;  /* the context that counts, NULL: none */
	const char *context_origin;
	char *context_url, *context_tenant;
	struct ini_doc *project;  /* the project file, when run or create read one; option texts borrow from it */
	char *project_path, *project_said, *project_refused, *project_upload;
	char *default_sandbox; /* of this directory, once it was used in place of an argument */
	/* surroundings */
	bool out_tty, err_tty;
	bool colour;         /* on stdout; never under NO_COLOR, CI or without a terminal */
	bool progress;       /* a redrawn line on stderr: a terminal, not quiet, not CI */
	int interrupt;       /* waits of this session end when it is readable, -1: none; 0: the signals of cli/interrupt.h */
	/* state */
	struct session *session; /* opened by the first call; cli/session.h */
	cJSON *error_body;   /* the last error body the server sent ({code, message, request_id, …}), owned; NULL: none */
	bool dry_shown;      /* a request was shown instead of sent: an error without a code then means that */
	char *hint;          /* one line on how to go on after the error being returned, owned; NULL: chosen by its code */
};

extern const struct option_row cli_globals[];

/* Replaces cli->hint (printf). */
void cli_hint(struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
