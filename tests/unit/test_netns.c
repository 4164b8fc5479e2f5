/* Sockets in another process's network namespace: they are there and nowhere else, and this thread comes back. */
#include "daemon/worker/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* A child in a namespace of its own, which holds the other end of a socket. */
struct child {
	pid_t pid;
	int near;
};

static void child_main(int fd)
{
	char c = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
	if (write(fd, &c, 1) == 1)
		pause();
	_exit(0);
}

/* False: this user may not make namespaces. */
static bool child_start(struct child *c)
{
	int pair[2];
	char ok = 'n';
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		close(pair[0]);
		child_main(pair[1]);
	}
	close(pair[1]);
	c->near = pair[0];
	assert_int_equal(read(c->near, &ok, 1), 1);
	return ok == 'y';
}

static void child_end(struct child *c)
{
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	c->pid = 0;
}

static ino_t own_namespace(void)
{
	struct stat st;
	assert_int_equal(stat("/proc/thread-self/ns/net", &st), 0);
	return st.st_ino;
}

static uint16_t listen_here(int *ret_fd)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	*ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(*ret_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(*ret_fd, 4), 0);
	assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&a, &n), 0);
	return ntohs(a.sin_port);
}

static void a_socket_is_in_the_other_namespace(void **state)
{
	struct child c = { .pid = 0 };
	(void)state;
	if (!child_start(&c)) {
		child_end(&c);
		close(c.near);
		skip();
	}
	ino_t own = own_namespace();
	int here, netns = netns_open(c.pid, c.near);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(listen_here(&here)) };
	assert_true(netns >= 0);
	int fd = netns_socket(netns, AF_INET, SOCK_STREAM);
	assert_true(fd >= 0);
	assert_true(own_namespace() == own);
	/* What listens here is not there: that loopback is not even up. */
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), -1);
	assert_int_not_equal(errno, EINPROGRESS);
	close(fd);
	close(here);
	close(netns);
	child_end(&c);
	close(c.near);
}

static void a_process_that_is_gone_names_no_namespace(void **state)
{
	struct child c;
	(void)state;
	child_start(&c);
	child_end(&c);
	/* The number of a process that has it now, as after a reuse: whoever held the socket is not it. */
	assert_int_equal(netns_open(getpid(), c.near), -1);
	close(c.near);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_is_in_the_other_namespace),
		cmocka_unit_test(a_process_that_is_gone_names_no_namespace),
	};
	return cmocka_run_group_tests_name("netns", tests, NULL, NULL);
}
