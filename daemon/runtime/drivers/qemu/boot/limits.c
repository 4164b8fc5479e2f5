/* The limits programs meet inside: a control group of the guest's own kernel, as in a container. The machine's size is the host's matter. */
#include "daemon/runtime/drivers/qemu/boot/boot.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP "/group/sandbox"

enum { PIDS_RESERVE = 32, STEP = 1024 * 1024, STEPS_MAX = 1 << 20, CHUNK = 64 * 1024, FORKS_MAX = 1 << 16, IDLE_S = 60, SPIN_MS = 60 * 1000 };

static int write_number(const char *path, int64_t value, struct error *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	return boot_write(path, text, err);
}

int boot_enter_limits(const struct boot *b, struct error *err)
{
	if (mount("cgroup2", "/group", "cgroup2", 0, NULL) != 0)
		return error_errno(err, "mounting the control groups");
	if (boot_write("/group/cgroup.subtree_control", "+memory +pids", err) != 0)
		return -1;
	if (mkdir(GROUP, 0755) != 0)
		return error_errno(err, "making a control group");
	if (write_number(GROUP "/memory.max", b->memory, err) != 0 || write_number(GROUP "/pids.max", b->pids + PIDS_RESERVE, err) != 0 ||
	    boot_write(GROUP "/cgroup.procs", "1", err) != 0)
		return -1;
	if (unshare(CLONE_NEWCGROUP) != 0)
		return error_errno(err, "entering a namespace of control groups");
	umount2("/group", MNT_DETACH);
	return boot_mount("cgroup2", BOOT_ROOT "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL, err);
}

/* --- the probe's --- */

static void use_memory(void)
{
	for (int i = 0; i < STEPS_MAX; i++) {
		volatile char *p = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			_exit(1);
		for (size_t at = 0; at < STEP; at += 4096)
			p[at] = 1;
	}
}

static bool memory_holds(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		/* Process 1 is the kernel's last choice already; make this one its first. */
		boot_write("/proc/self/oom_score_adj", "1000", NULL);
		use_memory();
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool pids_hold(const struct boot *b)
{
	auto_free pid_t *made = xcalloc(FORKS_MAX, sizeof(*made));
	int n = 0;

	for (; n < FORKS_MAX; n++) {
		made[n] = fork();
		if (made[n] < 0)
			break;
		if (made[n] == 0) {
			sleep(IDLE_S);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++) {
		kill(made[i], SIGKILL);
		waitpid(made[i], NULL, 0);
	}
	return n < b->pids + PIDS_RESERVE;
}

/* It ends with ENOSPC, in a file system no larger than its disk. */
static bool disk_holds(void)
{
	auto_close int fd = open("/workspace/fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	auto_free char *chunk = xcalloc(1, CHUNK);
	ssize_t n = 1;

	while (fd >= 0 && n > 0)
		n = write(fd, chunk, CHUNK);
	return fd >= 0 && errno == ENOSPC;
}

void boot_use_cpu(void)
{
	int64_t until = clock_mono_ms() + SPIN_MS;

	while (clock_mono_ms() < until)
		;
}

int boot_exercise(const struct boot *b, char *ret, size_t n)
{
	bool memory = memory_holds(), pids = pids_hold(b), disk = disk_holds();

	return snprintf(ret, n, "memory=%d pids=%d disk=%d\n", memory, pids, disk);
}
