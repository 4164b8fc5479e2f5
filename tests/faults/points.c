/*
 * The calls that fail on order: see fault.h. Built twice: linked into a sandbox-init of the tests' own, in place of the C
 * library's (the linker's --wrap), and as a library that is loaded before the others of sandbox and sandboxd (LD_PRELOAD); that one can also set the clock, slow down syncs and
 * send signals all the time (SANDBOX_TEST_STORM_US).
 */
#include "tests/faults/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifdef FAULTS_WRAP
#define POINT(type, name, ...)                  \
	type __real_##name(__VA_ARGS__);        \
	type __wrap_##name(__VA_ARGS__);        \
	type __wrap_##name(__VA_ARGS__)
#define NEXT(name) __real_##name
#else
#define POINT(type, name, ...) type name(__VA_ARGS__)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#endif

static struct faults *page;

/* Before the first allocation of the program, so without any of its own. */
__attribute__((constructor)) static void find_page(void)
{
	page = faults_map(getenv(FAULTS_ENV));
	if (page && page->owner == 0)
		page->owner = (int32_t)getpid();
}

/* 0, or what the call must fail with. */
static int fault(uint32_t class)
{
	struct faults *f = page;
	if (!f || !(f->classes & class))
		return 0;
	int64_t number = ++f->seen;
	if (number < f->at || number - f->at >= f->span)
		return 0;
	f->failed++;
	return f->error;
}

static uint32_t class_of(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? FAULT_FILE : FAULT_STREAM;
}

/* What moves messages moves whole ones. */
static bool may_be_short(int fd)
{
	int type = 0;
	socklen_t n = sizeof(type);
	struct stat st;
	if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)))
		return true;
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

/* How much of n bytes a call may move: 0 when it has to fail, with errno set. */
static size_t allowed(int fd, size_t n)
{
	int why = page && page->classes & (FAULT_FILE | FAULT_STREAM) ? fault(class_of(fd)) : 0;
	if (why == ECONNRESET || why == EPIPE)
		shutdown(fd, SHUT_RDWR); /* as it is when a call says so */
	if (why > 0) {
		errno = why;
		return 0;
	}
	return why == FAULT_SHORT && n > 1 && may_be_short(fd) ? n / 2 : n;
}

/* A call that moves no bytes. */
static bool refused(uint32_t class)
{
	int why = fault(class);
	if (why > 0)
		errno = why;
	return why > 0;
}

/* --- memory, of the linked-in kind alone: libraries look up calls by allocating --- */

#ifdef FAULTS_WRAP
static void count(const void *gone, const void *come)
{
	/* A forked process has a heap of its own. */
	if (page && page->owner == (int32_t)syscall(SYS_getpid))
		page->live += (come != NULL) - (gone != NULL);
}

static bool no_memory(size_t n)
{
	return page && (int64_t)n >= page->least && refused(FAULT_ALLOC);
}

POINT(void *, malloc, size_t n)
{
	void *p = no_memory(n) ? NULL : __real_malloc(n);
	count(NULL, p);
	return p;
}

/* A C library may or may not build these on its malloc: so they are built on the one above. */
POINT(void *, calloc, size_t many, size_t size)
{
	size_t n;
	void *p = __builtin_mul_overflow(many, size, &n) ? NULL : __wrap_malloc(n);
	return p ? memset(p, 0, n) : NULL;
}

POINT(void *, realloc, void *old, size_t n)
{
	if (!old)
		return __wrap_malloc(n);
	if (no_memory(n))
		return NULL;
	return __real_realloc(old, n);
}

POINT(void, free, void *p)
{
	count(p, NULL);
	__real_free(p);
}
#endif

/* --- bytes --- */

POINT(ssize_t, read, int fd, void *p, size_t n)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(read)(fd, p, most);
}

POINT(ssize_t, write, int fd, const void *p, size_t n)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(write)(fd, p, most);
}

POINT(ssize_t, pread, int fd, void *p, size_t n, off_t at)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(pread)(fd, p, most, at);
}

POINT(ssize_t, pwrite, int fd, const void *p, size_t n, off_t at)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(pwrite)(fd, p, most, at);
}

POINT(ssize_t, recv, int fd, void *p, size_t n, int flags)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(recv)(fd, p, most, flags);
}

#ifndef FAULTS_WRAP
/* What the C library's checks of buffers make of the two above. */
ssize_t __read_chk(int fd, void *p, size_t n, size_t room);
ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags);

ssize_t __read_chk(int fd, void *p, size_t n, size_t room)
{
	return n > room ? abort(), -1 : read(fd, p, n);
}

ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags)
{
	return n > room ? abort(), -1 : recv(fd, p, n, flags);
}
#endif

POINT(ssize_t, send, int fd, const void *p, size_t n, int flags)
{
	size_t most = allowed(fd, n);
	return n && !most ? -1 : NEXT(send)(fd, p, most, flags);
}

