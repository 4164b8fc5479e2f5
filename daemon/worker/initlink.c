/*
 * One listening socket per sandbox. A connection passes three gates before it is the link: its peer pid, a HELLO in
 * time, and the key of the first HELLO. Whoever fails one is closed; a newer connection that passes replaces the link.
 */
#include "daemon/worker/initlink.h"

#include "daemon/worker/idmap.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEY_LEN = 32, PENDING_MAX = 4, ACCEPTS_PER_TURN = 8, HELLO_MS = 5000, BACKLOG = 16, LOG_EVERY_MS = 5000, PAUSE_MS = 100 };

struct link;

/* A connection that has not passed the gates. */
struct pending {
	struct link *link;
	int fd;             /* held until the pid is known; -1 when conn reads it */
	struct muxconn *conn;
	struct event *ev_late;
	bool done;          /* the slot is free */
};

struct link {
	struct initlinks *owner;
	struct id sandbox;
	char dir[PATH_MAX];
	int listen_fd;
	struct event *ev_accept, *ev_pause;
	bool expected;
	bool key_only;
	pid_t pid;
	int64_t deadline_us; /* 0: init knows */
	bool has_key;
	uint8_t key[KEY_LEN];
	struct pending pending[PENDING_MAX];
	struct muxconn *conn; /* the greeted one */
	int64_t logged_ms;
	unsigned refused; /* since the last log line */
};

struct initlinks {
	struct event_base *base;
	char *state_dir;
	struct muxloop *loop;
	struct mailbox *box;
	struct idmap links; /* loop thread */
	initlink_up up;
	void *up_ctx;
	pthread_mutex_t lock; /* guards greeted; changed is signalled with it */
	pthread_cond_t changed;
	struct idmap greeted; /* values are not used */
};

/* --- shared with waiting threads --- */

static void set_greeted(struct initlinks *l, const struct id *sandbox, bool yes)
{
	pthread_mutex_lock(&l->lock);
	if (yes)
		idmap_put(&l->greeted, sandbox, l);
	else
		idmap_remove(&l->greeted, sandbox);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

int initlink_wait(struct initlinks *l, const struct id *sandbox, int64_t timeout_ms, struct error *err)
{
	struct timespec until;
	bool there, late = false;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&l->lock);
	while (!(there = idmap_get(&l->greeted, sandbox) != NULL) && !late)
		late = pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT;
	pthread_mutex_unlock(&l->lock);
	if (!there)
		return error_set(err, ERR_TIMEOUT, "sandbox-init did not connect within %lld ms", (long long)timeout_ms);
	return 0;
}

/* --- gates --- */

/* One line per sandbox and LOG_EVERY_MS, whatever comes. */
static void log_refused(struct link *k, const char *why)
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

static void key_load(struct link *k)
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

static void become_link(struct link *k, struct muxconn *c)
{
	struct muxconn *old = k->conn;

	k->conn = c;
	if (old) {
		muxconn_set_reason(old, MUX_ERR_LOST);
		muxconn_drop(old, "replaced by a newer connection");
	}
	set_greeted(k->owner, &k->sandbox, true);
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
		log_refused(k, why);
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
		log_refused(k, why);
	} else if (k->conn == c) {
		k->conn = NULL;
		set_greeted(k->owner, &k->sandbox, false);
		log_debug("initlink", "link down sandbox=%s why=\"%s\"", k->sandbox.text, why);
	}
}

static const struct muxconn_ops link_ops = { .hello = on_hello, .gone = on_gone };

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
		log_refused(k, err.message);
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
	log_refused(k, "too many connections wait for their HELLO");
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

	log_refused(k, why);
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

/* --- the table --- */

