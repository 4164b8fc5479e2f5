/*
 * Faults on order: what a test and the calls that it lets fail share, one page in a mapped file named by SANDBOX_TEST_FAULTS.
 * The test arms a class of calls; the calls of that class are counted, over all processes that have the page, and those from
 * number `at` on, `span` of them, fail with `error`. Nothing is armed in a fresh file. See points.c for who counts.
 */
#ifndef SANDBOX_TESTS_FAULT_H
#define SANDBOX_TESTS_FAULT_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum fault_class {
	FAULT_ALLOC = 1,   /* malloc, calloc, realloc */
	FAULT_FILE = 2,    /* bytes of regular files: read, write, sync, truncate, allocate */
	FAULT_STREAM = 4,  /* bytes of pipes and sockets */
	FAULT_OPEN = 8,    /* a new descriptor */
	FAULT_FORK = 16,
	FAULT_NAME = 32,   /* mkdir, link, rename, modes, owners, times */
};

/* In place of an errno: the call moves half of its bytes, at least one. Calls that move none are let through. */
enum { FAULT_SHORT = -1 };

struct faults {
	_Atomic uint32_t classes; /* 0: disarmed */
	_Atomic int32_t error;
	_Atomic int64_t at; /* the first is 1 */
	_Atomic int64_t span;
	_Atomic int64_t least; /* allocations of fewer bytes are let through, uncounted */
	_Atomic int64_t seen, failed;
	_Atomic int64_t live; /* allocations that have not been freed; counted always, in the process that mapped the page first */
	_Atomic int32_t owner, unused;
	_Atomic int64_t clock_us; /* added to the wall clock */
	_Atomic int64_t delay_us; /* of each sync */
	_Atomic int64_t signals;  /* that came: see points.c */
};

#define FAULTS_ENV "SANDBOX_TEST_FAULTS"

/* NULL where there is none. */
static inline struct faults *faults_map(const char *path)
{
	int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
	if (fd < 0)
		return NULL;
	void *p = ftruncate(fd, 4096) == 0 ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

_Static_assert(offsetof(struct faults, clock_us) == 64 && offsetof(struct faults, signals) == 80, "machine_faults.bats and transfer.py write them by place");

static inline void faults_arm(struct faults *f, uint32_t classes, int error, int64_t at, int64_t span)
{
	f->classes = 0;
	f->error = error;
	f->at = at;
	f->span = span;
	f->least = 0;
	f->seen = f->failed = 0;
	f->classes = classes;
}

#endif
