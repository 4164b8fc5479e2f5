/*
 * The client side of a command's stream: standard input out, output in, signals and terminal size forwarded, until the CLOSE that
 * carries the outcome. Back-pressure is end to end: local input is read only as the remote takes it, and the remote is told to go on
 * only as local output is taken. The remote's end decides; local end-of-input only half-closes.
 *
 * When the connection breaks the stream is resumed at its offsets within LIMIT_RESUME_GRACE_MS, without losing or repeating a byte.
 * Nothing here invents an outcome: without a CLOSE it is OUTCOME_LOST and `left` says why.
 */
#ifndef SANDBOX_CLI_STREAM_H
#define SANDBOX_CLI_STREAM_H

#include "cli/muxconn.h"
#include "shared/model/model.h"

/* Why this side stopped before or without the remote's own end. */
enum stream_left {
	LEFT_NOT,
	LEFT_SIGNAL,       /* detail: the signal */
	LEFT_ESCAPE,       /* the escape keys */
	LEFT_READER_GONE,  /* the reader of local output ended (EPIPE) */
	LEFT_WRITE_FAILED, /* local output failed; detail: errno */
	LEFT_CONNECTION,   /* lost and not resumed; `message` says why */
};

struct stream_request {
	const struct tlv *open;  /* MUX_KIND_EXEC or MUX_KIND_ATTACH, complete */
	struct dialler dialler;
	bool attach;             /* read-only: leaving never touches the command */
	const char *attach_sandbox; /* the start command of this sandbox, instead of an operation */
	bool until_now;          /* attach: end with what was there at the beginning */
	bool tail;               /* attach: of what was there at the beginning show only the last tail_lines of each channel */
	uint64_t tail_lines;
	bool detach;             /* return as soon as the command is accepted */
	bool must_return;        /* something has to be cleaned up afterwards: never end the process from here */
	int in, out, err;        /* descriptors; in -1: no input */
	bool tty;                /* the remote has a terminal: raw mode when `in` is one, size forwarded */
	int escape;              /* escape key of a raw terminal, -1: none */
	uint64_t offset_out, offset_err; /* attach: where to begin */
	bool later;              /* attach: it begins at a time, so at offsets that the server finds */
	bool stamps;             /* attach: each line begins with the time at which it arrived; `open` asks for times */
	struct capture *capture_out, *capture_err; /* collect instead of writing; both or none */
	size_t capture_max;      /* bytes kept per channel */
	bool quiet;              /* no notes about the connection */
};

struct stream_result {
	bool accepted;            /* the server took it; then `operation` is set */
	char operation[ID_TEXT_LEN + 1];
	struct result result;     /* outcome, code, signal, oom_killed; its captures stay empty */
	bool closed;              /* the CLOSE came: `result` is the server's word */
	enum mux_error error;     /* of the CLOSE */
	char message[ERROR_TEXT_MAX]; /* of the CLOSE or the loss; not escaped */
	uint64_t out_bytes, err_bytes; /* totals of the command when closed, else received so far */
	uint64_t gap_out, gap_err;     /* attach: bytes that were already gone */
	bool caught_up;           /* attach with until_now: all of that came */
	bool incomplete;          /* the command wrote more than arrived */
	enum stream_left left;
	int detail;
};

/* Runs to the end. 0 with *ret (result_done it), -1 when no connection could be made: then nothing was started. */
int stream_run(const struct stream_request *rq, struct stream_result *ret, struct error *err);

#endif
