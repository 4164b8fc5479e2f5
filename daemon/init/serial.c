/* See serial.h. A chunk is gathered into one write, because a virtio port takes a vector piece by piece. */
#include "daemon/init/serial.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int serial_flush(struct serial *s, int fd)
{
	while (serial_waits(s)) {
		ssize_t n = write(fd, s->out + s->out_at, s->out_len - s->out_at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		if (n == 0)
			return 0;
		s->out_at += (size_t)n;
	}
	s->out_at = s->out_len = 0;
	return 0;
}

static size_t gather(uint8_t *out, size_t max, const struct iovec *iov, int n)
{
	size_t total = 0;

	for (int i = 0; i < n && total < max; i++) {
		size_t part = iov[i].iov_len < max - total ? iov[i].iov_len : max - total;

		memcpy(out + total, iov[i].iov_base, part);
		total += part;
	}
	return total;
}

ssize_t serial_send(struct serial *s, int fd, const struct iovec *iov, int n)
{
	size_t total;

	if (serial_flush(s, fd) < 0)
		return -1;
	if (serial_waits(s))
		return 0;
	total = gather(s->out + SERIAL_HEAD_LEN, SERIAL_BLOCK - SERIAL_HEAD_LEN, iov, n);
	if (total == 0)
		return 0;
	serial_data_head(s->out, total);
	s->out_len = SERIAL_HEAD_LEN + total;
	return serial_flush(s, fd) < 0 ? -1 : (ssize_t)total;
}

void serial_tell(struct serial *s, enum serial_control c, const uint8_t *nonce)
{
	if (sizeof(s->out) - s->out_len >= SERIAL_CONTROL_MAX)
		s->out_len += serial_control_chunk(s->out + s->out_len, c, nonce);
}
