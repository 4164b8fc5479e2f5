/*
 * Edges of other processes: see edge_server.h. A thread of its own tells them the routes; an edge that does not confirm in time what was
 * removed loses all its connections, so that a stuck one cannot keep a route alive.
 */
#include "daemon/edge_server.h"

#include "daemon/api/peer.h"
#include "daemon/controller/tunnels.h"
#include "daemon/edge/wire.h"
#include "daemon/inbound.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PEERS_MAX = 16, BACKLOG = 32, FIRST_LINE_MS = 5000, CONFIRM_MS = 2000, RETRY_MS = 500 };

/* A connection whose first line has not come, or one that is told routes. Only the thread changes the list. */
struct peer_conn {
	struct peer_conn *next;
	int fd;
	pid_t pid;
	int64_t since_ms;
	bool routes;
	bool end; /* it goes on the thread's next turn */
	uint64_t sent, have;
	struct edge_about about; /* no version: it has not said */
	struct buf in, out;
};

/* A connection that the gate serves, by a second descriptor of it. */
struct way {
	struct edge_server *s;
	struct way *next;
	int fd;
	pid_t pid;
};

struct edge_server {
	struct controller *controller;
	struct gate *gate;
	char *path;
	int listener, wakeup;
	pthread_t thread;
	bool running;
	atomic_bool stop;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t confirmed;
	uint64_t generation;
	struct peer_conn *peers;
	size_t n_peers;
	struct way *ways;
};

