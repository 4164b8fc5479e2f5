/*
 * The sandbox's file systems: the image read-only, or under the disk where the root may be written; /workspace on the disk; the rest in
 * memory, with the sizes a container gets. Nothing here defends the host: whatever an image makes of these mounts happens to its own guest.
 */
#include "daemon/runtime/drivers/qemu/boot/boot.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { MIB = 1024 * 1024, RUN_MIB = 16, TMPFS_MIN_MIB = 16 };

static int make_dir(const char *path, mode_t mode, struct error *err)
{
	if (mkdir(path, mode) != 0 && errno != EEXIST)
		return error_errno(err, "making %s", path);
	return 0;
}

static int make_dirs(struct error *err)
{
	static const char *const dirs[] = { BOOT_ROOT, BOOT_DISK, "/lower", "/group" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (make_dir(dirs[i], 0755, err) != 0)
			return -1;
	return 0;
}

static int mount_overlay(struct error *err)
{
	if (make_dir(BOOT_DISK "/root", 0755, err) != 0 || make_dir(BOOT_DISK "/root/upper", 0755, err) != 0 ||
	    make_dir(BOOT_DISK "/root/work", 0755, err) != 0)
		return -1;
	return boot_mount("root", BOOT_ROOT, "overlay", MS_NOATIME,
	                  "lowerdir=/lower,upperdir=" BOOT_DISK "/root/upper,workdir=" BOOT_DISK "/root/work", err);
}

static int mount_workspace(const struct boot *b, struct error *err)
{
	if (make_dir(BOOT_DISK "/workspace", 0777, err) != 0)
		return -1;
	if (chown(BOOT_DISK "/workspace", (uid_t)b->uid, (gid_t)b->gid) != 0 || chmod(BOOT_DISK "/workspace", 0777) != 0)
		return error_errno(err, "preparing /workspace");
	if (mount(BOOT_DISK "/workspace", BOOT_ROOT "/workspace", NULL, MS_BIND, NULL) != 0)
		return error_errno(err, "mounting /workspace");
	return 0;
}

/* Which disk comes first is the kernel's choice; the image is the one that cannot be written. */
static bool is_read_only(const char *disk)
{
	auto_free char *path = xasprintf("/sys/block/%s/ro", disk);
	auto_buf text = BUF_INIT;

	return io_read_file(path, 16, &text, NULL) == 0 && *buf_str(&text) == '1';
}

int boot_mount_disks(const struct boot *b, struct error *err)
{
	const char *where = b->writable ? "/lower" : BOOT_ROOT;
	bool first = is_read_only("vda");

	if (make_dirs(err) != 0)
		return -1;
	if (mount(first ? "/dev/vda" : "/dev/vdb", where, "ext4", MS_RDONLY | MS_NODEV | MS_NOATIME, NULL) != 0)
		return error_errno(err, "mounting the image");
	if (mount(first ? "/dev/vdb" : "/dev/vda", BOOT_DISK, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, NULL) != 0)
		return error_errno(err, "mounting the disk");
	if (b->writable && mount_overlay(err) != 0)
		return -1;
	return mount_workspace(b, err);
}

/* --- in memory --- */

static int64_t share_of_memory(const struct boot *b, int part)
{
	int64_t mib = b->memory / MIB / part;

	return mib < TMPFS_MIN_MIB ? TMPFS_MIN_MIB : mib;
}

static int mount_tmpfs(const char *where, unsigned long flags, int64_t mib, unsigned inodes, unsigned mode, struct error *err)
{
	auto_free char *path = xasprintf(BOOT_ROOT "%s", where);
	auto_free char *data = xasprintf("size=%lldm,nr_inodes=%u,mode=%o", (long long)mib, inodes, mode);

	return boot_mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | flags, data, err);
}

static int make_device(const char *name, mode_t mode, unsigned major_number, unsigned minor_number, struct error *err)
{
	auto_free char *path = xasprintf(BOOT_ROOT "/dev/%s", name);

	if (mknod(path, S_IFCHR | mode, makedev(major_number, minor_number)) != 0 || chmod(path, mode) != 0)
		return error_errno(err, "making /dev/%s", name);
	return 0;
}

static int make_link(const char *to, const char *name, struct error *err)
{
	auto_free char *path = xasprintf(BOOT_ROOT "/dev/%s", name);

	return symlink(to, path) == 0 ? 0 : error_errno(err, "making /dev/%s", name);
}

