/* Links to sandbox-init: who is let in, who is not, and that nobody who is not costs anything. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/worker/initlink.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_MS = 5000 };

struct world {
	char dir[64];
	char io[256];
	char sock[300];
	struct event_base *base;
	struct initlinks *links;
	struct id sandbox;
	pthread_t loop;
	_Atomic int ups;
};

static void on_up(void *ctx, const struct id *sandbox, struct mux *m)
{
	struct world *w = ctx;

	assert_true(mux_greeted(m));
	if (strcmp(sandbox->text, w->sandbox.text) == 0)
		w->ups++;
}

static void stop_loop(void *arg)
{
	event_base_loopbreak(arg);
}

static void *run_loop(void *arg)
{
	struct world *w = arg;

	event_base_loop(w->base, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "/tmp/test-link-XXXXXX");
	if (!mkdtemp(w->dir))
		return -1;
	w->base = event_base_new();
	w->links = initlinks_new(w->base, w->dir);
	initlinks_on_up(w->links, on_up, w);
	w->sandbox = id_new();
	pthread_create(&w->loop, NULL, run_loop, w);
	if (initlink_listen(w->links, &w->sandbox, w->io, sizeof(w->io), NULL) != 0)
		return -1;
	snprintf(w->sock, sizeof(w->sock), "%s/worker.sock", w->io);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	mailbox_post(initlinks_mailbox(w->links), stop_loop, w->base);
	pthread_join(w->loop, NULL);
	initlinks_free(w->links);
	event_base_free(w->base);
	io_remove_tree(w->dir, NULL);
	free(w);
	return 0;
}

/* --- a peer of our own --- */

struct peer_end {
	int fd;
	struct mux *m;
	bool greeted;
};

static ssize_t peer_sink(void *ctx, const struct iovec *iov, int n)
{
	return writev(((struct peer_end *)ctx)->fd, iov, n);
}

static void peer_hello(void *ctx, struct mux *m, const struct tlv *fields)
{
	(void)m;
	(void)fields;
	((struct peer_end *)ctx)->greeted = true;
}

static const struct mux_handler peer_handler = { .hello = peer_hello };

static void peer_dial(struct peer_end *p, const char *path, uint8_t key)
{
	auto_tlv hello = TLV_INIT;
	uint8_t bytes[32];

	memset(bytes, key, sizeof(bytes));
	p->greeted = false;
	p->fd = io_connect_unix(path, NULL);
	assert_true(p->fd >= 0);
	p->m = mux_new(&(struct mux_options){ .handler = &peer_handler, .ctx = p, .sink = peer_sink, .dialled = true });
	tlv_add_bytes(&hello, MUX_F_KEY, bytes, sizeof(bytes));
	mux_hello(p->m, &hello);
}

static void peer_end(struct peer_end *p)
{
	mux_free(p->m);
	close_fdp(&p->fd);
}

/* Reads until greeted (true) or closed (false). */
static bool peer_greeted(struct peer_end *p)
{
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };
	char buffer[4096];
	ssize_t n;

	while (!p->greeted) {
		if (poll(&pfd, 1, DEADLINE_MS) <= 0)
			fail_msg("neither greeted nor closed");
		n = read(p->fd, buffer, sizeof(buffer));
		if (n <= 0)
			return false;
		assert_int_equal(mux_feed(p->m, buffer, (size_t)n, NULL), 0);
	}
	return true;
}

static bool peer_closed(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char c;

	return poll(&pfd, 1, DEADLINE_MS) > 0 && read(fd, &c, 1) <= 0;
}

/* --- tests --- */