static void wake(struct edge_server *s)
{
	if (write(s->wakeup, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0 && errno != EAGAIN)
		log_error("edge", "waking up failed: %m");
}

/* --- under the lock --- */

static void cut_ways(struct edge_server *s, pid_t pid)
{
	for (struct way *w = s->ways; w; w = w->next)
		if (w->pid == pid)
			shutdown(w->fd, SHUT_RDWR);
}

static bool told(const struct edge_server *s, pid_t pid)
{
	for (const struct peer_conn *p = s->peers; p; p = p->next)
		if (p->routes && !p->end && p->pid == pid)
			return true;
	return false;
}

static void end_peer(struct edge_server *s, struct peer_conn *p)
{
	p->end = true;
	if (p->routes && !told(s, p->pid))
		cut_ways(s, p->pid);
	pthread_cond_broadcast(&s->confirmed);
}

static bool all_have(const struct edge_server *s, uint64_t generation)
{
	for (const struct peer_conn *p = s->peers; p; p = p->next)
		if (p->routes && !p->end && p->have < generation)
			return false;
	return true;
}

/* --- streams --- */

static void way_gone(void *ctx)
{
	struct way *w = ctx;
	struct edge_server *s = w->s;
	pthread_mutex_lock(&s->lock);
	struct way **at = &s->ways;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	pthread_mutex_unlock(&s->lock);
	close(w->fd);
	free(w);
}

/* Only an edge that is told routes gets a way to what they name. */
static void serve_streams(struct edge_server *s, struct peer_conn *p)
{
	struct caller who = { .role = ROLE_VIEWER, .edge = true, .who = "edge", .from = "edge" };
	int twin = told(s, p->pid) ? fcntl(p->fd, F_DUPFD_CLOEXEC, 3) : -1;
	p->end = true;
	if (twin < 0)
		return;
	struct way *w = xcalloc(1, sizeof(*w));
	*w = (struct way){ .s = s, .next = s->ways, .fd = twin, .pid = p->pid };
	s->ways = w;
	gate_serve(s->gate, &who, steal_fd(&p->fd), p->in.data, p->in.len, way_gone, w);
}

/* --- routes --- */

static void add_route(void *ctx, const struct tunnel_route *t)
{
	struct edge_route r = edge_route_of(t);
	edge_wire_add_route(ctx, &r);
}

/* -1: not now. */
static int tell(struct edge_server *s, struct peer_conn *p)
{
	struct error err = ERROR_INIT;
	pthread_mutex_lock(&s->lock);
	uint64_t generation = s->generation;
	pthread_mutex_unlock(&s->lock);
	/* What changes from here on is another generation: it is told again. */
	buf_addf(&p->out, "table %llu\n", (unsigned long long)generation);
	if (controller_routes(s->controller, add_route, &p->out, &err) != 0) {
		log_warn("edge", "the routes could not be read: %s", err.message);
		buf_reset(&p->out);
		return -1;
	}
	buf_addf(&p->out, "end %llu\n", (unsigned long long)generation);
	p->sent = generation;
	return 0;
}

/* Under the lock. False: the connection is of no use. */
static bool take_line(struct edge_server *s, struct peer_conn *p, const char *line)
{
	uint64_t have;
	if (!p->routes && strcmp(line, EDGE_WIRE_STREAMS) == 0) {
		serve_streams(s, p);
		return true;
	}
	if (!p->routes && strcmp(line, EDGE_WIRE_ROUTES) == 0) {
		p->routes = true;
		log_info("edge", "an edge of its own process is connected pid=%d", (int)p->pid);
		return true;
	}
	if (p->routes && edge_wire_about(line, &p->about) == 0)
		return true;
	if (!p->routes || edge_wire_number(line, "have", &have) != 0 || have > p->sent)
		return false;
	p->have = have;
	pthread_cond_broadcast(&s->confirmed);
	return true;
}

static bool take_input(struct edge_server *s, struct peer_conn *p)
{
	char piece[EDGE_WIRE_LINE_MAX];
	ssize_t n = recv(p->fd, piece, sizeof(piece), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0)
		return false;
	buf_add(&p->in, piece, (size_t)n);
	bool good = true;
	for (char *line; good && !p->end && (line = edge_wire_line(&p->in)); free(line))
		good = take_line(s, p, line);
	return good && (p->end || p->in.len < EDGE_WIRE_LINE_MAX);
}

static bool give_output(struct peer_conn *p)
{
	ssize_t n = send(p->fd, p->out.data, p->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	buf_consume(&p->out, (size_t)n);
	return true;
}

/* --- the thread --- */

static void free_peer(struct peer_conn *p)
{
	close_fdp(&p->fd);
	buf_done(&p->in);
	buf_done(&p->out);
	free(p);
}

static void accept_peer(struct edge_server *s)
{
	struct error err = ERROR_INIT;
	struct peer who;
	auto_close int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 || s->n_peers == PEERS_MAX || io_peer(fd, &who, &err) != 0)
		return;
	struct peer_conn *p = xcalloc(1, sizeof(*p));
	p->fd = steal_fd(&fd);
	p->pid = who.pid;
	p->since_ms = clock_mono_ms();
	pthread_mutex_lock(&s->lock);
	p->next = s->peers;
	s->peers = p;
	s->n_peers++;
	pthread_mutex_unlock(&s->lock);
}

static void sweep(struct edge_server *s)
{
	pthread_mutex_lock(&s->lock);
	for (struct peer_conn **at = &s->peers; *at;) {
		struct peer_conn *p = *at;
		if (!p->end && !p->routes && clock_mono_ms() - p->since_ms > FIRST_LINE_MS)
			end_peer(s, p);
		if (!p->end) {
			at = &p->next;
			continue;
		}
		if (p->routes)
			log_info("edge", "the edge is gone pid=%d", (int)p->pid);
		*at = p->next;
		s->n_peers--;
		free_peer(p);
	}
	pthread_mutex_unlock(&s->lock);
}

/* What a peer's descriptor is ready for. */
static void attend(struct edge_server *s, struct peer_conn *p, short events)
{
	pthread_mutex_lock(&s->lock);
	bool good = (events & ~(POLLIN | POLLOUT)) == 0 || events & POLLIN;
	if (good && events & POLLIN)
		good = take_input(s, p);
	if (good && !p->end && p->out.len > 0)
		good = give_output(p);
	if (!good)
		end_peer(s, p);
	pthread_mutex_unlock(&s->lock);
}

static bool behind(struct edge_server *s, const struct peer_conn *p)
{
	pthread_mutex_lock(&s->lock);
	bool yes = p->routes && !p->end && p->out.len == 0 && p->sent < s->generation;
	pthread_mutex_unlock(&s->lock);
	return yes;
}

static void turn(struct edge_server *s)
{
	struct pollfd fds[PEERS_MAX + 2] = { { .fd = s->listener, .events = POLLIN }, { .fd = s->wakeup, .events = POLLIN } };
	struct peer_conn *of[PEERS_MAX + 2];
	nfds_t n = 2;
	int wait = -1;
	for (struct peer_conn *p = s->peers; p; p = p->next) {
		if (behind(s, p) && tell(s, p) != 0)
			wait = RETRY_MS;
		if (!p->routes)
			wait = RETRY_MS;
		of[n] = p;
		fds[n++] = (struct pollfd){ .fd = p->fd, .events = (short)(POLLIN | (p->out.len > 0 ? POLLOUT : 0)) };
	}
	poll(fds, n, wait);
	uint64_t woken;
	if (fds[1].revents && read(s->wakeup, &woken, sizeof(woken)) < 0 && errno != EAGAIN)
		log_error("edge", "reading the wake-up failed: %m");
	for (nfds_t i = 2; i < n; i++)
		if (fds[i].revents)
			attend(s, of[i], fds[i].revents);
	sweep(s);
	if (fds[0].revents)
		accept_peer(s);
}

static void *thread(void *arg)
{
	struct edge_server *s = arg;
	while (!atomic_load(&s->stop))
		turn(s);
	return NULL;
}

/* --- for others --- */

void edge_server_changed(struct edge_server *s)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CONFIRM_MS / 1000;
	pthread_mutex_lock(&s->lock);
	uint64_t generation = ++s->generation;
	wake(s);
	while (!all_have(s, generation) && pthread_cond_timedwait(&s->confirmed, &s->lock, &until) != ETIMEDOUT)
		continue;
	for (struct peer_conn *p = s->peers; p; p = p->next) {
		if (!p->routes || p->end || p->have >= generation)
			continue;
		log_warn("edge", "the edge does not confirm its routes: it is cut off pid=%d", (int)p->pid);
		end_peer(s, p);
		wake(s);
	}
	pthread_mutex_unlock(&s->lock);
}

