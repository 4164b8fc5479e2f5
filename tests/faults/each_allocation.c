/*
 * A fuzz target's own inputs again, with every allocation failing in turn: `each_allocation FILE…`. Linked with one fuzz target.
 * An input is read in a forked process with the n-th allocation failing, n = 1, 2, … until none failed. It must end as the
 * target says is right (an answer, or a refusal with a reason), or with "out of memory" and abort, which is what the
 * programs do (docs/decisions/0010); never otherwise, and never with memory that nobody frees. ROUNDS in the environment bounds the rounds of an input, which
 * are then spread evenly. Prints one line.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

enum { INPUT_MAX = 16 * 1024, ALLOCATIONS_MAX = 100 * 1000, LEAKED = 70, UNMET = 71 };

static struct {
	long at; /* 0: none */
	long seen, live;
	int failed;
} faults;

static int fails(void)
{
	if (faults.at == 0 || ++faults.seen != faults.at)
		return 0;
	faults.failed = 1;
	errno = ENOMEM;
	return 1;
}

static void *counted(void *p)
{
	faults.live += p != NULL;
	return p;
}

void *malloc(size_t n)
{
	return fails() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *old, size_t n)
{
	if (fails())
		return NULL;
	void *p = __libc_realloc(old, n);
	if (!old || (!p && n == 0))
		faults.live += old ? -1 : 1;
	return p;
}

void free(void *p)
{
	faults.live -= p != NULL;
	__libc_free(p);
}

static uint8_t input[INPUT_MAX];
static size_t input_len;

static int read_input(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, input, sizeof(input));
	if (fd >= 0)
		close(fd);
	input_len = n > 0 ? (size_t)n : 0;
	return n >= 0 ? 0 : -1;
}

static _Noreturn void in_child(long at, int out)
{
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	dup2(out, 2);
	long before = faults.live;
	faults.seen = 0;
	faults.at = at;
	LLVMFuzzerTestOneInput(input, input_len);
	faults.at = 0;
	if (faults.live > before)
		fprintf(stderr, "%ld allocations were not freed\n", faults.live - before);
	_exit(faults.live > before ? LEAKED : faults.failed ? 0 : UNMET);
}

/* 1: no allocation failed any more; 0: go on; -1: it ended as it must not. */
static int round_of(const char *path, long at)
{
	int out[2], status;
	char said[4096];
	if (pipe(out) != 0)
		return -1;
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0)
		in_child(at, out[1]);
	close(out[1]);
	size_t n = 0;
	ssize_t r;
	while ((r = read(out[0], said + n, sizeof(said) - 1 - n)) > 0)
		n += (size_t)r;
	said[n] = '\0';
	close(out[0]);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == UNMET)
		return 1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strcmp(said, "out of memory\n") == 0)
		return 0;
	fprintf(stderr, "%s, allocation %ld: status %x: %s\n", path, at, (unsigned)status, said);
	return -1;
}

/* Runs the input once, so that what is made once and kept is there before the rounds. Returns how many allocations it makes. */
static long first_run(void)
{
	faults.seen = 0;
	faults.at = LONG_MAX;
	LLVMFuzzerTestOneInput(input, input_len);
	faults.at = 0;
	return faults.seen;
}

int main(int argc, char **argv)
{
	const char *most = getenv("ROUNDS");
	long rounds = 0, limit = most ? strtol(most, NULL, 10) : ALLOCATIONS_MAX;
	int bad = 0;
	for (int i = 1; i < argc; i++) {
		int r = read_input(argv[i]);
		long step = r == 0 ? first_run() / (limit > 0 ? limit : 1) + 1 : 1;
		for (long at = 1; r == 0 && at < ALLOCATIONS_MAX; at += step, rounds++)
			r = round_of(argv[i], at);
		bad += r < 0;
	}
	printf("%d inputs, %ld allocations failed in turn, %d inputs ended badly\n", argc - 1, rounds, bad);
	return argc < 2 || bad > 0;
}
