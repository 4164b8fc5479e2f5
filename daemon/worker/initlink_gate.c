/*
 * Three gates: a connection becomes the link when its peer is the expected pid, its HELLO comes in time, and it carries
 * the key of the first HELLO. Whoever fails one is closed; a newer connection that passes replaces the link.
 */
#include "daemon/worker/initlink_priv.h"

#include "daemon/worker/netns.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEY_LEN = INIT_KEY_LEN, ACCEPTS_PER_TURN = 8, HELLO_MS = 5000, LOG_EVERY_MS = 5000, PAUSE_MS = 100 };

void link_log_refused(struct link *k, const char *why)
{
	int64_t now = clock_mono_ms();

	k->refused++;
	if (k->logged_ms && now - k->logged_ms < LOG_EVERY_MS)
		return;
	log_warn("initlink", "connection refused sandbox=%s why=\"%s\" count=%u", k->sandbox.text, why, k->refused);
	k->logged_ms = now;
	k->refused = 0;
}

static void pending_clear(struct pending *p)
{
	if (p->ev_late)
		event_free(p->ev_late);
	p->ev_late = NULL;
	close_fdp(&p->fd);
	p->conn = NULL;
	p->done = true;
}

static bool peer_allowed(const struct link *k, int fd, struct error *err)
{
	struct peer peer;

	if (k->key_only)
		return true;
	if (io_peer(fd, &peer, err) != 0)
		return false;
	if (peer.pid == k->pid)
		return true;
	error_set(err, ERR_FORBIDDEN, "pid %d is not the sandbox's process 1 (%d)", (int)peer.pid, (int)k->pid);
	return false;
}

static int key_path(const struct link *k, char *out, size_t n)
{
	return snprintf(out, n, "%s/sandboxes/%s/init.key", k->owner->state_dir, k->sandbox.text) < (int)n ? 0 : -1;
}

void link_load_key(struct link *k)
{
	char path[PATH_MAX];
	auto_buf b = BUF_INIT;

	if (key_path(k, path, sizeof(path)) != 0 || io_read_file(path, KEY_LEN, &b, NULL) != 0 || b.len != KEY_LEN)
		return;
	memcpy(k->key, b.data, KEY_LEN);
	k->has_key = true;
}

static void key_store(struct link *k, const void *key)
{
	char path[PATH_MAX];
	struct error err = ERROR_INIT;

	memcpy(k->key, key, KEY_LEN);
	k->has_key = true;
	if (key_path(k, path, sizeof(path)) == 0 && io_write_file_atomic(path, key, KEY_LEN, 0600, false, &err) != 0)
		log_warn("initlink", "keeping the key of sandbox=%s: %s", k->sandbox.text, err.message);
}

