/*
 * Between a guest's port and the worker's socket: bytes one way, chunks the other (shared/mux/serial.h). A worker that leaves and comes
 * back is told to the guest; what the guest still sends for the one before is dropped until it has echoed the nonce of the new one.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/serial.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT, SOCK, BACKOFF_FIRST_MS = 5, BACKOFF_MAX_MS = 250 };

/* Bytes on their way; the next come when these are gone, so a slow reader slows its writer. */
struct flow {
	uint8_t bytes[SERIAL_DATA_MAX + 4 * SERIAL_CONTROL_MAX];
	size_t at, len;
};

struct bridge {
	int port, sock; /* sock -1: no worker */
	struct serial_reader reader;
	struct flow to_guest, to_worker;
	bool ready;     /* the guest's process 1 has spoken */
	bool echoed;    /* it knows of this connection */
	uint8_t nonce[SERIAL_NONCE_LEN];
	uint8_t in[SERIAL_DATA_MAX]; /* from the port, not yet taken apart */
	size_t in_at, in_len;
	int64_t dial_ms, backoff_ms;
};

static bool waits(const struct flow *f)
{
	return f->at < f->len;
}

/* -1: the other side is gone. */
static int flow_write(struct flow *f, int fd)
{
	while (waits(f)) {
		ssize_t n = send(fd, f->bytes + f->at, f->len - f->at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		f->at += (size_t)n;
	}
	f->at = f->len = 0;
	return 0;
}

static void tell(struct bridge *b, enum serial_control c)
{
	struct flow *f = &b->to_guest;

	if (sizeof(f->bytes) - f->len >= SERIAL_CONTROL_MAX)
		f->len += serial_control_chunk(f->bytes + f->len, c, b->nonce);
}

/* --- the worker --- */

static void hang_up(struct bridge *b)
{
	close_fdp(&b->sock);
	b->echoed = false;
	b->to_worker.at = b->to_worker.len = 0;
	b->dial_ms = clock_mono_ms() + b->backoff_ms;
	b->backoff_ms = b->backoff_ms * 2 < BACKOFF_MAX_MS ? b->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void worker_gone(struct bridge *b)
{
	hang_up(b);
	tell(b, SERIAL_DETACH);
}

/* Relative: the present directory is the one that holds it, whatever leads there. */
static void dial(struct bridge *b)
{
	static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "worker.sock" };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
		b->sock = fd;
		random_bytes(b->nonce, sizeof(b->nonce));
		tell(b, SERIAL_ATTACH);
		return;
	}
	close_fdp(&fd);
	b->dial_ms = clock_mono_ms() + b->backoff_ms;
	b->backoff_ms = b->backoff_ms * 2 < BACKOFF_MAX_MS ? b->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void read_worker(struct bridge *b)
{
	struct flow *f = &b->to_guest;
	ssize_t n = recv(b->sock, f->bytes + SERIAL_HEAD_LEN, SERIAL_DATA_MAX, MSG_DONTWAIT);

	if (n > 0) {
		serial_data_head(f->bytes, (size_t)n);
		f->len = SERIAL_HEAD_LEN + (size_t)n;
		b->backoff_ms = BACKOFF_FIRST_MS;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		worker_gone(b);
	}
}

/* --- the guest --- */

static void take_event(struct bridge *b, const struct serial_event *e)
{
	switch (e->control) {
	case SERIAL_READY:
		b->ready = true;
		return;
	case SERIAL_ATTACH:
		if (b->sock >= 0 && memcmp(e->p, b->nonce, sizeof(b->nonce)) == 0)
			b->echoed = true;
		return;
	case SERIAL_DETACH:
		if (b->echoed)
			hang_up(b);
		return;
	}
	if (!b->echoed)
		return;
	memcpy(b->to_worker.bytes, e->p, e->n);
	b->to_worker.len = e->n;
}

/* Until something waits for the worker. */
static int take_bytes(struct bridge *b, struct error *err)
{
	struct serial_event e;
	bool some;

	while (b->in_at < b->in_len && !waits(&b->to_worker)) {
		size_t used = serial_read(&b->reader, b->in + b->in_at, b->in_len - b->in_at, &e, &some);

		if (used == 0)
			return error_set(err, ERR_PROTOCOL, "the guest broke the protocol of its port");
		b->in_at += used;
		if (some)
			take_event(b, &e);
		if (b->sock >= 0 && flow_write(&b->to_worker, b->sock) != 0)
			worker_gone(b);
	}
	return 0;
}

static void read_guest(struct bridge *b)
{
	ssize_t n = recv(b->port, b->in, sizeof(b->in), MSG_DONTWAIT);

	if (n > 0) {
		b->in_at = 0;
		b->in_len = (size_t)n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close_fdp(&b->port); /* its machine is ending: the keeper waits for that */
	}
}

/* --- for the keeper --- */

struct bridge *bridge_new(int take_port)
{
	struct bridge *b = xcalloc(1, sizeof(*b));

	b->port = take_port;
	b->sock = -1;
	b->backoff_ms = BACKOFF_FIRST_MS;
	return b;
}

void bridge_free(struct bridge *b)
{
	close_fdp(&b->port);
	close_fdp(&b->sock);
	free(b);
}

bool bridge_attached(const struct bridge *b)
{
	return b->sock >= 0 && b->echoed;
}

static bool wants_dial(const struct bridge *b)
{
	return b->ready && b->port >= 0 && b->sock < 0 && !waits(&b->to_guest);
}

int bridge_want(struct bridge *b, struct pollfd fds[static BRIDGE_FDS])
{
	bool takes = b->in_at >= b->in_len && !waits(&b->to_worker);
	int64_t wait = b->dial_ms - clock_mono_ms();

	fds[PORT] = (struct pollfd){ .fd = b->port, .events = (short)((takes ? POLLIN : 0) | (waits(&b->to_guest) ? POLLOUT : 0)) };
	fds[SOCK] = (struct pollfd){ .fd = b->sock, .events = (short)((waits(&b->to_guest) ? 0 : POLLIN) | (waits(&b->to_worker) ? POLLOUT : 0)) };
	if (!wants_dial(b))
		return -1;
	return wait <= 0 ? 0 : (int)wait;
}

int bridge_turn(struct bridge *b, const struct pollfd fds[static BRIDGE_FDS], struct error *err)
{
	if (b->port >= 0 && fds[PORT].revents & (POLLIN | POLLHUP | POLLERR) && b->in_at >= b->in_len)
		read_guest(b);
	if (b->sock >= 0 && waits(&b->to_worker) && flow_write(&b->to_worker, b->sock) != 0)
		worker_gone(b);
	if (take_bytes(b, err) != 0)
		return -1;
	if (b->sock >= 0 && fds[SOCK].revents & (POLLIN | POLLHUP | POLLERR) && !waits(&b->to_guest))
		read_worker(b);
	if (wants_dial(b) && clock_mono_ms() >= b->dial_ms)
		dial(b);
	if (b->port >= 0 && flow_write(&b->to_guest, b->port) != 0)
		close_fdp(&b->port);
	return 0;
}
