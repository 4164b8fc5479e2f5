/* One command, from its OPEN until its result was confirmed. */
#ifndef SANDBOX_INIT_EXEC_H
#define SANDBOX_INIT_EXEC_H

#include "daemon/init/init.h"
#include "daemon/init/input.h"
#include "daemon/init/launch.h"
#include "daemon/init/output.h"

struct exec {
	struct endpoint ep;
	struct init *in;
	struct exec *next;
	char operation[OPERATION_MAX + 1];
	struct output out[2]; /* stdout or the terminal, stderr */
	struct input input;
	bool terminal; /* out[0] reads the master of its terminal */
	int slave;     /* held while the first process lives: many close theirs just before they exit, and would get a hang-up */
	struct watch sup;
	pid_t supervisor;
	pid_t main;
	bool started;        /* the program runs, or ran */
	bool accepted;       /* ACCEPT was sent on the stream at hand */
	bool exited;         /* its first process has ended, with `status` */
	int status;          /* valid when known */
	bool known;
	bool ended;          /* nothing more will happen to it */
	enum mux_outcome why; /* timeout or canceled: init is ending it; not_started */
	enum mux_error error; /* why it did not start */
	char *message;
	bool cut;            /* some of its processes could not be ended */
	bool forget;         /* nobody wants the result */
	bool close_sent;     /* on this connection */
	uint64_t confirm;    /* the PING that followed CLOSE */
	uint64_t age;        /* order of its end */
	uint64_t oom_before;
	bool oom;
	struct timer timeout;
	struct timer drain;
	struct timer give_up;
	int64_t drain_until_ms;
	int64_t timeout_ms;
};

enum {
	CANCEL_GRACE_MS = 2000,
	TIMEOUT_GRACE_MS = 500,
	GIVE_UP_MS = 5000, /* after KILL: a process in the kernel's uninterruptible sleep cannot be ended */
	DRAIN_CAP_MS = 2000,
	RETAINED_MAX = 64,      /* results nobody has fetched */
	UNCONFIRMED_MAX = 1024, /* results sent and not confirmed */
};

/* exec.c */
struct exec *exec_new(struct init *in, const char *operation, uint32_t window);
struct exec *exec_find(struct init *in, const char *operation);
void exec_attach(struct exec *x, uint32_t stream, uint64_t out, uint64_t err);
void exec_watch_supervisor(struct exec *x, int take_sock);
void exec_not_started(struct exec *x, enum mux_error error, const char *text);
void exec_kill(struct exec *x, enum mux_outcome why);
void exec_maybe_end(struct exec *x); /* ends it when its processes and its output have */
int exec_master(const struct exec *x); /* its terminal's master, -1 when it has none or it is closed */
void exec_deliver(struct exec *x); /* sends what is left; CLOSE when that was all */
void exec_free(struct exec *x);
/* exec_stream.c */
extern const struct endpoint_ops exec_ops;

#endif
