/* The mux state machine: two ends in one process, joined by memory, and raw frames a hostile peer would send. */
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/mux.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { W = 64 * 1024 };

/* What one end saw. */
struct end {
	struct mux *m;
	uint32_t opened, accepted, closed, lost, eofs[MUX_CHANNELS], pongs, hellos, writables;
	uint32_t last;           /* id of the newest stream of the peer */
	uint64_t data[MUX_CHANNELS]; /* bytes received */
	uint64_t acked;
	uint32_t pieces;
	bool accept_all, consume_all, close_on_data;
	uint32_t window;
	uint64_t exit_code;
	size_t field_bytes;
	struct buf wire;         /* what the sink took */
	size_t sink_room;
	bool sink_dead;
	unsigned sink_calls;
};

static uint8_t pattern(uint64_t at)
{
	return (uint8_t)((at * 2654435761u) >> 13 ^ at);
}

static void on_hello(void *ctx, struct mux *m, const struct tlv *t)
{
	struct end *e = ctx;
	(void)m;
	assert_true(tlv_u64(t, MUX_F_VERSION, 0) >= MUX_VERSION);
	e->hellos++;
}

static void on_opened(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct end *e = ctx;
	tlv_raw(t, &e->field_bytes);
	e->opened++;
	e->last = id;
	if (e->accept_all)
		mux_accept(m, id, NULL, e->window ? e->window : W);
}

static void on_accepted(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	(void)m;
	(void)id;
	(void)t;
	((struct end *)ctx)->accepted++;
}

static void on_data(void *ctx, struct mux *m, uint32_t id, unsigned c, uint64_t at, const void *p, size_t n)
{
	struct end *e = ctx;
	const uint8_t *b = p;
	assert_true(n > 0);
	assert_true(at == e->data[c]);
	for (size_t i = 0; i < n; i++)
		if (b[i] != pattern(at + i))
			fail_msg("byte %llu of channel %u is wrong", (unsigned long long)(at + i), c);
	e->data[c] += n;
	e->pieces++;
	if (e->close_on_data)
		mux_close(m, id, NULL);
	else if (e->consume_all)
		mux_consumed(m, id, c, e->data[c]);
}

static void on_eof(void *ctx, struct mux *m, uint32_t id, unsigned c)
{
	(void)m;
	(void)id;
	((struct end *)ctx)->eofs[c]++;
}

static void on_window(void *ctx, struct mux *m, uint32_t id, unsigned c, uint64_t consumed)
{
	(void)m;
	(void)id;
	(void)c;
	((struct end *)ctx)->acked = consumed;
}

static void on_closed(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct end *e = ctx;
	e->closed++;
	e->exit_code = tlv_u64(t, MUX_F_EXIT_CODE, 999);
	assert_ptr_equal(mux_user(m, id), NULL);
}

static void on_lost(void *ctx, struct mux *m, uint32_t id)
{
	(void)m;
	(void)id;
	((struct end *)ctx)->lost++;
}

static void on_writable(void *ctx, struct mux *m)
{
	(void)m;
	((struct end *)ctx)->writables++;
}

static void on_pong(void *ctx, struct mux *m)
{
	(void)m;
	((struct end *)ctx)->pongs++;
}

static const struct mux_handler handler = {
	.hello = on_hello, .opened = on_opened, .accepted = on_accepted, .data = on_data, .eof = on_eof, .window = on_window,
	.closed = on_closed, .lost = on_lost, .writable = on_writable, .pong = on_pong,
};

static ssize_t sink(void *ctx, const struct iovec *iov, int n)
{
	struct end *e = ctx;
	ssize_t took = 0;
	e->sink_calls++;
	if (e->sink_dead)
		return -1;
	for (int i = 0; i < n; i++) {
		size_t k = iov[i].iov_len < e->sink_room ? iov[i].iov_len : e->sink_room;
		buf_add(&e->wire, iov[i].iov_base, k);
		e->sink_room -= k;
		took += (ssize_t)k;
	}
	return took;
}

static void end_init(struct end *e, bool dialled, bool with_sink)
{
	*e = (struct end){ .accept_all = true, .consume_all = true };
	e->m = mux_new(&(struct mux_options){ .handler = &handler, .ctx = e, .dialled = dialled, .sink = with_sink ? sink : NULL });
	mux_hello(e->m, NULL);
}

