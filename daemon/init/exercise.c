/*
 * What a probe runs in place of process 1, to see that limits bite: it uses up what its name says and is expected to be
 * stopped. Nobody else starts it; a sandbox that ran it would only end itself.
 */
#include "daemon/init/init.h"
#include "shared/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SPIN_MS = 300,
	STEP_BYTES = 1024 * 1024,
	PAGE_BYTES = 4096,
	STEPS_MAX = 4096,
	FORKS_MAX = 4096,
	IDLE_S = 20,
};

/* The CPU limit first, then memory until something ends this. */
static void use_memory(void)
{
	int64_t until = clock_mono_ms() + SPIN_MS;

	while (clock_mono_ms() < until)
		;
	for (int i = 0; i < STEPS_MAX; i++) {
		volatile char *p = mmap(NULL, STEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return;
		for (size_t at = 0; at < STEP_BYTES; at += PAGE_BYTES)
			p[at] = 1;
	}
}

/* Children that stay, until no more come. */
static void use_pids(void)
{
	for (int i = 0; i < FORKS_MAX; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return;
		if (pid == 0) {
			sleep(IDLE_S);
			_exit(0);
		}
	}
}

int exercise(const char *what)
{
	if (strcmp(what, "memory") == 0)
		use_memory();
	else if (strcmp(what, "pids") == 0)
		use_pids();
	else
		return 2;
	sleep(IDLE_S);
	return 0;
}
