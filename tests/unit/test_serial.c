/* The mux over a serial port: chunks, sandbox-init at one end (over a terminal that stands for the port), the driver's bridge at the other. */
#include "daemon/runtime/drivers/qemu/qemu.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/mux.h"
#include "shared/mux/serial.h"
#include "tests/unit/init_peer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <termios.h>

enum { WAIT_MS = 20 * 1000, HEAD = SERIAL_HEAD_LEN };

/* --- chunks --- */

/* What a reader makes of bytes that come in pieces: "data:…|ready|attach:NONCE|detach|bad". */
static char *read_all(const void *bytes, size_t len, size_t piece)
{
	struct serial_reader r = { .have = 0 };
	struct serial_event e;
	auto_buf out = BUF_INIT;
	const uint8_t *p = bytes;

	while (len > 0) {
		size_t n = piece < len ? piece : len;
		bool some;

		for (size_t at = 0; at < n;) {
			size_t used = serial_read(&r, p + at, n - at, &e, &some);

			if (used == 0) {
				buf_adds(&out, "bad");
				return buf_steal(&out);
			}
			at += used;
			if (some && e.control == 0)
				buf_add(&out, e.p, e.n);
			else if (some)
				buf_addf(&out, "<%s:%.*s>", e.control == SERIAL_READY ? "ready" : e.control == SERIAL_ATTACH ? "attach" : "detach", (int)e.n,
				         (const char *)e.p);
		}
		p += n;
		len -= n;
	}
	return buf_steal(&out);
}

static void chunks_are_read_in_any_pieces(void **state)
{
	uint8_t bytes[256];
	size_t n = 0;

	(void)state;
	n += serial_control_chunk(bytes + n, SERIAL_READY, NULL);
	n += serial_control_chunk(bytes + n, SERIAL_ATTACH, (const uint8_t *)"0123456789abcdef");
	serial_data_head(bytes + n, 5);
	memcpy(bytes + n + HEAD, "hello", 5);
	n += HEAD + 5;
	n += serial_control_chunk(bytes + n, SERIAL_DETACH, NULL);
	for (size_t piece = 1; piece <= n; piece++) {
		auto_free char *seen = read_all(bytes, n, piece);

		assert_string_equal(seen, "<ready:><attach:0123456789abcdef>hello<detach:>");
	}
}

static void bytes_that_are_no_chunk_are_refused(void **state)
{
	static const char *const heads[] = { "\0\0\0\0", "\0\1\0\1", "\x80\0\0\0", "\x80\0\0\4", "\xff\xff\xff\xff", "\x7f\0\0\0" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		auto_free char *seen = read_all(heads[i], 4, 1 + i % 4);

		assert_string_equal(seen, "bad");
	}
}

/* --- an end of a port, for a test --- */

struct end {
	int fd;
	struct serial_reader r;
	struct buf data;       /* since the last control chunk */
	enum serial_control last;
	uint8_t nonce[SERIAL_NONCE_LEN];
	unsigned controls;
};

static void end_take(struct end *e, const uint8_t *p, size_t n)
{
	while (n > 0) {
		struct serial_event ev;
		bool some;
		size_t used = serial_read(&e->r, p, n, &ev, &some);

		assert_true(used > 0);
		if (some && ev.control) {
			e->last = ev.control;
			e->controls++;
			buf_reset(&e->data);
			if (ev.n == SERIAL_NONCE_LEN)
				memcpy(e->nonce, ev.p, ev.n);
		} else if (some) {
			buf_add(&e->data, ev.p, ev.n);
		}
		p += used;
		n -= used;
	}
}

static void end_poll(struct end *e, int ms)
{
	struct pollfd p = { .fd = e->fd, .events = POLLIN };
	uint8_t bytes[4096];
	ssize_t n = poll(&p, 1, ms) == 1 ? read(e->fd, bytes, sizeof(bytes)) : 0;

	if (n > 0)
		end_take(e, bytes, (size_t)n);
}

static void end_send(struct end *e, const void *p, size_t n)
{
	assert_int_equal(io_write_full(e->fd, p, n), 0);
}

static void end_tell(struct end *e, enum serial_control c, const void *nonce)
{
	uint8_t out[SERIAL_CONTROL_MAX];

	end_send(e, out, serial_control_chunk(out, c, nonce));
}

static void end_data(struct end *e, const char *text)
{
	uint8_t head[HEAD];

	serial_data_head(head, strlen(text));
	end_send(e, head, HEAD);
	end_send(e, text, strlen(text));
}

/* --- sandbox-init --- */

static struct end port;
static pid_t init_pid;

