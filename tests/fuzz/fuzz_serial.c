/*
 * Any bytes from a guest's port: chunks are taken apart alike however they arrive, and the driver's bridge ends, at a fault, with a reason.
 * fuzz-archives: qemu daemon
 */
#include "daemon/runtime/drivers/qemu/qemu.h"
#include "shared/mux/serial.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the reader made of all of it, as one text. */
static void read_in_pieces(const uint8_t *p, size_t n, size_t piece, struct buf *out)
{
	struct serial_reader r = { .have = 0 };

	for (size_t at = 0; at < n;) {
		size_t some = n - at < piece ? n - at : piece;
		struct serial_event e = { .n = 0 };
		bool is = false;
		size_t used = serial_read(&r, p + at, some, &e, &is);

		if (used > some || (is && e.control == 0 && (e.n == 0 || e.n > SERIAL_DATA_MAX)))
			abort();
		if (used == 0) {
			buf_adds(out, "refused");
			return;
		}
		if (is && e.control)
			buf_addf(out, "control %d\n", (int)e.control);
		else if (is)
			buf_add(out, e.p, e.n);
		at += used;
	}
}

static void through_bridge(const uint8_t *p, size_t n)
{
	int pair[2];
	struct error err = ERROR_INIT;
	struct pollfd fds[BRIDGE_FDS];
	int rc = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		abort();
	struct bridge *b = bridge_new(pair[0]);
	for (size_t at = 0; at < n && rc == 0;) {
		ssize_t sent = send(pair[1], p + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		at += sent > 0 ? (size_t)sent : 0;
		bridge_want(b, fds);
		poll(fds, BRIDGE_FDS, 0);
		rc = bridge_turn(b, fds, &err);
		if (sent <= 0)
			break;
	}
	if (rc != 0 && !err.message[0])
		abort();
	if (bridge_attached(b)) /* nobody here answers */
		abort();
	bridge_free(b);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf whole = BUF_INIT;
	auto_buf pieces = BUF_INIT;

	if (size < 1)
		return 0;
	read_in_pieces(data + 1, size - 1, SIZE_MAX, &whole);
	read_in_pieces(data + 1, size - 1, data[0] % 61 + 1U, &pieces);
	if (whole.len != pieces.len || memcmp(buf_str(&whole), buf_str(&pieces), whole.len) != 0)
		abort();
	through_bridge(data + 1, size - 1);
	return 0;
}