static void link_free(struct link *k, enum mux_error why)
{
	for (int i = 0; i < PENDING_MAX; i++) {
		struct muxconn *c = k->pending[i].conn;

		if (k->pending[i].done)
			continue;
		pending_clear(&k->pending[i]);
		if (c)
			muxconn_drop(c, "the sandbox is gone");
	}
	if (k->conn) {
		muxconn_set_reason(k->conn, why);
		muxconn_drop(k->conn, "closed");
	}
	set_greeted(k->owner, &k->sandbox, false);
	if (k->ev_accept)
		event_free(k->ev_accept);
	if (k->ev_pause)
		event_free(k->ev_pause);
	close_fdp(&k->listen_fd);
	free(k);
}

static void do_listen(void *arg)
{
	struct link *k = arg;
	struct initlinks *l = k->owner;
	struct link *old = idmap_get(&l->links, &k->sandbox);

	if (old) {
		/* Listening again: only the socket file is another one. */
		if (old->ev_accept)
			event_free(old->ev_accept);
		if (old->ev_pause)
			event_del(old->ev_pause);
		close_fdp(&old->listen_fd);
		old->listen_fd = steal_fd(&k->listen_fd);
		free(k);
		k = old;
	} else {
		idmap_put(&l->links, &k->sandbox, k);
	}
	k->ev_accept = event_new(l->base, k->listen_fd, EV_READ | EV_PERSIST, on_acceptable, k);
	if (!k->ev_accept || event_add(k->ev_accept, NULL) != 0)
		log_error("initlink", "cannot watch the socket of sandbox=%s", k->sandbox.text);
}

/* STATE/sandboxes/<id> 0700, io 0711: init needs x on the directory whatever its uid is, nobody on the host needs more. */
static int make_dirs(const struct initlinks *l, const struct id *sandbox, char *out, size_t n, struct error *err)
{
	if (snprintf(out, n, "%s/sandboxes/%s", l->state_dir, sandbox->text) >= (int)n - 16)
		return error_set(err, ERR_TOO_LARGE, "state directory path is too long: %s", l->state_dir);
	if (io_mkdirs(out, 0700, err) != 0)
		return -1;
	memcpy(out + strlen(out), "/io", 4);
	if (mkdir(out, 0711) != 0 && errno != EEXIST)
		return error_errno(err, "creating %s", out);
	if (chmod(out, 0711) != 0)
		return error_errno(err, "chmod of %s", out);
	return 0;
}

int initlink_listen(struct initlinks *l, const struct id *sandbox, char *ret_io_dir, size_t n, struct error *err)
{
	struct link *k = xcalloc(1, sizeof(*k));
	char path[PATH_MAX + 16];

	k->owner = l;
	k->sandbox = *sandbox;
	k->listen_fd = -1;
	for (int i = 0; i < PENDING_MAX; i++)
		k->pending[i] = (struct pending){ .link = k, .fd = -1, .done = true };
	if (make_dirs(l, sandbox, k->dir, sizeof(k->dir), err) != 0 || strlen(k->dir) >= n) {
		if (strlen(k->dir) >= n)
			error_set(err, ERR_TOO_LARGE, "path is too long: %s", k->dir);
		free(k);
		return -1;
	}
	snprintf(path, sizeof(path), "%s/worker.sock", k->dir);
	(void)unlink(path);
	k->listen_fd = io_listen_unix(path, 0666, BACKLOG, err);
	if (k->listen_fd < 0) {
		free(k);
		return -1;
	}
	io_set_nonblock(k->listen_fd, true);
	key_load(k);
	snprintf(ret_io_dir, n, "%s", k->dir);
	mailbox_post(l->box, do_listen, k);
	return 0;
}

struct request {
	struct initlinks *l;
	struct id sandbox;
	pid_t pid;
	bool key_only;
	enum mux_error why;
	int64_t deadline_us;
};

static void do_expect(void *arg)
{
	struct request *r = arg;
	struct link *k = idmap_get(&r->l->links, &r->sandbox);

	if (k) {
		k->expected = true;
		k->pid = r->pid;
		k->key_only = r->key_only;
		for (int i = 0; i < PENDING_MAX; i++) {
			if (!k->pending[i].done && k->pending[i].fd >= 0)
				pending_greet(&k->pending[i]);
		}
	}
	free(r);
}

