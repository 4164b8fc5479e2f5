/*
 * A mux fed with any bytes, in pieces of any size. The first byte picks the side, what the owner does with streams, and the
 * size of the pieces; a HELLO goes ahead so that the rest is reached. Checks that a peer can neither corrupt nor bloat it.
 */
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/mux.h"
#include "shared/mux/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WINDOW = 1000 };

struct owner {
	unsigned mode;
	uint64_t got[MUX_CHANNELS];
	size_t taken;
	struct record_reader records;
	bool broken;
};

static void check(bool good)
{
	if (!good)
		abort();
}

static int on_record(void *ctx, const struct record *r, struct error *err)
{
	(void)ctx;
	(void)err;
	check(record_path_valid(r->entry.path, strlen(r->entry.path)));
	return 0;
}

static void on_opened(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	struct owner *o = ctx;
	auto_strv args = STRV_INIT;
	auto_free char *text = NULL;
	static const enum mux_field allowed[] = { MUX_F_KIND, MUX_F_ARG };
	tlv_only(t, allowed, 2, NULL);
	tlv_strv(t, MUX_F_ARG, 10, 1000, &args, NULL);
	tlv_str(t, MUX_F_CWD, 100, &text, NULL);
	check(args.len <= 10);
	if (o->mode & 1)
		check(mux_accept(m, stream, NULL, WINDOW) == 0);
	else if (o->mode & 2)
		mux_close(m, stream, t);
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct owner *o = ctx;
	check(n > 0 && channel < MUX_CHANNELS && offset <= UINT64_MAX - n);
	o->taken += n;
	if (!o->broken && record_feed(&o->records, p, n, NULL) < 0)
		o->broken = true;
	mux_send(m, stream, channel, p, n);
	if (o->mode & 4)
		mux_consumed(m, stream, channel, offset + n);
	if (o->mode & 8 && n % 7 == 0)
		mux_close(m, stream, NULL);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	(void)ctx;
	mux_eof(m, stream, channel);
}

static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	(void)ctx;
	mux_control(m, stream, t);
}

static void on_lost(void *ctx, struct mux *m, uint32_t stream)
{
	(void)ctx;
	mux_close(m, stream, NULL);
}

static const struct mux_handler handler = {
	.opened = on_opened, .data = on_data, .eof = on_eof, .control = on_control, .lost = on_lost,
};

static void greet(struct mux *m)
{
	auto_tlv t = TLV_INIT;
	size_t n;
	tlv_add_u64(&t, MUX_F_VERSION, MUX_VERSION);
	tlv_add_u64(&t, MUX_F_FRAME_MAX, LIMIT_MUX_FRAME_MAX);
	const void *p = tlv_raw(&t, &n);
	uint8_t head[MUX_HEADER_LEN] = { MUX_HELLO, [11] = (uint8_t)n };
	check(mux_feed(m, head, sizeof(head), NULL) == 0 && mux_feed(m, p, n, NULL) == 0);
}

static size_t drain(struct mux *m)
{
	const void *p;
	size_t n, all = 0;
	while ((n = mux_queued(m, &p)) > 0) {
		mux_taken(m, n);
		all += n;
	}
	return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct owner o = { .mode = size ? data[0] : 0 };
	if (size < 2)
		return 0;
	struct mux *m = mux_new(&(struct mux_options){ .handler = &handler, .ctx = &o, .dialled = o.mode & 16, .max_streams = 8 });
	auto_tlv t = TLV_INIT;
	size_t piece = o.mode & 32 ? 1u + data[1] % 20 : size;
	record_reader_init(&o.records, on_record, NULL);
	mux_hello(m, NULL);
	if (!(o.mode & 64))
		greet(m);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EXEC);
	mux_open(m, &t, WINDOW, NULL);
	int r = 0;
	for (size_t at = 2; at < size && r == 0; at += piece) {
		size_t n = size - at < piece ? size - at : piece;
		auto_free void *exact = xmemdup(data + at, n);
		r = mux_feed(m, exact, n, NULL);
		check(mux_stream_count(m) <= 16);
		if (o.mode & 128)
			drain(m);
	}
	drain(m);
	mux_lost(m);
	check(mux_stream_count(m) == 0 && o.taken <= size);
	record_reader_done(&o.records);
	mux_free(m);
	return 0;
}
