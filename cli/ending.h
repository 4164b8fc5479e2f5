/* What the end of a command's stream means to a person and to a script: exit status, one line of text, the --status-fd line. */
#ifndef SANDBOX_CLI_ENDING_H
#define SANDBOX_CLI_ENDING_H

#include "cli/cli.h"
#include "cli/stream.h"

/* Exit statuses of exec, run, shell and attach besides the command's own and 128 + signal. */
enum {
	STATUS_TIMEOUT = 124,
	STATUS_TOOL = 125,        /* the tool itself failed, or the outcome is unknown */
	STATUS_NOT_EXECUTABLE = 126,
	STATUS_NO_PROGRAM = 127,
	STATUS_HUNG_UP = 128 + 1, /* left by the escape keys */
	STATUS_READER_GONE = 128 + 13,
};

int ending_status(const struct stream_result *r);
/* The kind of failure a refused stream is, for hints and the error object. */
enum error_code ending_code(enum mux_error e);
/* One line without a newline, safe for a terminal; NULL when the status says it all. timeout_ms: the limit that was set, 0: none.
 * Caller frees. */
char *ending_text(const struct stream_result *r, int64_t timeout_ms);
/* Puts such a line on stderr: it explains the status, so -q does not silence it. */
void ending_say(const char *text);
/* Writes one JSON line {outcome, code, signal, oom_killed, stdout_bytes, stderr_bytes, operation, error} to fd. failure: the tool's own
 * failure when no stream came about, else NULL (then r is the end). */
int ending_write(int fd, const struct stream_result *r, const struct error *failure, struct error *err);

#endif
