/*
 * A client's stream that shows an exec: bytes straight from the spool, as fast as the client's window allows. The
 * foreground reader (owner) also feeds stdin and signals, and what it has not acknowledged stays in the spool; others
 * only watch and may meet a gap, which they are told by CONTROL {GAP_OUT | GAP_ERR}: the next byte is at that offset.
 */
#include "daemon/worker/exec_priv.h"

#include "daemon/link/node_port.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

static void reader_owner_ack(struct reader *r)
{
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++)
		exec_ack(r->exec, ch, r->pos[ch] < exec_total(r->exec, ch) ? r->pos[ch] : exec_total(r->exec, ch));
}

/* --- from the client --- */

static void client_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct reader *r = container_of(s, struct reader, stream);
	struct exec *x = r->exec;
	auto_tlv fields = TLV_INIT;

	if (channel != MUX_STDIN || !r->owner || !x->has_stdin || x->state == EXEC_ENDED) {
		mux_consumed(s->m, s->id, channel, offset + n);
		return;
	}
	if (exec_stdin(x, offset, p, n) == 0)
		return;
	refusal_fields(&fields, MUX_ERR_REFUSED, "stdin went beyond what was granted");
	stream_close(s, &fields);
	exec_cancel(x);
	exec_settle(x);
}

static void client_eof(struct stream *s, unsigned channel)
{
	struct reader *r = container_of(s, struct reader, stream);

	if (channel == MUX_STDIN && r->owner && r->exec->has_stdin && r->exec->state != EXEC_ENDED)
		exec_stdin_eof(r->exec);
}

static void client_window(struct stream *s, unsigned channel, uint64_t consumed)
{
	struct reader *r = container_of(s, struct reader, stream);

	if (channel == MUX_STDIN)
		return;
	if (r->owner && r->exec->held)
		exec_ack(r->exec, channel - MUX_STDOUT, consumed);
	exec_settle(r->exec);
}

static void client_control(struct stream *s, const struct tlv *fields)
{
	static const enum mux_field allowed[] = { MUX_F_ACTION, MUX_F_SIGNAL, MUX_F_ROWS, MUX_F_COLS };
	struct reader *r = container_of(s, struct reader, stream);
	struct exec *x = r->exec;
	uint64_t rows, cols;

	if (!r->owner || x->state == EXEC_ENDED || tlv_only(fields, allowed, ARRAY_LEN(allowed), NULL) != 0)
		return;
	switch (tlv_u64(fields, MUX_F_ACTION, 0)) {
	case MUX_CONTROL_SIGNAL:
		exec_signal(x, (unsigned)(tlv_u64(fields, MUX_F_SIGNAL, 0) & 0xffff));
		break;
	case MUX_CONTROL_RESIZE:
		rows = tlv_u64(fields, MUX_F_ROWS, 0);
		cols = tlv_u64(fields, MUX_F_COLS, 0);
		if (rows > 0 && rows <= UINT16_MAX && cols > 0 && cols <= UINT16_MAX)
			exec_resize(x, (uint16_t)rows, (uint16_t)cols);
		break;
	case MUX_CONTROL_CANCEL:
		exec_cancel(x);
		break;
	}
}

static void client_lost(struct stream *s, enum mux_error why)
{
	struct reader *r = container_of(s, struct reader, stream);
	struct exec *x = r->exec;
	bool owned = r->owner;

	(void)why;
	reader_free(r);
	if (owned)
		exec_orphaned(x);
	exec_settle(x);
}

static void client_closed(struct stream *s, const struct tlv *fields)
{
	struct reader *r = container_of(s, struct reader, stream);
	struct exec *x = r->exec;
	bool owned = r->owner;

	/* A hop between lost its client: that one may come back. */
	if (tlv_u64(fields, MUX_F_ERROR, MUX_ERR_NONE) == MUX_ERR_LOST) {
		client_lost(s, MUX_ERR_LOST);
		return;
	}
	reader_free(r);
	if (owned)
		exec_cancel(x);
	exec_settle(x);
}

static void client_writable(struct stream *s)
{
	exec_settle(container_of(s, struct reader, stream)->exec);
}

static const struct stream_ops reader_ops = {
	.data = client_data,
	.eof = client_eof,
	.window = client_window,
	.control = client_control,
	.closed = client_closed,
	.lost = client_lost,
	.writable = client_writable,
};

/* --- life --- */

struct reader *reader_new(struct exec *x, struct mux *m, uint32_t stream)
{
	struct reader *r = xcalloc(1, sizeof(*r));

	stream_bind(&r->stream, &reader_ops, m, stream);
	r->exec = x;
	r->next = x->readers;
	x->readers = r;
	return r;
}

void reader_free(struct reader *r)
{
	struct reader **at = &r->exec->readers;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (r->exec->owner == r)
		r->exec->owner = NULL;
	stream_close(&r->stream, NULL);
	free(r);
}

void reader_take_over(struct reader *r, const uint64_t from[SPOOL_CHANNELS])
{
	struct exec *x = r->exec;
	struct reader *old = x->owner;
	auto_tlv fields = TLV_INIT;

	if (old && old != r) {
		refusal_fields(&fields, MUX_ERR_CONFLICT, "another connection of yours resumed this command");
		stream_close(&old->stream, &fields);
		reader_free(old);
	}
	x->owner = r;
	r->owner = true;
	x->resume_by_ms = 0;
	exec_arm(x);
	memcpy(r->pos, from, sizeof(r->pos));
	reader_owner_ack(r);
}

