/* The API server: listeners, threads for slow work, stopping. Requests are taken apart in dispatch.c. */
#include "daemon/api/server.h"

#include "daemon/api/dispatch.h"
#include "daemon/api/stream.h"
#include "daemon/api/wait.h"
#include "daemon/config.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POOL = 2, IDLE_SECONDS = 120, SERVER_STACK = 256 * 1024, JOB_STACK = 512 * 1024, BACKLOG = 1024, TRIM_AFTER = 64 };

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
	api_set_profile(a, o->config->policy_profile);
	return a;
}

__attribute__((format(printf, 2, 0))) static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
	(void)cls;
	char text[512];
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http", "%s", text);
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
	struct MHD_OptionItem options[] = {
		{ MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_mhd_log, NULL },
		{ MHD_OPTION_LISTEN_SOCKET, l->fd, NULL },
		{ MHD_OPTION_THREAD_POOL_SIZE, POOL, NULL },
		{ MHD_OPTION_THREAD_STACK_SIZE, SERVER_STACK, NULL },
		{ MHD_OPTION_CONNECTION_MEMORY_LIMIT, LIMIT_HTTP_HEAD_MAX, NULL },
		{ MHD_OPTION_CONNECTION_LIMIT, LIMIT_HTTP_CONNECTIONS_MAX, NULL },
		{ MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, NULL },
		{ MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)dispatch_completed, l },
		{ MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, l },
		{ MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)dispatch_begin, l },
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

int api_socket_free(const char *path, struct error *err)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, ERR_CONFLICT, "%s exists and is no socket; remove it or set daemon.socket", path);
	auto_close int fd = io_connect_unix(path, NULL);
	if (fd >= 0)
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

struct loopback {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} addr;
	socklen_t len;
};

static int loopback_parse(const char *address, struct loopback *ret, struct error *err)
{
	*ret = (struct loopback){ .len = 0 };
	const char *colon = strrchr(address, ':');
	size_t host = colon ? (size_t)(colon - address) : 0;
	int64_t port;
	if (!colon || parse_i64("daemon.listen port", colon + 1, 0, 65535, &port, err) != 0)
		return error_set(err, ERR_INVALID, "daemon.listen wants ADDRESS:PORT, not '%s'", address);
	if (host == 5 && strncmp(address, "[::1]", 5) == 0) {
		ret->addr.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
		ret->len = sizeof(ret->addr.v6);
		return 0;
	}
	char text[INET_ADDRSTRLEN] = "127.0.0.1";
	if (!(host == 9 && strncmp(address, "localhost", 9) == 0) && host < sizeof(text))
		snprintf(text, sizeof(text), "%.*s", (int)host, address);
	struct in_addr v4;
	if (host >= sizeof(text) || inet_pton(AF_INET, text, &v4) != 1 || (ntohl(v4.s_addr) >> 24) != 127)
		return error_set(err, ERR_INVALID, "daemon.listen takes loopback addresses only (127.0.0.1, [::1] or localhost), not '%s'", address);
	ret->addr.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = v4 };
	ret->len = sizeof(ret->addr.v4);
	return 0;
}

static int listen_tcp(const char *address, uint16_t *ret_port, struct error *err)
{
	struct loopback to;
	if (loopback_parse(address, &to, err) != 0)
		return -1;
	auto_close int fd = socket(to.addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 || bind(fd, &to.addr.any, to.len) != 0 ||
	    listen(fd, BACKLOG) != 0 || getsockname(fd, &to.addr.any, &to.len) != 0)
		return error_errno(err, "listening on %s", address);
	*ret_port = ntohs(to.addr.any.sa_family == AF_INET ? to.addr.v4.sin_port : to.addr.v6.sin6_port);
	return steal_fd(&fd);
}

int api_listen_tcp(struct api *a, const char *address, uint16_t *ret_port, struct error *err)
{
	struct listener *l = slot(a, true);
	l->fd = listen_tcp(address, &l->port, err);
	if (l->fd < 0)
		return -1;
	if (start(l, err) != 0) {
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

void api_set_profile(struct api *a, const char *profile)
{
	pthread_mutex_lock(&a->lock);
	snprintf(a->profile, sizeof(a->profile), "%s", profile);
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
		MHD_quiesce_daemon(a->listeners[i].mhd);
		listener_close(&a->listeners[i]);
	}
	pthread_mutex_lock(&a->lock);
	a->stopping = true;
	pthread_mutex_unlock(&a->lock);
	wait_wake_all(a);
	stream_abort_all(a);
	/* The HTTP library may not be stopped with suspended connections. */
	if (!wait_zero(a, &a->suspended, deadline_us))
		return false;
	for (size_t i = 0; i < a->n_listeners; i++)
		MHD_stop_daemon(a->listeners[i].mhd);
	a->n_listeners = 0;
	return wait_zero(a, &a->jobs, deadline_us);
}

void api_free(struct api *a)
{
	if (!a)
		return;
	pthread_cond_destroy(&a->idle);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
