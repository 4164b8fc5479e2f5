/*
 * Private ports: see forward.h. One thread polls the stream connection, the listeners and every connection. A watch stream tells
 * when the sandbox ends, also while nobody is connected.
 */
#include "cli/forward.h"

#include "cli/bytepipe.h"
#include "cli/ending.h"
#include "cli/interrupt.h"
#include "cli/listen.h"
#include "cli/muxconn.h"
#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PING_MS = 20 * 1000, PONG_WAIT_MS = 20 * 1000, REDIAL_MS = 60 * 1000, FIXED_FDS = 2, LISTENERS = 2 };

/* A half-closed connection on which nothing moves for so long has been forgotten by somebody. */
static const int64_t half_closed_ms = 3600 * 1000LL;

struct local {
	struct bytepipe pipe; /* first: the stream's user pointer */
	struct local *next;
	const struct forward_port *port;
};

struct forward {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	struct cli *cli;
	const struct forward_request *rq;
	int (*listeners)[LISTENERS];
	struct local *locals;
	size_t n_locals;
	uint32_t watch;
	bool agreed;         /* the watch was accepted, or this server knows no such stream */
	bool ended;          /* `failure` says why */
	struct error failure;
	int64_t ping_ms;     /* the next one */
	int64_t pong_by_ms;  /* 0: none is awaited */
	bool told_down;      /* that nothing listens was said once */
	struct pollfd *fds;
	size_t fds_cap;
};

/* --- events of streams --- */

static void fail(struct forward *f, enum error_code code, const char *text)
{
	if (f->ended)
		return;
	f->ended = true;
	error_set(&f->failure, code, "%s", text);
}

static bool ends_all(enum mux_error e)
{
	return e == MUX_ERR_NOT_FOUND || e == MUX_ERR_EXPIRED || e == MUX_ERR_DELETED || e == MUX_ERR_FORBIDDEN || e == MUX_ERR_CONFLICT;
}

static void end_with(struct forward *f, enum mux_error why, const struct tlv *fields)
{
	auto_free char *text = NULL;
	char safe[ERROR_TEXT_MAX];
	tlv_str(fields, MUX_F_MESSAGE, ERROR_TEXT_MAX - 1, &text, NULL);
	fail(f, ending_code(why), text && *text ? text_escape(text, strlen(text), safe, sizeof(safe)) : "the sandbox ended");
}

static void watch_closed(struct forward *f, enum mux_error why, const struct tlv *fields)
{
	f->watch = 0;
	if (!f->agreed && why == MUX_ERR_REFUSED) /* an older server */
		f->agreed = true;
	else if (ends_all(why) || !f->agreed || why == MUX_ERR_LOST)
		end_with(f, why, fields);
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct forward *f = ctx;
	struct bytepipe *p = mux_user(m, stream);
	(void)fields;
	if (stream == f->watch)
		f->agreed = true;
	else if (p)
		p->live = true;
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *bytes, size_t n)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p && channel == MUX_STDIN)
		bytepipe_data(p, offset, bytes, n);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p && channel == MUX_STDIN)
		bytepipe_eof(p);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct forward *f = ctx;
	struct local *l = mux_user(m, stream);
	enum mux_error why = (enum mux_error)tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	if (stream == f->watch) {
		watch_closed(f, why, fields);
		return;
	}
	if (!l)
		return;
	if (why == MUX_ERR_CONNECT && !f->told_down) {
		f->told_down = true;
		out_note(f->cli, "nothing listens on port %u inside the sandbox: connections are refused until something does", l->port->remote);
	} else if (ends_all(why)) {
		end_with(f, why, fields);
	}
	if (l->pipe.live)
		f->told_down = false;
	bytepipe_closed(&l->pipe, why != MUX_ERR_NONE);
}

static void on_lost(void *ctx, struct mux *m, uint32_t stream)
{
	struct bytepipe *p = mux_user(m, stream);
	(void)ctx;
	if (p) {
		p->stream = 0;
		bytepipe_end(p, true);
	}
}

static void on_pong(void *ctx, struct mux *m)
{
	struct forward *f = ctx;
	(void)m;
	f->pong_by_ms = 0;
}

