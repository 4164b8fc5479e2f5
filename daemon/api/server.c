/* The API server: listeners, threads for slow work, stopping. Requests are taken apart in dispatch.c. */
#include "daemon/api/server.h"

#include "daemon/api/carrier.h"
#include "daemon/api/dispatch.h"
#include "daemon/api/front.h"
#include "daemon/api/stream.h"
#include "daemon/api/wait.h"
#include "daemon/api/wsbridge.h"
#include "daemon/config.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 2, IDLE_SECONDS = 120, SERVER_STACK = 256 * 1024, JOB_STACK = 512 * 1024, BACKLOG = 1024, TRIM_AFTER = 64, DRAIN_MS = 100 };
enum { NO_DESCRIPTOR_WARN_MS = 10 * 1000, NO_DESCRIPTOR_PAUSE_MS = 20 };
enum { HOLDER_ENDS_MS = 10 * 1000, HOLDER_POLL_US = 10 * 1000 };

static int read_config(struct api *a, struct error *err)
{
	const struct daemon_config *c = a->o.config;
	struct origins fresh;
	if (origins_parse(c->trusted_proxies ? c->trusted_proxies : "", c->hosts ? c->hosts : "", &fresh, err) != 0)
		return -1;
	pthread_mutex_lock(&a->lock);
	snprintf(a->profile, sizeof(a->profile), "%s", c->policy_profile);
	struct origins old = a->origins;
	a->origins = fresh;
	pthread_mutex_unlock(&a->lock);
	origins_done(&old);
	return 0;
}

struct api *api_new(const struct api_options *o)
{
	struct api *a = xcalloc(1, sizeof(*a));
	a->o = *o;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->idle, &attr);
	pthread_condattr_destroy(&attr);
	a->events = events_new(o);
	if (read_config(a, NULL) != 0)
		log_warn("api", "trusted proxies and hosts are not usable");
	return a;
}

/* A thread of the pool that has no connection and can accept none tries again at once, for ever. It waits here instead. */
static void wait_for_descriptors(void)
{
	static _Atomic int64_t next_ms;
	int64_t now = clock_mono_ms(), due = next_ms;
	if (now >= due && atomic_compare_exchange_strong(&next_ms, &due, now + NO_DESCRIPTOR_WARN_MS))
		log_warn("api", "no descriptor is left for a connection: raise the limit of open files (LimitNOFILE of the service)");
	nanosleep(&(struct timespec){ .tv_nsec = NO_DESCRIPTOR_PAUSE_MS * 1000 * 1000 }, NULL);
}

__attribute__((format(printf, 2, 0))) static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
	(void)cls;
	char text[512];
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	/* A connection from the TLS front is a unix socket, which knows no such option. */
	if (!strstr(text, "TCP_CORK") && !strstr(text, "TCP_NODELAY"))
		log_debug("http", "%s", text);
	if (strstr(text, "busy waiting"))
		wait_for_descriptors();
}

static void on_quiet(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
	malloc_trim(0);
}

/* The memory of a thousand connections lies scattered after they are gone; the allocator gives it back only when asked. */
static void on_connection(void *cls, struct MHD_Connection *conn, void **context, enum MHD_ConnectionNotificationCode what)
{
	(void)conn;
	(void)context;
	struct api *a = ((struct listener *)cls)->api;
	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		unsigned n = atomic_fetch_add(&a->connections, 1) + 1;
		if (n >= TRIM_AFTER)
			atomic_store(&a->crowded, true);
	} else if (atomic_fetch_sub(&a->connections, 1) == 1 && atomic_exchange(&a->crowded, false) && a->o.base) {
		event_base_once(a->o.base, -1, EV_TIMEOUT, on_quiet, NULL, &(struct timeval){ .tv_sec = 1 });
	}
}

