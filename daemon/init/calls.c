/*
 * What no program in a sandbox needs of a kernel that it may share with others, taken away on top of the engine's own system call
 * filter: io_uring, whose work no filter sees, and socket families that no network name space holds back. Process 1 takes it from
 * itself, and with that from all that descends from it.
 */
#include "daemon/init/sys.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* Programs of two architectures run on one kernel, each with numbers of its own; those of calls since 2019 are the same everywhere. */
#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64, SOCKET = 41, OTHER_ARCH = AUDIT_ARCH_I386, OTHER_SOCKET = 359 };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64, SOCKET = 198, OTHER_ARCH = AUDIT_ARCH_ARM, OTHER_SOCKET = 281 };
#else
#error "the numbers of this architecture's system calls are missing here"
#endif
enum { IO_URING_SETUP = 425, IO_URING_REGISTER = 427, OTHER_SOCKETCALL = 102, SOCKETCALL_SOCKET = 1, X32_BIT = 0x40000000 };

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define KEEP BPF_STMT(BPF_MISC | BPF_TAX, 0)
#define RECALL BPF_STMT(BPF_MISC | BPF_TXA, 0)
/* How many instructions to skip when it holds and when not. */
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), yes, no)
#define AT_LEAST(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)(value), yes, no)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define NO_CALL ANSWER(SECCOMP_RET_ERRNO | ENOSYS) /* as from a kernel without it: libraries then do without */
#define NO_FAMILY ANSWER(SECCOMP_RET_ERRNO | EAFNOSUPPORT)

int sys_deny_calls(void)
{
	static struct sock_filter code[] = {
		/*  0 */ LOAD(nr),
		/*  1 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(unsigned)X32_BIT),
		/*  2 */ AT_LEAST(IO_URING_SETUP, 0, 2),
		/*  3 */ AT_LEAST(IO_URING_REGISTER + 1, 1, 0),
		/*  4 */ NO_CALL,
		/*  5 */ KEEP,
		/*  6 */ LOAD(arch),
		/*  7 */ IS(ARCH, 0, 2),
		/*  8 */ RECALL,
		/*  9 */ IS(SOCKET, 7, 6),
		/* 10 */ IS(OTHER_ARCH, 0, 5),
		/* 11 */ RECALL,
		/* 12 */ IS(OTHER_SOCKET, 4, 0),
		/* 13: the older way, whose family is in memory, where no filter looks */ IS(OTHER_SOCKETCALL, 0, 2),
		/* 14 */ LOAD(args[0]),
		/* 15 */ IS(SOCKETCALL_SOCKET, 9, 0),
		/* 16 */ ANSWER(SECCOMP_RET_ALLOW),
		/* 17 */ LOAD(args[0]),
		/* 18 */ IS(AF_UNIX, 5, 0),
		/* 19 */ IS(AF_INET, 4, 0),
		/* 20 */ IS(AF_INET6, 3, 0),
		/* 21 */ IS(AF_NETLINK, 2, 0),
		/* 22 */ IS(AF_PACKET, 1, 0),
		/* 23: among them vsock, which leads to the machine's hypervisor from every name space */ NO_FAMILY,
		/* 24 */ ANSWER(SECCOMP_RET_ALLOW),
		/* 25 */ NO_CALL,
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
