/* See netns.h. A namespace belongs to a thread: the others of this process never leave theirs. */
#include "daemon/worker/netns.h"

#include "shared/base/io.h"
#include "shared/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int netns_open(pid_t pid, int alive)
{
	struct pollfd p = { .fd = alive, .events = POLLRDHUP };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (poll(&p, 1, 0) != 0) {
		close(fd);
		errno = ESRCH;
		return -1;
	}
	return fd;
}

int netns_socket(int netns, int family, int type)
{
	auto_close int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	if (own < 0 || setns(netns, CLONE_NEWNET) != 0)
		return -1;
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = errno;
	if (setns(own, CLONE_NEWNET) != 0) {
		/* Everything this thread did from here on would happen inside the sandbox. */
		log_error("worker", "this thread does not come back from a sandbox's network: %s", strerror(errno));
		abort();
	}
	errno = why;
	return fd;
}