static int start(struct listener *l, struct error *err)
{
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG;
	if (l->fd < 0)
		flags |= MHD_USE_NO_LISTEN_SOCKET;
	struct MHD_OptionItem options[] = {
		{ MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_mhd_log, NULL },
		{ MHD_OPTION_THREAD_POOL_SIZE, POOL, NULL },
		{ MHD_OPTION_THREAD_STACK_SIZE, SERVER_STACK, NULL },
		{ MHD_OPTION_CONNECTION_MEMORY_LIMIT, LIMIT_HTTP_HEAD_MAX, NULL },
		{ MHD_OPTION_CONNECTION_LIMIT, LIMIT_HTTP_CONNECTIONS_MAX, NULL },
		{ MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, NULL },
		{ MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)dispatch_completed, l },
		{ MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, l },
		{ MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)dispatch_begin, l },
		{ l->fd >= 0 ? MHD_OPTION_LISTEN_SOCKET : MHD_OPTION_END, l->fd, NULL },
		{ MHD_OPTION_END, 0, NULL },
	};
	l->mhd = MHD_start_daemon(flags, 0, NULL, NULL, dispatch_access, l, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
	if (!l->mhd)
		return error_set(err, ERR_INTERNAL, "the HTTP server did not start");
	return 0;
}

/* A slot for a listener; counted only once it serves. */
static struct listener *slot(struct api *a, bool tcp)
{
	struct listener *l = &a->listeners[a->n_listeners];
	*l = (struct listener){ .api = a, .tcp = tcp, .fd = -1 };
	return l;
}

static int make_directory(const char *path, struct error *err)
{
	const char *slash = strrchr(path, '/');
	if (!slash || slash == path)
		return 0;
	auto_free char *dir = xstrndup(path, (size_t)(slash - path));
	return io_mkdirs(dir, geteuid() == 0 ? 0755 : 0700, err);
}

/* A daemon that was killed keeps its socket until the last of its threads has left the kernel. */
static bool answers(const char *path)
{
	int64_t until = clock_mono_ms() + HOLDER_ENDS_MS;
	for (;;) {
		struct peer peer;
		auto_close int fd = io_connect_unix(path, NULL);
		if (fd < 0)
			return false;
		if (io_peer(fd, &peer, NULL) != 0 || peer.pid <= 0 || !io_process_ending(peer.pid) ||
		    clock_mono_ms() > until)
			return true;
		usleep(HOLDER_POLL_US);
	}
}

int api_socket_free(const char *path, struct error *err)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, ERR_CONFLICT, "%s exists and is no socket; remove it or set daemon.socket", path);
	if (answers(path))
		return error_set(err, ERR_CONFLICT, "another sandboxd answers on %s; stop it or set daemon.socket", path);
	return 0;
}

int api_listen_unix(struct api *a, const char *path, struct error *err)
{
	struct listener *l = slot(a, false);
	struct stat st;
	if (make_directory(path, err) != 0 || api_socket_free(path, err) != 0)
		return -1;
	/* Root serves several users and asks the kernel who each is; a user's daemon is for that user alone. */
	l->fd = io_listen_unix(path, geteuid() == 0 ? 0666 : 0600, BACKLOG, err);
	if (l->fd < 0)
		return -1;
	if (io_set_nonblock(l->fd, true) != 0 || lstat(path, &st) != 0) {
		error_errno(err, "listening on %s", path);
	} else if (start(l, err) == 0) {
		l->path = xstrdup(path);
		l->dev = st.st_dev;
		l->ino = st.st_ino;
		a->n_listeners++;
		return 0;
	}
	unlink(path);
	close_fdp(&l->fd);
	return -1;
}

static int listen_tcp(const char *text, bool anywhere, struct address *at, struct error *err)
{
	if (address_parse("daemon.listen", text, at, err) != 0)
		return -1;
	if (!anywhere && !address_loopback(at))
		return error_set(err, ERR_INVALID, "daemon.listen: plain HTTP is served on loopback only, not on '%s'", text);
	auto_close int fd = socket(at->sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 || bind(fd, &at->sa.any, at->len) != 0 ||
	    listen(fd, BACKLOG) != 0 || getsockname(fd, &at->sa.any, &at->len) != 0)
		return error_errno(err, "listening on %s", text);
	return steal_fd(&fd);
}