static bool same_key(const uint8_t *a, const uint8_t *b)
{
	unsigned diff = 0;

	for (int i = 0; i < KEY_LEN; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

/* NULL when the key is the sandbox's (or its first), else why not. */
static const char *key_check(struct link *k, const struct tlv *hello)
{
	size_t n = 0;
	const void *key = tlv_bytes(hello, MUX_F_KEY, &n);

	if (!key || n != KEY_LEN)
		return "no key of 32 bytes in its HELLO";
	if (!k->has_key)
		key_store(k, key);
	return same_key(k->key, key) ? NULL : "another key than the first HELLO's";
}

/* --- connections --- */

static struct pending *pending_of(struct link *k, const struct muxconn *c)
{
	for (int i = 0; i < PENDING_MAX; i++) {
		if (!k->pending[i].done && k->pending[i].conn == c)
			return &k->pending[i];
	}
	return NULL;
}

/* A sentry's or a VMM's is not the sandbox's. */
static void take_netns(struct link *k)
{
	close_fdp(&k->netns);
	if (!k->key_only && k->pid != getpid())
		k->netns = netns_open(k->pid, muxconn_fd(k->conn));
}

static void become_link(struct link *k, struct muxconn *c)
{
	struct muxconn *old = k->conn;

	k->conn = c;
	take_netns(k);
	if (old) {
		muxconn_set_reason(old, MUX_ERR_LOST);
		muxconn_drop(old, "replaced by a newer connection");
	}
	link_set_greeted(k, true);
	log_debug("initlink", "link up sandbox=%s", k->sandbox.text);
	if (k->owner->up)
		k->owner->up(k->owner->up_ctx, &k->sandbox, muxconn_mux(c));
}

static void on_hello(void *ctx, struct muxconn *c, const struct tlv *fields)
{
	struct link *k = ctx;
	struct pending *p = pending_of(k, c);
	const char *why;
	auto_tlv hello = TLV_INIT;

	if (!p)
		return;
	why = key_check(k, fields);
	if (why) {
		link_log_refused(k, why);
		muxconn_close(c, why);
		return;
	}
	pending_clear(p);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	if (k->deadline_us)
		tlv_add_u64(&hello, MUX_F_DEADLINE_US, (uint64_t)k->deadline_us);
	mux_hello(muxconn_mux(c), &hello);
	become_link(k, c);
}

static void on_gone(void *ctx, struct muxconn *c, const char *why)
{
	struct link *k = ctx;
	struct pending *p = pending_of(k, c);

	if (p) {
		pending_clear(p);
		link_log_refused(k, why);
	} else if (k->conn == c) {
		k->conn = NULL;
		close_fdp(&k->netns);
		link_set_greeted(k, false);
		log_debug("initlink", "link down sandbox=%s why=\"%s\"", k->sandbox.text, why);
	}
}

static void on_opened(void *ctx, struct muxconn *c, uint32_t stream, const struct tlv *fields)
{
	struct link *k = ctx;
	auto_tlv refusal = TLV_INIT;

	if (k->conn == c && k->owner->opened) {
		k->owner->opened(k->owner->opened_ctx, &k->sandbox, muxconn_mux(c), stream, fields);
		return;
	}
	tlv_add_u64(&refusal, MUX_F_ERROR, MUX_ERR_REFUSED);
	tlv_add_str(&refusal, MUX_F_MESSAGE, "this side opens the streams");
	mux_close(muxconn_mux(c), stream, &refusal);
}

static const struct muxconn_ops link_ops = { .hello = on_hello, .opened = on_opened, .gone = on_gone };

static void on_late(evutil_socket_t fd, short what, void *ctx)
{
	struct pending *p = ctx;

	(void)fd;
	(void)what;
	if (p->conn)
		muxconn_close(p->conn, "no HELLO in time");
}

/* The pid is known: check it and wait for the HELLO. */
static void pending_greet(struct pending *p)
{
	struct link *k = p->link;
	struct error err = ERROR_INIT;
	struct timeval late = { .tv_sec = HELLO_MS / 1000 };

	if (!peer_allowed(k, p->fd, &err)) {
		link_log_refused(k, err.message);
		pending_clear(p);
		return;
	}
	p->conn = muxconn_new(k->owner->loop, steal_fd(&p->fd), &link_ops, k, false);
	p->ev_late = evtimer_new(k->owner->base, on_late, p);
	if (p->ev_late)
		evtimer_add(p->ev_late, &late);
}

static void take_connection(struct link *k, int take_fd)
{
	auto_close int fd = take_fd;

	for (int i = 0; i < PENDING_MAX; i++) {
		struct pending *p = &k->pending[i];

		if (!p->done)
			continue;
		*p = (struct pending){ .link = k, .fd = steal_fd(&fd) };
		if (k->expected)
			pending_greet(p);
		return;
	}
	link_log_refused(k, "too many connections wait for their HELLO");
}

static void on_pause_over(evutil_socket_t fd, short what, void *ctx)
{
	struct link *k = ctx;

	(void)fd;
	(void)what;
	event_add(k->ev_accept, NULL);
}

/* Out of descriptors: the waiting connection would wake the loop for ever. */
static void pause_accept(struct link *k, const char *why)
{
	struct timeval tv = { .tv_usec = PAUSE_MS * 1000 };

	link_log_refused(k, why);
	if (!k->ev_pause)
		k->ev_pause = evtimer_new(k->owner->base, on_pause_over, k);
	if (k->ev_pause && event_del(k->ev_accept) == 0)
		evtimer_add(k->ev_pause, &tv);
}

static void on_acceptable(evutil_socket_t fd, short what, void *ctx)
{
	struct link *k = ctx;

	(void)what;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (conn < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				pause_accept(k, strerror(errno));
			return;
		}
		take_connection(k, conn);
	}
}

void link_watch(struct link *k)
{
	link_unwatch(k);
	k->ev_accept = event_new(k->owner->base, k->listen_fd, EV_READ | EV_PERSIST, on_acceptable, k);
	if (!k->ev_accept || event_add(k->ev_accept, NULL) != 0)
		log_error("initlink", "cannot watch the socket of sandbox=%s", k->sandbox.text);
}

void link_unwatch(struct link *k)
{
	if (k->ev_accept)
		event_free(k->ev_accept);
	if (k->ev_pause)
		event_free(k->ev_pause);
	k->ev_accept = k->ev_pause = NULL;
}

void link_init_pending(struct link *k)
{
	for (int i = 0; i < PENDING_MAX; i++)
		k->pending[i] = (struct pending){ .link = k, .fd = -1, .done = true };
}

void link_check_held(struct link *k)
{
	for (int i = 0; i < PENDING_MAX; i++) {
		if (!k->pending[i].done && k->pending[i].fd >= 0)
			pending_greet(&k->pending[i]);
	}
}

void link_drop_pending(struct link *k)
{
	for (int i = 0; i < PENDING_MAX; i++) {
		struct muxconn *c = k->pending[i].conn;

		if (k->pending[i].done)
			continue;
		pending_clear(&k->pending[i]);
		if (c)
			muxconn_drop(c, "the sandbox is gone");
	}
}