static const struct mux_handler handler = {
	.accepted = on_accepted, .data = on_data, .eof = on_eof, .closed = on_closed, .lost = on_lost, .pong = on_pong,
};

/* --- connections --- */

static void locals_sweep(struct forward *f)
{
	int64_t now = clock_mono_ms();
	for (struct local **at = &f->locals; *at;) {
		struct local *l = *at;
		struct bytepipe *p = &l->pipe;
		if (!bytepipe_over(p) && p->in_eof != p->out_eof && now - p->moved_ms > half_closed_ms)
			bytepipe_end(p, true);
		if (!bytepipe_over(p)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		f->n_locals--;
		free(l);
	}
}

static void carry(struct forward *f, int take_fd, const struct forward_port *port)
{
	struct local *l = xcalloc(1, sizeof(*l));
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_str(&open, MUX_F_SANDBOX, f->rq->sandbox);
	tlv_add_u64(&open, MUX_F_PORT, port->remote);
	l->port = port;
	l->next = f->locals;
	f->locals = l;
	f->n_locals++;
	uint32_t id = mux_open(f->conn.mux, &open, BYTEPIPE_WINDOW, NULL);
	bytepipe_init(&l->pipe, take_fd, f->conn.mux, id);
	if (!id)
		bytepipe_end(&l->pipe, true);
}

static void accept_all(struct forward *f, int listener, const struct forward_port *port)
{
	int fd;
	while (f->n_locals < LIMIT_MUX_STREAMS_MAX - 1 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		carry(f, fd, port);
}

/* --- the stream connection --- */

static int connect_to(struct forward *f, bool again, struct error *err)
{
	struct dialler d = session_dialler(f->cli);
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_WATCH);
	tlv_add_str(&open, MUX_F_SANDBOX, f->rq->sandbox);
	muxconn_start(&f->conn, &handler);
	f->watch = mux_open(f->conn.mux, &open, LIMIT_MUX_WINDOW, err);
	f->agreed = false;
	f->ping_ms = clock_mono_ms() + PING_MS;
	f->pong_by_ms = 0;
	return f->watch ? muxconn_dial(&f->conn, &d, again, clock_mono_ms() + REDIAL_MS, err) : -1;
}

/* Connections made meanwhile wait in the listeners' queues. */
static int reconnect(struct forward *f, struct error *err)
{
	out_note(f->cli, "the connection to the server broke: open connections are reset, connecting again");
	mux_lost(f->conn.mux);
	locals_sweep(f);
	muxconn_stop(&f->conn);
	if (connect_to(f, true, err) != 0)
		return interrupt_signal() ? 0 : error_wrap(err, "the connection to the server broke");
	out_note(f->cli, "connected again");
	return 0;
}

/* A peer that is gone without a word is noticed, and proxies on the way see that the connection lives. */
static bool heartbeat(struct forward *f)
{
	int64_t now = clock_mono_ms();
	if (f->pong_by_ms && now >= f->pong_by_ms)
		return false;
	if (now >= f->ping_ms) {
		mux_ping(f->conn.mux);
		f->ping_ms = now + PING_MS;
		f->pong_by_ms = f->pong_by_ms ? f->pong_by_ms : now + PONG_WAIT_MS;
		locals_sweep(f);
	}
	return true;
}

static int64_t wait_ms(const struct forward *f)
{
	int64_t by = f->pong_by_ms && f->pong_by_ms < f->ping_ms ? f->pong_by_ms : f->ping_ms;
	int64_t left = by - clock_mono_ms();
	return left > 0 ? left : 0;
}

/* --- one turn --- */

static size_t poll_set(struct forward *f)
{
	size_t n = FIXED_FDS, want = FIXED_FDS + f->rq->n_ports * LISTENERS + f->n_locals;
	if (want > f->fds_cap) {
		f->fds_cap = want * 2;
		f->fds = xrealloc(f->fds, f->fds_cap, sizeof(*f->fds));
	}
	muxconn_poll(&f->conn, &f->fds[0]);
	f->fds[1] = (struct pollfd){ .fd = interrupt_fd(), .events = POLLIN };
	bool room = f->agreed && f->listeners && f->n_locals < LIMIT_MUX_STREAMS_MAX - 1;
	for (size_t i = 0; i < f->rq->n_ports; i++)
		for (int k = 0; k < LISTENERS; k++)
			f->fds[n++] = (struct pollfd){ .fd = room ? f->listeners[i][k] : -1, .events = POLLIN };
	for (struct local *l = f->locals; l; l = l->next)
		bytepipe_poll(&l->pipe, &f->fds[n++]);
	return n;
}

/* Connections come first: what the mux does may end some, and what listeners do may add some. */
static void serve(struct forward *f)
{
	size_t n = FIXED_FDS + f->rq->n_ports * LISTENERS, listener = FIXED_FDS;
	for (struct local *l = f->locals; l; l = l->next, n++)
		if (f->fds[n].fd >= 0 && f->fds[n].revents && !bytepipe_over(&l->pipe))
			bytepipe_ready(&l->pipe, f->fds[n].revents);
	for (size_t i = 0; i < f->rq->n_ports; i++)
		for (int k = 0; k < LISTENERS; k++, listener++)
			if (f->fds[listener].fd >= 0 && f->fds[listener].revents)
				accept_all(f, f->fds[listener].fd, &f->rq->ports[i]);
}

static int turn(struct forward *f, struct error *err)
{
	struct error broken = ERROR_INIT;
	enum muxconn_state state = MUXCONN_ALIVE;
	size_t n = poll_set(f);
	if (poll(f->fds, n, (int)wait_ms(f)) < 0 && errno != EINTR)
		return error_errno(err, "waiting");
	mux_cork(f->conn.mux);
	serve(f);
	if (f->fds[0].revents)
		state = muxconn_ready(&f->conn, f->fds[0].revents, &broken);
	mux_uncork(f->conn.mux);
	locals_sweep(f);
	muxconn_flush(&f->conn);
	if (f->ended)
		return error_set(err, f->failure.code, "%s", f->failure.message);
	if (state == MUXCONN_ALIVE && heartbeat(f))
		return 0;
	return reconnect(f, err);
}

static int listen_all(struct forward *f, struct error *err)
{
	f->listeners = xcalloc(f->rq->n_ports, sizeof(*f->listeners));
	memset(f->listeners, -1, f->rq->n_ports * sizeof(*f->listeners));
	for (size_t i = 0; i < f->rq->n_ports; i++)
		if (listen_loopback(&f->rq->ports[i].local, f->listeners[i], err) != 0) {
			cli_hint(f->cli, "give another local port, or 0 for a free one: 0:%u", f->rq->ports[i].remote);
			return -1;
		}
	return 0;
}

static void forward_done(struct forward *f)
{
	for (size_t i = 0; f->listeners && i < f->rq->n_ports; i++)
		for (int k = 0; k < LISTENERS; k++)
			close_fdp(&f->listeners[i][k]);
	for (struct local *next, *l = f->locals; l; l = next) {
		next = l->next;
		bytepipe_end(&l->pipe, true);
		free(l);
	}
	muxconn_stop(&f->conn);
	free(f->listeners);
	free(f->fds);
}

int forward_run(struct cli *cli, struct forward_request *rq, struct error *err)
{
	struct forward f = { .conn = MUXCONN_INIT, .cli = cli, .rq = rq };
	interrupt_watch();
	int rc = connect_to(&f, false, err);
	while (rc == 0 && !f.agreed && !interrupt_signal())
		rc = turn(&f, err);
	if (rc == 0)
		rc = listen_all(&f, err);
	if (rc == 0)
		rc = rq->ready(rq->ctx, err);
	while (rc == 0 && !interrupt_signal())
		rc = turn(&f, err);
	forward_done(&f);
	return rc;
}

int forward_port_parse(const char *text, struct forward_port *ret, struct error *err)
{
	const char *colon = strchr(text, ':');
	int64_t local, remote;
	if (parse_i64("REMOTE", colon ? colon + 1 : text, 1, 65535, &remote, err) != 0)
		return error_wrap(err, "'%.40s'", text);
	local = remote;
	if (colon) {
		auto_free char *first = xstrndup(text, (size_t)(colon - text));
		if (parse_i64("LOCAL", first, 0, 65535, &local, err) != 0)
			return error_wrap(err, "'%.40s'", text);
	}
	*ret = (struct forward_port){ .local = (uint16_t)local, .remote = (uint16_t)remote };
	return 0;
}