static void end_done(struct end *e)
{
	mux_free(e->m);
	buf_done(&e->wire);
}

/* Moves what waits from one end to the other, in pieces of at most `piece` bytes. Returns the bytes moved. */
static size_t move(struct end *from, struct end *to, size_t piece)
{
	const void *p;
	size_t n, all = 0;
	while ((n = mux_queued(from->m, &p)) > 0) {
		struct error err = ERROR_INIT;
		n = n < piece ? n : piece;
		auto_free void *copy = xmemdup(p, n);
		mux_taken(from->m, n);
		if (mux_feed(to->m, copy, n, &err) < 0)
			fail_msg("%s", err.message);
		all += n;
	}
	return all;
}

static void settle(struct end *a, struct end *b, size_t piece)
{
	while (move(a, b, piece) + move(b, a, piece))
		;
}

static uint32_t open_exec(struct end *e, uint32_t window)
{
	auto_tlv t = TLV_INIT;
	struct error err = ERROR_INIT;
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EXEC);
	uint32_t id = mux_open(e->m, &t, window, &err);
	assert_true(id != 0);
	return id;
}

static size_t send_pattern(struct end *e, uint32_t id, unsigned c, uint64_t at, size_t n)
{
	auto_free uint8_t *p = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(at + i);
	return mux_send(e->m, id, c, p, n);
}

static void a_stream_lives_and_ends(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	uint32_t id = open_exec(&a, W);
	assert_int_equal(id, 1);
	assert_int_equal(send_pattern(&a, id, 0, 0, 5), 0); /* not before ACCEPT */
	settle(&a, &b, 1);
	assert_int_equal(a.hellos + b.hellos, 2);
	assert_int_equal(b.opened, 1);
	assert_int_equal(a.accepted, 1);
	assert_int_equal(send_pattern(&a, id, 0, 0, 5), 5);
	assert_int_equal(send_pattern(&b, id, 1, 0, 7), 7);
	assert_int_equal(send_pattern(&b, id, 2, 0, 9), 9);
	mux_eof(a.m, id, 0);
	mux_eof(b.m, id, 1);
	mux_eof(b.m, id, 1);
	settle(&a, &b, 3);
	assert_int_equal(b.data[0], 5);
	assert_int_equal(a.data[1], 7);
	assert_int_equal(a.data[2], 9);
	assert_int_equal(b.eofs[0], 1);
	assert_int_equal(a.eofs[1], 1);
	assert_int_equal(a.eofs[2], 0);
	auto_tlv end = TLV_INIT;
	tlv_add_u64(&end, MUX_F_EXIT_CODE, 42);
	mux_close(b.m, id, &end);
	assert_int_equal(mux_stream_count(b.m), 0);
	assert_int_equal(send_pattern(&a, id, 0, 5, 5), 0); /* after EOF */
	settle(&a, &b, 100);
	assert_int_equal(a.closed, 1);
	assert_int_equal(a.exit_code, 42);
	assert_int_equal(mux_stream_count(a.m), 0);
	end_done(&a);
	end_done(&b);
}

static void eof_before_accept_is_remembered(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	b.accept_all = false;
	uint32_t id = open_exec(&a, W);
	mux_eof(a.m, id, 0);
	settle(&a, &b, 100);
	assert_int_equal(b.eofs[0], 0);
	mux_eof(b.m, id, 1);
	assert_int_equal(mux_accept(b.m, id, NULL, W), 0);
	assert_int_equal(mux_accept(b.m, id, NULL, W), -1);
	settle(&a, &b, 100);
	assert_int_equal(b.eofs[0], 1);
	assert_int_equal(a.eofs[1], 1);
	end_done(&a);
	end_done(&b);
}

