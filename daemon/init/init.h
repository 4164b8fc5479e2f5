/* The state of sandbox-init, and what its parts offer each other. One thread, one worker connection at a time. */
#ifndef SANDBOX_INIT_INIT_H
#define SANDBOX_INIT_INIT_H

#include "daemon/init/loop.h"
#include "daemon/init/request.h"
#include "daemon/init/serial.h"
#include "daemon/init/through.h"
#include "daemon/init/tree.h"
#include "shared/mux/mux.h"

#include <sys/resource.h>
#include <sys/un.h>

struct init;

/* What a mux stream leads to: a command or a byte pipe. Members are called with a stream of this endpoint; NULL ones are skipped. */
struct endpoint;
struct endpoint_ops {
	void (*accepted)(struct endpoint *e); /* of a stream that init opened */
	void (*data)(struct endpoint *e, unsigned channel, const void *p, size_t n);
	void (*eof)(struct endpoint *e, unsigned channel);
	void (*window)(struct endpoint *e, unsigned channel, uint64_t consumed);
	void (*control)(struct endpoint *e, const struct tlv *fields);
	void (*closed)(struct endpoint *e); /* by the worker; the stream is gone at the return */
	void (*lost)(struct endpoint *e);   /* with the connection */
	void (*writable)(struct endpoint *e);
};

struct endpoint {
	const struct endpoint_ops *ops;
	uint32_t stream; /* 0: none */
};

struct link {
	struct watch w;
	struct mux *mux; /* NULL: not connected */
	struct timer redial;
	int64_t backoff_ms;
	struct sockaddr_un address;
	uint8_t key[32];
	uint64_t pings; /* sent on this connection */
	uint64_t pongs; /* answered */
	struct serial *port; /* NULL: a socket is dialled */
	const char *path;    /* of the port */
	int port_fd;         /* open and not watched, else -1 */
};

struct init {
	struct loop loop;
	struct link link;
	struct watch signals;
	struct exec *execs;
	struct pipe *pipes;
	unsigned running;      /* commands that have not ended */
	uint64_t finished;     /* counts the ends, for the age of results */
	struct pids helpers;   /* processes of init's own: supervisors, file helpers */
	struct pids leaving;   /* supervisors whose command has ended and left processes behind */
	struct pids left;      /* processes that finished commands left behind */
	struct timer strangers; /* while processes of a dead supervisor are hunted */
	bool subreaper;        /* supervisors adopt what their command loses */
	struct rlimit nofile;  /* what the sandbox started with */
	int64_t deadline_us;   /* wall clock; 0: none */
	int64_t grace_ms;
	struct timer deadline;
	bool stopping;
	struct strv through;   /* the program and its first arguments; empty: commands run here */
};

/* link.c */
int link_init(struct init *in, const char *path, struct error *err);
/* The same over a serial port, whose path must stay valid. */
int link_init_serial(struct init *in, const char *path, struct error *err);
void link_dial(struct init *in);
/* After a turn of the loop: asks for what the mux needs now. */
void link_settle(struct init *in);
/* Ends a stream with an error and a line for people. */
void link_refuse(struct init *in, uint32_t stream, enum mux_error why, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void link_set_endpoint(struct init *in, uint32_t stream, struct endpoint *e);

/* exec_open.c, exec.c */
void exec_open(struct init *in, uint32_t stream, const struct tlv *fields);
void exec_resume(struct init *in, uint32_t stream, const struct tlv *fields);
void exec_confirmed(struct init *in); /* another PING was answered */
void exec_link_lost(struct init *in);
/* A process ended. True when it was a supervisor or the first process of a command. */
bool exec_reaped(struct init *in, pid_t pid, int status);
/* A command lost its supervisor, and its first process has not been reaped yet. */
bool exec_awaits_reaper(const struct init *in);

/* reap.c */
int reap_init(struct init *in, struct error *err);
/* A supervisor died without a report: kills every adopted process that was not left behind on purpose, until none is left. */
void reap_hunt(struct init *in);
/* Where supervisors cannot adopt: kills what one command lost to init, or marks it as left behind on purpose. */
void reap_kill_group(struct init *in, pid_t main);
void reap_leave_group(struct init *in, pid_t main);
void reap_kill_all(struct init *in);

/* pipe.c, dial.c, files.c, ps.c. Each answers the OPEN by itself. */
void pipe_reaped(struct init *in, pid_t pid, int status);
void dial_open(struct init *in, uint32_t stream, const struct tlv *fields);
void files_open(struct init *in, uint32_t stream, const struct tlv *fields);
void proxy_open(struct init *in, uint32_t stream, const struct tlv *fields);  /* proxy.c */
void secret_open(struct init *in, uint32_t stream, const struct tlv *fields); /* secret.c */
void ps_open(struct init *in, uint32_t stream, const struct tlv *fields);

/* oom.c: how many processes the memory limit has killed in this sandbox; 0 when that cannot be read. */
uint64_t oom_count(void);

/* memory.c: process 1 does not end for want of memory. It holds a reserve, which an allocation that fails gives back; what it has
 * promised goes on, and nothing new begins (memory_ready) until the reserve is whole again. */
void memory_init(void);
bool memory_ready(void);

/* through.c: with --through, commands run as the last arguments of another program, on the host, for a runtime driver that
 * runs commands itself. Then nothing but commands is served, since files and ports would be the host's. */
void through_rewrite(const struct init *in, struct request *r);

/* exercise.c: uses up "memory" (after some CPU time) or "pids", for a probe; returns an exit status. */
int exercise(const char *what);

/* main.c: the wall-clock end moved. */
void init_set_deadline(struct init *in, int64_t deadline_us);

#endif
