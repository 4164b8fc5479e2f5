/* The poll loop of one stream and the handlers of its frames. Output is in stream_output.c, resuming in stream_resume.c. */
#include "cli/stream_state.h"

#include "cli/signals.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

enum {
	SECOND_SIGNAL_MS = 1000, /* a second interrupt within this leaves */
	END_AFTER_SIGNAL_MS = 5000, /* a forwarded signal must have ended the command by then */
	LEAVE_MS = 1000, /* a cancelled command has this long to be reported ended */
	LEAVE_QUICK_MS = 300, /* the same when nobody waits for its output */
	BACKGROUND_MS = 500, /* how often a background job looks whether the terminal is its own */
};

void stream_say(const struct stream *s, const char *fmt, ...)
{
	char text[ERROR_TEXT_MAX];
	if (s->rq->quiet)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* In raw mode a newline alone does not return the carriage. */
	dprintf(STDERR_FILENO, terminal_is_raw() ? "\r\nsandbox: %s\r\n" : "sandbox: %s\n", text);
}

static void control(struct stream *s, enum mux_control_action action, int sig)
{
	auto_tlv fields = TLV_INIT;
	tlv_add_u64(&fields, MUX_F_ACTION, action);
	if (sig)
		tlv_add_u64(&fields, MUX_F_SIGNAL, (uint64_t)sig);
	mux_control(s->conn.mux, s->id, &fields);
}

/* --- leaving --------------------------------------------------------------------------------------------------------------- */

void stream_leave(struct stream *s, enum stream_left why, int detail)
{
	if (s->ret->left == LEFT_NOT) {
		s->ret->left = why;
		s->ret->detail = detail;
	}
	if (s->ret->closed || s->rq->attach || s->conn.fd < 0) {
		s->done = true;
		return;
	}
	if (s->phase == PHASE_OPENED) {
		mux_close(s->conn.mux, s->id, NULL);
		s->done = true;
		return;
	}
	bool nobody_waits = why == LEFT_READER_GONE || s->rq->tty;
	s->leave_by_ms = clock_mono_ms() + (nobody_waits ? LEAVE_QUICK_MS : LEAVE_MS);
	/* SIGPIPE is what a local process would have got; one that ignores it is cancelled when the time is over. */
	if (why == LEFT_READER_GONE)
		control(s, MUX_CONTROL_SIGNAL, SIGPIPE);
	else
		control(s, MUX_CONTROL_CANCEL, 0);
}

static void leave_time_passed(struct stream *s)
{
	if (s->ret->left != LEFT_READER_GONE || s->cancelled) {
		s->done = true;
		return;
	}
	/* It shrugged SIGPIPE off. Closing right behind the request could make the peer drop the connection before it reads that. */
	s->cancelled = true;
	control(s, MUX_CONTROL_CANCEL, 0);
	s->leave_by_ms = clock_mono_ms() + LEAVE_MS;
}

/* --- frames ---------------------------------------------------------------------------------------------------------------- */

static void on_window(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t consumed)
{
	struct stream *s = ctx;
	(void)m;
	if (stream == s->id && channel == MUX_STDIN)
		feed_acked(&s->feed, consumed);
}

static void send_size(struct stream *s)
{
	uint16_t rows, cols;
	terminal_size(s->size_fd, &rows, &cols);
	if (rows == 0 || cols == 0)
		return;
	auto_tlv fields = TLV_INIT;
	tlv_add_u64(&fields, MUX_F_ACTION, MUX_CONTROL_RESIZE);
	tlv_add_u64(&fields, MUX_F_ROWS, rows);
	tlv_add_u64(&fields, MUX_F_COLS, cols);
	mux_control(s->conn.mux, s->id, &fields);
}

static void forward(struct stream *s, int sig)
{
	if (s->phase != PHASE_LIVE)
		s->held_signals |= 1ull << sig;
	else
		control(s, MUX_CONTROL_SIGNAL, sig);
}

