/*
 * The machine's first steps: config, modules, randomness, disks, mounts, limits, then sandbox-init in its place. What fails is said on
 * the console and ends the machine (the kernel stops when process 1 does), so the host sees every failure as an end.
 */
#include "daemon/runtime/drivers/qemu/boot/boot.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CONFIG_MAX = 64 * 1024, SEED_MAX = 64, DEVICES_MS = 20 * 1000, POLL_US = 2000, CLOCK_SLACK_S = 2, INIT_NICE = -20 };

#ifndef MODULE_INIT_COMPRESSED_FILE
#define MODULE_INIT_COMPRESSED_FILE 4
#endif

int boot_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data, struct error *err)
{
	if (mount(source, target, type, flags, data) == 0 || errno == ENOENT)
		return 0;
	return error_errno(err, "mounting %s on %s", type ? type : source, target);
}

int boot_write(const char *path, const char *text, struct error *err)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || io_write_full(fd, text, strlen(text)) != 0)
		return error_errno(err, "writing %s", path);
	return 0;
}

/* --- config --- */

static int take_record(struct boot *b, char *record, struct error *err)
{
	char *value = strchr(record, '=');
	const struct {
		const char *key;
		const char **text;
		int64_t *number;
	} rows[] = {
		{ "hostname", &b->hostname, NULL }, { "deadline-us", &b->deadline_us, NULL }, { "grace-ms", &b->grace_ms, NULL },
		{ "seed", &b->seed, NULL }, { "now-us", NULL, &b->now_us }, { "memory", NULL, &b->memory },
		{ "pids", NULL, &b->pids }, { "uid", NULL, &b->uid }, { "gid", NULL, &b->gid },
	};

	if (!value)
		return error_set(err, ERR_INVALID, "malformed config");
	*value++ = '\0';
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (strcmp(record, rows[i].key) != 0)
			continue;
		if (rows[i].number)
			return parse_i64(record, value, 0, INT64_MAX, rows[i].number, err);
		*rows[i].text = value;
		return 0;
	}
	if (strcmp(record, "module") == 0)
		strv_add(&b->modules, value);
	else if (strcmp(record, "tmpfs") == 0)
		strv_add(&b->tmpfs, value);
	else if (strcmp(record, "writable") == 0)
		b->writable = true;
	else if (strcmp(record, "exercise") == 0)
		b->exercise = true;
	else
		return error_set(err, ERR_INVALID, "unknown config key %s", record);
	return 0;
}

static int read_config(struct boot *b, struct error *err)
{
	static struct buf text; /* the records point into it */

	if (io_read_file("/config", CONFIG_MAX, &text, err) != 0)
		return -1;
	for (size_t at = 0; at < text.len;) {
		size_t n = strlen(text.data + at);

		if (take_record(b, text.data + at, err) != 0)
			return -1;
		at += n + 1;
	}
	return 0;
}

/* --- kernel --- */

static int load_modules(const struct boot *b, struct error *err)
{
	for (size_t i = 0; i < b->modules.len; i++) {
		const char *path = b->modules.items[i], *end = strrchr(path, '.');
		auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
		int flags = end && strcmp(end, ".ko") == 0 ? 0 : MODULE_INIT_COMPRESSED_FILE;

		if (fd < 0 || (syscall(SYS_finit_module, fd, "", flags) != 0 && errno != EEXIST))
			return error_errno(err, "loading %s", path);
	}
	return 0;
}

/* The emulated processor has no source that the kernel believes at once, and a key is wanted in milliseconds. */
static void seed_random(const struct boot *b)
{
	struct {
		struct rand_pool_info info;
		uint8_t bytes[SEED_MAX];
	} pool = { .info = { .entropy_count = 0 } };
	auto_close int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	size_t n = 0;

	for (const char *p = b->seed; p && p[0] && p[1] && n < SEED_MAX; p += 2) {
		char byte[3] = { p[0], p[1], '\0' };

		pool.bytes[n++] = (uint8_t)strtoul(byte, NULL, 16);
	}
	pool.info.entropy_count = (int)n * 8;
	pool.info.buf_size = (int)n;
	if (fd >= 0 && n > 0)
		(void)ioctl(fd, RNDADDENTROPY, &pool);
}