static void a_receiver_that_stops_stops_its_sender(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	a.consume_all = false;
	uint32_t id = open_exec(&a, 1000);
	settle(&a, &b, 1 << 20);
	assert_int_equal(mux_sendable(b.m, id, 1), 1000);
	assert_int_equal(send_pattern(&b, id, 1, 0, 5000), 1000);
	assert_int_equal(mux_sendable(b.m, id, 1), 0);
	assert_int_equal(mux_sendable(b.m, id, 2), 1000); /* channels do not share it */
	settle(&a, &b, 1 << 20);
	mux_consumed(a.m, id, 1, 249);
	settle(&a, &b, 1 << 20);
	assert_int_equal(mux_sendable(b.m, id, 1), 0); /* not yet worth a frame */
	mux_consumed(a.m, id, 1, 250);
	settle(&a, &b, 1 << 20);
	assert_int_equal(mux_sendable(b.m, id, 1), 250);
	assert_int_equal(b.acked, 250);
	assert_int_equal(send_pattern(&b, id, 1, 1000, 10), 10);
	mux_eof(b.m, id, 1);
	settle(&a, &b, 1 << 20);
	mux_consumed(a.m, id, 1, 1010);
	settle(&a, &b, 1 << 20);
	assert_int_equal(b.acked, 1010); /* all before an EOF is reported */
	end_done(&a);
	end_done(&b);
}

/* Both directions at once, sizes around the limits, any chunking of the transport. */
static void bytes_are_exact_around_every_limit(void **state)
{
	static const size_t sizes[] = { 1, 4095, 4096, 4097, 16383, 16384, 16385, W - 1, W, W + 1, LIMIT_MUX_FRAME_MAX - 1,
					LIMIT_MUX_FRAME_MAX, LIMIT_MUX_FRAME_MAX + 1, 3 * LIMIT_MUX_FRAME_MAX + 7 };
	static const size_t pieces[] = { 1, 11, 12, 13, 4096, 65536, 1 << 20 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes) * ARRAY_LEN(pieces); i++) {
		size_t n = sizes[i % ARRAY_LEN(sizes)], piece = pieces[i / ARRAY_LEN(sizes)];
		uint32_t window = i % 2 ? W : LIMIT_MUX_WINDOW;
		struct end a, b;
		if (piece < 11 && n > 100000)
			continue;
		end_init(&a, true, false);
		end_init(&b, false, false);
		b.window = window;
		uint32_t id = open_exec(&a, window);
		settle(&a, &b, piece);
		for (uint64_t in = 0, out = 0; in < n || out < n;) {
			uint64_t before = in + out;
			in += send_pattern(&a, id, 0, in, n - in);
			out += send_pattern(&b, id, 1, out, n - out);
			settle(&a, &b, piece);
			assert_true(in + out > before);
		}
		mux_eof(a.m, id, 0);
		mux_eof(b.m, id, 1);
		settle(&a, &b, piece);
		assert_int_equal(b.data[0], n);
		assert_int_equal(a.data[1], n);
		assert_int_equal(b.eofs[0] + a.eofs[1], 2);
		end_done(&a);
		end_done(&b);
	}
}

/* A sink that takes little: order and content hold, room runs out, and `writable` says when it is back. */
static void a_slow_sink_keeps_order(void **state)
{
	struct end a, b;
	uint64_t sent = 0, fed = 0;
	(void)state;
	end_init(&a, true, true);
	end_init(&b, false, false);
	b.window = 8 << 20;
	a.sink_room = SIZE_MAX / 2;
	uint32_t id = open_exec(&a, W);
	mux_flush(a.m);
	srand(7);
	for (int round = 0; round < 4000; round++) {
		a.sink_room = (size_t)rand() % 30000;
		sent += send_pattern(&a, id, 0, sent, (size_t)rand() % 50000);
		assert_int_equal(mux_flush(a.m), 0);
		size_t n = a.wire.len - fed;
		assert_int_equal(mux_feed(b.m, a.wire.data + fed, n, NULL), 0);
		fed = a.wire.len;
		if (a.wire.len > 1 << 20) {
			buf_reset(&a.wire);
			fed = 0;
		}
		move(&b, &a, 1 << 20);
	}
	a.sink_room = SIZE_MAX / 2;
	assert_int_equal(mux_flush(a.m), 0);
	assert_false(mux_want_write(a.m));
	assert_int_equal(mux_feed(b.m, a.wire.data + fed, a.wire.len - fed, NULL), 0);
	assert_true(b.data[0] == sent);
	assert_true(sent > 10 << 20);
	assert_true(a.writables > 0);
	end_done(&a);
	end_done(&b);
}

