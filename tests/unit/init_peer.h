/*
 * The worker's side of a link, for tests: starts a real sandbox-init on a socket in a directory of its own, accepts it,
 * and runs commands through the mux. Everything waits with a deadline.
 */
#ifndef SANDBOX_TESTS_INIT_PEER_H
#define SANDBOX_TESTS_INIT_PEER_H

#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/mux.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PEER_DEADLINE_MS = 30000 };

/* One command as its reader sees it. */
struct run {
	struct peer_end *end;
	struct run *next;
	uint32_t id;
	char operation[48];
	bool accepted, closed, lost;
	bool hold;         /* take bytes without reporting them consumed */
	bool count_only;   /* keep no bytes, only check the pattern of `seq` */
	uint64_t pid, offset_in;
	uint64_t got[3];
	struct buf out[3];
	unsigned eofs[3];
	uint64_t outcome, code, sig, error, oom, total_out, total_err;
	char message[1024];
	const char *feed; /* stdin still to send */
	size_t feed_len;
	uint64_t fed;
	bool feed_eof;
};

struct peer_end {
	char dir[64], path[96];
	int listener, fd;
	pid_t init;
	struct mux *m;
	struct run *runs;
	unsigned hellos, pongs;
	uint8_t key[32];
	size_t key_len;
	size_t read_size;
};

static inline struct run *run_of(struct peer_end *e, uint32_t id)
{
	struct run *r = e->runs;
	while (r && r->id != id)
		r = r->next;
	return r;
}

static inline void peer_feed(struct run *r)
{
	while (r->accepted && r->feed_len) {
		size_t n = mux_send(r->end->m, r->id, MUX_STDIN, r->feed, r->feed_len);
		r->feed += n;
		r->feed_len -= n;
		r->fed += n;
		if (n == 0)
			return;
	}
	if (r->accepted && r->feed_eof)
		mux_eof(r->end->m, r->id, MUX_STDIN);
}

static void peer_hello(void *ctx, struct mux *m, const struct tlv *t)
{
	struct peer_end *e = ctx;
	(void)m;
	e->hellos++;
	const void *key = tlv_bytes(t, MUX_F_KEY, &e->key_len);
	if (key && e->key_len == sizeof(e->key))
		memcpy(e->key, key, e->key_len);
}

static void peer_accepted(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct run *r = run_of(ctx, id);
	r->accepted = true;
	r->pid = tlv_u64(t, MUX_F_PID, 0);
	r->offset_in = tlv_u64(t, MUX_F_OFFSET_IN, 0);
	if (tlv_has(t, MUX_F_TEXT)) {
		size_t n;
		const void *p = tlv_bytes(t, MUX_F_TEXT, &n);
		buf_add(&r->out[0], p, n);
	}
	mux_rebase_send(m, id, MUX_STDIN, r->offset_in);
	peer_feed(r);
}

static void peer_data(void *ctx, struct mux *m, uint32_t id, unsigned c, uint64_t at, const void *p, size_t n)
{
	struct run *r = run_of(ctx, id);
	assert_true(at == r->got[c]);
	assert_int_equal(r->eofs[c], 0);
	r->got[c] += n;
	if (!r->count_only)
		buf_add(&r->out[c], p, n);
	if (!r->hold)
		mux_consumed(m, id, c, r->got[c]);
}

static void peer_eof(void *ctx, struct mux *m, uint32_t id, unsigned c)
{
	(void)m;
	run_of(ctx, id)->eofs[c]++;
}

static void peer_window(void *ctx, struct mux *m, uint32_t id, unsigned c, uint64_t consumed)
{
	(void)m;
	(void)c;
	(void)consumed;
	peer_feed(run_of(ctx, id));
}