void edge_server_each(struct edge_server *s, edge_peer_fn fn, void *ctx)
{
	pthread_mutex_lock(&s->lock);
	for (const struct peer_conn *p = s->peers; p; p = p->next)
		if (p->routes && !p->end)
			fn(ctx, &(struct edge_peer){ .pid = p->pid, .current = p->have >= s->generation, .about = p->about });
	pthread_mutex_unlock(&s->lock);
}

static int listen_at(struct edge_server *s, const char *group, struct error *err)
{
	gid_t gid;
	s->listener = io_listen_unix(s->path, 0600, BACKLOG, err);
	if (s->listener < 0)
		return error_wrap(err, "edge.link");
	io_set_nonblock(s->listener, true);
	if (peer_group_id(group, &gid) != 0)
		return 0;
	if (chown(s->path, (uid_t)-1, gid) != 0 || chmod(s->path, 0660) != 0)
		log_warn("edge", "the group %s cannot use %s: %m; make this daemon's user a member of it", group, s->path);
	return 0;
}

static void server_free(struct edge_server *s)
{
	close_fdp(&s->listener);
	close_fdp(&s->wakeup);
	while (s->peers) {
		struct peer_conn *p = s->peers;
		s->peers = p->next;
		free_peer(p);
	}
	pthread_cond_destroy(&s->confirmed);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

int edge_server_start(const char *path, const char *group, struct controller *c, struct gate *g, struct edge_server **ret, struct error *err)
{
	struct edge_server *s = xcalloc(1, sizeof(*s));
	pthread_condattr_t attr;
	*s = (struct edge_server){ .controller = c, .gate = g, .path = xstrdup(path), .listener = -1, .generation = 1,
				   .wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->confirmed, &attr);
	pthread_condattr_destroy(&attr);
	int rc = s->wakeup < 0 ? error_errno(err, "making an eventfd") : listen_at(s, group, err);
	if (rc == 0 && (errno = pthread_create(&s->thread, NULL, thread, s)) != 0)
		rc = error_errno(err, "starting the thread that tells edges their routes");
	if (rc != 0) {
		server_free(s);
		return -1;
	}
	s->running = true;
	*ret = s;
	return 0;
}

/* Ways that are still open tell this server when they end: the gate has to drop them before it is freed. */
static void wait_for_ways(struct edge_server *s)
{
	for (bool left = true; left;) {
		pthread_mutex_lock(&s->lock);
		for (struct way *w = s->ways; w; w = w->next)
			shutdown(w->fd, SHUT_RDWR);
		left = s->ways != NULL;
		pthread_mutex_unlock(&s->lock);
		if (left)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

void edge_server_stop(struct edge_server *s)
{
	if (!s)
		return;
	atomic_store(&s->stop, true);
	wake(s);
	pthread_join(s->thread, NULL);
	unlink(s->path);
	wait_for_ways(s);
	server_free(s);
}
