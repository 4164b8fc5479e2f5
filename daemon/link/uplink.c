/* Dialling and greeting: see uplink.h. */
#include "daemon/link/uplink_priv.h"

#include "daemon/config.h"
#include "daemon/process.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/http/remote/remote.h"
#include "shared/json/model_json.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
	PAUSE_FIRST_MS = 100,
	PAUSE_MAX_MS = 10 * 1000,
	PAUSE_REFUSED_MS = 30 * 1000,
	GREET_MS = 20 * 1000,
	BEAT_MS = 10 * 1000,
	JOIN_PAUSE_MS = 1000,
};

static void set_state(struct uplink *u, bool up, const char *text)
{
	pthread_mutex_lock(&u->lock);
	u->up_now = up;
	snprintf(u->state, sizeof(u->state), "%s", text);
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

bool uplink_describe(struct uplink *u, char *ret, size_t n)
{
	pthread_mutex_lock(&u->lock);
	bool up = u->up_now;
	snprintf(ret, n, "%s: %s", u->url.url, u->state);
	pthread_mutex_unlock(&u->lock);
	return up;
}

static bool is_stopping(struct uplink *u)
{
	pthread_mutex_lock(&u->lock);
	bool yes = u->stopping;
	pthread_mutex_unlock(&u->lock);
	return yes;
}

/* --- the connection, on the loop --- */

static void hold(void *ctx)
{
	(void)ctx;
}

static void on_opened(void *ctx, struct muxconn *conn, uint32_t stream, const struct tlv *fields)
{
	struct uplink *u = ctx;
	static const char *const with_files[] = { "image_import", "image_load", NULL };
	struct call_service service = { .handle = uplink_answer, .hold = hold, .release = hold, .ctx = u, .pool = u->pool, .mail = u->o.mail,
					.file_dir = u->o.config->state_dir, .file_methods = with_files };
	if (tlv_u64(fields, MUX_F_KIND, 0) == MUX_KIND_CALL)
		call_take(&service, muxconn_mux(conn), stream, fields);
	else
		uplink_opened(u, muxconn_mux(conn), stream, fields);
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct uplink *u = ctx;
	(void)conn;
	u->conn = NULL;
	caller_link_set(u->calls, NULL);
	pthread_mutex_lock(&u->lock);
	u->alive = u->up_now = false;
	snprintf(u->state, sizeof(u->state), "the link broke: %s", why);
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
}

static const struct muxconn_ops conn_ops = { .opened = on_opened, .gone = on_gone };

struct arrival {
	struct uplink *u;
	int fd;
};

static void do_connect(void *arg)
{
	struct arrival *a = arg;
	struct uplink *u = a->u;
	auto_tlv hello = TLV_INIT;
	u->conn = muxconn_new(u->o.loop, a->fd, &conn_ops, u, true);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	mux_hello(muxconn_mux(u->conn), &hello);
	caller_link_set(u->calls, muxconn_mux(u->conn));
	free(a);
}

static void do_close(void *arg)
{
	struct uplink *u = arg;
	if (u->conn)
		muxconn_close(u->conn, "closed");
}

/* --- the thread --- */

/* Waits until the link is gone or ms have passed. True: it is still there. */
static bool wait_alive(struct uplink *u, int64_t ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&u->lock);
	while (u->alive && !u->stopping && pthread_cond_timedwait(&u->changed, &u->lock, &until) != ETIMEDOUT)
		;
	bool alive = u->alive && !u->stopping;
	pthread_mutex_unlock(&u->lock);
	return alive;
}

static void pause_for(struct uplink *u, int64_t ms)
{
	struct timespec until;
	uint32_t dice;
	random_bytes(&dice, sizeof(dice));
	ms = ms / 2 + (int64_t)(dice % (uint32_t)(ms + 1)) / 2;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&u->lock);
	while (!u->stopping && pthread_cond_timedwait(&u->changed, &u->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&u->lock);
}

static int greet(struct uplink *u, struct error *err)
{
	struct link_greeting g = { .version = SANDBOX_VERSION };
	auto_buf answer = BUF_INIT;
	pthread_mutex_lock(&u->lock);
	g.report = u->report;
	g.report.labels = (struct map)MAP_INIT;
	map_copy(&g.report.labels, &u->report.labels);
	strv_copy(&g.held, &u->held);
	pthread_mutex_unlock(&u->lock);
	snprintf(g.session, sizeof(g.session), "%s", u->session);
	snprintf(g.boot_id, sizeof(g.boot_id), "%s", u->boot_id);
	int rc = uplink_ask(u, "hello", greeting_to_json(&g), GREET_MS, &answer, err);
	link_greeting_done(&g);
	return rc;
}

