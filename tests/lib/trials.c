/*
 * What hostile code tries from inside a sandbox, one trial a call: `trials NAME`. Exit status 0: refused, and how is printed; 1: it got
 * through; 2: no such trial. Static and without our libraries, to run in any image (tests/lib/escapes.bash).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int tries;

/* What came of one attempt; a success ends it all. */
static void refused(const char *what, long rc)
{
	tries++;
	if (rc >= 0) {
		printf("%s: got through (%ld)\n", what, rc);
		exit(1);
	}
	printf("%s: %s\n", what, strerror(errno));
}

static void t_mount(void)
{
	refused("mount tmpfs", mount("none", "/tmp", "tmpfs", 0, NULL));
	refused("mount proc", mount("none", "/tmp", "proc", 0, NULL));
	refused("mount sysfs", mount("none", "/tmp", "sysfs", 0, NULL));
	refused("mount cgroup", mount("none", "/tmp", "cgroup", 0, "memory"));
	refused("mount cgroup2", mount("none", "/tmp", "cgroup2", 0, NULL));
	refused("bind /", mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL));
	refused("remount / rw", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
	refused("make / shared", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
	refused("umount /proc", umount2("/proc", MNT_DETACH));
	refused("pivot_root", syscall(SYS_pivot_root, "/workspace", "/workspace"));
	refused("chroot", chroot("/workspace"));
	refused("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1 | AT_RECURSIVE));
	refused("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
}

static void t_namespaces(void)
{
	static const char *const names[] = { "mnt", "net", "pid", "user", "uts", "ipc", "cgroup" };
	char path[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "/proc/1/ns/%s", names[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		refused(path, fd < 0 ? -1 : setns(fd, 0));
	}
	refused("unshare mnt", unshare(CLONE_NEWNS));
	refused("unshare net", unshare(CLONE_NEWNET));
	refused("unshare pid", unshare(CLONE_NEWPID));
	refused("sethostname", sethostname("owned", 5));
}

/* By itself it is no escape where the kernel is the sandbox's own; with the host's kernel it opens the door to most faults of it. */
static void t_userns(void)
{
	refused("unshare user", unshare(CLONE_NEWUSER));
	refused("clone user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
}

static void t_ptrace(void)
{
	char byte;
	struct iovec mine = { &byte, 1 }, theirs = { (void *)0x400000, 1 };

	refused("attach to process 1", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
	refused("seize process 1", ptrace(PTRACE_SEIZE, 1, NULL, NULL));
	refused("read its memory", process_vm_readv(1, &mine, 1, &theirs, 1, 0));
	refused("write its memory", process_vm_writev(1, &mine, 1, &theirs, 1, 0));
	refused("/proc/1/mem", open("/proc/1/mem", O_RDWR | O_CLOEXEC));
	refused("/proc/1/environ", open("/proc/1/environ", O_RDONLY | O_CLOEXEC) < 0 ? -1 : read(3, &byte, 1) < 0 ? -1 : 0);
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);
	refused("a descriptor of it", fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 3, 0));
}

static void t_keyrings(void)
{
	refused("the user's keyring", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1));
	refused("add_key", syscall(SYS_add_key, "user", "sbx-trial", "x", (size_t)1, KEY_SPEC_USER_KEYRING));
	refused("request_key", syscall(SYS_request_key, "user", "sbx-trial-sentinel", NULL, KEY_SPEC_USER_KEYRING));
}

static void t_kernel(void)
{
	union bpf_attr bpf;
	struct perf_event_attr perf = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(perf) };
	struct timeval then = { .tv_sec = 1000000000 };
	struct timespec spec = { .tv_sec = 1000000000 };

	memset(&bpf, 0, sizeof(bpf));
	refused("init_module", syscall(SYS_init_module, "", 0UL, ""));
	refused("finit_module", syscall(SYS_finit_module, 0, "", 0));
	refused("kexec_load", syscall(SYS_kexec_load, 0UL, 0UL, NULL, 0UL));
	refused("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &bpf, sizeof(bpf)));
	refused("perf_event_open of all", syscall(SYS_perf_event_open, &perf, -1, 0, -1, 0UL));
	refused("reboot", reboot(RB_DISABLE_CAD));
	refused("settimeofday", settimeofday(&then, NULL));
	refused("clock_settime", clock_settime(CLOCK_REALTIME, &spec));
	refused("swapon", swapon("/workspace/swap", 0));
	refused("syslog clear", syscall(SYS_syslog, 5, NULL, 0));
	refused("iopl", syscall(SYS_iopl, 3));
	refused("acct", syscall(SYS_acct, "/workspace/acct"));
	refused("quotactl", syscall(SYS_quotactl, 0x800002, NULL, 0, NULL));
	refused("nice", syscall(SYS_setpriority, 0, 0, -10));
}

/* Work that the kernel does by itself, past what watches system calls. */
static void t_rings(void)
{
	unsigned char params[120] = { 0 };

	refused("io_uring_setup", syscall(425, 8, params));
	refused("io_uring_enter", syscall(426, -1, 0, 0, 0, NULL, 0));
	refused("io_uring_register", syscall(427, -1, 0, NULL, 0));
#ifdef __x86_64__
	refused("io_uring_setup as x32 numbers it", syscall(425 | 0x40000000, 8, params));
#endif
	refused("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
}

/* What of it is no refusal, though it fails: a kernel that does not know the call, or one that would do it. */
static void t_rings_unknown(void)
{
	unsigned char params[120] = { 0 };

	if (syscall(425, 8, params) < 0 && errno == ENOSYS)
		return;
	printf("io_uring_setup: %s, not as if there was none\n", strerror(errno));
	exit(1);
}

/* Sockets that no network name space holds back, or that exist for the kernel's own parts. */
static void t_families(void)
{
	static const struct {
		int family, type;
		const char *name;
	} all[] = {
		{ 40, SOCK_STREAM, "vsock (the host's hypervisor)" },
		{ 38, SOCK_SEQPACKET, "alg" },
		{ 30, SOCK_SEQPACKET, "tipc" },
		{ 21, SOCK_SEQPACKET, "rds" },
		{ 15, SOCK_RAW, "key" },
		{ 29, SOCK_RAW, "can" },
		{ 31, SOCK_RAW, "bluetooth" },
		{ 44, SOCK_RAW, "xdp" },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		refused(all[i].name, socket(all[i].family, all[i].type | SOCK_CLOEXEC, 0));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pair[2];
	if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || socket(AF_UNIX, SOCK_STREAM, 0) < 0) {
		printf("an ordinary socket: %s\n", strerror(errno));
		exit(1);
	}
}

static void t_devices(void)
{
	static const char *const paths[] = { "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kvm", "/dev/sda", "/dev/vda", "/dev/loop-control", "/dev/fuse", "/dev/net/tun" };

	refused("mknod block", mknod("/workspace/b", S_IFBLK | 0600, makedev(8, 0)));
	refused("mknod mem", mknod("/workspace/c", S_IFCHR | 0600, makedev(1, 1)));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		refused(paths[i], open(paths[i], O_RDWR | O_CLOEXEC));
}

static void t_proc(void)
{
	static const char *const paths[] = { "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
		                             "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
		                             "/sys/fs/cgroup/memory/release_agent", "/proc/kcore", "/proc/kmem", "/sys/firmware/efi/efivars/x" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		int fd = open(paths[i], O_WRONLY | O_CLOEXEC);
		refused(paths[i], fd < 0 ? -1 : write(fd, "x", 1));
	}
}

/* A handle of the root directory names files past every mount. */
static void t_handles(void)
{
	struct {
		struct file_handle h;
		unsigned char bytes[8];
	} f = { .h = { .handle_bytes = 8, .handle_type = 1 } };
	uint32_t root = 2;

	memcpy(f.h.f_handle, &root, sizeof(root));
	int fd = open("/workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	refused("open_by_handle_at", open_by_handle_at(fd, &f.h, O_RDONLY));
	fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC);
	refused("by the hosts file's mount", open_by_handle_at(fd, &f.h, O_RDONLY));
	fd = open("/.sandbox/init", O_RDONLY | O_CLOEXEC);
	refused("by init's mount", open_by_handle_at(fd, &f.h, O_RDONLY));
}

/* The name of a socket of the host, which the test listens on. */
static void t_abstract(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *name = getenv("SENTINEL_NAME");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s", name ? name : "");

	refused("the host's abstract socket", connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
	refused("packets as they are", socket(AF_PACKET, SOCK_RAW, 0));
	refused("raw IP", socket(AF_INET, SOCK_RAW, 1));
}

/* Capabilities, set-id and a traced exec bring none back. */
static void t_capabilities(void)
{
	struct {
		uint32_t version;
		int pid;
	} head = { 0x20080522, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} all[2] = { { ~0U, ~0U, ~0U }, { ~0U, ~0U, ~0U } };

	refused("capset", syscall(SYS_capset, &head, all));
	refused("setuid of another", setresuid(12345, 12345, 12345));
	refused("setgroups", syscall(SYS_setgroups, 0, NULL));
	refused("chown", chown("/etc/hosts", 12345, 12345));
}

/* Descriptors pushed at whoever reads the worker's socket. Not refused: looked at from outside. */
static void t_descriptors(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/.sandbox/io/worker.sock" };
	char control[CMSG_SPACE(100 * sizeof(int))] = { 0 };
	struct iovec v = { (char[]){ "x" }, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int fds[100], sent = 0;

	for (int i = 0; i < 100; i++)
		fds[i] = 1;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	for (int i = 0; i < 20; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && sendmsg(fd, &m, MSG_NOSIGNAL) > 0)
			sent++;
		close(fd);
	}
	printf("sent %d times\n", sent);
}

/* CONNECTIONS at once, each with bytes that are no frame; held open for a moment. */
static void t_crowd(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/.sandbox/io/worker.sock" };
	const char *text = getenv("CONNECTIONS");
	int n = text ? (int)strtol(text, NULL, 10) : 1000, made = 0;
	char noise[512];

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (char)(i * 37 + 11);
	for (int i = 0; i < n; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0) { /* as many as this process may have */
			closefrom(3);
			continue;
		}
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0) {
			made++;
			(void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL | MSG_DONTWAIT);
		} else {
			close(fd);
			usleep(1000);
		}
	}
	printf("connected %d of %d\n", made, n);
}

/* Signals from the sandbox's own root. What process 1 makes of them is its and its kernel's affair. */
static void t_signals(void)
{
	static const int all[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGSEGV, SIGSTOP, SIGTSTP, SIGKILL };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		printf("signal %d: %s\n", all[i], kill(1, all[i]) == 0 ? "sent" : strerror(errno));
}

/* Forks without end, deaf to what would end it gently. */
static void t_bomb(void)
{
	for (int s = 1; s < 32; s++)
		signal(s, SIG_IGN);
	for (;;)
		if (fork() == 0)
			setsid();
}

static const struct {
	const char *name;
	void (*run)(void);
} trials[] = {
	{ "mount", t_mount }, { "namespaces", t_namespaces }, { "userns", t_userns }, { "ptrace", t_ptrace }, { "keyrings", t_keyrings },
	{ "kernel", t_kernel }, { "devices", t_devices }, { "proc", t_proc }, { "handles", t_handles }, { "abstract", t_abstract },
	{ "rings", t_rings }, { "rings-unknown", t_rings_unknown }, { "families", t_families }, { "capabilities", t_capabilities }, { "descriptors", t_descriptors }, { "crowd", t_crowd }, { "signals", t_signals }, { "bomb", t_bomb },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(trials) / sizeof(*trials); i++) {
		if (strcmp(argv[1], trials[i].name) != 0)
			continue;
		setvbuf(stdout, NULL, _IOLBF, 0);
		trials[i].run();
		return 0;
	}
	fprintf(stderr, "usage: trials NAME\n");
	return 2;
}