void stream_go_live(struct stream *s)
{
	s->phase = PHASE_LIVE;
	if (s->rq->tty)
		send_size(s);
	for (int sig = 1; sig < 64; sig++) {
		if (s->held_signals >> sig & 1)
			forward(s, sig);
	}
	s->held_signals = 0;
	if (s->rq->detach)
		s->done = true;
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = ctx;
	if (stream != s->id)
		return;
	if (s->phase == PHASE_RESUMING)
		return stream_resumed(s, fields);
	auto_free char *operation = NULL;
	if (tlv_str(fields, MUX_F_OPERATION, ID_TEXT_LEN, &operation, NULL) == 0 && operation && id_valid(operation))
		snprintf(s->ret->operation, sizeof(s->ret->operation), "%s", operation);
	s->ret->accepted = true;
	(void)m;
	stream_take_start(s, fields);
	stream_go_live(s);
	stream_caught_up(s);
}

static void take_outcome(struct stream *s, const struct tlv *fields)
{
	struct stream_result *r = s->ret;
	uint64_t outcome = tlv_u64(fields, MUX_F_OUTCOME, OUTCOME_NONE);
	r->result.outcome = outcome < OUTCOME_COUNT ? (enum outcome)outcome : OUTCOME_LOST;
	r->result.exit_code = (int)(tlv_u64(fields, MUX_F_EXIT_CODE, 0) & 0xff);
	r->result.signal = (int)(tlv_u64(fields, MUX_F_SIGNAL, 0) & 0x7f);
	r->result.oom_killed = tlv_u64(fields, MUX_F_OOM, 0) != 0;
	r->error = (enum mux_error)(tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE) & 0xff);
	r->out_bytes = tlv_u64(fields, MUX_F_OFFSET_OUT, s->received[0]);
	r->err_bytes = tlv_u64(fields, MUX_F_OFFSET_ERR, s->received[1]);
	r->incomplete = r->out_bytes > s->received[0] || r->err_bytes > s->received[1];
	auto_free char *message = NULL;
	if (tlv_str(fields, MUX_F_MESSAGE, sizeof(r->message) - 1, &message, NULL) == 0 && message)
		snprintf(r->message, sizeof(r->message), "%s", message);
}

static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = ctx;
	(void)m;
	if (stream != s->id || !s->rq->attach)
		return;
	stream_take_time(s, fields);
	stream_take_gap(s, fields);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct stream *s = ctx;
	(void)m;
	if (stream != s->id)
		return;
	if (s->phase == PHASE_RESUMING && stream_resume_refused(s, fields))
		return;
	take_outcome(s, fields);
	stream_release_tail(s);
	s->ret->closed = true;
	s->phase = PHASE_ENDED;
	if (s->ret->left != LEFT_NOT)
		s->done = true;
}

const struct mux_handler stream_handler = {
	.accepted = on_accepted,
	.data = stream_on_data,
	.window = on_window,
	.control = on_control,
	.closed = on_closed,
};

/* --- signals --------------------------------------------------------------------------------------------------------------- */

static void enter_raw(struct stream *s)
{
	if (!s->rq->tty || !s->feed.local.terminal || !terminal_foreground(s->feed.local.fd) || terminal_is_raw())
		return;
	if (terminal_raw(s->feed.local.fd, NULL) == 0)
		s->was_raw = true;
}

/* By the escape keys the whole job stops, as by Ctrl-Z; a signal has reached whom it was meant for. */
static void suspend(struct stream *s, bool group)
{
	if (terminal_is_raw()) {
		terminal_restore();
		dprintf(STDERR_FILENO, "\n");
	}
	signals_suspend(group);
	enter_raw(s);
	if (s->rq->tty && s->phase == PHASE_LIVE)
		send_size(s);
}

/* Someone outside stopped and continued us: the shell has put the terminal's own settings back meanwhile. */
static void continued(struct stream *s)
{
	if (terminal_is_raw())
		terminal_restore();
	enter_raw(s);
	if (s->rq->tty && s->phase == PHASE_LIVE)
		send_size(s);
}

