/* Sharing a port of this machine: see share.h. The server opens a stream for each visitor's connection; here it is joined with the port. */
#include "cli/share.h"

#include "cli/bytepipe.h"
#include "cli/ending.h"
#include "cli/heartbeat.h"
#include "cli/interrupt.h"
#include "cli/muxconn.h"
#include "cli/output.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { REDIAL_MS = 10 * 60 * 1000, CONNECT_MS = 1000, FIXED_FDS = 2, URL_MAX = 512 };

struct share {
	struct muxconn conn; /* first: the mux's ctx is this struct */
	struct cli *cli;
	const struct share_request *rq;
	uint32_t stream;
	char url[URL_MAX];
	char label[64];   /* of the address: asked for again after a loss */
	int64_t until_us; /* the end the server told first, on its clock; 0: not yet */
	bool told, again, ended, down_said;
	struct error failure;
	struct heartbeat beat;
	struct bytepipes pipes;
	struct pollfd *fds;
	size_t fds_cap;
};

static void fail(struct share *s, enum error_code code, const char *text)
{
	if (!s->ended)
		error_set(&s->failure, code, "%s", text);
	s->ended = true;
}

/* --- the port here --- */

static int try_connect(const struct sockaddr *at, socklen_t n)
{
	auto_close int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int sys = 0;
	socklen_t len = sizeof(sys);
	if (fd < 0 || io_set_nonblock(fd, true) != 0)
		return -1;
	if (connect(fd, at, n) == 0)
		return steal_fd(&fd);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	/* On loopback this is a matter of microseconds, unless the server's queue is full. */
	if (errno != EINPROGRESS || poll(&p, 1, CONNECT_MS) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len) != 0 || sys != 0)
		return -1;
	return steal_fd(&fd);
}

static int connect_here(uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = try_connect((const struct sockaddr *)&v4, sizeof(v4));
	return fd >= 0 ? fd : try_connect((const struct sockaddr *)&v6, sizeof(v6));
}

static void refuse(struct mux *m, uint32_t stream, enum mux_error why, const char *text)
{
	auto_tlv fields = TLV_INIT;
	tlv_add_u64(&fields, MUX_F_ERROR, why);
	tlv_add_str(&fields, MUX_F_MESSAGE, text);
	mux_close(m, stream, &fields);
}

/* --- events of streams --- */

/* Whatever port the server names: only the one that is shared is connected to. */
static void on_opened(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct share *s = ctx;
	if (tlv_u64(fields, MUX_F_KIND, 0) != MUX_KIND_DIAL) {
		refuse(m, stream, MUX_ERR_REFUSED, "only connections are taken here");
		return;
	}
	int fd = connect_here(s->rq->port);
	if (fd < 0) {
		if (!s->down_said)
			out_note(s->cli, "nothing listens on port %u here: visitors are told so until something does", s->rq->port);
		s->down_said = true;
		refuse(m, stream, MUX_ERR_CONNECT, "nothing listens on the shared port");
		return;
	}
	s->down_said = false;
	bytepipes_add(&s->pipes, fd, m, stream, NULL)->live = true;
	mux_accept(m, stream, NULL, BYTEPIPE_WINDOW);
}

static void keep_label(struct share *s)
{
	const char *host = strstr(s->url, "://");
	host = host ? host + 3 : s->url;
	snprintf(s->label, sizeof(s->label), "%.*s", (int)(strcspn(host, ".:/") < sizeof(s->label) ? strcspn(host, ".:/") : 0), host);
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct share *s = ctx;
	auto_free char *text = NULL;
	struct error err = ERROR_INIT;
	int64_t until;
	(void)m;
	if (stream != s->stream)
		return;
	tlv_str(fields, MUX_F_TEXT, URL_MAX - 1, &text, NULL);
	char *line = text ? strchr(text, '\n') : NULL;
	if (!line || parse_i64("end", line + 1, 0, INT64_MAX, &until, NULL) != 0) {
		fail(s, ERR_PROTOCOL, "the server's answer holds no address");
		return;
	}
	*line = '\0';
	text_escape(text, strlen(text), s->url, sizeof(s->url));
	keep_label(s);
	s->until_us = until;
	if (s->rq->ready(s->rq->ctx, s->url, until, s->told, &err) != 0)
		fail(s, err.code, err.message);
	s->told = true;
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct share *s = ctx;
	struct bytepipe *p = mux_user(m, stream);
	enum mux_error why = (enum mux_error)tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE);
	auto_free char *text = NULL;
	char safe[ERROR_TEXT_MAX];
	if (p) {
		bytepipe_closed(p, why != MUX_ERR_NONE);
	} else if (stream == s->stream) {
		tlv_str(fields, MUX_F_MESSAGE, ERROR_TEXT_MAX - 1, &text, NULL);
		s->stream = 0;
		/* A daemon that stops says so and comes back. */
		if (why != MUX_ERR_UNAVAILABLE || !s->told)
			fail(s, why == MUX_ERR_RESOURCES ? ERR_RATE_LIMITED : ending_code(why), text && *text ? text_escape(text, strlen(text), safe, sizeof(safe)) : "the server ended it");
	}
}

