/*
 * Starting a command. init forks a supervisor, which is a subreaper, so that whatever the command leaves behind stays in
 * reach; the supervisor starts the program. The two speak over a SEQPACKET socket with the messages below.
 */
#ifndef SANDBOX_INIT_LAUNCH_H
#define SANDBOX_INIT_LAUNCH_H

#include "daemon/init/request.h"
#include "daemon/init/users.h"

#include <sys/resource.h>

enum launch_stage { STAGE_NONE, STAGE_USER, STAGE_CAPS, STAGE_CWD, STAGE_TERMINAL, STAGE_EXEC };

struct launch {
	const struct request *request;
	const struct identity *who;
	const char *default_path; /* PATH of a command that has none */
	int stdio[3];             /* -1 in none of them */
	bool terminal;            /* stdio[0] becomes the controlling terminal */
	struct rlimit nofile;     /* what the sandbox started with */
};

enum sup_type {
	SUP_STARTED = 1, /* pid */
	SUP_FAILED,      /* error, text: nothing ran */
	SUP_EXITED,      /* status of wait, more: others are left; then the supervisor ends */
	SUP_SIGNAL,      /* to the supervisor: status is the signal, for the command's process group */
	SUP_KILL,        /* to the supervisor: end the whole tree; status is the grace in ms, more: it has a terminal */
};

struct sup_message {
	int32_t type;
	int32_t pid;
	int32_t status;
	int32_t more;
	int32_t error; /* enum mux_error */
	char text[768];
};

/* Forks the supervisor. The socket's near end is returned, non-blocking. -1 with errno. */
int launch_start(const struct launch *l, pid_t *ret_supervisor, int *ret_socket);
int sup_send(int fd, const struct sup_message *m);
/* 1: got one. 0: nothing now. -1: the other side is gone. */
int sup_receive(int fd, struct sup_message *ret);

/* The supervisor's life. `sock` is blocking or not; never returns. */
_Noreturn void supervise(const struct launch *l, int sock);

/* In the supervisor: runs the program; returns its pid, or 0 with *failed filled. */
pid_t child_start(const struct launch *l, struct sup_message *failed);
/* Says why `tried` could not be run; fills error and text. */
void explain_exec(const struct launch *l, const char *tried, int sys, struct sup_message *failed);

#endif
