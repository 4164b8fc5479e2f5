/* init's side of a start: the fork, and the messages. */
#include "daemon/init/launch.h"

#include "daemon/init/sys.h"
#include "shared/base/io.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int sup_send(int fd, const struct sup_message *m)
{
	ssize_t n;
	do {
		n = send(fd, m, sizeof(*m), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*m) ? 0 : -1;
}

int sup_receive(int fd, struct sup_message *ret)
{
	ssize_t n;
	do {
		n = recv(fd, ret, sizeof(*ret), 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (n != (ssize_t)sizeof(*ret))
		return -1;
	ret->text[sizeof(ret->text) - 1] = '\0';
	return 1;
}

int launch_start(const struct launch *l, pid_t *ret_supervisor, int *ret_socket)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -1;
	auto_close int near = pair[0], far = pair[1];
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0) {
		int keep[] = { 0, 1, 2, far, l->stdio[0], l->stdio[1], l->stdio[2] };
		sys_close_all_but(keep, sizeof(keep) / sizeof(keep[0]));
		supervise(l, far);
	}
	*ret_supervisor = pid;
	*ret_socket = steal_fd(&near);
	return 0;
}