static void small_frames_of_a_batch_share_one_write(void **state)
{
	struct end a;
	(void)state;
	end_init(&a, true, true);
	a.sink_room = SIZE_MAX / 2;
	mux_flush(a.m);
	a.sink_calls = 0;
	mux_cork(a.m);
	mux_cork(a.m);
	uint32_t id = open_exec(&a, W);
	mux_ping(a.m);
	mux_close(a.m, id, NULL);
	mux_uncork(a.m);
	assert_int_equal(a.sink_calls, 0);
	mux_uncork(a.m);
	assert_int_equal(a.sink_calls, 1);
	assert_false(mux_want_write(a.m));
	a.sink_dead = true;
	mux_ping(a.m);
	assert_true(mux_want_write(a.m));
	assert_int_equal(mux_flush(a.m), -1);
	end_done(&a);
}

static void fields_span_frames_up_to_their_limit(void **state)
{
	struct end a, b;
	struct error err = ERROR_INIT;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	auto_free char *big = xcalloc(1, LIMIT_MUX_FIELDS_MAX);
	auto_tlv t = TLV_INIT;
	tlv_add_bytes(&t, MUX_F_ARG, big, LIMIT_MUX_FIELDS_MAX - 6 - 9);
	assert_true(mux_open(a.m, &t, W, &err) != 0); /* with WINDOW exactly the limit */
	settle(&a, &b, 50000);
	assert_int_equal(b.opened, 1);
	assert_int_equal(b.field_bytes, LIMIT_MUX_FIELDS_MAX);
	settle(&a, &b, 50000);
	tlv_done(&t);
	tlv_add_bytes(&t, MUX_F_ARG, big, LIMIT_MUX_FIELDS_MAX - 6 - 8);
	assert_int_equal(mux_open(a.m, &t, W, &err), 0);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	end_done(&a);
	end_done(&b);
}

static void a_resumed_stream_counts_on(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	b.accept_all = false;
	uint32_t id = open_exec(&a, 100);
	mux_rebase_recv(a.m, id, 1, 1ULL << 40);
	a.data[1] = 1ULL << 40;
	settle(&a, &b, 100);
	mux_rebase_send(b.m, id, 1, 1ULL << 40);
	mux_accept(b.m, id, NULL, 100);
	assert_int_equal(send_pattern(&b, id, 1, 1ULL << 40, 500), 100);
	settle(&a, &b, 100);
	assert_true(a.data[1] == (1ULL << 40) + 100);
	assert_true(b.acked == (1ULL << 40) + 100);
	assert_int_equal(mux_sendable(b.m, id, 1), 100);
	end_done(&a);
	end_done(&b);
}

static void frames_to_a_dead_stream_are_dropped(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	uint32_t id = open_exec(&a, W);
	settle(&a, &b, 100);
	mux_close(b.m, id, NULL); /* crosses everything the other side sends now */
	assert_int_equal(send_pattern(&a, id, 0, 0, 100), 100);
	mux_control(a.m, id, NULL);
	mux_eof(a.m, id, 0);
	mux_close(a.m, id, NULL);
	settle(&a, &b, 7);
	assert_int_equal(b.data[0], 0);
	assert_int_equal(a.closed + b.closed, 0);
	id = open_exec(&a, W);
	assert_int_equal(id, 3);
	settle(&a, &b, 100);
	b.close_on_data = true; /* closes in the middle of a frame that arrives in pieces */
	assert_int_equal(send_pattern(&a, id, 0, 0, 100), 100);
	settle(&a, &b, 20);
	assert_int_equal(b.pieces, 1);
	assert_int_equal(a.closed, 1);
	end_done(&a);
	end_done(&b);
}

static void streams_are_bounded(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	mux_free(b.m);
	b.m = mux_new(&(struct mux_options){ .handler = &handler, .ctx = &b, .max_streams = 10 });
	mux_hello(b.m, NULL);
	for (int i = 0; i < 12; i++)
		open_exec(&a, W);
	settle(&a, &b, 100);
	assert_int_equal(mux_stream_count(b.m), 10);
	assert_int_equal(a.closed, 2);
	assert_int_equal(mux_stream_count(a.m), 10);
	for (int i = 10; i < LIMIT_MUX_STREAMS_MAX; i++)
		open_exec(&a, W);
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_KIND, 1);
	struct error err = ERROR_INIT;
	assert_int_equal(mux_open(a.m, &t, W, &err), 0);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	mux_lost(a.m);
	assert_int_equal(a.lost, LIMIT_MUX_STREAMS_MAX);
	assert_int_equal(mux_stream_count(a.m), 0);
	end_done(&a);
	end_done(&b);
}

