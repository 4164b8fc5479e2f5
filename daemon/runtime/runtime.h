/*
 * What a worker asks of a runtime. One vtable; implementations: docker, external, fake. The runtime only creates,
 * starts, inspects, kills and removes: commands, terminals, files and dialling go through sandbox-init.
 *
 * Every method may block (they run on job threads, never on the event loop) up to its deadline and may be called from
 * several threads at once. Methods that change something are idempotent: repeating one that succeeded succeeds.
 */
#ifndef SANDBOX_DAEMON_RUNTIME_H
#define SANDBOX_DAEMON_RUNTIME_H

#include "shared/base/buf.h"
#include "shared/base/error.h"
#include "shared/base/id.h"
#include "shared/crypto/secret.h"
#include "shared/model/model.h"

#include <sys/types.h>

struct runtime;

/* What the image says about how its programs run. */
struct image_config {
	char *digest;      /* "sha256:…": the image id the container is created from */
	struct strv env;   /* "K=V" */
	char *user;        /* "" when unset */
	char *workdir;     /* "/" when unset */
	struct strv entrypoint, cmd;
	struct strv names; /* all that the image has: repository:tag, repository@sha256:… */
};
void image_config_done(struct image_config *c);

struct image_info {
	char *name;        /* repo:tag, or the digest */
	char *digest;
	int64_t size_bytes;
	int64_t created_us;
	bool private;      /* a login was needed for it: see daemon/worker/rights.h */
};
struct image_list {
	struct image_info *items;
	size_t len;
};
void image_list_done(struct image_list *l);

/* What stands at /workspace. */
enum workspace_kind {
	WORKSPACE_NONE,
	WORKSPACE_DIR,    /* source: a mounted directory of the host, bound */
	WORKSPACE_DEVICE, /* source: a block device with ext4, mounted by the engine */
	WORKSPACE_TMPFS,  /* memory of the sandbox, bounded by size_bytes */
};
struct workspace_mount {
	enum workspace_kind kind;
	char source[4096];
	int64_t size_bytes;
	uid_t uid; /* owner of the directory; others may write too, inside there is one tenant */
	gid_t gid;
};

struct runtime_create {
	struct id sandbox_id;
	const struct spec *spec;       /* borrowed for the call */
	enum tier tier;
	const char *image_digest;      /* from image_resolve */
	const char *init_path;         /* host path of sandbox-init, bound to /.sandbox/init */
	const char *io_dir;            /* host directory bound read-only to /.sandbox/io */
	const struct workspace_mount *workspace; /* NULL: none */
	const char *hosts_file;        /* host file bound read-only to /etc/hosts (no network: the image's may lack localhost) */
	const char *resolv_file;       /* host file bound read-only to /etc/resolv.conf; NULL: the image's */
	const char *hostname;
	int64_t deadline_us;           /* wall clock; passed to init, which ends itself a grace after it */
	const char *exercise;          /* probes only: what init uses up instead of its work (daemon/init/exercise.c) */
};

enum runtime_state { RUNTIME_ABSENT, RUNTIME_CREATED, RUNTIME_RUNNING, RUNTIME_EXITED };

struct runtime_status {
	enum runtime_state state;
	pid_t pid;       /* host pid of process 1 (of what stands for it: a sentry, a VMM) while running, else 0 */
	pid_t mounts_pid; /* a host process whose /proc/PID/root shows the sandbox's mounts; 0: there is none. By start only */
	int exit_code;   /* EXITED */
	bool oom_killed; /* EXITED */
	bool pids_exhausted; /* EXITED: it ended because the PID limit refused it a process */
};

struct runtime_stats {
	uint64_t cpu_us;
	uint64_t memory_bytes, memory_limit_bytes;
	uint64_t pids, pids_limit;
};

struct owned {
	struct id sandbox_id;
	enum runtime_state state;
	char ref[128];    /* container id */
};
struct owned_list {
	struct owned *items;
	size_t len;
};
void owned_list_done(struct owned_list *l);

/* One line of progress for people ("Pulling layer 2/5 …"); percent 0..100 or -1. Also called with the last text again,
 * about once a second, while nothing moves. False stops the pull (ERR_CONFLICT "stopped"). */
typedef bool (*runtime_progress)(void *ctx, const char *text, int percent);

/* Gets an archive piece by piece. False: not wanted any more. */
typedef bool (*image_sink)(void *ctx, const void *p, size_t n);

struct image_pull {
	const char *image;
	const struct secret *login; /* user and password with a zero byte between them; NULL or empty: none */
	runtime_progress progress;  /* NULL: none */
	void *ctx;
};

struct tier_offer {
	bool offered;
	bool again;       /* not offered for what a pressed machine may have caused: another probe may find it */
	bool development; /* offered though it is not meant for production */
	char reason[256]; /* why not, or what was seen */
};

/* What a probe mounts while it runs, and what it saw. */
struct runtime_probe {
	const char *init_path;
	const char *io_dir;       /* an empty directory of the host */
	const struct workspace_mount *workspace; /* NULL: none to try */
	struct tier_offer tiers[TIER_COUNT];
	bool workspace_seen;      /* WORKSPACE_DIR: the sandbox saw that very mount */
	bool mounts_nothing;      /* tests only: sandboxes get no /workspace */
	char warning[512];        /* a limit this host does not enforce as asked, and what was done; "": none */
};