static void peer_closed(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct run *r = run_of(ctx, id);
	size_t n = 0;
	const char *text = tlv_bytes(t, MUX_F_MESSAGE, &n);
	(void)m;
	r->closed = true;
	r->outcome = tlv_u64(t, MUX_F_OUTCOME, 0);
	r->code = tlv_u64(t, MUX_F_EXIT_CODE, 999);
	r->sig = tlv_u64(t, MUX_F_SIGNAL, 0);
	r->error = tlv_u64(t, MUX_F_ERROR, 0);
	r->oom = tlv_u64(t, MUX_F_OOM, 0);
	r->total_out = tlv_u64(t, MUX_F_OFFSET_OUT, 0);
	r->total_err = tlv_u64(t, MUX_F_OFFSET_ERR, 0);
	snprintf(r->message, sizeof(r->message), "%.*s", (int)n, text ? text : "");
}

static void peer_lost(void *ctx, struct mux *m, uint32_t id)
{
	(void)m;
	run_of(ctx, id)->lost = true;
}

static void peer_writable(void *ctx, struct mux *m)
{
	(void)m;
	for (struct run *r = ((struct peer_end *)ctx)->runs; r; r = r->next)
		if (!r->closed && !r->lost)
			peer_feed(r);
}

static void peer_pong(void *ctx, struct mux *m)
{
	(void)m;
	((struct peer_end *)ctx)->pongs++;
}