static void ping_is_answered_in_order(void **state)
{
	struct end a, b;
	(void)state;
	end_init(&a, true, false);
	end_init(&b, false, false);
	mux_ping(a.m);
	mux_ping(a.m);
	settle(&a, &b, 5);
	assert_int_equal(a.pongs, 2);
	end_done(&a);
	end_done(&b);
}

/* A frame as bytes: type, channel, flags, stream, payload. */
static void put(struct buf *w, unsigned type, unsigned channel, unsigned flags, uint32_t stream, const void *p, size_t n, uint32_t claim)
{
	uint8_t h[12] = { (uint8_t)type, (uint8_t)channel, (uint8_t)(flags >> 8), (uint8_t)flags, (uint8_t)(stream >> 24),
			  (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream, (uint8_t)(claim >> 24),
			  (uint8_t)(claim >> 16), (uint8_t)(claim >> 8), (uint8_t)claim };
	buf_add(w, h, sizeof(h));
	buf_add(w, p, n);
}

static void put_hello(struct buf *w, uint64_t version, uint64_t oldest, uint64_t frame_max)
{
	auto_tlv t = TLV_INIT;
	size_t n;
	tlv_add_u64(&t, MUX_F_VERSION, version);
	tlv_add_u64(&t, MUX_F_VERSION_MIN, oldest);
	tlv_add_u64(&t, MUX_F_FRAME_MAX, frame_max);
	const void *p = tlv_raw(&t, &n);
	put(w, MUX_HELLO, 0, 0, 0, p, n, (uint32_t)n);
}

static void hello_decides_the_version(void **state)
{
	static const struct {
		uint64_t version, oldest, frame_max;
		int right;
	} rows[] = {
		{ 1, 1, 262144, 0 }, { 9, 1, 262144, 0 }, { 1, 1, 16384, 0 }, { 1, 1, UINT64_MAX, 0 },
		{ 9, 2, 262144, -1 }, { 0, 0, 262144, -1 }, { 1, 1, 16383, -1 }, { 1, 1, 0, -1 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct end e;
		auto_buf w = BUF_INIT;
		end_init(&e, false, false);
		put_hello(&w, rows[i].version, rows[i].oldest, rows[i].frame_max);
		struct error err = ERROR_INIT;
		assert_int_equal(mux_feed(e.m, w.data, w.len, rows[i].right ? &err : NULL), rows[i].right);
		assert_int_equal(mux_greeted(e.m), rows[i].right == 0);
		if (rows[i].right)
			assert_int_equal(mux_feed(e.m, w.data, w.len, &err), -1); /* broken for good */
		end_done(&e);
	}
}

static const uint8_t window_field[] = { 0, 11, 0, 0, 0, 1, 100 };

struct wrong {
	const char *words; /* must be in the message */
	unsigned type, channel, flags;
	uint32_t stream;
	const char *payload;
	uint32_t len;
	uint32_t claim; /* 0: len */
};

/* Each row is one frame after: HELLO, OPEN 1 (accepted with window 64 KiB), OPEN 3 (not accepted), stream 2 opened by this side. */
static const struct wrong wrongs[] = {
	{ "unknown frame type", 0, 0, 0, 1, "", 0, 0 },
	{ "unknown frame type", 11, 0, 0, 1, "", 0, 0 },
	{ "unknown frame type", 255, 0, 0, 1, "", 0, 0 },
	{ "second HELLO", MUX_HELLO, 0, 0, 0, "", 0, 0 },
	{ "over the limit", MUX_DATA, 0, 0, 1, "", 0, LIMIT_MUX_FRAME_MAX + 1 },
	{ "over the limit", MUX_OPEN, 0, 0, 5, "", 0, 0xffffffff },
	{ "wrong size", MUX_DATA, 0, 0, 1, "", 0, 0 },
	{ "wrong size", MUX_EOF, 0, 0, 1, "x", 1, 0 },
	{ "wrong size", MUX_PING, 0, 0, 0, "x", 1, 0 },
	{ "wrong size", MUX_WINDOW, 1, 0, 1, "1234567", 7, 0 },
	{ "flag", MUX_DATA, 0, 1, 1, "x", 1, 0 },
	{ "flag", MUX_OPEN, 0, 2, 5, "", 0, 0 },
	{ "flag", MUX_PING, 0, 1, 0, "", 0, 0 },
	{ "stream id", MUX_PING, 0, 0, 1, "", 0, 0 },
	{ "stream id", MUX_DATA, 0, 0, 0, "x", 1, 0 },
	{ "stream id", MUX_OPEN, 0, 0, 0, "", 0, 0 },
	{ "channel", MUX_DATA, 3, 0, 1, "x", 1, 0 },
	{ "channel", MUX_OPEN, 1, 0, 5, "", 0, 0 },
	{ "channel", MUX_CLOSE, 2, 0, 1, "", 0, 0 },
	{ "id of this side", MUX_OPEN, 0, 0, 6, "", 0, 0 },
	{ "id that was used", MUX_OPEN, 0, 0, 1, "", 0, 0 },
	{ "id that was used", MUX_OPEN, 0, 0, 3, "", 0, 0 },
	{ "never was", MUX_DATA, 0, 0, 5, "x", 1, 0 },
	{ "never was", MUX_CLOSE, 0, 0, 5, "", 0, 0 },
	{ "never was", MUX_EOF, 0, 0, 4, "", 0, 0 },
	{ "never was", MUX_CONTROL, 0, 0, 0xffffffff, "", 0, 0 },
	{ "nobody waits", MUX_ACCEPT, 0, 0, 1, "", 0, 0 },
	{ "nobody waits", MUX_ACCEPT, 0, 0, 3, "", 0, 0 },
	{ "before ACCEPT", MUX_DATA, 0, 0, 3, "x", 1, 0 },
	{ "before ACCEPT", MUX_DATA, 0, 0, 2, "x", 1, 0 },
	{ "beyond the window", MUX_DATA, 0, 0, 1, "", 0, W + 1 },
	{ "past what was sent", MUX_WINDOW, 1, 0, 1, "\0\0\0\0\0\0\0\1", 8, 0 },
	{ "past what was sent", MUX_WINDOW, 1, 0, 1, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0 },
	{ "cut short", MUX_OPEN, 0, 0, 5, "\0\1\0\0\0\5", 6, 0 },
	{ "cut short", MUX_CONTROL, 0, 0, 1, "x", 1, 0 },
	{ "cut short", MUX_CLOSE, 0, 0, 1, "\0\1\0\0\0", 5, 0 },
};

static void start_wrong(struct end *e)
{
	auto_buf w = BUF_INIT;
	struct error err = ERROR_INIT;
	end_init(e, false, false);
	put_hello(&w, 1, 1, LIMIT_MUX_FRAME_MAX);
	put(&w, MUX_OPEN, 0, 0, 1, window_field, sizeof(window_field), sizeof(window_field));
	if (mux_feed(e->m, w.data, w.len, &err) < 0)
		fail_msg("%s", err.message);
	e->accept_all = false;
	buf_reset(&w);
	put(&w, MUX_OPEN, 0, 0, 3, "", 0, 0);
	assert_int_equal(mux_feed(e->m, w.data, w.len, NULL), 0);
	assert_int_equal(open_exec(e, W), 2);
}

static void broken_frames_end_the_connection(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrongs); i++) {
		const struct wrong *w = &wrongs[i];
		auto_buf wire = BUF_INIT;
		struct error err = ERROR_INIT;
		struct end e;
		start_wrong(&e);
		put(&wire, w->type, w->channel, w->flags, w->stream, w->payload, w->len, w->claim ? w->claim : w->len);
		if (mux_feed(e.m, wire.data, wire.len, &err) == 0)
			fail_msg("row %zu (%s) was accepted", i, w->words);
		if (!strstr(err.message, w->words))
			fail_msg("row %zu: '%s' is not in '%s'", i, w->words, err.message);
		assert_int_equal(err.code, ERR_PROTOCOL);
		mux_lost(e.m);
		assert_int_equal(e.lost, 3);
		end_done(&e);
	}
}

