/*
 * When there is no memory. Ending process 1 would end everything in the sandbox, and what takes the memory may be a program
 * that gives it back: so init waits, as long as it takes. A worker that gets no answer for too long ends the sandbox.
 * The helpers wait only a while: each of them serves one stream, which then ends with an error.
 */
#include "daemon/init/init.h"

#include "shared/base/mem.h"

#include <time.h>
#include <unistd.h>

enum {
	RESERVE = 512 * 1024, /* a command's own records, and the answers of those that run; untouched, it takes no page */
	PAUSE_MS = 5,
	HELPER_PAUSES = 2000,
};

static struct {
	pid_t owner;
	void *reserve;
	int pauses; /* of a helper */
} memory;

static bool again(void)
{
	if (memory.reserve) {
		free(memory.reserve);
		memory.reserve = NULL;
		return true;
	}
	if (getpid() != memory.owner && ++memory.pauses > HELPER_PAUSES)
		return false;
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_MS * 1000 * 1000 }, NULL);
	return true;
}

void memory_init(void)
{
	memory.owner = getpid();
	memory.reserve = malloc(RESERVE);
	mem_when_short(again);
}

bool memory_ready(void)
{
	if (!memory.reserve)
		memory.reserve = malloc(RESERVE);
	return memory.reserve != NULL;
}