POINT(ssize_t, sendmsg, int fd, const struct msghdr *m, int flags)
{
	size_t n = m->msg_iovlen ? m->msg_iov[0].iov_len : 0, most = allowed(fd, n);
	if (n && !most)
		return -1;
	if (most == n || m->msg_controllen)
		return NEXT(sendmsg)(fd, m, flags);
	struct iovec one = { m->msg_iov[0].iov_base, most };
	struct msghdr less = { .msg_iov = &one, .msg_iovlen = 1 };
	return NEXT(sendmsg)(fd, &less, flags);
}

POINT(ssize_t, readv, int fd, const struct iovec *v, int many)
{
	size_t n = many > 0 ? v[0].iov_len : 0, most = allowed(fd, n);
	if (n && !most)
		return -1;
	struct iovec one = { many > 0 ? v[0].iov_base : NULL, most };
	return most == n ? NEXT(readv)(fd, v, many) : NEXT(readv)(fd, &one, 1);
}

POINT(ssize_t, splice, int in, off_t *in_at, int out, off_t *out_at, size_t n, unsigned flags)
{
	size_t most = allowed(in, n);
	return n && !most ? -1 : NEXT(splice)(in, in_at, out, out_at, most, flags);
}

#ifndef FAULTS_WRAP
/* --- what the machine does: a clock that was set, a slow disk, signals all the time --- */

static void take_time(void)
{
	if (page && page->delay_us)
		usleep((useconds_t)page->delay_us);
}

POINT(int, fdatasync, int fd)
{
	take_time();
	return refused(FAULT_FILE) ? -1 : NEXT(fdatasync)(fd);
}

POINT(int, clock_gettime, clockid_t clock, struct timespec *ret)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, ret);
	if (rc == 0 && clock == CLOCK_REALTIME && page)
		ret->tv_sec += page->clock_us / 1000000;
	return rc;
}

static void on_storm(int sig)
{
	(void)sig;
	if (page)
		page->signals++;
}

__attribute__((constructor)) static void begin_storm(void)
{
	const char *us = getenv("SANDBOX_TEST_STORM_US");
	struct sigaction a = { .sa_handler = on_storm }; /* not restarting: calls end with EINTR */
	struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG };
	timer_t timer;
	/* What is started from here is not what is tested. */
	unsetenv("LD_PRELOAD");
	if (!us || sigaction(SIGURG, &a, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &how, &timer) != 0)
		return;
	struct timespec each = { .tv_nsec = atol(us) * 1000 };
	timer_settime(timer, 0, &(struct itimerspec){ each, each }, NULL);
}
#else
static void take_time(void)
{
}
#endif

POINT(int, fsync, int fd)
{
	take_time();
	return refused(FAULT_FILE) ? -1 : NEXT(fsync)(fd);
}

POINT(int, ftruncate, int fd, off_t n)
{
	return refused(FAULT_FILE) ? -1 : NEXT(ftruncate)(fd, n);
}

/* --- descriptors and processes --- */

POINT(int, open, const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return refused(FAULT_OPEN) ? -1 : NEXT(open)(path, flags, mode);
}

POINT(int, openat, int dir, const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return refused(FAULT_OPEN) ? -1 : NEXT(openat)(dir, path, flags, mode);
}

POINT(int, pipe2, int fds[2], int flags)
{
	return refused(FAULT_OPEN) ? -1 : NEXT(pipe2)(fds, flags);
}

POINT(int, socketpair, int domain, int type, int protocol, int fds[2])
{
	return refused(FAULT_OPEN) ? -1 : NEXT(socketpair)(domain, type, protocol, fds);
}

POINT(int, socket, int domain, int type, int protocol)
{
	return refused(FAULT_OPEN) ? -1 : NEXT(socket)(domain, type, protocol);
}

POINT(pid_t, fork, void)
{
	return refused(FAULT_FORK) ? -1 : NEXT(fork)();
}

/* --- names --- */

POINT(int, mkdirat, int dir, const char *path, mode_t mode)
{
	return refused(FAULT_NAME) ? -1 : NEXT(mkdirat)(dir, path, mode);
}

POINT(int, renameat, int from_dir, const char *from, int to_dir, const char *to)
{
	return refused(FAULT_NAME) ? -1 : NEXT(renameat)(from_dir, from, to_dir, to);
}

POINT(int, linkat, int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	return refused(FAULT_NAME) ? -1 : NEXT(linkat)(from_dir, from, to_dir, to, flags);
}

POINT(int, symlinkat, const char *target, int dir, const char *path)
{
	return refused(FAULT_NAME) ? -1 : NEXT(symlinkat)(target, dir, path);
}

POINT(int, fchmod, int fd, mode_t mode)
{
	return refused(FAULT_NAME) ? -1 : NEXT(fchmod)(fd, mode);
}