static void asked_to_end(struct stream *s, int sig)
{
	int64_t now = clock_mono_ms();
	bool again = s->signalled_ms && now - s->signalled_ms <= SECOND_SIGNAL_MS;
	/* An interactive shell ignores TERM: to a terminal session these mean that the terminal goes. */
	bool hang_up = s->rq->tty && (sig == SIGHUP || sig == SIGTERM);
	s->signalled_ms = now;
	if (again || hang_up || s->ret->closed || s->ret->left != LEFT_NOT || s->rq->attach || s->conn.fd < 0) {
		if (s->ret->left != LEFT_NOT)
			s->done = true;
		stream_leave(s, LEFT_SIGNAL, sig);
		return;
	}
	if (!s->end_by_ms) {
		s->end_by_ms = now + END_AFTER_SIGNAL_MS;
		s->end_signal = sig;
	}
	forward(s, sig);
}

void stream_signals(struct stream *s)
{
	for (int sig; (sig = signals_take()) != 0;) {
		if (sig == SIGTSTP)
			suspend(s, false);
		else if (sig == SIGCONT)
			continued(s);
		else if (sig != SIGWINCH && sig != SIGUSR1 && sig != SIGUSR2)
			asked_to_end(s, sig);
		else if (s->rq->attach)
			continue;
		else if (sig != SIGWINCH)
			forward(s, sig);
		else if (s->rq->tty && s->phase == PHASE_LIVE)
			send_size(s);
	}
}

/* --- the loop -------------------------------------------------------------------------------------------------------------- */

enum { FD_CONN, FD_IN, FD_OUT, FD_ERR, FD_COUNT };

static bool in_background(const struct stream *s)
{
	return s->feed.local.terminal && !s->feed.ended && !terminal_foreground(s->feed.local.fd);
}

static void fill(struct stream *s, struct pollfd fds[static FD_COUNT])
{
	for (int i = 0; i < FD_COUNT; i++)
		fds[i] = (struct pollfd){ .fd = -1 };
	if (s->conn.fd >= 0 && !s->conn_ended)
		muxconn_poll(&s->conn, &fds[FD_CONN]);
	s->background = in_background(s);
	if (!s->background)
		enter_raw(s);
	if (s->phase == PHASE_LIVE && !s->background && feed_wants(&s->feed, s->conn.mux, s->id))
		fds[FD_IN] = (struct pollfd){ .fd = local_pollfd(&s->feed.local), .events = POLLIN };
	for (unsigned i = 0; i < 2; i++) {
		if (outlet_waiting(&s->out[i]))
			fds[FD_OUT + i] = (struct pollfd){ .fd = local_pollfd(&s->out[i].local), .events = POLLOUT };
	}
}

static int wait_ms(const struct stream *s)
{
	int64_t until = 0, now = clock_mono_ms();
	if (s->leave_by_ms)
		until = s->leave_by_ms;
	else if (s->phase == PHASE_RESUMING)
		until = s->resume_by_ms;
	else if (s->end_by_ms)
		until = s->end_by_ms;
	if (s->background && (!until || until > now + BACKGROUND_MS))
		until = now + BACKGROUND_MS;
	if (!until)
		return -1;
	return until > now ? (int)(until - now) : 0;
}

static void on_time(struct stream *s)
{
	int64_t now = clock_mono_ms();
	if (s->leave_by_ms && now >= s->leave_by_ms)
		leave_time_passed(s);
	else if (s->phase == PHASE_RESUMING && now >= s->resume_by_ms)
		stream_lost(s, "the server did not resume the command in time");
	else if (s->end_by_ms && !s->leave_by_ms && now >= s->end_by_ms)
		stream_leave(s, LEFT_SIGNAL, s->end_signal);
}

static void on_input(struct stream *s)
{
	do {
		enum escape_event event = feed_read(&s->feed, s->conn.mux, s->id);
		if (event == ESCAPE_LEAVE)
			return stream_leave(s, LEFT_ESCAPE, 0);
		if (event == ESCAPE_SUSPEND)
			suspend(s, true);
		feed_push(&s->feed, s->conn.mux, s->id);
	} while (s->feed.typed.len > 0 && feed_wants(&s->feed, s->conn.mux, s->id));
}

