/* The serial port to the worker, for a process 1 in a machine of its own: chunks in and out of one descriptor. */
#ifndef SANDBOX_INIT_SERIAL_H
#define SANDBOX_INIT_SERIAL_H

#include "shared/mux/serial.h"

#include <sys/types.h>
#include <sys/uio.h>

enum { SERIAL_BLOCK = 32 * 1024 }; /* what a virtio port takes at once */

/* Zeroed: nothing waits. */
struct serial {
	struct serial_reader reader;
	uint8_t out[SERIAL_BLOCK + 8 * SERIAL_CONTROL_MAX];
	size_t out_at, out_len; /* waits to be written */
};

/* One data chunk out of iov: returns the bytes taken, 0: the port takes none now, -1: the port is gone. */
ssize_t serial_send(struct serial *s, int fd, const struct iovec *iov, int n);
/* Queues a control chunk behind what waits. Without room (a host that does not read) it is left out. */
void serial_tell(struct serial *s, enum serial_control c, const uint8_t *nonce);
/* Writes what waits. -1: the port is gone. */
int serial_flush(struct serial *s, int fd);

static inline bool serial_waits(const struct serial *s)
{
	return s->out_at < s->out_len;
}

#endif