/* Both sides agree on what runs here; only then streams come. */
static int bring_up(struct uplink *u, struct error *err)
{
	if (greet(u, err) != 0)
		return error_wrap(err, "greeting");
	set_state(u, true, "up");
	pthread_mutex_lock(&u->lock);
	int (*fn)(void *ctx, struct error *err) = u->on_connect;
	void *ctx = u->connect_ctx;
	pthread_mutex_unlock(&u->lock);
	if (fn && fn(ctx, err) != 0)
		return -1;
	if (uplink_ask(u, "ready", NULL, GREET_MS, NULL, err) != 0)
		return -1;
	pthread_mutex_lock(&u->lock);
	if (u->on_work)
		u->on_work(u->work_ctx);
	pthread_mutex_unlock(&u->lock);
	return 0;
}

/* The next credential is on disk before the controller is asked to know it; the first use of it ends the one before. */
static void rotate(struct uplink *u)
{
	auto_buf answer = BUF_INIT;
	struct error err = ERROR_INIT;
	struct credential next = u->credential;
	if (uplink_ask(u, "rotate", NULL, GREET_MS, &answer, &err) != 0 || answer.len != CREDENTIAL_MAX) {
		log_warn("link", "the credential is not rotated: %s", err.message);
		return;
	}
	memcpy(next.secret, answer.data, answer.len + 1);
	explicit_bzero(answer.data, answer.len);
	if (credential_save(u->o.config, &next, &err) != 0) {
		log_error("link", "the new credential cannot be kept, the old one stays: %s", err.message);
		return;
	}
	u->credential = next;
	log_info("link", "credential rotated");
}

static void serve_link(struct uplink *u)
{
	struct error err = ERROR_INIT;
	int64_t rotated_ms = clock_mono_ms();
	if (bring_up(u, &err) != 0) {
		log_warn("link", "the link does not come up: %s", err.message);
		set_state(u, false, err.message);
		mailbox_post(u->o.mail, do_close, u);
	} else {
		log_info("link", "link up controller=%s", u->url.url);
	}
	int64_t every = u->o.config->credential_rotate_ms;
	while (wait_alive(u, every < BEAT_MS ? every : BEAT_MS)) {
		/* The maintainer's heartbeats may be late on a busy machine; a link on which nothing comes back is none. */
		if (uplink_ask(u, "ready", NULL, GREET_MS, NULL, &err) != 0)
			mailbox_post(u->o.mail, do_close, u);
		if (clock_mono_ms() - rotated_ms >= every) {
			rotated_ms = clock_mono_ms();
			rotate(u);
		}
	}
}

static int refused(const struct http_answer *a, struct error *err)
{
	auto_json *j = NULL;
	if (json_parse(buf_str(&a->body), a->body.len, &j, NULL) == 0 && error_from_json(j, err))
		return -1;
	return error_set(err, ERR_PROTOCOL, "no controller answers there (status %d)", a->status);
}

/* Dials once, and serves the link until it is gone. */
static int dial(struct uplink *u, bool *ret_was_up, struct error *err)
{
	const struct remote_module *module = sandbox_remote_module();
	struct remote_options o;
	struct remote *remote = NULL;
	struct http_answer refusal;
	int fd = -1;
	uplink_remote_options(u, &u->credential, &o);
	o.token = u->credential.secret;
	if (module->open(&o, &remote, err) != 0)
		return -1;
	module->set_interrupt(remote, u->interrupt_fd);
	int rc = module->stream(remote, "/v1/link", NULL, 0, &fd, &refusal, err);
	if (rc == 1) {
		rc = refused(&refusal, err);
		http_answer_done(&refusal);
	} else if (rc == 0) {
		struct arrival *a = xcalloc(1, sizeof(*a));
		*a = (struct arrival){ .u = u, .fd = fd };
		pthread_mutex_lock(&u->lock);
		u->alive = true;
		pthread_mutex_unlock(&u->lock);
		mailbox_post(u->o.mail, do_connect, a);
		serve_link(u);
		*ret_was_up = true;
		if (is_stopping(u))
			mailbox_call(u->o.mail, do_close, u, 1000, NULL);
	}
	module->free(remote);
	return rc;
}

