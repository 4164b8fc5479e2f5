/*
 * A byte pipe between channel 0 of a stream and a descriptor that works both ways, half-closed by EOF on either side: a
 * connection on loopback, or a helper process of init's own. It lives as long as its stream.
 */
#ifndef SANDBOX_INIT_PIPE_H
#define SANDBOX_INIT_PIPE_H

#include "daemon/init/init.h"
#include "shared/base/buf.h"

enum { PIPE_WINDOW = 512 * 1024, COLLECT_MAX = 1024 * 1024 };

struct pipe {
	struct endpoint ep;
	struct init *in;
	struct pipe *next;
	struct watch w;
	bool has_helper;
	pid_t helper;        /* 0: none, or reaped */
	int status;          /* the signal that ended the helper */
	int exit_status;     /* the helper's: where its answer is collected, an errno that makes the answer worthless */
	bool was_reset;      /* seen while writing; what came before is still read */
	bool broken;         /* its end was no end in order */
	bool tidies_up;      /* when the stream goes the helper ends by itself, having removed what is half done; else it is killed */
	bool connected;
	bool egress;         /* a program's connection to the proxy: this side opened the stream */
	bool collect;        /* everything is gathered, and goes into ACCEPT as text at the end */
	struct buf text;
	struct buf q;        /* from the worker, not written yet */
	size_t head;
	uint64_t got, taken;
	bool in_eof;         /* the worker sends no more */
	bool in_dead;        /* nobody takes what it sends */
	bool out_eof;        /* the descriptor gave all it had */
};

struct pipe *pipe_new(struct init *in, uint32_t stream);
/* Accepts the stream and starts moving bytes. Takes fd, which is non-blocking. helper: the process at its far end, or 0. */
void pipe_start(struct pipe *p, int take_fd, pid_t helper);
/* The same for a stream that init opened: bytes move once the worker has accepted it. Takes fd. */
void pipe_offer(struct pipe *p, int take_fd);
/* Ends stream and pipe with an error. */
void pipe_fail(struct pipe *p, enum mux_error why, const char *text);
void pipe_free(struct pipe *p);

/* A process of init's own that speaks over a socket, so that a slow file never holds up a command. It keeps only the rights
 * over files. `fn` runs in it with the far end; its return value is the exit status. -1 with errno, or the near end. */
int helper_start(struct init *in, const char *name, int (*fn)(int fd, void *arg), void *arg, pid_t *ret_pid);

#endif