static void the_directory_is_tight(void **state)
{
	struct world *w = *state;
	struct stat st;
	char parent[128];

	snprintf(parent, sizeof(parent), "%s/sandboxes/%s", w->dir, w->sandbox.text);
	assert_int_equal(stat(parent, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(w->io, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0711);
	assert_int_equal(stat(w->sock, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666);
}

static void the_expected_pid_is_greeted(void **state)
{
	struct world *w = *state;
	struct peer_end p;
	struct error err = ERROR_INIT;

	assert_int_equal(initlink_wait(w->links, &w->sandbox, 1, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	peer_dial(&p, w->sock, 1);
	/* Held, not refused, while the pid is not known. */
	assert_int_equal(initlink_wait(w->links, &w->sandbox, 50, &err), -1);
	initlink_expect(w->links, &w->sandbox, getpid(), false);
	assert_true(peer_greeted(&p));
	assert_int_equal(initlink_wait(w->links, &w->sandbox, DEADLINE_MS, &err), 0);
	assert_int_equal(w->ups, 1);
	peer_end(&p);
}

static void another_pid_is_refused(void **state)
{
	struct world *w = *state;
	pid_t pid;
	int status;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	pid = fork();
	if (pid == 0) {
		struct peer_end p = { .fd = io_connect_unix(w->sock, NULL) };

		_exit(p.fd >= 0 && peer_closed(p.fd) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(initlink_wait(w->links, &w->sandbox, 20, NULL), -1);
}

static void a_held_wrong_pid_is_refused_later(void **state)
{
	struct world *w = *state;
	struct peer_end p;

	peer_dial(&p, w->sock, 1);
	usleep(20000);
	initlink_expect(w->links, &w->sandbox, 1, false);
	assert_false(peer_greeted(&p));
	peer_end(&p);
}

static void a_redial_needs_the_first_key(void **state)
{
	struct world *w = *state;
	struct peer_end p;

	initlink_expect(w->links, &w->sandbox, getpid(), true);
	peer_dial(&p, w->sock, 7);
	assert_true(peer_greeted(&p));
	peer_end(&p);
	peer_dial(&p, w->sock, 8);
	assert_false(peer_greeted(&p));
	peer_end(&p);
	peer_dial(&p, w->sock, 7);
	assert_true(peer_greeted(&p));
	peer_end(&p);
}

static void the_key_outlives_the_daemon(void **state)
{
	struct world *w = *state;
	struct peer_end p;

	initlink_expect(w->links, &w->sandbox, getpid(), true);
	peer_dial(&p, w->sock, 7);
	assert_true(peer_greeted(&p));
	peer_end(&p);
	mailbox_post(initlinks_mailbox(w->links), stop_loop, w->base);
	pthread_join(w->loop, NULL);
	initlinks_free(w->links);
	w->links = initlinks_new(w->base, w->dir);
	initlinks_on_up(w->links, on_up, w);
	pthread_create(&w->loop, NULL, run_loop, w);
	assert_int_equal(initlink_listen(w->links, &w->sandbox, w->io, sizeof(w->io), NULL), 0);
	initlink_expect(w->links, &w->sandbox, getpid(), true);
	peer_dial(&p, w->sock, 9);
	assert_false(peer_greeted(&p));
	peer_end(&p);
	peer_dial(&p, w->sock, 7);
	assert_true(peer_greeted(&p));
	peer_end(&p);
}

static void a_newer_link_replaces_the_older(void **state)
{
	struct world *w = *state;
	struct peer_end old, fresh;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	peer_dial(&old, w->sock, 3);
	assert_true(peer_greeted(&old));
	peer_dial(&fresh, w->sock, 3);
	assert_true(peer_greeted(&fresh));
	assert_true(peer_closed(old.fd));
	assert_int_equal(initlink_wait(w->links, &w->sandbox, 1000, NULL), 0);
	assert_int_equal(w->ups, 2);
	peer_end(&old);
	peer_end(&fresh);
}

static void garbage_ends_the_connection(void **state)
{
	struct world *w = *state;
	struct peer_end good;
	int fd;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	for (int round = 0; round < 20; round++) {
		uint8_t noise[200];

		random_bytes(noise, sizeof(noise));
		fd = io_connect_unix(w->sock, NULL);
		assert_true(fd >= 0);
		assert_int_equal(io_write_full(fd, noise, sizeof(noise)), 0);
		assert_true(peer_closed(fd));
		close(fd);
	}
	peer_dial(&good, w->sock, 3);
	assert_true(peer_greeted(&good));
	peer_end(&good);
}

static size_t open_fds(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Silent connections beyond a few are closed at once, and the rightful one still comes through in the end. */
static void a_flood_of_connections_is_bounded(void **state)
{
	struct world *w = *state;
	struct peer_end good;
	int fds[200];
	size_t before;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	before = open_fds();
	for (int i = 0; i < 200; i++) {
		fds[i] = io_connect_unix(w->sock, NULL);
		assert_true(fds[i] >= 0);
	}
	for (int i = 20; i < 200; i++)
		assert_true(peer_closed(fds[i]));
	assert_true(open_fds() <= before + 200 + 8);
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	for (int tries = 0;; tries++) {
		peer_dial(&good, w->sock, 3);
		if (peer_greeted(&good))
			break;
		peer_end(&good);
		assert_true(tries < 100);
		usleep(10000);
	}
	peer_end(&good);
}

static void a_silent_connection_is_dropped(void **state)
{
	struct world *w = *state;
	struct pollfd pfd;
	int64_t start = clock_mono_ms();
	char c;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	pfd = (struct pollfd){ .fd = io_connect_unix(w->sock, NULL), .events = POLLIN };
	assert_true(pfd.fd >= 0);
	assert_int_equal(poll(&pfd, 1, 2 * DEADLINE_MS), 1);
	assert_int_equal(read(pfd.fd, &c, 1), 0);
	assert_true(clock_mono_ms() - start >= 4000);
	close(pfd.fd);
}

struct flood {
	int fd;
	_Atomic bool stop;
	_Atomic bool refused;
};

/* PING after PING, the answers read or not. */
static void *flood(void *arg)
{
	struct flood *f = arg;
	static uint8_t pings[12 * 1000];
	static char sink[65536];

	for (size_t i = 0; i < sizeof(pings); i += 12)
		pings[i] = MUX_PING;
	while (!f->stop) {
		if (send(f->fd, pings, sizeof(pings), MSG_NOSIGNAL) <= 0) {
			f->refused = true;
			break;
		}
		while (recv(f->fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
	return NULL;
}

/* One sandbox sends tiny frames as fast as it can: another is greeted without delay. */
static void a_flood_of_frames_starves_nobody(void **state)
{
	struct world *w = *state;
	struct id other = id_new();
	struct flood f = { .stop = false };
	struct peer_end bad, good;
	pthread_t thread;
	char io[256], sock[300];
	int64_t start;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	peer_dial(&bad, w->sock, 3);
	assert_true(peer_greeted(&bad));
	f.fd = bad.fd;
	pthread_create(&thread, NULL, flood, &f);
	usleep(50000);
	start = clock_mono_ms();
	assert_int_equal(initlink_listen(w->links, &other, io, sizeof(io), NULL), 0);
	initlink_expect(w->links, &other, getpid(), false);
	snprintf(sock, sizeof(sock), "%s/worker.sock", io);
	peer_dial(&good, sock, 4);
	assert_true(peer_greeted(&good));
	assert_true(clock_mono_ms() - start < DEADLINE_MS);
	f.stop = true;
	pthread_join(thread, NULL);
	assert_false(f.refused);
	peer_end(&bad);
	peer_end(&good);
}

/* Who sends and never reads is dropped before its answers fill the memory. */
static void who_does_not_read_is_dropped(void **state)
{
	struct world *w = *state;
	struct peer_end bad;
	static uint8_t pings[12 * 1000];
	size_t sent = 0;
	ssize_t n;

	for (size_t i = 0; i < sizeof(pings); i += 12)
		pings[i] = MUX_PING;
	initlink_expect(w->links, &w->sandbox, getpid(), false);
	peer_dial(&bad, w->sock, 3);
	assert_true(peer_greeted(&bad));
	while (sent < 100 * 1000 * 1000 && (n = send(bad.fd, pings, sizeof(pings), MSG_NOSIGNAL)) > 0)
		sent += (size_t)n;
	assert_true(sent < 50 * 1000 * 1000);
	peer_end(&bad);
}

static void listening_again_keeps_the_link(void **state)
{
	struct world *w = *state;
	struct peer_end p, q;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	peer_dial(&p, w->sock, 3);
	assert_true(peer_greeted(&p));
	assert_int_equal(initlink_wait(w->links, &w->sandbox, DEADLINE_MS, NULL), 0);
	assert_int_equal(initlink_listen(w->links, &w->sandbox, w->io, sizeof(w->io), NULL), 0);
	assert_int_equal(initlink_wait(w->links, &w->sandbox, DEADLINE_MS, NULL), 0);
	assert_int_equal(w->ups, 1);
	peer_dial(&q, w->sock, 3);
	assert_true(peer_greeted(&q));
	peer_end(&p);
	peer_end(&q);
}

static void closing_removes_the_socket(void **state)
{
	struct world *w = *state;
	struct peer_end p;

	initlink_expect(w->links, &w->sandbox, getpid(), false);
	peer_dial(&p, w->sock, 3);
	assert_true(peer_greeted(&p));
	initlink_close(w->links, &w->sandbox, MUX_ERR_DELETED);
	assert_true(peer_closed(p.fd));
	assert_int_equal(access(w->sock, F_OK), -1);
	assert_int_equal(initlink_wait(w->links, &w->sandbox, 10, NULL), -1);
	peer_end(&p);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_directory_is_tight),
		T(the_expected_pid_is_greeted),
		T(another_pid_is_refused),
		T(a_held_wrong_pid_is_refused_later),
		T(a_redial_needs_the_first_key),
		T(the_key_outlives_the_daemon),
		T(a_newer_link_replaces_the_older),
		T(garbage_ends_the_connection),
		T(a_flood_of_connections_is_bounded),
		T(a_silent_connection_is_dropped),
		T(a_flood_of_frames_starves_nobody),
		T(who_does_not_read_is_dropped),
		T(listening_again_keeps_the_link),
		T(closing_removes_the_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