static int start_carrier(struct api *a, struct error *err)
{
	if (a->carrier)
		return 0;
	if (carrier_start(&a->carrier, err) != 0)
		return -1;
	a->bridges = bridges_new(a->carrier);
	return 0;
}

static int on_front(void *ctx, int take_fd, const struct sockaddr *from, socklen_t len)
{
	struct listener *l = ctx;
	return MHD_add_connection(l->mhd, take_fd, from, len) == MHD_YES ? 0 : -1;
}

/* The HTTP library gets plain connections: TLS inside it moves four bytes at a time once a connection is upgraded. */
static int start_front(struct listener *l, struct error *err)
{
	const struct daemon_config *c = l->api->o.config;
	struct front_options o = { .carrier = l->api->carrier, .listen_fd = steal_fd(&l->fd), .cert = c->tls_cert, .key = c->tls_key,
				   .give = on_front, .ctx = l };
	if (start(l, err) != 0) {
		close_fdp(&o.listen_fd);
		return -1;
	}
	if (front_start(&o, &l->front, err) == 0)
		return 0;
	MHD_stop_daemon(l->mhd);
	return -1;
}

int api_listen_tcp(struct api *a, const char *address, uint16_t *ret_port, struct error *err)
{
	struct listener *l = slot(a, true);
	struct address at;
	const struct daemon_config *c = a->o.config;
	bool tls = c->tls_cert && *c->tls_cert;
	l->fd = listen_tcp(address, tls || c->insecure_http, &at, err);
	if (l->fd < 0)
		return -1;
	l->port = ntohs(at.sa.any.sa_family == AF_INET ? at.sa.v4.sin_port : at.sa.v6.sin6_port);
	l->loopback = address_loopback(&at);
	l->tls = tls;
	if (start_carrier(a, err) != 0 || (tls ? start_front(l, err) : start(l, err)) != 0) {
		close_fdp(&l->fd);
		return -1;
	}
	a->n_listeners++;
	if (ret_port)
		*ret_port = l->port;
	return 0;
}