static void on_ready(struct stream *s, const struct pollfd fds[static FD_COUNT])
{
	struct error why = ERROR_INIT;
	if (fds[FD_CONN].revents) {
		enum muxconn_state state = muxconn_ready(&s->conn, fds[FD_CONN].revents, &why);
		if (state != MUXCONN_ALIVE)
			s->conn_ended = true;
		if (state == MUXCONN_BROKEN)
			stream_lost(s, why.message);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (fds[FD_OUT + i].revents)
			stream_flush_outlet(s, i);
	}
	if (fds[FD_IN].revents && s->phase == PHASE_LIVE)
		on_input(s);
}

static void loop(struct stream *s)
{
	while (!s->done) {
		struct pollfd fds[FD_COUNT];
		if (s->phase == PHASE_LIVE)
			feed_push(&s->feed, s->conn.mux, s->id);
		fill(s, fds);
		bool drained = !outlet_waiting(&s->out[0]) && !outlet_waiting(&s->out[1]);
		if ((s->ret->closed || s->drain) && drained)
			return;
		int n = signals_poll(fds, FD_COUNT, wait_ms(s));
		stream_signals(s);
		if (n > 0 && !s->done)
			on_ready(s, fds);
		on_time(s);
		/* An answer that came with the dialling may have refused already. */
		while (s->conn_ended && !s->ret->closed && !s->done)
			stream_resume(s);
	}
}

/* --- start and end --------------------------------------------------------------------------------------------------------- */

static void begin(struct stream *s)
{
	const struct stream_request *rq = s->rq;
	feed_open(&s->feed, rq->in, rq->escape);
	outlet_open(&s->out[0], rq->out);
	outlet_open(&s->out[1], rq->err);
	s->size_fd = s->feed.local.terminal ? rq->in : rq->out;
	s->received[0] = rq->offset_out;
	s->received[1] = rq->offset_err;
	if (rq->attach) {
		auto_free char *operation = NULL;
		tlv_str(rq->open, MUX_F_OPERATION, ID_TEXT_LEN, &operation, NULL);
		snprintf(s->ret->operation, sizeof(s->ret->operation), "%s", operation ? operation : "");
	}
	s->holding = rq->tail;
	result_init(&s->ret->result);
	s->ret->result.outcome = OUTCOME_LOST;
}

static void end(struct stream *s)
{
	struct stream_result *r = s->ret;
	bool raw = s->was_raw;
	muxconn_flush(&s->conn);
	terminal_restore();
	signals_end();
	if (!r->closed) {
		r->out_bytes = s->received[0];
		r->err_bytes = s->received[1];
	}
	/* The session's last line may be unfinished: what we report next belongs on its own. */
	if (raw && s->last_byte != '\n' && (r->left != LEFT_NOT || r->result.outcome != OUTCOME_EXITED))
		dprintf(STDERR_FILENO, "\n");
	if (s->feed.error && !(s->feed.error == EIO && s->feed.local.terminal))
		stream_say(s, "cannot read standard input: %s", strerror(s->feed.error));
	feed_close(&s->feed);
	for (unsigned i = 0; i < 2; i++) {
		outlet_close(&s->out[i]);
		buf_done(&s->held[i]);
	}
	muxconn_stop(&s->conn);
}

int stream_run(const struct stream_request *rq, struct stream_result *ret, struct error *err)
{
	struct stream s = { .rq = rq, .ret = ret, .phase = PHASE_OPENED, .last_byte = '\n' };
	*ret = (struct stream_result){ .left = LEFT_NOT };
	begin(&s);
	muxconn_start(&s.conn, &stream_handler);
	s.id = mux_open(s.conn.mux, rq->open, LIMIT_MUX_WINDOW, err);
	int status = s.id ? 0 : -1;
	if (status == 0 && rq->attach)
		stream_rebase(&s);
	if (status == 0)
		status = muxconn_dial(&s.conn, &rq->dialler, false, 0, err);
	if (status == 0) {
		signals_begin();
		stream_signals(&s);
		loop(&s);
	}
	end(&s);
	return status;
}
