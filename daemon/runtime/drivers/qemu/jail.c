/*
 * What QEMU sees of the host: a root in memory with the system's libraries, read-only, three device nodes, and the files of its own
 * machine. No network, no other process, no directory of anybody. Runs in a child that has its namespaces and nothing to lose.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 512, FILES_MAX = 256, CAPS = 64 };

static int make_dir(const char *path, struct error *err)
{
	return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : error_errno(err, "making %s", path);
}

static int bind(const char *from, const char *to, unsigned long flags, struct error *err)
{
	if (mount(from, to, NULL, MS_BIND, NULL) != 0)
		return error_errno(err, "showing %s to QEMU", from);
	if (mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | flags, NULL) != 0)
		return error_errno(err, "closing %s", to);
	return 0;
}

static int bind_file(const char *root, const char *from, const char *to, unsigned long flags, struct error *err)
{
	auto_free char *path = xasprintf("%s%s", root, to);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd < 0 ? error_errno(err, "making %s", path) : bind(from, path, flags, err);
}

/* The system's directories as they are there: many are links into /usr. */
static int show_system(const char *root, struct error *err)
{
	static const char *const dirs[] = { "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt" };
	char target[256];
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		auto_free char *path = xasprintf("%s%s", root, dirs[i]);
		ssize_t n = readlink(dirs[i], target, sizeof(target) - 1);

		if (n > 0) {
			target[n] = '\0';
			if (symlink(target, path) != 0)
				return error_errno(err, "making %s", path);
		} else if (lstat(dirs[i], &st) == 0 && S_ISDIR(st.st_mode)) {
			if (make_dir(path, err) != 0 || bind(dirs[i], path, MS_RDONLY | MS_NODEV, err) != 0)
				return -1;
		}
	}
	return access("/etc/ld.so.cache", R_OK) == 0 ? bind_file(root, "/etc/ld.so.cache", "/etc/ld.so.cache", MS_RDONLY | MS_NODEV, err) : 0;
}

/* A node of its own where that is allowed, since the host's may be closed to this user. */
static int make_device(const char *root, const char *name, uid_t uid, struct error *err)
{
	auto_free char *from = xasprintf("/dev/%s", name);
	auto_free char *to = xasprintf("%s/dev/%s", root, name);
	struct stat st;

	if (stat(from, &st) != 0)
		return errno == ENOENT ? 0 : error_errno(err, "looking at %s", from);
	if (mknod(to, S_IFCHR | 0600, st.st_rdev) == 0)
		return chown(to, uid, uid) == 0 ? 0 : error_errno(err, "giving %s away", to);
	return bind_file(root, from, to + strlen(root), 0, err);
}

static int show_devices(const struct machine *m, const char *root, struct error *err)
{
	if (make_device(root, "null", m->uid, err) != 0 || make_device(root, "urandom", m->uid, err) != 0)
		return -1;
	return m->emulated ? 0 : make_device(root, "kvm", m->uid, err);
}

static int show_machine(const struct machine *m, const char *root, struct error *err)
{
	auto_free char *disk = box_path(m->box, "disk.img");
	auto_free char *initrd = box_path(m->box, "initrd");

	if (chown(disk, m->uid, m->uid) != 0 || chown(initrd, m->uid, m->uid) != 0)
		return error_errno(err, "giving the disk to user %u", (unsigned)m->uid);
	if (bind_file(root, m->config->kernel, "/vm/kernel", MS_RDONLY | MS_NODEV | MS_NOEXEC, err) != 0 ||
	    bind_file(root, m->image, "/vm/image", MS_RDONLY | MS_NODEV | MS_NOEXEC, err) != 0 ||
	    bind_file(root, initrd, "/vm/initrd", MS_RDONLY | MS_NODEV | MS_NOEXEC, err) != 0)
		return -1;
	return bind_file(root, disk, "/vm/disk", MS_NODEV | MS_NOEXEC, err);
}

static int make_root(const struct machine *m, const char *root, struct error *err)
{
	static const char *const dirs[] = { "dev", "etc", "vm", "tmp" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || (mkdir(root, 0700) != 0 && errno != EEXIST) ||
	    mount("jail", root, "tmpfs", MS_NOSUID, "size=1m,mode=755") != 0)
		return error_errno(err, "making a root for QEMU");
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		auto_free char *path = xasprintf("%s/%s", root, dirs[i]);

		if (make_dir(path, err) != 0)
			return -1;
	}
	return show_system(root, err) != 0 || show_devices(m, root, err) != 0 ? -1 : show_machine(m, root, err);
}

static int change_root(const char *root, struct error *err)
{
	/* Put over itself, the old root is below and is taken away. */
	if (chdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		return error_errno(err, "changing the root");
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, NULL) != 0)
		return error_errno(err, "closing the root");
	return 0;
}

int become_user(uid_t uid, struct error *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return error_errno(err, "giving up rights");
	for (int cap = 0; cap < CAPS; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
		return error_errno(err, "becoming user %u", (unsigned)uid);
	return 0;
}

int jail_enter(const struct machine *m, struct error *err)
{
	auto_free char *root = box_path(m->box, "jail");
	struct rlimit none = { 0, 0 }, threads = { THREADS_MAX, THREADS_MAX }, files = { FILES_MAX, FILES_MAX };

	if (make_root(m, root, err) != 0 || change_root(root, err) != 0)
		return -1;
	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_NPROC, &threads);
	return become_user(m->uid, err);
}
