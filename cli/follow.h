/* Showing a command's output from its spool, for attach and logs. */
#ifndef SANDBOX_CLI_FOLLOW_H
#define SANDBOX_CLI_FOLLOW_H

#include "cli/stream.h"

struct cli;

struct follow_options {
	uint64_t since_out, since_err;
	int64_t since_us;      /* 0: from those offsets */
	bool stamps;           /* each line begins with the time it arrived at */
	const char *sandbox;   /* the start command of this sandbox, instead of an operation */
	const char *operation;
	bool until_now;        /* only what is there now */
	bool tail;
	int64_t tail_lines;
};

/* "OUT" or "OUT,ERR" in bytes, a duration with its unit ("10m": that long ago), or an RFC 3339 time, into a struct follow_options. */
int follow_parse_since(const char *what, const char *text, void *field, struct error *err);
/* Shows it. 0 with the end in *ret (result_done its result), -1 with err when there was nothing to attach to. */
int follow_run(struct cli *cli, const struct follow_options *o, struct stream_result *ret, struct error *err);

#endif