static int start_init(void **state)
{
	struct termios raw;
	char name[64], path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	int keep;

	(void)state;
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	memcpy(strrchr(path, '/'), "/sandbox-init", 14);
	port = (struct end){ .fd = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY), .data = BUF_INIT };
	assert_int_equal(grantpt(port.fd), 0);
	assert_int_equal(unlockpt(port.fd), 0);
	assert_int_equal(ptsname_r(port.fd, name, sizeof(name)), 0);
	keep = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	tcgetattr(keep, &raw);
	cfmakeraw(&raw);
	tcsetattr(keep, TCSANOW, &raw);
	init_pid = fork();
	if (init_pid == 0) {
		execl(path, "sandbox-init", "--serial", name, (char *)NULL);
		_exit(127);
	}
	return 0;
}

static int stop_init(void **state)
{
	(void)state;
	kill(init_pid, SIGKILL);
	waitpid(init_pid, NULL, 0);
	close(port.fd);
	buf_done(&port.data);
	return 0;
}

static void wait_control(struct end *e, enum serial_control c, unsigned nth)
{
	int64_t until = clock_mono_ms() + WAIT_MS;

	while (e->controls < nth && clock_mono_ms() < until)
		end_poll(e, 50);
	assert_int_equal(e->controls, nth);
	assert_int_equal(e->last, c);
}

/* The key of a HELLO that follows a control chunk. */
static void wait_hello(struct end *e, uint8_t ret_key[32])
{
	int64_t until = clock_mono_ms() + WAIT_MS;
	struct tlv fields;
	size_t n = 0, len;
	const void *key;

	while (e->data.len < MUX_HEADER_LEN && clock_mono_ms() < until)
		end_poll(e, 50);
	assert_true(e->data.len > MUX_HEADER_LEN);
	assert_int_equal(e->data.data[0], MUX_HELLO);
	len = (size_t)(uint8_t)e->data.data[10] << 8 | (uint8_t)e->data.data[11];
	while (e->data.len < MUX_HEADER_LEN + len && clock_mono_ms() < until)
		end_poll(e, 50);
	assert_int_equal(tlv_parse(&fields, e->data.data + MUX_HEADER_LEN, len, NULL), 0);
	key = tlv_bytes(&fields, MUX_F_KEY, &n);
	assert_int_equal(n, 32);
	memcpy(ret_key, key, 32);
}

static void init_greets_each_worker_anew_with_the_same_key(void **state)
{
	uint8_t first[32], second[32];

	(void)state;
	wait_control(&port, SERIAL_READY, 1);
	end_tell(&port, SERIAL_ATTACH, "first-connection");
	wait_control(&port, SERIAL_ATTACH, 2);
	assert_memory_equal(port.nonce, "first-connection", SERIAL_NONCE_LEN);
	wait_hello(&port, first);
	/* In the middle of a frame the worker goes and another comes. */
	end_data(&port, "\1\0");
	end_tell(&port, SERIAL_DETACH, NULL);
	end_tell(&port, SERIAL_ATTACH, "other-connection");
	wait_control(&port, SERIAL_ATTACH, 3);
	assert_memory_equal(port.nonce, "other-connection", SERIAL_NONCE_LEN);
	wait_hello(&port, second);
	assert_memory_equal(first, second, 32);
}

static void init_asks_for_a_hang_up_when_the_worker_breaks_the_protocol(void **state)
{
	uint8_t key[32];

	(void)state;
	wait_control(&port, SERIAL_READY, 1);
	end_tell(&port, SERIAL_ATTACH, "first-connection");
	wait_control(&port, SERIAL_ATTACH, 2);
	end_data(&port, "this is no frame of the mux, whatever one thinks of it");
	wait_control(&port, SERIAL_DETACH, 3);
	end_tell(&port, SERIAL_ATTACH, "other-connection");
	wait_control(&port, SERIAL_ATTACH, 4);
	wait_hello(&port, key);
}

/* --- the bridge --- */

static struct bridge *bridge;
static struct end guest;
static int listener, worker;
static char dir[64];

static int start_bridge(void **state)
{
	int fd[2];

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/sbx-serial-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	listener = io_listen_unix("worker.sock", 0600, 4, NULL);
	assert_true(listener >= 0);
	io_set_nonblock(listener, true);
	worker = -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	io_set_nonblock(fd[0], true);
	bridge = bridge_new(fd[0]);
	guest = (struct end){ .fd = fd[1], .data = BUF_INIT };
	return 0;
}

static int stop_bridge(void **state)
{
	(void)state;
	bridge_free(bridge);
	close(guest.fd);
	close_fdp(&listener);
	close_fdp(&worker);
	buf_done(&guest.data);
	assert_int_equal(chdir("/"), 0);
	io_remove_tree(dir, NULL);
	return 0;
}

static int turn(void)
{
	struct pollfd fds[BRIDGE_FDS];
	int wait = bridge_want(bridge, fds);

	poll(fds, BRIDGE_FDS, wait >= 0 && wait < 20 ? wait : 20);
	return bridge_turn(bridge, fds, NULL);
}

