/*
 * The QEMU process. Its machine has a processor, memory, two disks, a serial port and a console; there is no network device, no monitor,
 * nothing that could be plugged in. The child waits until it is noted, then goes to its jail.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

enum { MEASURE_US = 10 * 1000, NAMESPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID };

/* An emulated machine has nothing to measure its own time stamp counter by on a busy host, and may hang over it. It runs at the host's. */
static unsigned counter_khz(void)
{
#ifdef __x86_64__
	int64_t started = clock_mono_us(), ended;
	uint64_t from = __rdtsc(), to;

	usleep(MEASURE_US);
	to = __rdtsc();
	ended = clock_mono_us();
	return (unsigned)((to - from) * 1000 / (uint64_t)(ended - started));
#else
	return 0;
#endif
}

static void add(struct strv *argv, const char *option, char *take_value)
{
	strv_add(argv, option);
	strv_take(argv, take_value);
}

static char *kernel_line(const struct machine *m)
{
	const char *common = "console=ttyS0 quiet loglevel=2 panic=-1 reboot=t edd=off random.trust_cpu=on";

	if (!m->emulated)
		return xstrdup(common);
	return xasprintf("%s no_timer_check nokaslr mitigations=off tsc_early_khz=%u", common, counter_khz());
}

static void build_argv(const struct machine *m, struct strv *argv)
{
	strv_add(argv, m->config->qemu);
	add(argv, "-machine", xstrdup("microvm,acpi=on,rtc=on"));
	add(argv, "-accel", xstrdup(m->emulated ? "tcg,tb-size=32,thread=multi" : "kvm"));
	add(argv, "-cpu", xstrdup(m->emulated ? "max" : "host"));
	add(argv, "-smp", xasprintf("%u", m->cpus));
	add(argv, "-m", xasprintf("%lldM", (long long)m->ram_mib));
	strv_add(argv, "-nodefaults");
	strv_add(argv, "-no-user-config");
	strv_add(argv, "-no-reboot");
	add(argv, "-display", xstrdup("none"));
	add(argv, "-kernel", xstrdup("/vm/kernel"));
	add(argv, "-initrd", xstrdup("/vm/initrd"));
	add(argv, "-append", kernel_line(m));
	add(argv, "-drive", xstrdup("id=image,file=/vm/image,format=raw,if=none,readonly=on"));
	add(argv, "-device", xstrdup("virtio-blk-device,drive=image"));
	/* Nothing here outlives a crash of the host, so nothing is flushed for one. */
	add(argv, "-drive", xstrdup("id=disk,file=/vm/disk,format=raw,if=none,cache=unsafe"));
	add(argv, "-device", xstrdup("virtio-blk-device,drive=disk"));
	add(argv, "-device", xstrdup("virtio-serial-device,max_ports=2"));
	add(argv, "-chardev", xasprintf("socket,id=port,fd=%d", VM_PORT));
	add(argv, "-device", xstrdup("virtserialport,chardev=port,nr=1"));
	add(argv, "-chardev", xasprintf("socket,id=console,fd=%d", VM_CONSOLE));
	add(argv, "-serial", xstrdup("chardev:console"));
	add(argv, "-sandbox", xstrdup("on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"));
}

/* 0: nothing, 1 and 2: the console, 3: the port, 4: the console again. */
static int set_descriptors(int port, int console, int gate)
{
	int from[] = { open("/dev/null", O_RDONLY | O_CLOEXEC), console, console, port, console, gate };
	int high[6];

	for (int i = 0; i < 6; i++)
		high[i] = fcntl(from[i], F_DUPFD, 16);
	for (int i = 0; i < 6; i++)
		if (dup2(high[i], i) < 0)
			return -1;
	return (int)syscall(SYS_close_range, 6U, ~0U, 0);
}

static _Noreturn void child_main(const struct machine *m, const struct strv *argv, int port, int console, int gate)
{
	static char *const environment[] = { NULL };
	struct error err = ERROR_INIT;
	char go;

	setsid();
	umask(022);
	if (set_descriptors(port, console, gate) == 0 && read(5, &go, 1) == 1) {
		close(5);
		if (jail_enter(m, &err) == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			execve(argv->items[0], argv->items, environment);
			error_errno(&err, "starting %s", argv->items[0]);
		}
		dprintf(1, "sandbox-driver-qemu: %s\n", err.message);
	}
	_exit(127);
}

static int socket_pair(int *ret_ours, int *ret_theirs, struct error *err)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
		return error_errno(err, "making a pair of sockets");
	*ret_ours = fd[0];
	*ret_theirs = fd[1];
	io_set_nonblock(fd[0], true);
	return 0;
}

/* Noted, then let go. */
static int release(const struct machine *m, pid_t pid, int gate, struct error *err)
{
	struct process p = process_of(pid);

	if (box_note_process(m->box, "vm", &p, err) == 0 && write(gate, "x", 1) == 1)
		return 0;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -1;
}

int vm_start(const struct machine *m, struct vm *ret, struct error *err)
{
	auto_close int port = -1, console = -1, gate = -1;
	auto_close int their_port = -1, their_console = -1, their_gate = -1;
	auto_strv argv = STRV_INIT;
	pid_t pid;

	if (socket_pair(&port, &their_port, err) != 0 || socket_pair(&console, &their_console, err) != 0 ||
	    socket_pair(&gate, &their_gate, err) != 0)
		return -1;
	build_argv(m, &argv);
	pid = (pid_t)syscall(SYS_clone, NAMESPACES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid < 0)
		return error_errno(err, "making namespaces for QEMU");
	if (pid == 0) {
		close(gate);
		child_main(m, &argv, their_port, their_console, their_gate);
	}
	if (release(m, pid, gate, err) != 0)
		return -1;
	*ret = (struct vm){ .pid = pid, .port = steal_fd(&port), .console = steal_fd(&console) };
	return 0;
}