/* Of its own: the kernel's would show the disks and the port. */
static int make_dev(const struct boot *b, struct error *err)
{
	static const struct {
		const char *name;
		unsigned minor_number;
	} memory[] = { { "null", 3 }, { "zero", 5 }, { "full", 7 }, { "random", 8 }, { "urandom", 9 } };

	if (mount("tmpfs", BOOT_ROOT "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=755") != 0)
		return error_errno(err, "mounting /dev");
	for (size_t i = 0; i < ARRAY_LEN(memory); i++)
		if (make_device(memory[i].name, 0666, 1, memory[i].minor_number, err) != 0)
			return -1;
	if (make_device("tty", 0666, 5, 0, err) != 0 || make_link("pts/ptmx", "ptmx", err) != 0 || make_link("/proc/self/fd", "fd", err) != 0 ||
	    make_link("/proc/self/fd/0", "stdin", err) != 0 || make_link("/proc/self/fd/1", "stdout", err) != 0 ||
	    make_link("/proc/self/fd/2", "stderr", err) != 0)
		return -1;
	if (make_dir(BOOT_ROOT "/dev/pts", 0755, err) != 0 || make_dir(BOOT_ROOT "/dev/shm", 0755, err) != 0)
		return -1;
	if (boot_mount("devpts", BOOT_ROOT "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5", err) != 0)
		return -1;
	return mount_tmpfs("/dev/shm", MS_NOEXEC, share_of_memory(b, 4), 16384, 01777, err);
}

static int copy_init(struct error *err)
{
	auto_buf program = BUF_INIT;
	auto_close int fd = open(BOOT_ROOT "/.sandbox/init", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	if (io_read_file("/sandbox-init", 64 * MIB, &program, err) != 0)
		return -1;
	if (fd < 0 || io_write_full(fd, program.data, program.len) != 0 || fchmod(fd, 0755) != 0)
		return error_errno(err, "copying sandbox-init");
	return 0;
}

/* Process 1, its port, and the names of this machine, where the image cannot have put others. */
static int make_own(const struct boot *b, struct error *err)
{
	auto_free char *hosts = xasprintf("127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback %s\n", b->hostname, b->hostname);
	auto_free char *name = xasprintf("%s\n", b->hostname);
	struct stat port;

	if (mount("tmpfs", BOOT_ROOT "/.sandbox", "tmpfs", MS_NOSUID, "size=64m,mode=755") != 0)
		return error_errno(err, "mounting /.sandbox");
	if (copy_init(err) != 0 || boot_write(BOOT_ROOT "/.sandbox/hosts", hosts, err) != 0 ||
	    boot_write(BOOT_ROOT "/.sandbox/hostname", name, err) != 0)
		return -1;
	if (stat(b->port, &port) != 0 || mknod(BOOT_ROOT BOOT_PORT, S_IFCHR | 0600, port.st_rdev) != 0)
		return error_errno(err, "making the port");
	if (boot_mount(BOOT_ROOT "/.sandbox/hosts", BOOT_ROOT "/etc/hosts", NULL, MS_BIND, NULL, err) != 0 ||
	    boot_mount(BOOT_ROOT "/.sandbox/hostname", BOOT_ROOT "/etc/hostname", NULL, MS_BIND, NULL, err) != 0)
		return -1;
	if (mount(NULL, BOOT_ROOT "/.sandbox", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID, NULL) != 0)
		return error_errno(err, "closing /.sandbox");
	return 0;
}

int boot_mount_rest(const struct boot *b, struct error *err)
{
	unsigned long closed = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (boot_mount("proc", BOOT_ROOT "/proc", "proc", closed, NULL, err) != 0 ||
	    boot_mount("sysfs", BOOT_ROOT "/sys", "sysfs", closed | MS_RDONLY, NULL, err) != 0)
		return -1;
	if (make_dev(b, err) != 0)
		return -1;
	if (mount_tmpfs("/tmp", 0, share_of_memory(b, 2), 131072, 01777, err) != 0 || mount_tmpfs("/run", MS_NOEXEC, RUN_MIB, 8192, 0755, err) != 0)
		return -1;
	for (size_t i = 0; i < b->tmpfs.len; i++)
		if (mount_tmpfs(b->tmpfs.items[i], 0, share_of_memory(b, 4), 65536, 0755, err) != 0)
			return -1;
	return make_own(b, err);
}