void initlink_expect(struct initlinks *l, const struct id *sandbox, pid_t pid, bool key_only)
{
	struct request r = { .l = l, .sandbox = *sandbox, .pid = pid, .key_only = key_only };

	mailbox_post(l->box, do_expect, memcpy(xmalloc(sizeof(r)), &r, sizeof(r)));
}

/* An OPEN that init answers by closing: nobody owns the stream. */
static void send_deadline(struct link *k)
{
	auto_tlv t = TLV_INIT;

	if (!k->conn)
		return;
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_DEADLINE);
	tlv_add_u64(&t, MUX_F_DEADLINE_US, (uint64_t)k->deadline_us);
	mux_open(muxconn_mux(k->conn), &t, 0, NULL);
}

static void do_deadline(void *arg)
{
	struct request *r = arg;
	struct link *k = idmap_get(&r->l->links, &r->sandbox);

	if (k && r->deadline_us > 0) {
		k->deadline_us = r->deadline_us;
		send_deadline(k);
	}
	free(r);
}

void initlink_set_deadline(struct initlinks *l, const struct id *sandbox, int64_t deadline_us)
{
	struct request r = { .l = l, .sandbox = *sandbox, .deadline_us = deadline_us };

	mailbox_post(l->box, do_deadline, memcpy(xmalloc(sizeof(r)), &r, sizeof(r)));
}

static void do_close(void *arg)
{
	struct request *r = arg;
	struct link *k = idmap_remove(&r->l->links, &r->sandbox);
	char path[PATH_MAX + 16];

	if (k) {
		snprintf(path, sizeof(path), "%s/worker.sock", k->dir);
		(void)unlink(path);
		link_free(k, r->why);
	}
	free(r);
}

void initlink_close(struct initlinks *l, const struct id *sandbox, enum mux_error why)
{
	struct request r = { .l = l, .sandbox = *sandbox, .why = why };

	mailbox_post(l->box, do_close, memcpy(xmalloc(sizeof(r)), &r, sizeof(r)));
}

/* --- loop thread --- */

void initlinks_on_up(struct initlinks *l, initlink_up fn, void *ctx)
{
	l->up = fn;
	l->up_ctx = ctx;
}

struct mux *initlink_mux(struct initlinks *l, const struct id *sandbox)
{
	struct link *k = idmap_get(&l->links, sandbox);

	return k && k->conn ? muxconn_mux(k->conn) : NULL;
}

bool initlink_known(struct initlinks *l, const struct id *sandbox)
{
	return idmap_get(&l->links, sandbox) != NULL;
}

void initlink_reset(struct initlinks *l, const struct id *sandbox, const char *why)
{
	struct link *k = idmap_get(&l->links, sandbox);

	if (k && k->conn) {
		log_refused(k, why);
		muxconn_close(k->conn, why);
	}
}

struct mailbox *initlinks_mailbox(struct initlinks *l)
{
	return l->box;
}

struct muxloop *initlinks_muxloop(struct initlinks *l)
{
	return l->loop;
}

struct initlinks *initlinks_new(struct event_base *base, const char *state_dir)
{
	struct initlinks *l = xcalloc(1, sizeof(*l));
	pthread_condattr_t attr;

	l->base = base;
	l->state_dir = xstrdup(state_dir);
	l->loop = muxloop_new(base);
	l->box = mailbox_new(base);
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	return l;
}

void initlinks_free(struct initlinks *l)
{
	void **all;
	size_t n;

	if (!l)
		return;
	mailbox_free(l->box);
	n = l->links.len;
	all = idmap_values(&l->links);
	for (size_t i = 0; i < n; i++)
		link_free(all[i], MUX_ERR_LOST);
	free(all);
	idmap_done(&l->links);
	idmap_done(&l->greeted);
	muxloop_free(l->loop);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l->state_dir);
	free(l);
}