static void sequences_that_end_the_connection(void **state)
{
	struct error err = ERROR_INIT;
	auto_buf w = BUF_INIT;
	struct end e;
	(void)state;
	/* DATA after EOF; EOF twice. */
	for (unsigned type = MUX_DATA; type <= MUX_EOF; type++) {
		start_wrong(&e);
		buf_reset(&w);
		put(&w, MUX_EOF, 0, 0, 1, "", 0, 0);
		put(&w, type, 0, 0, 1, "x", type == MUX_DATA, type == MUX_DATA);
		assert_int_equal(mux_feed(e.m, w.data, w.len, &err), -1);
		assert_non_null(strstr(err.message, "EOF"));
		end_done(&e);
	}
	/* A field sequence with something in between. */
	start_wrong(&e);
	buf_reset(&w);
	put(&w, MUX_OPEN, 0, MUX_FLAG_MORE, 5, window_field, 3, 3);
	put(&w, MUX_PING, 0, 0, 0, "", 0, 0);
	assert_int_equal(mux_feed(e.m, w.data, w.len, &err), -1);
	assert_non_null(strstr(err.message, "interrupted"));
	end_done(&e);
	/* A field sequence that does not end. */
	auto_free char *block = xcalloc(1, LIMIT_MUX_FRAME_MAX);
	start_wrong(&e);
	int r = 0, frames = 0;
	for (; r == 0 && frames < 100; frames++) {
		buf_reset(&w);
		put(&w, MUX_OPEN, 0, MUX_FLAG_MORE, 5, block, LIMIT_MUX_FRAME_MAX, LIMIT_MUX_FRAME_MAX);
		r = mux_feed(e.m, w.data, w.len, &err);
	}
	assert_int_equal(frames, LIMIT_MUX_FIELDS_MAX / LIMIT_MUX_FRAME_MAX + 1);
	assert_non_null(strstr(err.message, "over the limit"));
	end_done(&e);
}

