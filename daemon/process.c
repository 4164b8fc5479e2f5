/* Settings of the whole process: see process.h. */
#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define THREAD_STACK (512 * 1024)
#define ARENAS 2

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif

/* A socket that landed on descriptor 2 would get the log. */
static void fill_standard(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static void raise_descriptors(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* Requests carry tokens and environments: neither a core file nor another process of the same user gets at them. The leak
 * checker of an instrumented build needs to look at itself. */
static void hide_memory(void)
{
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
#ifndef INSTRUMENTED
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

/* Two arenas serve our few threads; stacks below 2 MiB are never backed by a huge page for one touched byte. Instrumented
 * code needs more stack. */
static void keep_small(void)
{
#ifndef INSTRUMENTED
	mallopt(M_ARENA_MAX, ARENAS);
	pthread_attr_t attr;
	if (pthread_attr_init(&attr) == 0) {
		pthread_attr_setstacksize(&attr, THREAD_STACK);
		pthread_setattr_default_np(&attr);
		pthread_attr_destroy(&attr);
	}
#endif
}

void process_prepare(void)
{
	fill_standard();
	umask(077);
	hide_memory();
	raise_descriptors();
	keep_small();
}

static void taken_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

void process_block_signals(void)
{
	sigset_t set;
	taken_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int process_wait_signal(void)
{
	sigset_t set;
	int sig;
	taken_signals(&set);
	do
		sig = sigwaitinfo(&set, NULL);
	while (sig < 0 && errno == EINTR);
	return sig;
}

bool process_pause(int ms)
{
	sigset_t set;
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
	taken_signals(&set);
	int sig = sigtimedwait(&set, NULL, &t);
	return sig != SIGTERM && sig != SIGINT;
}

void process_allow_interrupt(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	/* One that came together with the first is not impatience. */
	struct timespec now = { 0, 0 };
	while (sigtimedwait(&set, NULL, &now) > 0)
		continue;
	signal(SIGINT, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* One datagram to a path, or to an abstract name where it begins with @. */
void process_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	if (n < 2 || n >= sizeof(a.sun_path))
		return;
	memcpy(a.sun_path, path, n);
	if (*path == '@')
		a.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}
