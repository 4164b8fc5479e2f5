/* Links by sandbox: their sockets, their waiting threads, and the calls of others, which are posted to the loop. */
#include "daemon/worker/initlink_priv.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 16 };

/* --- shared with waiting threads --- */

void link_set_greeted(struct link *k, bool yes)
{
	struct initlinks *l = k->owner;

	pthread_mutex_lock(&l->lock);
	if (yes)
		idmap_put(&l->greeted, &k->sandbox, l);
	else
		idmap_remove(&l->greeted, &k->sandbox);
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

/* --- the table --- */

static void link_free(struct link *k, enum mux_error why)
{
	link_drop_pending(k);
	link_set_greeted(k, false);
	if (k->conn) {
		muxconn_set_reason(k->conn, why);
		muxconn_drop(k->conn, "closed");
	}
	link_unwatch(k);
	close_fdp(&k->listen_fd);
	close_fdp(&k->netns);
	free(k);
}

static void do_listen(void *arg)
{
	struct link *k = arg;
	struct initlinks *l = k->owner;
	struct link *old = idmap_get(&l->links, &k->sandbox);

	if (old) {
		/* Listening again: only the socket file is another one. */
		link_unwatch(old);
		close_fdp(&old->listen_fd);
		old->listen_fd = steal_fd(&k->listen_fd);
		free(k);
		k = old;
	} else {
		idmap_put(&l->links, &k->sandbox, k);
	}
	link_watch(k);
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
	k->netns = -1;
	link_init_pending(k);
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
	link_load_key(k);
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
		link_check_held(k);
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

void initlinks_on_opened(struct initlinks *l, initlink_opened fn, void *ctx)
{
	l->opened = fn;
	l->opened_ctx = ctx;
}

struct mux *initlink_mux(struct initlinks *l, const struct id *sandbox)
{
	struct link *k = idmap_get(&l->links, sandbox);

	return k && k->conn ? muxconn_mux(k->conn) : NULL;
}

int initlink_netns(struct initlinks *l, const struct id *sandbox)
{
	struct link *k = idmap_get(&l->links, sandbox);

	return k && k->conn ? k->netns : -1;
}

bool initlink_known(struct initlinks *l, const struct id *sandbox)
{
	return idmap_get(&l->links, sandbox) != NULL;
}

void initlink_reset(struct initlinks *l, const struct id *sandbox, const char *why)
{
	struct link *k = idmap_get(&l->links, sandbox);

	if (k && k->conn) {
		link_log_refused(k, why);
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
