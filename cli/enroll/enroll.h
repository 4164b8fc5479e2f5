/* Making a machine a worker, and what follows: the steps over a host, each undone when a later one fails. */
#ifndef SANDBOX_CLI_ENROLL_ENROLL_H
#define SANDBOX_CLI_ENROLL_ENROLL_H

#include "cli/enroll/host.h"

#include <stdint.h>

/* Where things are on a worker that was set up from here. */
#define WORKER_ROOT "/opt/sandbox"
#define WORKER_CONFIG "/etc/sandbox/worker.conf"
#define WORKER_TOKEN "/etc/sandbox/join-token"
#define WORKER_STATE "/var/lib/sandbox-worker"
#define WORKER_RUN "/run/sandbox-worker"
#define WORKER_UNIT "/etc/systemd/system/sandboxd-worker.service"
#define WORKER_MACHINES "/var/lib/sandbox-driver-qemu"
#define WORKER_LOG "/var/log/sandboxd-worker.log"

/* What a look at the machine told; nothing is changed by it. */
struct probe {
	struct map facts;
	bool systemd, docker, docker_program, kvm, apt, joined, active, runsc;
	char *arch;          /* amd64, arm64 */
	char *name;          /* the host's own */
	char *installed;     /* version of the worker there, "" for none */
	char *config_name, *config_controller; /* of a worker that is set up there, "" for none */
	int64_t skew_s;      /* its clock less ours */
	int64_t disk_mib;    /* free where sandboxes will be */
};
int probe_host(struct host *h, struct probe *ret, struct error *err);
void probe_done(struct probe *p);
/* ERR_INVALID, ERR_UNAVAILABLE: why this machine cannot be a worker, before anything was changed. install_docker: Docker may be installed. */
int probe_check(const struct probe *p, const char *runtime, bool install_docker, const char *shown, struct error *err);

/* The programs that are brought there. */
struct payload {
	char *archive;        /* a server archive, or */
	char *daemon, *init;  /* files of this machine */
	struct buf program;   /* of an archive: its sandbox-init, once payload_program() fetched it */
};
int payload_find(const struct probe *p, const char *archive, struct payload *ret, struct error *err);
void payload_done(struct payload *p);
/* Brings them to WORKER_ROOT/VERSION, checks their sums and that they run; nothing happens when they are there. */
int payload_install(struct host *h, const struct probe *p, const struct payload *pay, struct error *err);
/* What an archive brought there and this machine does not have: the program that the canary runs. */
int payload_program(struct host *h, struct payload *pay, struct error *err);

struct enroll_options {
	struct host_options host;
	const char *name, *runtime, *controller, *archive, *image;
	struct strv labels;
	bool install_docker, no_canary;
	int64_t wait_ms;
};
int enroll_add(struct cli *cli, const struct enroll_options *o, struct error *err);
int enroll_upgrade(struct cli *cli, const struct enroll_options *o, struct error *err);
int enroll_rotate(struct cli *cli, const struct enroll_options *o, struct error *err);
/* Stops the worker there and removes all that was set up; the controller's record is not touched. */
/* name: what the machine must be called as a worker, if it is one; NULL: anything. */
int enroll_purge(struct cli *cli, const struct host_options *o, const char *name, struct error *err);

/* --- with the controller (enroll_api.c) --- */

/* A join token as a file descriptor at its beginning: the secret never becomes text elsewhere. */
int enroll_token(struct cli *cli, const char *name, int *ret_fd, struct error *err);
/* "up", "down", … ; NULL when there is no such node. The caller frees. */
int enroll_state(struct cli *cli, const char *name, char **ret, struct error *err);
/* Removes the node's record, and what it holds with it. */
int enroll_forget(struct cli *cli, const char *name, struct error *err);
/* When the node's worker linked last, "" for never: a worker that was restarted counts as up until it is missed. The caller frees. */
char *enroll_linked(struct cli *cli, const char *name);
/* Until the node is up; with version not NULL, running that; with linked not NULL, over another link than that. */
int enroll_wait(struct cli *cli, const char *name, const char *version, const char *linked, int64_t timeout_ms, struct error *err);
/* A sandbox on that node, a command in it, and both away again. */
int enroll_canary(struct cli *cli, const char *name, const char *image, const struct payload *pay, struct error *err);

/* --- texts (scripts.c) --- */

extern const char script_probe[], script_stop[], script_purge[];
void script_unit(struct buf *out);
void script_start(bool systemd, struct buf *out);

#endif