static void turns_until_control(unsigned nth)
{
	int64_t until = clock_mono_ms() + WAIT_MS;

	while (guest.controls < nth && clock_mono_ms() < until) {
		assert_int_equal(turn(), 0);
		end_poll(&guest, 0);
	}
	assert_int_equal(guest.controls, nth);
}

static void accept_worker(void)
{
	int64_t until = clock_mono_ms() + WAIT_MS;

	close_fdp(&worker);
	while (worker < 0 && clock_mono_ms() < until) {
		assert_int_equal(turn(), 0);
		worker = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	assert_true(worker >= 0);
}

static void worker_gets(const char *want)
{
	char got[256] = "";
	size_t n = 0;
	int64_t until = clock_mono_ms() + WAIT_MS;

	while (n < strlen(want) && clock_mono_ms() < until) {
		ssize_t r = recv(worker, got + n, sizeof(got) - 1 - n, MSG_DONTWAIT);

		n += r > 0 ? (size_t)r : 0;
		assert_int_equal(turn(), 0);
	}
	assert_string_equal(got, want);
}

static void attach(unsigned nth)
{
	turns_until_control(nth);
	assert_int_equal(guest.last, SERIAL_ATTACH);
	accept_worker();
	end_tell(&guest, SERIAL_ATTACH, guest.nonce);
}

static void bytes_pass_both_ways(void **state)
{
	int64_t until = clock_mono_ms() + WAIT_MS;

	(void)state;
	end_tell(&guest, SERIAL_READY, NULL);
	attach(1);
	end_data(&guest, "from the guest");
	worker_gets("from the guest");
	assert_true(bridge_attached(bridge));
	assert_int_equal(send(worker, "from the worker", 15, 0), 15);
	while (guest.data.len < 15 && clock_mono_ms() < until) {
		assert_int_equal(turn(), 0);
		end_poll(&guest, 0);
	}
	assert_string_equal(buf_str(&guest.data), "from the worker");
}

static void nobody_is_dialled_before_the_guest_is_ready(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++)
		assert_int_equal(turn(), 0);
	assert_true(accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0);
}

static void what_was_for_a_worker_that_left_never_reaches_the_next(void **state)
{
	uint8_t old[SERIAL_NONCE_LEN];

	(void)state;
	end_tell(&guest, SERIAL_READY, NULL);
	attach(1);
	end_data(&guest, "one");
	worker_gets("one");
	memcpy(old, guest.nonce, sizeof(old));
	close_fdp(&worker);
	turns_until_control(3); /* a detach, another attach */
	assert_int_equal(guest.last, SERIAL_ATTACH);
	assert_memory_not_equal(old, guest.nonce, sizeof(old));
	end_data(&guest, "for the first");
	end_tell(&guest, SERIAL_ATTACH, old);
	end_data(&guest, "for the first too");
	accept_worker();
	end_tell(&guest, SERIAL_ATTACH, guest.nonce);
	end_data(&guest, "two");
	worker_gets("two");
}

static void a_guest_that_breaks_the_protocol_is_said(void **state)
{
	int rc = 0;
	int64_t until = clock_mono_ms() + WAIT_MS;

	(void)state;
	end_send(&guest, "\xff\xff\xff\xff", 4);
	while ((rc = turn()) == 0 && clock_mono_ms() < until)
		;
	assert_int_equal(rc, -1);
}

/* A flood of every chunk there is costs the host no more than its buffers. */
static void a_flood_of_control_chunks_is_taken_in_stride(void **state)
{
	(void)state;
	end_tell(&guest, SERIAL_READY, NULL);
	attach(1);
	for (int i = 0; i < 20000; i++) {
		end_tell(&guest, i % 3 == 0 ? SERIAL_READY : i % 3 == 1 ? SERIAL_ATTACH : SERIAL_READY, "0123456789abcdef");
		if (i % 50 == 0)
			assert_int_equal(turn(), 0);
	}
	end_data(&guest, "still there");
	worker_gets("still there");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_are_read_in_any_pieces),
		cmocka_unit_test(bytes_that_are_no_chunk_are_refused),
		cmocka_unit_test_setup_teardown(init_greets_each_worker_anew_with_the_same_key, start_init, stop_init),
		cmocka_unit_test_setup_teardown(init_asks_for_a_hang_up_when_the_worker_breaks_the_protocol, start_init, stop_init),
		cmocka_unit_test_setup_teardown(bytes_pass_both_ways, start_bridge, stop_bridge),
		cmocka_unit_test_setup_teardown(nobody_is_dialled_before_the_guest_is_ready, start_bridge, stop_bridge),
		cmocka_unit_test_setup_teardown(what_was_for_a_worker_that_left_never_reaches_the_next, start_bridge, stop_bridge),
		cmocka_unit_test_setup_teardown(a_guest_that_breaks_the_protocol_is_said, start_bridge, stop_bridge),
		cmocka_unit_test_setup_teardown(a_flood_of_control_chunks_is_taken_in_stride, start_bridge, stop_bridge),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
