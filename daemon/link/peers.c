/* Dialling other controllers, and keeping in mind which node is where: see peers.h. */
#include "daemon/link/peers_priv.h"

#include "daemon/config.h"
#include "daemon/controller/fleet.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/config/server_url.h"
#include "shared/http/remote/remote.h"
#include "shared/json/model_json.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 500, PAUSE_FIRST_MS = 200, PAUSE_MAX_MS = 5 * 1000, PING_MS = 5 * 1000, SECRET_MIN = 32, FILE_MAX = 4096 };

/* --- the secret --- */

int peers_secret(const struct daemon_config *config, char **ret, struct error *err)
{
	auto_buf text = BUF_INIT;
	struct stat st;
	const char *path = config->peers_secret_file;
	*ret = NULL;
	if (!*path)
		return 0;
	if (stat(path, &st) != 0)
		return error_errno(err, "peers.secret_file: looking at %s", path);
	if (st.st_mode & 077)
		return error_set(err, ERR_INVALID, "peers.secret_file: %s can be read by others (mode %03o): chmod 600 it", path, (unsigned)st.st_mode & 0777);
	if (io_read_file(path, FILE_MAX, &text, err) != 0)
		return error_wrap(err, "peers.secret_file");
	size_t n = strcspn(buf_str(&text), " \r\n");
	if (n >= SECRET_MIN)
		*ret = xasprintf(PEER_SECRET_PREFIX "%.*s", (int)n, text.data);
	explicit_bzero(text.data, text.cap);
	return *ret ? 0 : error_set(err, ERR_INVALID, "peers.secret_file: %s holds %zu characters, at least %d are needed", path, n, SECRET_MIN);
}

/* --- the connection, on the loop --- */

static void route_all(struct peer_link *x)
{
	for (size_t i = 0; i < x->n_nodes; i++)
		remote_node_via(x->nodes[i], x->conn ? muxconn_mux(x->conn) : NULL);
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct peer_link *x = ctx;
	(void)conn;
	log_warn("peers", "controller=%s gone: %s", x->url, why);
	x->conn = NULL;
	caller_link_set(x->calls, NULL);
	route_all(x);
	pthread_mutex_lock(&x->all->lock);
	x->alive = false;
	pthread_cond_broadcast(&x->all->changed);
	pthread_mutex_unlock(&x->all->lock);
}

static const struct muxconn_ops conn_ops = { .gone = on_gone };

struct arrival {
	struct peer_link *x;
	int fd;
};

static void do_connect(void *arg)
{
	struct arrival *a = arg;
	struct peer_link *x = a->x;
	auto_tlv hello = TLV_INIT;
	x->conn = muxconn_new(x->all->o.loop, a->fd, &conn_ops, x, true);
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandboxd " SANDBOX_VERSION);
	mux_hello(muxconn_mux(x->conn), &hello);
	caller_link_set(x->calls, muxconn_mux(x->conn));
	route_all(x);
	free(a);
}

static void do_close(void *arg)
{
	struct peer_link *x = arg;
	if (x->conn)
		muxconn_close(x->conn, "closed");
}

/* --- a thread for each --- */

/* With the lock: waits at most ms, or until it is stopping or no longer alive. */
static void wait_some(struct peers *p, const struct peer_link *x, int64_t ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (!p->stopping && (!x || x->alive) && pthread_cond_timedwait(&p->changed, &p->lock, &until) != ETIMEDOUT)
		;
}

static bool wait_alive(struct peer_link *x)
{
	pthread_mutex_lock(&x->all->lock);
	wait_some(x->all, x, PING_MS);
	bool yes = x->alive && !x->all->stopping;
	pthread_mutex_unlock(&x->all->lock);
	return yes;
}

/* A connection on which nothing comes back is none. */
static void serve(struct peer_link *x)
{
	struct error err = ERROR_INIT;
	log_info("peers", "controller=%s up", x->url);
	while (wait_alive(x)) {
		struct call_out q = { .method = "ping", .timeout_ms = LIMIT_LINK_SILENCE_MS / 2 };
		if (call_ask(x->calls, &q, NULL, &err) != 0)
			mailbox_post(x->all->o.mail, do_close, x);
	}
}

static int refused(const struct http_answer *a, struct error *err)
{
	auto_json *j = NULL;
	if (json_parse(buf_str(&a->body), a->body.len, &j, NULL) == 0 && error_from_json(j, err))
		return -1;
	return error_set(err, ERR_PROTOCOL, "no controller answers there (status %d)", a->status);
}

static int dial(struct peer_link *x, const struct remote_options *o, struct error *err)
{
	const struct remote_module *module = sandbox_remote_module();
	struct remote *remote = NULL;
	struct http_answer refusal;
	int fd = -1;
	if (module->open(o, &remote, err) != 0)
		return -1;
	module->set_interrupt(remote, x->all->interrupt_fd);
	int rc = module->stream(remote, "/v1/peer", NULL, 0, &fd, &refusal, err);
	if (rc == 1) {
		rc = refused(&refusal, err);
		http_answer_done(&refusal);
	} else if (rc == 0) {
		struct arrival *a = xcalloc(1, sizeof(*a));
		*a = (struct arrival){ .x = x, .fd = fd };
		pthread_mutex_lock(&x->all->lock);
		x->alive = true;
		pthread_mutex_unlock(&x->all->lock);
		mailbox_post(x->all->o.mail, do_connect, a);
		serve(x);
		mailbox_call(x->all->o.mail, do_close, x, 1000, NULL);
	}
	module->free(remote);
	return rc;
}