static void *run(void *arg)
{
	struct uplink *u = arg;
	int64_t pause = PAUSE_FIRST_MS;
	while (!is_stopping(u)) {
		struct error err = ERROR_INIT;
		bool was_up = false;
		if (dial(u, &was_up, &err) != 0) {
			log_warn("link", "no link to %s: %s", u->url.url, err.message);
			set_state(u, false, err.message);
		}
		if (was_up)
			pause = PAUSE_FIRST_MS;
		else if (err.code == ERR_UNAUTHORIZED || err.code == ERR_FORBIDDEN)
			pause = PAUSE_REFUSED_MS;
		pause_for(u, pause);
		pause = pause * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause * 2;
	}
	return NULL;
}

/* --- life --- */

static int read_boot_id(char *ret, size_t n, struct error *err)
{
	auto_buf text = BUF_INIT;
	if (io_read_file("/proc/sys/kernel/random/boot_id", 256, &text, err) != 0)
		return -1;
	snprintf(ret, n, "%.*s", (int)strcspn(buf_str(&text), "\n"), buf_str(&text));
	return 0;
}

static bool worth_waiting(const struct error *err)
{
	return err->code == ERR_UNREACHABLE || err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT;
}

static int join(struct uplink *u, struct error *err)
{
	struct error e = ERROR_INIT;
	struct credential c;
	if (join_token_read(u->o.config, &c, &e) != 0) {
		auto_free char *path = credential_path(u->o.config);
		return e.code == ERR_NOT_FOUND
			       ? error_set(err, ERR_INVALID, "there is no credential in %s and no join token: make one on the controller (sandbox node "
					   "token %s) and give it as SANDBOX_JOIN_TOKEN or in worker.join_token_file", path, u->o.config->worker_name)
			       : error_set(err, e.code, "%s", e.message);
	}
	while (credential_join(u, &c, &e) != 0) {
		if (!worth_waiting(&e))
			return error_set(err, e.code, "%s", e.message);
		log_warn("link", "waiting for the controller: %s", e.message);
		if (!process_pause(JOIN_PAUSE_MS))
			return error_set(err, ERR_UNAVAILABLE, "stopped while waiting for the controller: %s", e.message);
	}
	u->credential = c;
	log_info("link", "joined controller=%s name=%s", u->url.url, u->o.config->worker_name);
	return credential_save(u->o.config, &c, err);
}

int uplink_new(const struct uplink_options *o, struct uplink **ret, struct error *err)
{
	struct uplink *u = xcalloc(1, sizeof(*u));
	struct error e = ERROR_INIT;
	pthread_condattr_t attr;
	u->up.ops = &uplink_ops;
	u->o = *o;
	pthread_mutex_init(&u->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&u->changed, &attr);
	pthread_condattr_destroy(&attr);
	u->calls = caller_link_new(o->mail);
	u->pool = call_pool_new();
	snprintf(u->session, sizeof(u->session), "%s", id_new().text);
	snprintf(u->state, sizeof(u->state), "not dialled yet");
	u->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = u->interrupt_fd < 0 ? error_errno(err, "making an eventfd") : server_url_parse(o->config->controller_url, &u->url, err);
	if (rc == 0)
		rc = read_boot_id(u->boot_id, sizeof(u->boot_id), err);
	if (rc == 0 && credential_load(o->config, &u->credential, &e) != 0)
		rc = e.code == ERR_NOT_FOUND ? join(u, err) : error_set(err, e.code, "%s", e.message);
	if (rc == 0)
		*ret = u;
	else
		uplink_free(u);
	return rc;
}

struct upstream *uplink_upstream(struct uplink *u)
{
	return &u->up;
}

int uplink_start(struct uplink *u, struct node_port *own, struct error *err)
{
	u->own = own;
	int rc = pthread_create(&u->thread, NULL, run, u);
	if (rc != 0) {
		errno = rc;
		return error_errno(err, "starting the thread of the link");
	}
	u->started = true;
	return 0;
}

void uplink_stop(struct uplink *u)
{
	uint64_t one = 1;
	if (!u || !u->started)
		return;
	pthread_mutex_lock(&u->lock);
	u->stopping = true;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	if (write(u->interrupt_fd, &one, sizeof(one)) < 0)
		log_warn("link", "interrupting the dialling: %m");
	mailbox_post(u->o.mail, do_close, u);
	pthread_join(u->thread, NULL);
	u->started = false;
	call_pool_free(u->pool);
	u->pool = NULL;
}

void uplink_free(struct uplink *u)
{
	if (!u)
		return;
	if (u->conn)
		muxconn_drop(u->conn, "the daemon stops");
	call_pool_free(u->pool);
	caller_link_free(u->calls);
	map_done(&u->report.labels);
	strv_done(&u->held);
	server_url_done(&u->url);
	close_fdp(&u->interrupt_fd);
	explicit_bzero(&u->credential, sizeof(u->credential));
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
