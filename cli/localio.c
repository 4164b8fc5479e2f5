/* Standard streams without O_NONBLOCK: see localio.h for the method and its reasons. */
#include "cli/localio.h"

#include "shared/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void reopen(struct local_fd *l)
{
	char path[32];
	if (l->kind != LOCAL_SHARED)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", l->fd);
	l->own = open(path, (l->write ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	l->kind = l->own >= 0 ? LOCAL_OWN : LOCAL_CAREFUL;
}

void local_open(struct local_fd *l, int fd, bool write)
{
	*l = (struct local_fd){ .fd = fd, .own = -1, .write = write };
	struct stat st;
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	if (flags < 0 || fstat(fd, &st) != 0) {
		l->fd = -1;
		return;
	}
	l->terminal = S_ISCHR(st.st_mode) && isatty(fd);
	l->null_device = S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
	if (S_ISSOCK(st.st_mode))
		l->kind = LOCAL_SOCKET;
	/* One end of a pipe must not be opened the other way round: reading one's own output would follow. */
	else if ((S_ISFIFO(st.st_mode) || l->terminal) && (flags & O_ACCMODE) != (write ? O_RDONLY : O_WRONLY))
		l->kind = LOCAL_SHARED;
}

void local_close(struct local_fd *l)
{
	close_fdp(&l->own);
}

int local_pollfd(const struct local_fd *l)
{
	return l->own >= 0 ? l->own : l->fd;
}

static bool ready(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	return poll(&p, 1, 0) == 1 && p.revents != 0;
}

ssize_t local_read(struct local_fd *l, void *p, size_t n)
{
	ssize_t got;
	if (l->fd < 0) {
		errno = EBADF;
		return -1;
	}
	reopen(l);
	if (l->kind == LOCAL_CAREFUL && !ready(l->fd, POLLIN)) {
		errno = EAGAIN;
		return -1;
	}
	do {
		if (l->kind == LOCAL_SOCKET)
			got = recv(l->fd, p, n, MSG_DONTWAIT);
		else
			got = read(local_pollfd(l), p, n);
	} while (got < 0 && errno == EINTR);
	return got;
}

static ssize_t local_write(struct local_fd *l, const void *p, size_t n)
{
	ssize_t put;
	if (l->fd < 0) {
		errno = EBADF;
		return -1;
	}
	reopen(l);
	if (l->kind == LOCAL_CAREFUL) {
		if (!ready(l->fd, POLLOUT)) {
			errno = EAGAIN;
			return -1;
		}
		n = n < PIPE_BUF ? n : PIPE_BUF;
	}
	do {
		if (l->kind == LOCAL_SOCKET)
			put = send(l->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			put = write(local_pollfd(l), p, n);
	} while (put < 0 && errno == EINTR);
	return put;
}

void outlet_open(struct outlet *o, int fd)
{
	*o = (struct outlet){ .pending = BUF_INIT };
	local_open(&o->local, fd, true);
}

void outlet_close(struct outlet *o)
{
	local_close(&o->local);
	buf_done(&o->pending);
}

/* Returns the bytes written (short when the reader has no room), -1 on an error. */
static ssize_t push(struct outlet *o, const char *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t put = local_write(&o->local, p + done, n - done);
		if (put < 0 && errno == EAGAIN)
			break;
		if (put < 0) {
			o->error = errno;
			buf_done(&o->pending);
			o->at = 0;
			return -1;
		}
		done += (size_t)put;
	}
	return (ssize_t)done;
}

int outlet_flush(struct outlet *o)
{
	if (o->error)
		return -1;
	if (!outlet_waiting(o))
		return 0;
	ssize_t put = push(o, o->pending.data + o->at, o->pending.len - o->at);
	if (put < 0)
		return -1;
	o->at += (size_t)put;
	if (!outlet_waiting(o)) {
		buf_reset(&o->pending);
		o->at = 0;
	}
	return 0;
}

static void keep(struct outlet *o, const char *p, size_t n)
{
	/* Moving the rest down only when it is the smaller half keeps the cost per byte constant. */
	if (o->at > o->pending.len / 2) {
		buf_consume(&o->pending, o->at);
		o->at = 0;
	}
	buf_add(&o->pending, p, n);
}

int outlet_write(struct outlet *o, const void *p, size_t n)
{
	size_t put = 0;
	if (o->error)
		return -1;
	if (!outlet_waiting(o)) {
		ssize_t r = push(o, p, n);
		if (r < 0)
			return -1;
		put = (size_t)r;
	}
	if (put < n)
		keep(o, (const char *)p + put, n - put);
	return 0;
}

size_t outlet_pending(const struct outlet *o)
{
	return o->pending.len - o->at;
}

bool outlet_waiting(const struct outlet *o)
{
	return o->pending.len > o->at;
}