static void a_window_never_goes_back(void **state)
{
	struct error err = ERROR_INIT;
	auto_buf w = BUF_INIT;
	struct end e;
	(void)state;
	start_wrong(&e);
	assert_int_equal(send_pattern(&e, 1, 1, 0, 50), 50);
	put(&w, MUX_WINDOW, 1, 0, 1, "\0\0\0\0\0\0\0\x32", 8, 8);
	assert_int_equal(mux_feed(e.m, w.data, w.len, &err), 0);
	buf_reset(&w);
	put(&w, MUX_WINDOW, 1, 0, 1, "\0\0\0\0\0\0\0\x31", 8, 8);
	assert_int_equal(mux_feed(e.m, w.data, w.len, &err), -1);
	end_done(&e);
}

static void a_peer_that_only_talks_is_cut_off(void **state)
{
	struct error err = ERROR_INIT;
	auto_buf w = BUF_INIT;
	struct end e;
	int r = 0, rounds = 0;
	(void)state;
	end_init(&e, false, true); /* its sink takes nothing */
	put_hello(&w, 1, 1, LIMIT_MUX_FRAME_MAX);
	assert_int_equal(mux_feed(e.m, w.data, w.len, NULL), 0);
	buf_reset(&w);
	for (int i = 0; i < 1000; i++)
		put(&w, MUX_PING, 0, 0, 0, "", 0, 0);
	for (; r == 0 && rounds < 1000; rounds++)
		r = mux_feed(e.m, w.data, w.len, &err);
	assert_int_equal(r, -1);
	assert_non_null(strstr(err.message, "does not read"));
	assert_true(rounds * 12000 <= LIMIT_MUX_QUEUE_MAX + 24000);
	end_done(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_lives_and_ends),
		cmocka_unit_test(eof_before_accept_is_remembered),
		cmocka_unit_test(a_receiver_that_stops_stops_its_sender),
		cmocka_unit_test(bytes_are_exact_around_every_limit),
		cmocka_unit_test(a_slow_sink_keeps_order),
		cmocka_unit_test(small_frames_of_a_batch_share_one_write),
		cmocka_unit_test(fields_span_frames_up_to_their_limit),
		cmocka_unit_test(a_resumed_stream_counts_on),
		cmocka_unit_test(frames_to_a_dead_stream_are_dropped),
		cmocka_unit_test(streams_are_bounded),
		cmocka_unit_test(ping_is_answered_in_order),
		cmocka_unit_test(hello_decides_the_version),
		cmocka_unit_test(broken_frames_end_the_connection),
		cmocka_unit_test(sequences_that_end_the_connection),
		cmocka_unit_test(a_window_never_goes_back),
		cmocka_unit_test(a_peer_that_only_talks_is_cut_off),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