/* A machine without a readable clock starts in the past, and a deadline is a time of day. */
static void set_clock(const struct boot *b)
{
	struct timespec now, want = { .tv_sec = b->now_us / 1000000, .tv_nsec = b->now_us % 1000000 * 1000 };

	clock_gettime(CLOCK_REALTIME, &now);
	if (now.tv_sec + CLOCK_SLACK_S < want.tv_sec)
		(void)clock_settime(CLOCK_REALTIME, &want);
}

/* vportNp1, where N counts the machine's devices. The node appears when the host has answered. */
static char *find_port(void)
{
	auto_dir DIR *dir = opendir("/dev");

	for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
		if (strncmp(e->d_name, "vport", 5) == 0 && strcmp(e->d_name + strlen(e->d_name) - 2, "p1") == 0)
			return xasprintf("/dev/%s", e->d_name);
	return NULL;
}

static int wait_for_devices(struct boot *b, struct error *err)
{
	for (int i = 0; i < DEVICES_MS * 1000 / POLL_US; i++) {
		if (!b->port)
			b->port = find_port();
		if (b->port && access("/dev/vda", F_OK) == 0 && access("/dev/vdb", F_OK) == 0)
			return 0;
		usleep(POLL_US);
	}
	return error_set(err, ERR_TIMEOUT, "the machine's %s did not appear", b->port ? "disks" : "port");
}

static void raise_loopback(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (fd >= 0)
		(void)ioctl(fd, SIOCSIFFLAGS, &r);
}

static int prepare_kernel(struct boot *b, struct error *err)
{
	if (boot_mount("dev", "/dev", "devtmpfs", MS_NOSUID, NULL, err) != 0 || boot_mount("proc", "/proc", "proc", 0, NULL, err) != 0 ||
	    boot_mount("sys", "/sys", "sysfs", 0, NULL, err) != 0)
		return -1;
	if (read_config(b, err) != 0 || load_modules(b, err) != 0)
		return -1;
	seed_random(b);
	set_clock(b);
	raise_loopback();
	if (b->hostname && sethostname(b->hostname, strlen(b->hostname)) != 0)
		return error_errno(err, "setting the host name");
	return wait_for_devices(b, err);
}

/* --- the change --- */

/* What was unpacked into memory: nobody needs it any more, and it holds the seed. */
static void forget_initramfs(const struct boot *b)
{
	for (size_t i = 0; i < b->modules.len; i++)
		unlink(b->modules.items[i]);
	unlink("/config");
	unlink("/sandbox-init");
	unlink("/init");
}

static int enter_root(struct error *err)
{
	umount2("/proc", MNT_DETACH);
	umount2("/sys", MNT_DETACH);
	umount2("/dev", MNT_DETACH);
	if (chdir(BOOT_ROOT) != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
		return error_errno(err, "entering the root");
	return 0;
}

static void answer_exercise(const struct boot *b)
{
	char said[128];
	auto_close int fd = open(BOOT_PORT, O_RDWR | O_CLOEXEC);

	boot_exercise(b, said, sizeof(said));
	if (fd >= 0 && write(fd, said, strlen(said)) < 0)
		printf("sandbox-boot: the port takes nothing: %s\n", strerror(errno));
	boot_use_cpu();
	reboot(RB_AUTOBOOT);
}

static void become_init(const struct boot *b)
{
	const char *const argv[] = { "/.sandbox/init", "--serial", BOOT_PORT, "--deadline-us", b->deadline_us, "--grace-ms", b->grace_ms, NULL };
	char *const envp[] = { NULL };
	int console = fcntl(1, F_DUPFD_CLOEXEC, 10);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	setpriority(PRIO_PROCESS, 0, INIT_NICE); /* init gives it up for what it starts */
	execve(argv[0], (char *const *)(uintptr_t)argv, envp);
	dup2(console, 1);
}

static int run(struct boot *b, struct error *err)
{
	if (prepare_kernel(b, err) != 0 || boot_mount_disks(b, err) != 0 || boot_mount_rest(b, err) != 0 || boot_enter_limits(b, err) != 0)
		return -1;
	forget_initramfs(b);
	if (enter_root(err) != 0)
		return -1;
	if (b->exercise)
		answer_exercise(b);
	become_init(b);
	return error_errno(err, "starting sandbox-init");
}

int main(void)
{
	static struct boot b = { .deadline_us = "0", .grace_ms = "0" };
	struct error err = ERROR_INIT;

	umask(022);
	run(&b, &err);
	printf("sandbox-boot: %s\n", err.message);
	fflush(stdout);
	return 1;
}