int api_thread(struct api *a, void *(*fn)(void *), void *arg, struct error *err)
{
	pthread_mutex_lock(&a->lock);
	bool stopping = a->stopping, full = a->jobs >= LIMIT_HTTP_JOBS_MAX;
	if (!stopping && !full)
		a->jobs++;
	pthread_mutex_unlock(&a->lock);
	if (stopping)
		return error_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
	if (full)
		return error_set(err, ERR_RATE_LIMITED, "%d slow requests are under way already; try again", LIMIT_HTTP_JOBS_MAX);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, JOB_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_t id;
	int rc = pthread_create(&id, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	if (rc == 0)
		return 0;
	api_thread_end(a);
	errno = rc;
	return error_errno(err, "starting a thread");
}

void api_thread_end(struct api *a)
{
	pthread_mutex_lock(&a->lock);
	if (--a->jobs == 0)
		pthread_cond_broadcast(&a->idle);
	pthread_mutex_unlock(&a->lock);
}

void api_suspended(struct api *a, int change)
{
	pthread_mutex_lock(&a->lock);
	a->suspended = (unsigned)((int)a->suspended + change);
	if (a->suspended == 0)
		pthread_cond_broadcast(&a->idle);
	pthread_mutex_unlock(&a->lock);
}

bool api_stopping(struct api *a)
{
	pthread_mutex_lock(&a->lock);
	bool stopping = a->stopping;
	pthread_mutex_unlock(&a->lock);
	return stopping;
}

int api_reload(struct api *a, struct error *err)
{
	const struct daemon_config *c = a->o.config;
	for (size_t i = 0; i < a->n_listeners; i++)
		if (a->listeners[i].front && front_reload(a->listeners[i].front, c->tls_cert, c->tls_key, err) != 0)
			return -1;
	return read_config(a, err);
}

bool api_refusal_budget(struct api *a)
{
	int64_t second = clock_mono_ms() / 1000;
	pthread_mutex_lock(&a->lock);
	if (a->refusal_second != second) {
		a->refusal_second = second;
		a->refusals = 0;
	}
	bool left = a->refusals < LIMIT_AUDIT_REFUSALS_PER_SECOND;
	a->refusals += left;
	pthread_mutex_unlock(&a->lock);
	return left;
}

bool api_host_allowed(struct api *a, const struct listener *l, const char *host)
{
	pthread_mutex_lock(&a->lock);
	bool allowed = origins_host_allowed(&a->origins, l, host);
	pthread_mutex_unlock(&a->lock);
	return allowed;
}

void api_client_address(struct api *a, const char *peer, const char *forwarded_for, char out[static ADDRESS_TEXT_MAX])
{
	pthread_mutex_lock(&a->lock);
	origins_client(&a->origins, peer, forwarded_for, out);
	pthread_mutex_unlock(&a->lock);
}

void api_profile(struct api *a, char ret[static 32])
{
	pthread_mutex_lock(&a->lock);
	memcpy(ret, a->profile, sizeof(a->profile));
	pthread_mutex_unlock(&a->lock);
}

/* Waits until *count is 0; false when the deadline comes first. */
static bool wait_zero(struct api *a, const unsigned *count, int64_t deadline_us)
{
	struct timespec ts = { .tv_sec = deadline_us / 1000000, .tv_nsec = (deadline_us % 1000000) * 1000 };
	int rc = 0;
	pthread_mutex_lock(&a->lock);
	while (*count && rc == 0)
		rc = pthread_cond_timedwait(&a->idle, &a->lock, &ts);
	bool zero = *count == 0;
	pthread_mutex_unlock(&a->lock);
	return zero;
}

static void listener_close(struct listener *l)
{
	struct stat st;
	if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		unlink(l->path);
	free(l->path);
	l->path = NULL;
	close_fdp(&l->fd);
}

bool api_stop(struct api *a, int64_t timeout_ms)
{
	int64_t deadline_us = clock_mono_us() + timeout_ms * 1000;
	for (size_t i = 0; i < a->n_listeners; i++) {
		if (a->listeners[i].front)
			front_quiesce(a->listeners[i].front);
		else
			MHD_quiesce_daemon(a->listeners[i].mhd);
		listener_close(&a->listeners[i]);
	}
	pthread_mutex_lock(&a->lock);
	a->stopping = true;
	pthread_mutex_unlock(&a->lock);
	wait_wake_all(a);
	stream_abort_all(a);
	events_stop(a->events);
	/* The HTTP library may not be stopped with suspended connections. */
	if (!wait_zero(a, &a->suspended, deadline_us))
		return false;
	for (size_t i = 0; i < a->n_listeners; i++)
		MHD_stop_daemon(a->listeners[i].mhd);
	for (size_t i = 0; i < a->n_listeners; i++)
		if (a->listeners[i].front)
			front_drain(a->listeners[i].front, DRAIN_MS);
	carrier_stop(a->carrier);
	for (size_t i = 0; i < a->n_listeners; i++)
		front_free(a->listeners[i].front);
	a->n_listeners = 0;
	return wait_zero(a, &a->jobs, deadline_us);
}

void api_free(struct api *a)
{
	if (!a)
		return;
	events_free(a->events, a->o.controller);
	pthread_cond_destroy(&a->idle);
	pthread_mutex_destroy(&a->lock);
	origins_done(&a->origins);
	bridges_free(a->bridges);
	carrier_free(a->carrier);
	free(a);
}
