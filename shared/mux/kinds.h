/* What an OPEN may ask, its flags, and why a stream was refused. Numbers are part of the protocol. */
#ifndef SANDBOX_MUX_KINDS_H
#define SANDBOX_MUX_KINDS_H

enum mux_field {
#define F(id, number, form, text) MUX_F_##id = (number),
#include "shared/mux/fields.def"
#undef F
};

enum mux_kind {
	MUX_KIND_EXEC = 1,    /* run argv; channels 0, 1, 2 */
	MUX_KIND_RESUME = 2,  /* take over a running or finished exec by OPERATION, from offsets (server→init, client→server for its own foreground exec) */
	MUX_KIND_ATTACH = 3,  /* read-only view of an exec's output from the spool (client→server) */
	MUX_KIND_FILES_GET = 4, /* file tree out of the sandbox: docs/protocol-mux.md, Files */
	MUX_KIND_FILES_PUT = 5, /* file tree into the sandbox */
	MUX_KIND_DIAL = 6,    /* TCP to the sandbox's own loopback */
	MUX_KIND_PS = 7,      /* process list as text in ACCEPT */
	MUX_KIND_DEADLINE = 8, /* server→init: the sandbox's end moved to DEADLINE_US */
	MUX_KIND_WATCH = 9,    /* client→server: nothing flows; the CLOSE says that and how the sandbox ended */
	MUX_KIND_SHARE = 10,   /* client→server: a port of the client's machine under a public name; the server opens DIAL streams */
	MUX_KIND_CALL = 32,   /* between worker and controller: docs/protocol-mux.md, Links */
	MUX_KIND_SECRET = 16, /* server→init: VALUE as the file NAME of /run/secrets */
	MUX_KIND_PROXY = 17,  /* server→init: offer the egress proxy on PORT of loopback */
	MUX_KIND_EGRESS = 18, /* init→server: a program's connection to that proxy, as a byte pipe */
};

enum mux_open_flag {
	MUX_OPEN_STDIN = 1 << 0,    /* a reader feeds stdin */
	MUX_OPEN_TTY = 1 << 1,
	MUX_OPEN_DETACH = 1 << 2,   /* outlives the client; output goes to the spool alone */
	MUX_OPEN_SHELL_FALLBACK = 1 << 3, /* argv[0] missing → /bin/sh */
	MUX_OPEN_FORGET = 1 << 4,   /* resume: drop the retained result */
	MUX_OPEN_MAIN = 1 << 5,     /* server→init: the sandbox's start command */
};

enum mux_control_action {
	MUX_CONTROL_SIGNAL = 1, /* SIGNAL to the foreground process group */
	MUX_CONTROL_RESIZE = 2, /* ROWS, COLS */
	MUX_CONTROL_CANCEL = 3, /* TERM to the whole tree, then KILL */
};

/* OPEN share, ACTION: what the server behind the port sees as Host. */
enum mux_share_host { MUX_SHARE_REWRITE_HOST = 0, MUX_SHARE_KEEP_HOST = 1 };

/* CLOSE OUTCOME: the numbers of `enum outcome` (shared/model), for those that do not link the model. */
enum mux_outcome {
	MUX_OUTCOME_NONE = 0,
	MUX_OUTCOME_EXITED = 1,
	MUX_OUTCOME_SIGNALED = 2,
	MUX_OUTCOME_TIMEOUT = 3,
	MUX_OUTCOME_LOST = 4,
	MUX_OUTCOME_NOT_STARTED = 5,
	MUX_OUTCOME_CANCELED = 8,
};

enum mux_error {
	MUX_ERR_NONE = 0,
	MUX_ERR_REFUSED = 1,      /* malformed or not allowed */
	MUX_ERR_NOT_FOUND = 2,    /* no such sandbox, operation, file */
	MUX_ERR_NO_PROGRAM = 3,   /* argv[0] does not exist (127) */
	MUX_ERR_NOT_EXECUTABLE = 4, /* exists, cannot run (126) */
	MUX_ERR_BAD_CWD = 5,
	MUX_ERR_BAD_USER = 6,
	MUX_ERR_TOO_LARGE = 7,    /* argument list too long, or another limit; the message names it */
	MUX_ERR_RESOURCES = 8,    /* fork or memory failed inside */
	MUX_ERR_EXPIRED = 9,      /* the sandbox's time ended */
	MUX_ERR_DELETED = 10,     /* the sandbox was deleted */
	MUX_ERR_LOST = 11,        /* init or worker does not answer */
	MUX_ERR_FORBIDDEN = 12,
	MUX_ERR_UNAVAILABLE = 13,
	MUX_ERR_CONFLICT = 14,    /* not running, or already attached */
	MUX_ERR_CONNECT = 15,     /* dial: nothing listens */
	MUX_ERR_IO = 16,          /* files: an I/O error, the message names path and cause */
};

#endif