static int dial_url(struct peer_link *x, struct error *err)
{
	const struct daemon_config *c = x->all->o.config;
	struct server_url url;
	if (server_url_parse(x->url, &url, err) != 0)
		return -1;
	struct remote_options o = { .base = url.url, .token = x->all->secret, .ca_file = *c->peers_ca_file ? c->peers_ca_file : NULL, .loopback = url.loopback };
	int rc = dial(x, &o, err);
	server_url_done(&url);
	return rc;
}

static void *run(void *arg)
{
	struct peer_link *x = arg;
	struct peers *p = x->all;
	int64_t pause = PAUSE_FIRST_MS;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		struct error err = ERROR_INIT;
		pthread_mutex_unlock(&p->lock);
		if (dial_url(x, &err) == 0)
			pause = PAUSE_FIRST_MS;
		else if (pause == PAUSE_FIRST_MS)
			log_warn("peers", "no connection to controller=%s: %s", x->url, err.message);
		pthread_mutex_lock(&p->lock);
		wait_some(p, NULL, pause);
		pause = pause * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause * 2;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* --- which node is where --- */

static struct peer_link *find_or_add(struct peers *p, const char *url)
{
	size_t n = 0;
	for (struct peer_link *x = p->first; x; x = x->next, n++)
		if (strcmp(x->url, url) == 0)
			return x;
	if (n == PEERS_MAX)
		return NULL;
	struct peer_link *x = xcalloc(1, sizeof(*x));
	x->all = p;
	x->url = xstrdup(url);
	x->calls = caller_link_new(p->o.mail);
	if (pthread_create(&x->thread, NULL, run, x) != 0) {
		log_error("peers", "no thread to dial controller=%s", url);
		caller_link_free(x->calls);
		free(x->url);
		free(x);
		return NULL;
	}
	x->next = p->first; /* in front: the loop may be on its way along the others */
	p->first = x;
	return x;
}

static void do_place(void *arg)
{
	struct placed *a = arg;
	for (struct peer_link *x = a->first; x; x = x->next)
		peer_forget(x, a->node);
	if (a->at) {
		a->at->nodes = xrealloc(a->at->nodes, a->at->n_nodes + 1, sizeof(struct remote_node *));
		a->at->nodes[a->at->n_nodes++] = a->node;
	}
	remote_node_via(a->node, a->at && a->at->conn ? muxconn_mux(a->at->conn) : NULL);
	free(a);
}

/* Of one node with a link; the thread that looks. */
static void on_place(void *ctx, const struct id *node, const char *name, const char *url)
{
	struct peers *p = ctx;
	bool elsewhere = *url && strcmp(url, p->o.config->peers_url) != 0;
	const char *known = idmap_get(&p->places, node);
	if (strcmp(known ? known : "", elsewhere ? url : "") == 0)
		return;
	struct peer_link *at = elsewhere ? find_or_add(p, url) : NULL;
	if (elsewhere && !at)
		return;
	struct placed *a = xcalloc(1, sizeof(*a));
	*a = (struct placed){ .node = remote_node_get(p->o.links, node, name), .at = at, .first = p->first };
	free(elsewhere ? idmap_put(&p->places, node, xstrdup(url)) : idmap_remove(&p->places, node));
	mailbox_post(p->o.mail, do_place, a);
}

static void *look(void *arg)
{
	struct peers *p = arg;
	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		struct error err = ERROR_INIT;
		pthread_mutex_unlock(&p->lock);
		if (controller_link_places(p->o.controller, on_place, p, &err) != 0)
			log_debug("peers", "where links are is not known: %s", err.message);
		pthread_mutex_lock(&p->lock);
		wait_some(p, NULL, LOOK_MS);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* --- life --- */

int peers_start(const struct peers_options *o, struct peers **ret, struct error *err)
{
	struct peers *p = xcalloc(1, sizeof(*p));
	pthread_condattr_t attr;
	p->o = *o;
	p->secret = xstrdup(o->secret);
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	p->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	errno = p->interrupt_fd < 0 ? errno : pthread_create(&p->thread, NULL, look, p);
	p->started = p->interrupt_fd >= 0 && errno == 0;
	if (!p->started) {
		error_errno(err, "starting the thread that looks for other controllers");
		peers_free(p);
		return -1;
	}
	peers_listen(p);
	*ret = p;
	return 0;
}

void peers_stop(struct peers *p)
{
	uint64_t one = 1;
	if (!p || !p->started)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (write(p->interrupt_fd, &one, sizeof(one)) < 0)
		log_warn("peers", "interrupting the dialling: %m");
	pthread_join(p->thread, NULL);
	for (struct peer_link *x = p->first; x; x = x->next) {
		mailbox_post(p->o.mail, do_close, x);
		pthread_join(x->thread, NULL);
	}
	peers_deafen(p);
	p->started = false;
}

void peers_free(struct peers *p)
{
	if (!p)
		return;
	peers_hang_up(p);
	for (struct peer_link *x = p->first, *next; x; x = next) {
		next = x->next;
		if (x->conn)
			muxconn_drop(x->conn, "the daemon stops");
		mailbox_drain(p->o.mail);
		caller_link_free(x->calls);
		free(x->nodes);
		free(x->url);
		free(x);
	}
	size_t n = p->places.len;
	auto_free void **urls = idmap_values(&p->places);
	for (size_t i = 0; i < n; i++)
		free(urls[i]);
	idmap_done(&p->places);
	close_fdp(&p->interrupt_fd);
	explicit_bzero(p->secret, strlen(p->secret));
	free(p->secret);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
