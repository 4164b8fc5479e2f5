/* sandbox-boot: the first program of a microVM, from its initramfs. It makes the machine what a container is, and becomes sandbox-init. */
#ifndef SANDBOX_QEMU_BOOT_H
#define SANDBOX_QEMU_BOOT_H

#include "shared/base/buf.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define BOOT_ROOT "/root"       /* where the sandbox's root is put together */
#define BOOT_DISK "/disk"       /* the writable disk */
#define BOOT_PORT "/.sandbox/port"

/* From /config of the initramfs: "key=value" records, each ended by a NUL. The host wrote it. */
struct boot {
	const char *hostname, *deadline_us, *grace_ms;
	int64_t now_us;       /* the host's clock at the start */
	int64_t memory;       /* bytes that programs may have */
	int64_t pids;
	int64_t uid, gid;     /* owner of /workspace */
	bool writable;        /* the root */
	bool exercise;        /* try the limits, say what happened, end */
	const char *seed;     /* random bytes, hexadecimal */
	char *port;           /* the node of the port to the host, as the kernel named it */
	struct strv modules;  /* paths, in the order to load */
	struct strv tmpfs;    /* volumes of the image */
};

/* mounts.c: everything below BOOT_ROOT, in order. */
int boot_mount_disks(const struct boot *b, struct error *err);
int boot_mount_rest(const struct boot *b, struct error *err);
/* limits.c: a control group for everything that runs later, entered; seen at /sys/fs/cgroup of the new root. */
int boot_enter_limits(const struct boot *b, struct error *err);
/* The memory, PID and disk limits, used up by children: "memory=1 pids=1 disk=1\n" for what held. In the new root. */
int boot_exercise(const struct boot *b, char *ret, size_t n);
/* For a while, or until the host has seen its limit on the processor hold and ends the machine. */
void boot_use_cpu(void);

/* A failure that can be lived without is none: ENOENT, for what an image lacks. */
int boot_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data, struct error *err);
int boot_write(const char *path, const char *text, struct error *err);

#endif
