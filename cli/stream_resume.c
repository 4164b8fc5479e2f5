/* Taking a stream up again on a new connection, from the offsets both sides know. */
#include "cli/stream_state.h"

#include "cli/signals.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"

enum { FIRST_DELAY_MS = 10, LAST_DELAY_MS = 500, DIAL_SLICE_MS = 200, QUIET_MS = 1000 };

void stream_lost(struct stream *s, const char *why)
{
	s->ret->left = LEFT_CONNECTION;
	snprintf(s->ret->message, sizeof(s->ret->message), "%s", why);
	s->done = true;
}

void stream_rebase(struct stream *s)
{
	for (unsigned i = 0; i < 2; i++) {
		mux_rebase_recv(s->conn.mux, s->id, MUX_STDOUT + i, s->received[i]);
		s->got[i] = s->received[i];
		s->skew[i] = 0;
	}
}

static const enum mux_field gap_field[2] = { MUX_F_GAP_OUT, MUX_F_GAP_ERR };

static void skip_to(struct stream *s, unsigned i, uint64_t next)
{
	static const char *const name[2] = { "stdout", "stderr" };
	uint64_t gap = next - s->received[i];
	*(i == 0 ? &s->ret->gap_out : &s->ret->gap_err) += gap;
	stream_say(s, "%llu bytes of %s are no longer kept", (unsigned long long)gap, name[i]);
	s->received[i] = next;
}

void stream_take_start(struct stream *s, const struct tlv *accept)
{
	if (!s->rq->attach)
		return;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t start = tlv_u64(accept, gap_field[i], s->received[i]);
		s->now[i] = tlv_u64(accept, i == 0 ? MUX_F_OFFSET_OUT : MUX_F_OFFSET_ERR, 0);
		if (s->rq->later && s->phase == PHASE_OPENED)
			s->received[i] = start;
		else if (start > s->received[i])
			skip_to(s, i, start);
		/* It may be lower, too: more was asked for than there is, or than a server that just came back has found again. */
		s->got[i] = start;
		mux_rebase_recv(s->conn.mux, s->id, MUX_STDOUT + i, start);
	}
}

void stream_take_gap(struct stream *s, const struct tlv *control)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t next = tlv_u64(control, gap_field[i], 0);
		if (next <= s->got[i] + s->skew[i])
			continue;
		s->skew[i] = next - s->got[i];
		if (next > s->received[i])
			skip_to(s, i, next);
	}
	stream_caught_up(s);
}

void stream_caught_up(struct stream *s)
{
	if (!s->rq->attach || !s->ret->accepted || s->received[0] < s->now[0] || s->received[1] < s->now[1])
		return;
	stream_release_tail(s);
	if (s->rq->until_now)
		s->drain = s->ret->caught_up = true;
}

static void reopen_fields(const struct stream *s, struct tlv *fields)
{
	tlv_add_u64(fields, MUX_F_KIND, s->rq->attach ? MUX_KIND_ATTACH : MUX_KIND_RESUME);
	if (s->rq->attach_sandbox)
		tlv_add_str(fields, MUX_F_SANDBOX, s->rq->attach_sandbox);
	else
		tlv_add_str(fields, MUX_F_OPERATION, s->ret->operation);
	tlv_add_u64(fields, MUX_F_OFFSET_OUT, s->received[0]);
	tlv_add_u64(fields, MUX_F_OFFSET_ERR, s->received[1]);
	if (s->rq->stamps)
		tlv_add_u64(fields, MUX_F_TIME_US, 0);
}

static int dial_again(struct stream *s, struct error *err)
{
	int64_t slice = clock_mono_ms() + DIAL_SLICE_MS;
	muxconn_stop(&s->conn);
	muxconn_start(&s->conn, &stream_handler);
	auto_tlv fields = TLV_INIT;
	reopen_fields(s, &fields);
	s->id = mux_open(s->conn.mux, &fields, LIMIT_MUX_WINDOW, err);
	if (!s->id)
		return -1;
	stream_rebase(s);
	s->conn_ended = s->retry = false;
	s->phase = PHASE_RESUMING;
	if (!s->rq->must_return)
		signals_abort(true);
	int r = muxconn_dial(&s->conn, &s->rq->dialler, true, slice < s->resume_by_ms ? slice : s->resume_by_ms, err);
	if (!s->rq->must_return)
		signals_abort(false);
	return r;
}

static void tell_once(struct stream *s)
{
	if (s->told || clock_mono_ms() - s->lost_ms < QUIET_MS)
		return;
	s->told = true;
	stream_say(s, "the connection to the server was lost; trying to resume");
}

void stream_resume(struct stream *s)
{
	struct error err = ERROR_INIT;
	if (s->ret->left != LEFT_NOT) {
		s->done = true;
		return;
	}
	if (!s->ret->operation[0] && !s->rq->attach_sandbox)
		return stream_lost(s, "the connection to the server ended before it answered; whether the command started is unknown");
	if (!s->lost_ms) {
		s->lost_ms = clock_mono_ms();
		s->resume_by_ms = s->lost_ms + LIMIT_RESUME_GRACE_MS;
	}
	int delay = s->retry ? LAST_DELAY_MS / 2 : 0;
	for (;;) {
		if (delay)
			signals_poll(NULL, 0, delay);
		stream_signals(s);
		if (s->done || dial_again(s, &err) == 0)
			return;
		tell_once(s);
		if (clock_mono_ms() >= s->resume_by_ms)
			return stream_lost(s, err.message);
		delay = delay ? 2 * delay : FIRST_DELAY_MS;
		if (delay > LAST_DELAY_MS)
			delay = LAST_DELAY_MS;
	}
}

void stream_resumed(struct stream *s, const struct tlv *accept)
{
	uint64_t offset = tlv_u64(accept, MUX_F_OFFSET_IN, s->feed.acked);
	if (!s->rq->attach) {
		if (!feed_rewind(&s->feed, offset))
			return stream_lost(s, "the server resumed the command at an input offset that is not ours");
		mux_rebase_send(s->conn.mux, s->id, MUX_STDIN, offset);
	}
	stream_take_start(s, accept);
	s->lost_ms = 0;
	if (s->told)
		stream_say(s, "resumed");
	s->told = false;
	stream_go_live(s);
}

bool stream_resume_refused(struct stream *s, const struct tlv *close)
{
	uint64_t error = tlv_u64(close, MUX_F_ERROR, MUX_ERR_NONE);
	if (error == MUX_ERR_NOT_FOUND) {
		stream_lost(s, "the server no longer knows the command");
		return true;
	}
	/* The old connection is not yet known to be dead, or the daemon is still finding its sandboxes again. */
	if (error != MUX_ERR_CONFLICT && error != MUX_ERR_UNAVAILABLE)
		return false;
	if (clock_mono_ms() >= s->resume_by_ms)
		return false;
	s->retry = true;
	s->conn_ended = true;
	return true;
}