/* What a tier's runtime does by itself. */
enum runtime_trait {
	RUNTIME_OWN_IMAGES = 1, /* it finds spec.image itself: nothing is resolved or pulled, image_digest is NULL */
	RUNTIME_OWN_DISK = 2,   /* it makes and bounds /workspace itself */
};

struct runtime_ops {
	const char *name;
	/* enum runtime_trait bits; NULL: none for any tier. */
	unsigned (*traits)(struct runtime *rt, enum tier tier);
	/* Really runs something and sees limits bite, per tier. Slow (a second); the worker caches. An error means the
	 * runtime does not answer; a tier that does not work is no error, its offer says why. */
	int (*probe)(struct runtime *rt, struct runtime_probe *p, struct error *err);
	/* Cheap: does it answer? ret_text: name and version. */
	int (*ping)(struct runtime *rt, char *ret_text, size_t n, struct error *err);
	/* Local image by name, digest or id; ERR_NOT_FOUND when absent. Does not pull. */
	int (*image_resolve)(struct runtime *rt, const char *image, struct image_config *ret, struct error *err);
	/* May this image be used (policy.allowed_registries)? Asked before a pull and for images already present alike.
	 * ERR_FORBIDDEN, ERR_INVALID for no image reference. */
	int (*image_allowed)(struct runtime *rt, const char *image, bool present, struct error *err);
	/* Replaces that policy (the text of policy.allowed_registries). */
	void (*set_registries)(struct runtime *rt, const char *allowed);
	/* ERR_NOT_FOUND, ERR_FORBIDDEN (registry policy or auth), ERR_RATE_LIMITED, ERR_UNREACHABLE told apart. */
	int (*image_pull)(struct runtime *rt, const struct image_pull *p, struct error *err);
	/* Asks the image's registry, nothing is fetched: may this login (may be NULL) have it? Errors as of a pull. NULL: it cannot be asked. */
	int (*image_verify)(struct runtime *rt, const char *image, const struct secret *login, struct error *err);
	int (*image_list)(struct runtime *rt, struct image_list *ret, struct error *err);
	/* A tar of a root file system from fd, stored as name with the given config (may be NULL; its digest is ignored). */
	int (*image_import)(struct runtime *rt, int fd, const char *name, const struct image_config *config, struct error *err);
	/* The image, a name with its tag, as an archive; and what such an archive holds. NULL: it cannot. */
	int (*image_save)(struct runtime *rt, const char *image, image_sink sink, void *ctx, struct error *err);
	int (*image_load)(struct runtime *rt, int fd, struct error *err);
	int (*image_remove)(struct runtime *rt, const char *image, struct error *err);
	/* Creates (not started); reads back what the engine really set; a warning or a difference fails and removes. */
	int (*create)(struct runtime *rt, const struct runtime_create *req, struct error *err);
	int (*start)(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err);
	int (*inspect)(struct runtime *rt, const struct id *sandbox, struct runtime_status *ret, struct error *err);
	int (*kill)(struct runtime *rt, const struct id *sandbox, struct error *err);
	/* Kills and removes; success when already absent. Bounded even when the engine hangs. */
	int (*remove)(struct runtime *rt, const struct id *sandbox, struct error *err);
	/* Everything carrying our node label, also half-made things. */
	int (*list_owned)(struct runtime *rt, struct owned_list *ret, struct error *err);
	int (*stats)(struct runtime *rt, const struct id *sandbox, struct runtime_stats *ret, struct error *err);
	/* The sandbox's end moved (wall clock). For runtimes that end sandboxes by themselves; NULL: only process 1 needs to know. */
	int (*deadline)(struct runtime *rt, const struct id *sandbox, int64_t deadline_us, struct error *err);
	/* Bytes written so far into a writable root, 0 for another. May take long: it walks files. */
	int (*root_bytes)(struct runtime *rt, const struct id *sandbox, int64_t *ret, struct error *err);
	/* From outside, without process 1: everything that descends from one of the sandbox's processes, numbered as the sandbox does, is
	 * killed at one moment, so that nothing can fork away; that process and all others go on. Bounded: some seconds. ERR_NOT_FOUND:
	 * there is no such child of process 1; ERR_UNAVAILABLE: the processes of this sandbox are not to be seen. */
	int (*end_below)(struct runtime *rt, const struct id *sandbox, pid_t inside, size_t *ret_ended, struct error *err);
	/* Lets go on what an end_below left standing whose daemon was killed; nothing to do otherwise. NULL, like end_below: the runtime has neither. */
	int (*thaw)(struct runtime *rt, const struct id *sandbox, struct error *err);
	void (*free)(struct runtime *rt);
};

struct runtime {
	const struct runtime_ops *ops;
};

static inline unsigned runtime_traits(struct runtime *rt, enum tier tier)
{
	return rt->ops->traits ? rt->ops->traits(rt, tier) : 0;
}

#endif