static void on_pong(void *ctx, struct mux *m)
{
	(void)m;
	heartbeat_pong(&((struct share *)ctx)->beat);
}

static const struct mux_handler handler = {
	.opened = on_opened, .accepted = on_accepted, .data = bytepipe_on_data, .eof = bytepipe_on_eof,
	.closed = on_closed, .lost = bytepipe_on_lost, .pong = on_pong,
};

/* --- the connection --- */

static int connect_to(struct share *s, bool again, struct error *err)
{
	struct dialler d = session_dialler(s->cli);
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, MUX_KIND_SHARE);
	tlv_add_u64(&open, MUX_F_PORT, s->rq->port);
	tlv_add_str(&open, MUX_F_NAME, s->label[0] ? s->label : s->rq->subdomain);
	tlv_add_u64(&open, MUX_F_ACTION, s->rq->keep_host ? MUX_SHARE_KEEP_HOST : MUX_SHARE_REWRITE_HOST);
	if (s->until_us)
		tlv_add_u64(&open, MUX_F_DEADLINE_US, (uint64_t)s->until_us);
	muxconn_start(&s->conn, &handler);
	s->stream = mux_open(s->conn.mux, &open, 0, err);
	heartbeat_start(&s->beat);
	return s->stream ? muxconn_dial(&s->conn, &d, again, clock_mono_ms() + REDIAL_MS, err) : -1;
}

static int reconnect(struct share *s, struct error *err)
{
	out_note(s->cli, "the connection to the server broke: connecting again");
	mux_lost(s->conn.mux);
	bytepipes_sweep(&s->pipes);
	muxconn_stop(&s->conn);
	if (connect_to(s, true, err) != 0)
		return interrupt_signal() ? 0 : error_wrap(err, "the connection to the server broke");
	return 0;
}

static int turn(struct share *s, struct error *err)
{
	struct error broken = ERROR_INIT;
	enum muxconn_state state = MUXCONN_ALIVE;
	size_t n = FIXED_FDS + s->pipes.n;
	if (s->ended) /* already while connecting */
		return error_set(err, s->failure.code, "%s", s->failure.message);
	if (n > s->fds_cap) {
		s->fds_cap = n * 2;
		s->fds = xrealloc(s->fds, s->fds_cap, sizeof(*s->fds));
	}
	muxconn_poll(&s->conn, &s->fds[0]);
	s->fds[1] = (struct pollfd){ .fd = interrupt_fd(), .events = POLLIN };
	bytepipes_poll(&s->pipes, &s->fds[FIXED_FDS]);
	if (poll(s->fds, n, (int)heartbeat_wait_ms(&s->beat)) < 0 && errno != EINTR)
		return error_errno(err, "waiting");
	mux_cork(s->conn.mux);
	bytepipes_ready(&s->pipes, &s->fds[FIXED_FDS]);
	if (s->fds[0].revents)
		state = muxconn_ready(&s->conn, s->fds[0].revents, &broken);
	mux_uncork(s->conn.mux);
	bytepipes_sweep(&s->pipes);
	muxconn_flush(&s->conn);
	if (s->ended)
		return 0;
	return state == MUXCONN_ALIVE && heartbeat_check(&s->beat, s->conn.mux) ? 0 : reconnect(s, err);
}

int share_run(struct cli *cli, const struct share_request *rq, struct error *err)
{
	struct share s = { .conn = MUXCONN_INIT, .cli = cli, .rq = rq };
	interrupt_watch();
	int rc = connect_to(&s, false, err);
	while (rc == 0 && !interrupt_signal())
		rc = turn(&s, err);
	bytepipes_done(&s.pipes);
	muxconn_stop(&s.conn);
	free(s.fds);
	return rc;
}
