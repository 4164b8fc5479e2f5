/*
 * The TLS front: see front.h. The carrier's thread owns every connection; the pump moves what it can and then waits for exactly
 * what stopped it. Bytes are only kept for a side that does not take them, so an idle connection holds its TLS state alone.
 */
#include "daemon/api/front.h"

#include "daemon/address.h"
#include "daemon/api/carrier.h"
#include "daemon/api/front_tls.h"
#include "shared/base/buf.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/log.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
	PIECE = CARRIER_PIECE,
	ROUNDS_MAX = 8,       /* pieces one connection may move before the others get their turn */
	HANDSHAKE_SECONDS = 10,
	LINGER_SECONDS = 5,   /* to flush after the server closed its end */
	ACCEPT_PAUSE_MS = 100, /* without descriptors */
};

struct front {
	struct front_options o;
	struct event_base *base;
	pthread_mutex_t lock; /* of ctx and quiet */
	SSL_CTX *ctx;
	bool quiet;           /* nothing is given any more */
	struct event *ev_accept, *ev_resume, *ev_quiesce;
	int listen_fd;
	struct conn *conns;
	atomic_uint n_conns;
	unsigned n_handshakes;
	char *scratch; /* the carrier's */
};

struct conn {
	struct front *f;
	struct conn *prev, *next;
	int fd, inner; /* the client's, and our end of the pair; inner -1: handshake */
	SSL *ssl;
	struct address from;
	char host[ADDRESS_TEXT_MAX];
	struct event *ev_fd, *ev_fd_out, *ev_inner, *ev_inner_out, *ev_time;
	struct buf up, down; /* read from one side, not yet taken by the other */
	bool up_end, up_shut; /* the client ended its direction; passed on */
	bool down_end;        /* the server did; conn ends when down is flushed */
	bool read_wants_write, write_wants_read;
	bool dead;
};

static void conn_free(struct conn *c)
{
	struct front *f = c->f;
	if (c->prev)
		c->prev->next = c->next;
	else
		f->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	f->n_conns--;
	if (c->inner < 0)
		f->n_handshakes--;
	struct event *events[] = { c->ev_fd, c->ev_fd_out, c->ev_inner, c->ev_inner_out, c->ev_time };
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	SSL_free(c->ssl);
	close_fdp(&c->fd);
	close_fdp(&c->inner);
	buf_done(&c->up);
	buf_done(&c->down);
	free(c);
}

/* --- the two directions ------------------------------------------------------------------------------------------- */

/* Bytes from the client: > 0, 0 at its end, -1 not now. */
static ssize_t tls_read(struct conn *c, char *p, size_t max)
{
	size_t got = 0;
	c->read_wants_write = false;
	while (got < max) {
		ERR_clear_error();
		int n = SSL_read(c->ssl, p + got, (int)(max - got));
		if (n > 0) {
			got += (size_t)n;
			continue;
		}
		int why = SSL_get_error(c->ssl, n);
		if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
			c->read_wants_write = why == SSL_ERROR_WANT_WRITE;
			return got ? (ssize_t)got : -1;
		}
		c->dead = got == 0 && why == SSL_ERROR_SSL;
		c->up_end = true;
		break;
	}
	return (ssize_t)got;
}

