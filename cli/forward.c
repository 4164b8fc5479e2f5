/*
 * Private ports: see forward.h. One thread polls the stream connection, the listeners and every connection. A watch stream tells
 * when the sandbox ends, also while nobody is connected.
 */
#include "cli/forward.h"

#include "cli/bytepipe.h"
#include "cli/ending.h"
#include "cli/heartbeat.h"
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

enum { REDIAL_MS = 60 * 1000, FIXED_FDS = 2, LISTENERS = 2 };

struct forward {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	struct cli *cli;
	const struct forward_request *rq;
	int (*listeners)[LISTENERS];
	struct bytepipes pipes; /* the tag: its struct forward_port */
	uint32_t watch;
	bool agreed;         /* the watch was accepted, or this server knows no such stream */
	bool ended;          /* `failure` says why */
	struct error failure;
	struct heartbeat beat;
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

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct forward *f = ctx;
	struct bytepipe *p = mux_user(m, stream);
	enum mux_error why = (enum mux_error)tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	if (stream == f->watch) {
		watch_closed(f, why, fields);
		return;
	}
	if (!p)
		return;
	if (why == MUX_ERR_CONNECT && !f->told_down) {
		f->told_down = true;
		out_note(f->cli, "nothing listens on port %u inside the sandbox: connections are refused until something does", ((const struct forward_port *)p->tag)->remote);
	} else if (ends_all(why)) {
		end_with(f, why, fields);
	}
	if (p->live)
		f->told_down = false;
	bytepipe_closed(p, why != MUX_ERR_NONE);
}

static void on_pong(void *ctx, struct mux *m)
{
	struct forward *f = ctx;
	(void)m;
	heartbeat_pong(&f->beat);
}

static const struct mux_handler handler = {
	.accepted = on_accepted, .data = bytepipe_on_data, .eof = bytepipe_on_eof, .closed = on_closed, .lost = bytepipe_on_lost, .pong = on_pong,
};

/* --- connections --- */

static void carry(struct forward *f, int take_fd, const struct forward_port *port)
{
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_str(&open, MUX_F_SANDBOX, f->rq->sandbox);
	tlv_add_u64(&open, MUX_F_PORT, port->remote);
	bytepipes_add(&f->pipes, take_fd, f->conn.mux, mux_open(f->conn.mux, &open, BYTEPIPE_WINDOW, NULL), port);
}

static void accept_all(struct forward *f, int listener, const struct forward_port *port)
{
	int fd;
	while (f->pipes.n < LIMIT_MUX_STREAMS_MAX - 1 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
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
	heartbeat_start(&f->beat);
	return f->watch ? muxconn_dial(&f->conn, &d, again, clock_mono_ms() + REDIAL_MS, err) : -1;
}

/* Connections made meanwhile wait in the listeners' queues. */
static int reconnect(struct forward *f, struct error *err)
{
	out_note(f->cli, "the connection to the server broke: open connections are reset, connecting again");
	mux_lost(f->conn.mux);
	bytepipes_sweep(&f->pipes);
	muxconn_stop(&f->conn);
	if (connect_to(f, true, err) != 0)
		return interrupt_signal() ? 0 : error_wrap(err, "the connection to the server broke");
	out_note(f->cli, "connected again");
	return 0;
}

/* --- one turn --- */

static size_t poll_set(struct forward *f)
{
	size_t n = FIXED_FDS, want = FIXED_FDS + f->rq->n_ports * LISTENERS + f->pipes.n;
	if (want > f->fds_cap) {
		f->fds_cap = want * 2;
		f->fds = xrealloc(f->fds, f->fds_cap, sizeof(*f->fds));
	}
	muxconn_poll(&f->conn, &f->fds[0]);
	f->fds[1] = (struct pollfd){ .fd = interrupt_fd(), .events = POLLIN };
	bool room = f->agreed && f->listeners && f->pipes.n < LIMIT_MUX_STREAMS_MAX - 1;
	for (size_t i = 0; i < f->rq->n_ports; i++)
		for (int k = 0; k < LISTENERS; k++)
			f->fds[n++] = (struct pollfd){ .fd = room ? f->listeners[i][k] : -1, .events = POLLIN };
	bytepipes_poll(&f->pipes, &f->fds[n]);
	return n + f->pipes.n;
}

/* Connections come first: what the mux does may end some, and what listeners do may add some. */
static void serve(struct forward *f)
{
	size_t n = FIXED_FDS + f->rq->n_ports * LISTENERS, listener = FIXED_FDS;
	bytepipes_ready(&f->pipes, &f->fds[n]);
	for (size_t i = 0; i < f->rq->n_ports; i++)
		for (int k = 0; k < LISTENERS; k++, listener++)
			if (f->fds[listener].fd >= 0 && f->fds[listener].revents)
				accept_all(f, f->fds[listener].fd, &f->rq->ports[i]);
}

static int turn(struct forward *f, struct error *err)
{
	struct error broken = ERROR_INIT;
	enum muxconn_state state = MUXCONN_ALIVE;
	if (f->ended) /* already while connecting */
		return error_set(err, f->failure.code, "%s", f->failure.message);
	size_t n = poll_set(f);
	if (poll(f->fds, n, (int)heartbeat_wait_ms(&f->beat)) < 0 && errno != EINTR)
		return error_errno(err, "waiting");
	mux_cork(f->conn.mux);
	serve(f);
	if (f->fds[0].revents)
		state = muxconn_ready(&f->conn, f->fds[0].revents, &broken);
	mux_uncork(f->conn.mux);
	bytepipes_sweep(&f->pipes);
	muxconn_flush(&f->conn);
	if (f->ended)
		return 0;
	if (state == MUXCONN_ALIVE && heartbeat_check(&f->beat, f->conn.mux))
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
	bytepipes_done(&f->pipes);
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