static uint64_t follow_from(const struct reader *r, unsigned ch, const struct node_stream *what)
{
	const struct spool *s = r->exec->spool;
	uint64_t total = exec_total(r->exec, ch), from = what->from[ch], since;

	if (s && what->since_us > 0) {
		since = spool_since(s, (enum spool_channel)ch, what->since_us);
		from = since > from ? since : from;
	}
	from = from < total ? from : total;
	return s ? spool_next(s, (enum spool_channel)ch, from) : from;
}

void reader_follow(struct reader *r, const struct node_stream *what)
{
	r->times = what->times;
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++) {
		r->pos[ch] = follow_from(r, ch, what);
		r->time_us[ch] = -1;
	}
}

/* The offsets of the stream are those of the spool at its start. */
static void answer(struct reader *r, struct tlv *fields)
{
	struct mux *m = r->stream.m;

	tlv_add_str(fields, MUX_F_OPERATION, r->exec->key.text);
	for (unsigned ch = 0; ch < SPOOL_CHANNELS; ch++)
		mux_rebase_send(m, r->stream.id, ch + MUX_STDOUT, r->pos[ch]);
	mux_rebase_recv(m, r->stream.id, MUX_STDIN, r->exec->in.acked);
	if (mux_accept(m, r->stream.id, fields, LIMIT_MUX_WINDOW) == 0)
		r->accepted = true;
}

void reader_accept(struct reader *r)
{
	struct exec *x = r->exec;
	auto_tlv fields = TLV_INIT;

	if (r->accepted || !r->stream.m)
		return;
	if (r->owner) {
		tlv_add_u64(&fields, MUX_F_OFFSET_IN, x->in.acked);
	} else if (!r->starter) {
		tlv_add_u64(&fields, MUX_F_GAP_OUT, r->pos[SPOOL_OUT]);
		tlv_add_u64(&fields, MUX_F_GAP_ERR, r->pos[SPOOL_ERR]);
		tlv_add_u64(&fields, MUX_F_OFFSET_OUT, exec_total(x, SPOOL_OUT));
		tlv_add_u64(&fields, MUX_F_OFFSET_ERR, exec_total(x, SPOOL_ERR));
	}
	answer(r, &fields);
}

/* --- to the client --- */

static void tell_gap(struct reader *r, unsigned ch, uint64_t next)
{
	auto_tlv t = TLV_INIT;

	tlv_add_u64(&t, ch == SPOOL_OUT ? MUX_F_GAP_OUT : MUX_F_GAP_ERR, next);
	mux_control(r->stream.m, r->stream.id, &t);
	r->pos[ch] = next;
}

/* Of n bytes at the reader's place, how many came together; tells when, if that is news. */
static size_t tell_time(struct reader *r, unsigned ch, size_t n)
{
	uint64_t end;
	int64_t time_us = spool_time(r->exec->spool, (enum spool_channel)ch, r->pos[ch], &end);
	auto_tlv t = TLV_INIT;

	if (time_us != r->time_us[ch]) {
		tlv_add_u64(&t, ch == SPOOL_OUT ? MUX_F_OFFSET_OUT : MUX_F_OFFSET_ERR, r->pos[ch]);
		tlv_add_u64(&t, MUX_F_TIME_US, (uint64_t)time_us);
		mux_control(r->stream.m, r->stream.id, &t);
		r->time_us[ch] = time_us;
	}
	return end > r->pos[ch] && end - r->pos[ch] < n ? (size_t)(end - r->pos[ch]) : n;
}

/* True when the channel has nothing left to send. */
static bool pump_channel(struct reader *r, unsigned ch)
{
	const struct exec *x = r->exec;
	uint64_t total = exec_total(x, ch), next;
	const void *p;
	size_t n;

	while (r->pos[ch] < total) {
		/* Without room not even the gap is told: it grows while a reader stands still. */
		if (mux_sendable(r->stream.m, r->stream.id, ch + MUX_STDOUT) == 0)
			return false;
		next = spool_next(x->spool, (enum spool_channel)ch, r->pos[ch]);
		if (next != r->pos[ch]) {
			tell_gap(r, ch, next);
			continue;
		}
		n = spool_read(x->spool, (enum spool_channel)ch, r->pos[ch], &p);
		if (n && r->times)
			n = tell_time(r, ch, n);
		n = n ? mux_send(r->stream.m, r->stream.id, ch + MUX_STDOUT, p, n) : 0;
		if (n == 0)
			return false;
		r->pos[ch] += n;
	}
	if (x->eof[ch] && !r->eof[ch]) {
		r->eof[ch] = true;
		mux_eof(r->stream.m, r->stream.id, ch + MUX_STDOUT);
	}
	return true;
}

static void reader_finish(struct reader *r)
{
	auto_tlv fields = TLV_INIT;

	exec_close_fields(r->exec, &fields);
	stream_close(&r->stream, &fields);
	reader_free(r);
}

void reader_pump(struct reader *r)
{
	struct mux *m = r->stream.m;
	const struct exec *x = r->exec;
	bool all = true;

	if (!m) {
		reader_free(r);
		return;
	}
	mux_cork(m);
	if (x->state == EXEC_ENDED && !r->starter)
		reader_accept(r);
	if (r->accepted && !r->starter) {
		all = pump_channel(r, SPOOL_OUT);
		all &= pump_channel(r, SPOOL_ERR);
	}
	if (all && x->state == EXEC_ENDED && x->told)
		reader_finish(r);
	mux_uncork(m);
}
