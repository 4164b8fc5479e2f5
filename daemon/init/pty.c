/* Terminals: see pty.h. */
#include "daemon/init/pty.h"

#include "shared/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

/* The peer through the master itself: no path, so nothing mounted over /dev/pts can stand in for it. */
static int open_slave(int master)
{
	char path[32];
	unsigned number;
	int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 || ioctl(master, TIOCGPTN, &number) < 0)
		return fd;
	snprintf(path, sizeof(path), "/dev/pts/%u", number);
	return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

void pty_resize(int master, unsigned rows, unsigned cols)
{
	struct winsize ws = { .ws_row = (unsigned short)(rows ? rows : 24), .ws_col = (unsigned short)(cols ? cols : 80) };
	ioctl(master, TIOCSWINSZ, &ws);
}

int pty_open(unsigned rows, unsigned cols, uid_t uid, int *ret_master, int *ret_slave, struct error *err)
{
	int unlock = 0;
	auto_close int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (master < 0)
		return error_errno(err, "no terminal can be made: /dev/ptmx inside the sandbox");
	auto_close int slave = ioctl(master, TIOCSPTLCK, &unlock) < 0 ? -1 : open_slave(master);
	if (slave < 0)
		return error_errno(err, "no terminal can be made: /dev/pts inside the sandbox");
	pty_resize(master, rows, cols);
	/* So that programs may open their terminal by name. Without the right to do so they keep the one they were given. */
	if (fchown(slave, uid, (gid_t)-1) == 0)
		fchmod(slave, 0620);
	*ret_master = steal_fd(&master);
	*ret_slave = steal_fd(&slave);
	return 0;
}

int pty_signal(int master, int sig)
{
	pid_t group = 0;
	if (ioctl(master, TIOCGPGRP, &group) < 0 || group <= 1)
		return -1;
	return kill(-group, sig);
}
