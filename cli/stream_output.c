/* What a stream brings, on its way to local output, a capture, or the lines held for --tail. */
#include "cli/stream_state.h"

#include "shared/base/clock.h"
#include "shared/base/limits.h"

#include <errno.h>

static void capture_add(struct capture *c, size_t max, const char *p, size_t n)
{
	c->total += n;
	if (c->tail.len == 0 && c->head.len < max) {
		size_t k = n < max - c->head.len ? n : max - c->head.len;
		buf_add(&c->head, p, k);
		p += k;
		n -= k;
	}
	if (n == 0)
		return;
	buf_add(&c->tail, p, n);
	if (c->tail.len > 2 * LIMIT_OUTPUT_TAIL_MAX)
		buf_consume(&c->tail, c->tail.len - LIMIT_OUTPUT_TAIL_MAX);
}

static void output_failed(struct stream *s, int error)
{
	if (error == EPIPE)
		stream_leave(s, LEFT_READER_GONE, 0);
	else
		stream_leave(s, LEFT_WRITE_FAILED, error);
}

static void report_consumed(struct stream *s, unsigned i)
{
	/* What an earlier connection brought may be among the bytes kept: then nothing of this one is consumed yet. */
	uint64_t kept = outlet_pending(&s->out[i]);
	if (kept <= s->got[i])
		mux_consumed(s->conn.mux, s->id, MUX_STDOUT + i, s->got[i] - kept);
}

static void output(struct stream *s, unsigned i, const void *p, size_t n)
{
	struct capture *c = i == 0 ? s->rq->capture_out : s->rq->capture_err;
	if (c)
		capture_add(c, s->rq->capture_max, p, n);
	else if (s->holding)
		buf_add(&s->held[i], p, n);
	else if (s->ret->left == LEFT_NOT && outlet_write(&s->out[i], p, n) != 0)
		output_failed(s, s->out[i].error);
}

static void add_stamp(struct buf *b, int64_t time_us)
{
	char text[RFC3339_MAX];
	if (time_us <= 0)
		buf_adds(b, "- ");
	else /* to the millisecond: nobody measured more */
		buf_addf(b, "%.23sZ ", time_rfc3339(time_us, text));
}

static void output_stamped(struct stream *s, unsigned i, const char *p, size_t n)
{
	auto_buf b = BUF_INIT;
	while (n > 0) {
		const char *end = memchr(p, '\n', n);
		size_t k = end ? (size_t)(end - p) + 1 : n;
		if (!s->mid_line[i])
			add_stamp(&b, s->time_us[i]);
		buf_add(&b, p, k);
		s->mid_line[i] = !end;
		p += k;
		n -= k;
	}
	output(s, i, buf_str(&b), b.len);
}

void stream_take_time(struct stream *s, const struct tlv *control)
{
	if (!tlv_has(control, MUX_F_TIME_US))
		return;
	for (unsigned i = 0; i < 2; i++)
		if (tlv_has(control, i == 0 ? MUX_F_OFFSET_OUT : MUX_F_OFFSET_ERR))
			s->time_us[i] = (int64_t)(tlv_u64(control, MUX_F_TIME_US, 0) & INT64_MAX);
}

/* Where the last `lines` lines begin; an unfinished last line counts as one. */
static size_t tail_start(const struct buf *b, uint64_t lines)
{
	size_t at = b->len;
	if (lines == 0)
		return at;
	if (at > 0 && b->data[at - 1] == '\n')
		at--;
	while (at > 0 && (b->data[at - 1] != '\n' || --lines > 0))
		at--;
	return at;
}

void stream_release_tail(struct stream *s)
{
	if (!s->holding)
		return;
	s->holding = false;
	for (unsigned i = 0; i < 2; i++) {
		struct buf *b = &s->held[i];
		size_t at = tail_start(b, s->rq->tail_lines);
		if (b->len > at)
			output(s, i, b->data + at, b->len - at);
		buf_done(b);
	}
}

void stream_on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct stream *s = ctx;
	(void)m;
	if (stream != s->id || (channel != MUX_STDOUT && channel != MUX_STDERR))
		return;
	unsigned i = channel - MUX_STDOUT;
	uint64_t at = offset + s->skew[i];
	s->got[i] = offset + n;
	/* An attach may begin below what was asked or had: those bytes are not for showing (again). */
	size_t known = at >= s->received[i] ? 0 : s->received[i] - at < n ? (size_t)(s->received[i] - at) : n;
	if (n > known) {
		s->received[i] = at + n;
		s->last_byte = ((const char *)p)[n - 1];
		if (s->rq->stamps)
			output_stamped(s, i, (const char *)p + known, n - known);
		else
			output(s, i, (const char *)p + known, n - known);
	}
	report_consumed(s, i);
	stream_caught_up(s);
}

void stream_flush_outlet(struct stream *s, unsigned i)
{
	if (outlet_flush(&s->out[i]) != 0)
		output_failed(s, s->out[i].error);
	if (s->conn.fd >= 0 && !s->ret->closed)
		report_consumed(s, i);
}