/* True when something moved. */
static bool move_up(struct conn *c)
{
	char *p = c->up.data;
	size_t n = c->up.len;
	bool kept = n > 0;
	if (!kept && !c->up_end) {
		ssize_t got = tls_read(c, c->f->scratch, PIECE);
		if (got < 0 || c->dead)
			return false;
		p = c->f->scratch;
		n = (size_t)got;
	}
	ssize_t put = n ? send(c->inner, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
	if (put < 0 && errno != EAGAIN) {
		/* The server is gone for reading; what it wrote before is still in the pair. */
		c->up_end = c->up_shut = true;
		buf_done(&c->up);
		return true;
	}
	size_t taken = put > 0 ? (size_t)put : 0;
	if (kept)
		buf_consume(&c->up, taken);
	else if (taken < n)
		buf_add(&c->up, p + taken, n - taken);
	if (c->up.len == 0) {
		buf_done(&c->up);
		if (c->up_end && !c->up_shut) {
			c->up_shut = true;
			shutdown(c->inner, SHUT_WR);
		}
	}
	return taken > 0;
}

/* Bytes the client took: >= 0, -1 when it is gone. */
static ssize_t tls_write(struct conn *c, const char *p, size_t n)
{
	size_t put = 0;
	c->write_wants_read = false;
	while (put < n) {
		ERR_clear_error();
		int rc = SSL_write(c->ssl, p + put, (int)(n - put));
		if (rc > 0) {
			put += (size_t)rc;
			continue;
		}
		int why = SSL_get_error(c->ssl, rc);
		if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
			return -1;
		c->write_wants_read = why == SSL_ERROR_WANT_READ;
		break;
	}
	return (ssize_t)put;
}

static bool move_down(struct conn *c)
{
	const char *p = c->down.data;
	size_t n = c->down.len;
	bool kept = n > 0;
	if (!kept && !c->down_end) {
		ssize_t got = recv(c->inner, c->f->scratch, PIECE, MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN)
			return false;
		if (got <= 0) {
			c->down_end = true;
			return true;
		}
		p = c->f->scratch;
		n = (size_t)got;
	}
	if (n == 0)
		return false;
	ssize_t put = tls_write(c, p, n);
	if (put < 0) {
		c->dead = true;
		return false;
	}
	if (kept)
		buf_consume(&c->down, (size_t)put);
	else if ((size_t)put < n)
		buf_add(&c->down, p + put, n - (size_t)put);
	if (c->down.len == 0)
		buf_done(&c->down);
	return put > 0;
}

/* --- waiting -------------------------------------------------------------------------------------------------------- */

static void want(struct event *e, bool on)
{
	if (on)
		event_add(e, NULL);
	else
		event_del(e);
}

static void wait_for_more(struct conn *c)
{
	bool up_room = c->up.len == 0 && !c->up_end;
	want(c->ev_fd, up_room || c->write_wants_read);
	want(c->ev_fd_out, c->down.len > 0 || c->read_wants_write);
	want(c->ev_inner, c->down.len == 0 && !c->down_end);
	want(c->ev_inner_out, c->up.len > 0);
}

static void say_goodbye(struct conn *c)
{
	ERR_clear_error();
	SSL_shutdown(c->ssl);
	shutdown(c->fd, SHUT_WR);
}

static void pump(struct conn *c)
{
	bool moved = true;
	for (int round = 0; moved && round < ROUNDS_MAX && !c->dead; round++) {
		moved = move_up(c);
		moved = (!c->dead && move_down(c)) || moved;
	}
	if (c->dead) {
		conn_free(c);
		return;
	}
	if (c->down_end && c->down.len == 0) {
		say_goodbye(c);
		conn_free(c);
		return;
	}
	if (c->down_end && !evtimer_pending(c->ev_time, NULL))
		evtimer_add(c->ev_time, &(struct timeval){ .tv_sec = LINGER_SECONDS });
	wait_for_more(c);
	/* What OpenSSL has already taken from the socket wakes nobody. */
	if (moved || (c->up.len == 0 && SSL_pending(c->ssl) > 0))
		event_active(c->ev_fd, EV_READ, 0);
}

static void on_inner(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	pump(ctx);
}

static void on_time(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	(void)fd;
	(void)what;
	if (c->inner < 0)
		log_debug("tls", "no handshake from %s within %d s", c->host, HANDSHAKE_SECONDS);
	conn_free(c);
}

/* --- handshake ------------------------------------------------------------------------------------------------------ */

static int hand_over(struct conn *c)
{
	struct front *f = c->f;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
		log_warn("tls", "no socket pair for a connection: %m");
		return -1;
	}
	c->inner = pair[0];
	f->n_handshakes--;
	c->ev_inner = event_new(f->base, c->inner, EV_READ, on_inner, c);
	c->ev_inner_out = event_new(f->base, c->inner, EV_WRITE, on_inner, c);
	if (!c->ev_inner || !c->ev_inner_out)
		abort();
	pthread_mutex_lock(&f->lock);
	int rc = -1;
	if (f->quiet)
		close(pair[1]);
	else
		rc = f->o.give(f->o.ctx, pair[1], &c->from.sa.any, c->from.len);
	pthread_mutex_unlock(&f->lock);
	return rc;
}

static void shake(struct conn *c)
{
	char why[256];
	ERR_clear_error();
	int rc = SSL_accept(c->ssl);
	if (rc == 1) {
		evtimer_del(c->ev_time);
		if (hand_over(c) != 0)
			conn_free(c);
		else
			pump(c);
		return;
	}
	int want_what = SSL_get_error(c->ssl, rc);
	if (want_what == SSL_ERROR_WANT_READ || want_what == SSL_ERROR_WANT_WRITE) {
		want(c->ev_fd, want_what == SSL_ERROR_WANT_READ);
		want(c->ev_fd_out, want_what == SSL_ERROR_WANT_WRITE);
		return;
	}
	log_debug("tls", "handshake with %s failed: %s", c->host, front_tls_reason(why, sizeof(why)));
	conn_free(c);
}

static void on_fd(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	(void)fd;
	(void)what;
	if (c->inner < 0)
		shake(c);
	else
		pump(c);
}

/* --- accepting ------------------------------------------------------------------------------------------------------ */

static unsigned count_of(const struct front *f, const char *host)
{
	unsigned n = 0;
	for (const struct conn *c = f->conns; c; c = c->next)
		n += strcmp(c->host, host) == 0;
	return n;
}

static const char *refusal(const struct front *f, const char *host)
{
	if (f->n_conns >= LIMIT_HTTP_CONNECTIONS_MAX)
		return "HTTP_CONNECTIONS_MAX";
	if (f->n_handshakes >= LIMIT_TLS_HANDSHAKES_MAX)
		return "TLS_HANDSHAKES_MAX";
	return count_of(f, host) >= LIMIT_HTTP_CONNECTIONS_PER_ADDRESS ? "HTTP_CONNECTIONS_PER_ADDRESS" : NULL;
}

