/*
 * An edge on its own: see edge_process.h. A thread follows the daemon's routes and dials again when it was lost; meanwhile requests get 503,
 * since every way to a sandbox leads through the daemon.
 */
#include "daemon/edge_process.h"

#include "daemon/edge/wire.h"
#include "daemon/inbound.h"
#include "daemon/process.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRY_MS = 200, WAIT_MS = 50, ABOUT_MS = 1000, READ_MAX = 64 * 1024 };

struct table {
	struct edge_route *items;
	size_t len, room;
};

struct process {
	const char *path;
	pthread_t thread;
	bool running;
	int stop; /* readable: end */
	pthread_mutex_t lock; /* guards what follows */
	struct table table;
	bool known; /* a whole table came */
	struct edge *edge;
};

static void table_add(struct table *t, const struct edge_route *r)
{
	if (t->len == t->room) {
		t->room = t->room ? t->room * 2 : 64;
		t->items = xrealloc(t->items, t->room, sizeof(*t->items));
	}
	t->items[t->len++] = *r;
}

/* --- for the edge --- */

static int routes(void *ctx, edge_route_fn add, void *add_ctx, struct error *err)
{
	struct process *p = ctx;
	(void)err;
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->table.len; i++)
		add(add_ctx, &p->table.items[i]);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static int dial(const char *path, const char *what, struct error *err)
{
	auto_close int fd = io_connect_unix(path, err);
	char line[32];
	if (fd < 0)
		return -1;
	int n = snprintf(line, sizeof(line), "%s\n", what);
	if (io_write_full(fd, line, (size_t)n) != 0)
		return error_errno(err, "writing to %s", path);
	return steal_fd(&fd);
}

static int connect_daemon(void *ctx, int *ret_fd, struct error *err)
{
	struct process *p = ctx;
	*ret_fd = dial(p->path, EDGE_WIRE_STREAMS, err);
	return *ret_fd < 0 ? -1 : 0;
}

/* --- following the routes --- */

/* The table is whole: it is in force before the daemon hears so. */
static bool take_table(struct process *p, struct table *take, uint64_t generation, int fd)
{
	char line[48];
	pthread_mutex_lock(&p->lock);
	free(p->table.items);
	p->table = *take;
	p->known = true;
	if (p->edge)
		edge_changed(p->edge);
	pthread_mutex_unlock(&p->lock);
	*take = (struct table){ .len = 0 };
	int n = snprintf(line, sizeof(line), "have %llu\n", (unsigned long long)generation);
	return io_write_full(fd, line, (size_t)n) == 0;
}

static bool take_line(struct process *p, struct table *t, const char *line, int fd)
{
	struct edge_route r;
	uint64_t generation;
	if (edge_wire_number(line, "table", &generation) == 0) {
		t->len = 0;
		return true;
	}
	if (edge_wire_number(line, "end", &generation) == 0)
		return take_table(p, t, generation, fd);
	if (edge_wire_route(line, &r) != 0)
		return false;
	table_add(t, &r);
	return true;
}

static bool take_lines(struct process *p, struct table *t, struct buf *in, int fd)
{
	size_t done = 0;
	bool good = true;
	for (char *end; good && done < in->len && (end = memchr(in->data + done, '\n', in->len - done)); done = (size_t)(end - in->data) + 1) {
		*end = '\0';
		good = take_line(p, t, in->data + done, fd);
	}
	buf_consume(in, done);
	return good && in->len < EDGE_WIRE_LINE_MAX;
}

static bool tell_about(struct process *p, int fd)
{
	struct edge_about a = { .version = SANDBOX_VERSION };
	auto_buf line = BUF_INIT;
	pthread_mutex_lock(&p->lock);
	if (p->edge)
		edge_stats(p->edge, &a.stats);
	pthread_mutex_unlock(&p->lock);
	edge_wire_add_about(&line, &a);
	return io_write_full(fd, line.data, line.len) == 0;
}