static ssize_t peer_sink(void *ctx, const struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t r = sendmsg(((struct peer_end *)ctx)->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	return r < 0 && errno == EAGAIN ? 0 : r;
}

static const struct mux_handler peer_handler = {
	.hello = peer_hello, .accepted = peer_accepted, .data = peer_data, .eof = peer_eof, .window = peer_window,
	.closed = peer_closed, .lost = peer_lost, .writable = peer_writable, .pong = peer_pong,
};

/* Drops the connection as a dead worker would. */
static inline void peer_drop(struct peer_end *e)
{
	if (e->m)
		mux_lost(e->m);
	mux_free(e->m);
	e->m = NULL;
	close_fdp(&e->fd);
}

/* One step: waits for bytes (at most wait_ms) and feeds them. False when the connection ended. */
static inline bool peer_step(struct peer_end *e, int wait_ms)
{
	static char bytes[1 << 20];
	struct error err = ERROR_INIT;
	struct pollfd p = { e->fd, (short)(POLLIN | (mux_want_write(e->m) ? POLLOUT : 0)), 0 };
	poll(&p, 1, wait_ms);
	if (p.revents & POLLOUT)
		mux_flush(e->m);
	if (!(p.revents & ~POLLOUT))
		return true;
	ssize_t n = recv(e->fd, bytes, e->read_size, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return true;
	if (n > 0 && mux_feed(e->m, bytes, (size_t)n, &err) < 0)
		fail_msg("%s", err.message);
	return n > 0;
}

/* Steps until the condition holds. */
#define PEER_UNTIL(e, condition)                                                                  \
	do {                                                                                      \
		int64_t until_ = clock_mono_ms() + PEER_DEADLINE_MS;                              \
		while (!(condition)) {                                                            \
			if (clock_mono_ms() > until_)                                             \
				fail_msg("not within %d s: %s", PEER_DEADLINE_MS / 1000, #condition); \
			if (!peer_step((e), 50))                                                  \
				fail_msg("the connection ended while waiting for: %s", #condition); \
		}                                                                                 \
	} while (0)

/* Steps for a while whatever happens. */
static inline void peer_idle(struct peer_end *e, int ms)
{
	int64_t until = clock_mono_ms() + ms;
	while (clock_mono_ms() < until)
		peer_step(e, 10);
}

static inline void peer_accept(struct peer_end *e)
{
	struct pollfd p = { e->listener, POLLIN, 0 };
	assert_int_equal(poll(&p, 1, PEER_DEADLINE_MS), 1);
	e->fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(e->fd >= 0);
	e->m = mux_new(&(struct mux_options){ .handler = &peer_handler, .ctx = e, .sink = peer_sink });
	mux_hello(e->m, NULL);
	unsigned before = e->hellos;
	PEER_UNTIL(e, e->hellos > before);
}

/* A program of the build: "sandbox-init". */
static inline char *peer_program(const char *name)
{
	char self[PATH_MAX] = "";
	const char *build = getenv("BUILD");
	if (build && *build) {
		char *at = xasprintf("%s/%s", build, name);
		if (access(at, X_OK) == 0)
			return at;
		free(at);
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = '\0';
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(self, '/');
		if (slash)
			*slash = '\0';
	}
	return xasprintf("%s/%s", self, name);
}

static inline void peer_start_program(struct peer_end *e, const char *name, const char *deadline_us, const char *grace_ms)
{
	struct error err = ERROR_INIT;
	auto_free char *program = peer_program(name);
	*e = (struct peer_end){ .fd = -1, .read_size = 1 << 20 };
	snprintf(e->dir, sizeof(e->dir), "/tmp/sandbox-test-init-XXXXXX");
	assert_non_null(mkdtemp(e->dir));
	snprintf(e->path, sizeof(e->path), "%s/worker.sock", e->dir);
	e->listener = io_listen_unix(e->path, 0666, 8, &err);
	if (e->listener < 0)
		fail_msg("%s", err.message);
	if (access(program, X_OK) < 0)
		fail_msg("%s is missing: build it first", program);
	e->init = fork();
	if (e->init == 0) {
		execl(program, "sandbox-init", "--socket", e->path, "--deadline-us", deadline_us, "--grace-ms", grace_ms, (char *)NULL);
		_exit(99);
	}
	peer_accept(e);
}

static inline void peer_start(struct peer_end *e, const char *deadline_us, const char *grace_ms)
{
	peer_start_program(e, "sandbox-init", deadline_us, grace_ms);
}

static inline void run_free(struct run *r)
{
	struct run **at = &r->end->runs;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	for (int i = 0; i < 3; i++)
		buf_done(&r->out[i]);
	free(r);
}

static inline void peer_stop(struct peer_end *e)
{
	int status;
	peer_drop(e);
	close_fdp(&e->listener);
	while (e->runs)
		run_free(e->runs);
	if (e->init > 0) {
		kill(e->init, SIGTERM);
		waitpid(e->init, &status, 0);
	}
	unlink(e->path);
	rmdir(e->dir);
}

static inline struct run *run_new(struct peer_end *e)
{
	static unsigned number;
	struct run *r = xcalloc(1, sizeof(*r));
	r->end = e;
	snprintf(r->operation, sizeof(r->operation), "op-%d-%u", (int)getpid(), ++number);
	r->next = e->runs;
	e->runs = r;
	return r;
}

/* Fields every command has; PATH so that plain names are found. */
static inline void run_fields(struct tlv *t, const struct run *r, const char *const *argv, uint64_t flags)
{
	tlv_add_u64(t, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(t, MUX_F_OPERATION, r->operation);
	for (; *argv; argv++)
		tlv_add_str(t, MUX_F_ARG, *argv);
	tlv_add_str(t, MUX_F_ENV, "PATH=/usr/bin:/bin");
	tlv_add_u64(t, MUX_F_FLAGS, flags);
}

static inline void run_open(struct run *r, const struct tlv *t, uint32_t window)
{
	struct error err = ERROR_INIT;
	r->id = mux_open(r->end->m, t, window, &err);
	if (!r->id)
		fail_msg("%s", err.message);
}

static inline struct run *run_start(struct peer_end *e, uint64_t flags, const char *const *argv)
{
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(e);
	run_fields(&t, r, argv, flags);
	run_open(r, &t, LIMIT_MUX_WINDOW);
	return r;
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SH(script) ARGV("sh", "-c", script)

static inline struct run *run_wait(struct run *r)
{
	PEER_UNTIL(r->end, r->closed);
	return r;
}

static inline void run_resume(struct run *r, uint64_t flags)
{
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_RESUME);
	tlv_add_str(&t, MUX_F_OPERATION, r->operation);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, r->got[1]);
	tlv_add_u64(&t, MUX_F_OFFSET_ERR, r->got[2]);
	if (flags)
		tlv_add_u64(&t, MUX_F_FLAGS, flags);
	r->accepted = r->closed = r->lost = false;
	r->eofs[0] = r->eofs[1] = r->eofs[2] = 0;
	run_open(r, &t, LIMIT_MUX_WINDOW);
	mux_rebase_recv(r->end->m, r->id, 1, r->got[1]);
	mux_rebase_recv(r->end->m, r->id, 2, r->got[2]);
}

#endif