static void tune(int fd)
{
	int one = 1, idle = 60, user_ms = 60 * 1000;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* A client whose machine vanished is noticed, also while nothing is to be sent. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

static SSL *new_ssl(struct front *f, int fd)
{
	pthread_mutex_lock(&f->lock);
	SSL *ssl = SSL_new(f->ctx);
	pthread_mutex_unlock(&f->lock);
	if (ssl && SSL_set_fd(ssl, fd) == 1)
		return ssl;
	SSL_free(ssl);
	return NULL;
}

static void welcome(struct front *f, int take_fd, const struct address *from)
{
	auto_close int fd = take_fd;
	char host[ADDRESS_TEXT_MAX];
	address_host(&from->sa.any, host);
	const char *why = refusal(f, host);
	if (why) {
		log_warn("tls", "connection from %s refused: limit %s", host, why);
		return;
	}
	tune(fd);
	SSL *ssl = new_ssl(f, fd);
	if (!ssl)
		return;
	struct conn *c = xcalloc(1, sizeof(*c));
	*c = (struct conn){ .f = f, .fd = steal_fd(&fd), .inner = -1, .ssl = ssl, .from = *from, .next = f->conns };
	memcpy(c->host, host, sizeof(c->host));
	if (c->next)
		c->next->prev = c;
	f->conns = c;
	f->n_conns++;
	f->n_handshakes++;
	c->ev_fd = event_new(f->base, c->fd, EV_READ, on_fd, c);
	c->ev_fd_out = event_new(f->base, c->fd, EV_WRITE, on_fd, c);
	c->ev_time = evtimer_new(f->base, on_time, c);
	if (!c->ev_fd || !c->ev_fd_out || !c->ev_time)
		abort();
	evtimer_add(c->ev_time, &(struct timeval){ .tv_sec = HANDSHAKE_SECONDS });
	event_add(c->ev_fd, NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *ctx)
{
	struct front *f = ctx;
	(void)what;
	for (int i = 0; i < 64; i++) {
		struct address from = { .len = sizeof(from.sa) };
		int got = accept4(fd, &from.sa.any, &from.len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (got >= 0) {
			welcome(f, got, &from);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			log_warn("tls", "cannot accept: %m");
			event_del(f->ev_accept);
			evtimer_add(f->ev_resume, &(struct timeval){ .tv_usec = ACCEPT_PAUSE_MS * 1000 });
		}
		return;
	}
}

static void on_resume(evutil_socket_t fd, short what, void *ctx)
{
	struct front *f = ctx;
	(void)fd;
	(void)what;
	if (f->listen_fd >= 0)
		event_add(f->ev_accept, NULL);
}

static void on_quiesce(evutil_socket_t fd, short what, void *ctx)
{
	struct front *f = ctx;
	(void)fd;
	(void)what;
	event_del(f->ev_accept);
	close_fdp(&f->listen_fd);
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

int front_start(const struct front_options *o, struct front **ret, struct error *err)
{
	struct front *f = xcalloc(1, sizeof(*f));
	f->o = *o;
	f->listen_fd = o->listen_fd;
	f->base = carrier_base(o->carrier);
	f->scratch = carrier_scratch(o->carrier);
	pthread_mutex_init(&f->lock, NULL);
	if (front_context(o->cert, o->key, &f->ctx, err) != 0) {
		front_free(f);
		return -1;
	}
	f->ev_accept = event_new(f->base, f->listen_fd, EV_READ | EV_PERSIST, on_accept, f);
	f->ev_resume = evtimer_new(f->base, on_resume, f);
	f->ev_quiesce = event_new(f->base, -1, 0, on_quiesce, f);
	if (!f->ev_accept || !f->ev_resume || !f->ev_quiesce || event_add(f->ev_accept, NULL) != 0)
		abort();
	*ret = f;
	return 0;
}

int front_reload(struct front *f, const char *cert, const char *key, struct error *err)
{
	SSL_CTX *fresh;
	if (front_context(cert, key, &fresh, err) != 0)
		return -1;
	pthread_mutex_lock(&f->lock);
	SSL_CTX *old = f->ctx;
	f->ctx = fresh;
	pthread_mutex_unlock(&f->lock);
	SSL_CTX_free(old);
	return 0;
}

void front_quiesce(struct front *f)
{
	pthread_mutex_lock(&f->lock);
	f->quiet = true;
	pthread_mutex_unlock(&f->lock);
	event_active(f->ev_quiesce, EV_TIMEOUT, 0);
}

void front_drain(struct front *f, int64_t timeout_ms)
{
	int64_t end_ms = clock_mono_ms() + timeout_ms;
	while (atomic_load(&f->n_conns) > 0 && clock_mono_ms() < end_ms)
		usleep(5000);
}

void front_free(struct front *f)
{
	if (!f)
		return;
	while (f->conns)
		conn_free(f->conns);
	struct event *events[] = { f->ev_accept, f->ev_resume, f->ev_quiesce };
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	close_fdp(&f->listen_fd);
	SSL_CTX_free(f->ctx);
	pthread_mutex_destroy(&f->lock);
	free(f);
}
