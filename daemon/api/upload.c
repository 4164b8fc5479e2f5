/* Streamed request bodies: see upload.h. */
#include "daemon/api/upload.h"

#include "daemon/api/server.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

struct upload {
	struct request *request;
	int fd;
	struct event *writable;
	bool reader_gone; /* it failed: the rest of the body is read and dropped, then its error is the answer */
	uint64_t bytes;
};

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	struct upload *u = ctx;
	request_resume(u->request);
}

/* A unix socket that is closed with unread bytes in it resets its peer: one byte from the reader's side lies there until
 * the body is complete. */
static int plant_byte(const int pair[2], struct error *err)
{
	if (io_write_full(pair[1], "x", 1) != 0 || io_set_nonblock(pair[0], true) != 0)
		return error_errno(err, "preparing an upload");
	return 0;
}

int upload_new(struct request *r, struct upload **ret, int *ret_read_fd, struct error *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return error_errno(err, "creating a socket pair");
	struct upload *u = xcalloc(1, sizeof(*u));
	u->request = r;
	u->fd = pair[0];
	u->writable = event_new(r->api->o.base, pair[0], EV_WRITE, on_writable, u);
	if (!u->writable || plant_byte(pair, err) != 0) {
		if (!u->writable)
			error_set(err, ERR_INTERNAL, "no event for an upload");
		upload_free(u);
		close(pair[1]);
		return -1;
	}
	*ret = u;
	*ret_read_fd = pair[1];
	return 0;
}

size_t upload_feed(struct upload *u, const char *p, size_t n)
{
	size_t done = 0;
	while (done < n && !u->reader_gone) {
		ssize_t w = send(u->fd, p + done, n - done, MSG_NOSIGNAL);
		if (w >= 0) {
			done += (size_t)w;
		} else if (errno == EAGAIN) {
			u->bytes += done;
			request_suspend(u->request, NULL);
			event_add(u->writable, NULL);
			return done;
		} else if (errno != EINTR) {
			u->reader_gone = true;
		}
	}
	u->bytes += n;
	return n; /* with the reader gone the rest is dropped */
}

uint64_t upload_bytes(const struct upload *u)
{
	return u->bytes;
}

void upload_finish(struct upload *u)
{
	char byte;
	if (recv(u->fd, &byte, 1, MSG_DONTWAIT) == 1)
		shutdown(u->fd, SHUT_WR);
}

void upload_free(struct upload *u)
{
	if (!u)
		return;
	if (u->writable)
		event_free(u->writable);
	close_fdp(&u->fd);
	free(u);
}
