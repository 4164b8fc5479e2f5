/*
 * sandbox-driver-qemu: microVMs for the worker, by the protocol of docs/runtime-driver.md. One process per call; what stays is a keeper
 * and its QEMU. Files below STATE (state_dir of its configuration):
 *
 *   boxes/ID/       record, disk.img, initrd, console, ended, deadline: one sandbox, gone with delete
 *   images/SHA.ext4 an image's files, made once per digest, and SHA.json with what its configuration says
 *   templates/      empty disks by size
 *   probe           what the last probe saw
 */
#ifndef SANDBOX_QEMU_H
#define SANDBOX_QEMU_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/json/json.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define QEMU_CONFIG "/etc/sandbox/driver-qemu.conf"

enum { MIB = 1024 * 1024, GUEST_MIB = 64 /* of the guest's own kernel, beside what programs may have */ };

/* --- config.c --- */

struct qemu_config {
	char *state_dir;
	char *qemu;          /* program */
	char *kernel;        /* bzImage */
	char *modules;       /* the kernel's module directory */
	char *boot;          /* sandbox-boot */
	char *docker_socket;
	int64_t uid_base;    /* one user for each machine, from here on */
	int64_t image_max;   /* bytes of one image's files */
	int64_t images_kept; /* bytes of all that are kept */
	bool allow_emulation;
};
/* path NULL: QEMU_CONFIG, and defaults when there is none. The file must be root's (or this user's), writable by nobody else. */
int config_load(const char *path, struct qemu_config *ret, struct error *err);
void config_done(struct qemu_config *c);

/* --- box.c: a sandbox's directory and record --- */

struct box {
	struct id id;
	char *dir;
};
void box_at(const struct qemu_config *c, const struct id *sandbox, struct box *ret);
void box_done(struct box *b);
#define auto_box __attribute__((cleanup(box_done))) struct box
char *box_path(const struct box *b, const char *file);

/* pid with start time in clock ticks, so that a number used again is not taken for it. 0: none. */
struct process {
	long long pid, born;
};
struct process process_of(pid_t pid);
bool process_lives(const struct process *p);

/* Makes the directory and claims a user id for it. ERR_CONFLICT when it is there. */
int box_make(const struct qemu_config *c, struct box *b, uid_t *ret_uid, struct error *err);
/* Which processes it has, before they run. name: "keeper" or "vm". */
int box_note_process(const struct box *b, const char *name, const struct process *p, struct error *err);
bool box_process(const struct box *b, const char *name, struct process *ret);
bool box_exists(const struct box *b);
/* Kills what is noted and waits for its end; ERR_TIMEOUT. */
int box_kill(const struct box *b, struct error *err);
/* box_kill, then nothing is left. Success when there is nothing. */
int box_remove(const struct box *b, struct error *err);
/* A lock of this driver, by name; closing the descriptor gives it back. */
int state_lock(const struct qemu_config *c, const char *name, struct error *err);

/* --- image.c --- */

struct image {
	char *path;         /* read-only ext4 */
	struct strv volumes;
	char *user;         /* "" when unset */
};
void image_done(struct image *i);
/* The files of an image of the engine, made when they are not there yet. */
int image_get(const struct qemu_config *c, const char *digest, struct image *ret, struct error *err);
/* Of the probe: nothing but the places that are mounted over. */
int image_empty(const struct qemu_config *c, struct image *ret, struct error *err);

/* --- initrd.c --- */

struct guest {
	const char *hostname;
	int64_t deadline_us, grace_ms;
	int64_t memory;     /* bytes for programs */
	int64_t pids;
	uid_t uid;          /* owner of /workspace */
	gid_t gid;
	bool writable, exercise;
	const struct strv *volumes;
};
/* The guest's first file system: sandbox-boot, its modules, sandbox-init, its orders. */
int initrd_write(const struct qemu_config *c, const struct guest *g, const char *init_path, const char *path, struct error *err);

/* --- vm.c, jail.c: QEMU --- */

struct machine {
	const struct qemu_config *config;
	const struct box *box;
	const char *image;
	uid_t uid;
	int64_t ram_mib;
	unsigned cpus;
	bool emulated;
};
/* Descriptors of the QEMU process. */
enum { VM_PORT = 3, VM_CONSOLE = 4 };

struct vm {
	pid_t pid;
	int port;    /* our end of its serial port; not blocking */
	int console; /* of its first serial line and its own messages */
};
#define VM_INIT { .pid = 0, .port = -1, .console = -1 }
/* Starts it in namespaces, under a user and a root of its own; noted in the box before it runs. It ends with the calling process. */
int vm_start(const struct machine *m, struct vm *ret, struct error *err);
/* In the child, root in namespaces of its own: a root that shows QEMU its libraries and the files it was given, then that user. */
int jail_enter(const struct machine *m, struct error *err);
/* The calling process becomes a user without any right, for good. */
int become_user(uid_t uid, struct error *err);

/* --- keeper.c, bridge.c: who stays with a machine --- */

struct keeper {
	struct machine machine;
	const char *socket_dir;
	int64_t grace_ms;
};
/* Forks it; it is noted before it does anything. ret_ready: a line comes there, "ready\n" or "failed TEXT\n". */
int keeper_start(const struct keeper *k, int *ret_ready, struct error *err);

struct bridge;
/* Carries a guest's port to the worker's socket in the present directory (dials when the guest is ready, again when it is lost). */
struct bridge *bridge_new(int take_port);
enum { BRIDGE_FDS = 2 };
/* For poll(2); returns how long to wait at most, in ms, -1: for ever. */
int bridge_want(struct bridge *b, struct pollfd fds[static BRIDGE_FDS]);
/* -1: the guest broke the protocol of the port. */
int bridge_turn(struct bridge *b, const struct pollfd fds[static BRIDGE_FDS], struct error *err);
/* The guest answered, and a worker is there. */
bool bridge_attached(const struct bridge *b);
void bridge_free(struct bridge *b);

/* --- limits.c --- */

/* This call's control group, sandbox/NODE/SANDBOX: the driver was put there. False: there is none. */
bool limits_group(const struct id *sandbox, struct id *ret_node);
/* Memory and PIDs before a start; cpu_millis 0: not yet. Read back. */
int limits_set(const struct id *sandbox, int64_t ram_mib, uint32_t cpu_millis, struct error *err);

/* --- probe.c --- */

/* How machines run here: ret_emulated, or ERR_UNAVAILABLE with why not. */
int probe_acceleration(const struct qemu_config *c, const struct id *sandbox, bool *ret_emulated, struct error *err);
int probe(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err);

/* --- life.c: create, inspect, … --- */

int life_create(const struct qemu_config *c, const struct id *sandbox, const cJSON *payload, struct error *err);
int life_prepare(const struct qemu_config *c, const cJSON *payload, struct error *err);
int life_inspect(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err);
int life_stats(const struct qemu_config *c, const struct id *sandbox, cJSON *ret, struct error *err);
int life_deadline(const struct qemu_config *c, const struct id *sandbox, const cJSON *payload, struct error *err);

#endif