/* Until the daemon goes, or this process shall. */
static const char *follow(struct process *p, int fd)
{
	struct table t = { .len = 0 };
	auto_buf in = BUF_INIT;
	auto_free char *piece = xmalloc(READ_MAX);
	const char *why = NULL;
	int64_t told_ms = clock_mono_ms() - ABOUT_MS;
	while (!why) {
		struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = p->stop, .events = POLLIN } };
		if (clock_mono_ms() - told_ms >= ABOUT_MS) {
			told_ms = clock_mono_ms();
			tell_about(p, fd); /* what fails here is seen by the read */
		}
		poll(fds, ARRAY_LEN(fds), ABOUT_MS);
		ssize_t n = fds[1].revents ? 0 : recv(fd, piece, READ_MAX, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		buf_add(&in, piece, n > 0 ? (size_t)n : 0);
		if (n <= 0)
			why = "it closed the connection";
		else if (!take_lines(p, &t, &in, fd))
			why = "it says what this version does not know: both must be of one version";
	}
	free(t.items);
	return why;
}

static bool stopped(const struct process *p, int wait_ms)
{
	return poll(&(struct pollfd){ .fd = p->stop, .events = POLLIN }, 1, wait_ms) > 0;
}

static void *thread(void *arg)
{
	struct process *p = arg;
	bool said = false;
	while (!stopped(p, 0)) {
		struct error err = ERROR_INIT;
		auto_close int fd = dial(p->path, EDGE_WIRE_ROUTES, &err);
		const char *why = err.message;
		if (fd >= 0) {
			log_info("edge", "connected to the daemon at %s", p->path);
			said = false;
			why = follow(p, fd);
		}
		if (!stopped(p, 0) && !said)
			log_warn("edge", "no daemon at %s: %s", p->path, why);
		said = true;
		stopped(p, RETRY_MS);
	}
	return NULL;
}

/* --- the process --- */

static bool known(struct process *p)
{
	pthread_mutex_lock(&p->lock);
	bool yes = p->known;
	pthread_mutex_unlock(&p->lock);
	return yes;
}

static void set_edge(struct process *p, struct edge *e)
{
	pthread_mutex_lock(&p->lock);
	p->edge = e;
	if (e)
		edge_changed(e);
	pthread_mutex_unlock(&p->lock);
}

/* Nobody is served before it is known what there is: a name would be told to be nobody's. */
static int serve(struct process *p, const struct daemon_config *config, void (*ready)(void *ctx), void *ctx, struct error *err)
{
	struct edge_options o = inbound_edge_options(config);
	struct edge *e;
	o.routes = routes;
	o.connect = connect_daemon;
	o.ctx = p;
	while (!known(p))
		if (!process_pause(WAIT_MS))
			return 0;
	if (edge_start(&o, &e, err) != 0)
		return -1;
	set_edge(p, e);
	log_info("edge", "serving %s://NAME.%s on %s", o.scheme, o.domain, o.listen);
	ready(ctx);
	while (process_wait_signal() == SIGHUP)
		log_info("edge", "the role edge reads its configuration at its start only");
	process_notify("STOPPING=1");
	set_edge(p, NULL);
	edge_stop(e);
	return 0;
}

int edge_process_run(const struct daemon_config *config, void (*ready)(void *ctx), void *ctx, struct error *err)
{
	struct process p = { .path = config->edge_link, .stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .lock = PTHREAD_MUTEX_INITIALIZER };
	if (p.stop < 0)
		return error_errno(err, "making an eventfd");
	int rc = 0;
	if ((errno = pthread_create(&p.thread, NULL, thread, &p)) != 0)
		rc = error_errno(err, "starting the thread that follows the routes");
	else
		p.running = true;
	if (rc == 0)
		rc = serve(&p, config, ready, ctx, err);
	if (write(p.stop, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0)
		log_error("edge", "stopping: %m");
	if (p.running)
		pthread_join(p.thread, NULL);
	close(p.stop);
	free(p.table.items);
	return rc;
}
