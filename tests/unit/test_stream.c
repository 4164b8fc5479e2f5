/* The client side of a stream against a server in a thread that speaks the real protocol and misbehaves on demand. */
#include "cli/ending.h"
#include "cli/stream.h"
#include "cli/terminal.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPERATION "01890000-0000-7000-8000-000000000001"

/* --- the server ------------------------------------------------------------------------------------------------------------ */

enum behaviour {
	ECHO,       /* stdin comes back on stdout; at its end exits 7 */
	TALK,       /* `total` bytes of the pattern on stdout and half as many on stderr, then exits 0 */
	END_EARLY,  /* takes 10 bytes of stdin, says y, exits 0 */
	IGNORE,     /* waits; ends only when told to by CANCEL */
	OBEY,       /* ends by the first signal */
	REFUSE,     /* CLOSE with `error` instead of ACCEPT */
	SHORT,      /* claims more output than it sent */
	GONE,       /* drops the connection before it answers */
};

struct server {
	enum behaviour how;
	uint64_t total;
	uint64_t drop_every;  /* break the connection each time so many bytes moved; 0: never */
	unsigned conflicts;   /* resumes to refuse as CONFLICT first */
	bool forget;          /* resumes are NOT_FOUND */
	enum mux_error error;
	uint64_t gap;         /* attach: output starts here */
	uint64_t jump_at, jump_to; /* attach: the stdout bytes between are gone when the reader gets there */
	uint64_t behind;      /* attach: a server that just came back begins so much lower than asked */
	/* state of the command */
	uint64_t in;          /* stdin bytes taken, checked against the pattern */
	bool in_ended;
	uint64_t out[2];      /* sent on this connection, absolute */
	int signals[64];
	bool cancelled;
	bool closed;
	int dials;
	uint64_t wrong;       /* stdin bytes that were not the pattern's */
	/* of this connection */
	int fd;
	struct mux *m;
	uint32_t id;
	uint64_t moved;
	pthread_t thread;
	bool running;
	bool again; /* there is room for what had none */
};

static unsigned char pattern(uint64_t offset)
{
	uint64_t x = (offset >> 3) * 0x9e3779b97f4a7c15ull;
	return (unsigned char)(x >> (8 * (offset & 7)));
}

static void fill(unsigned char *p, uint64_t offset, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(offset + i);
}

static ssize_t server_sink(void *ctx, const struct iovec *iov, int n)
{
	struct server *s = ctx;
	ssize_t put = writev(s->fd, iov, n);
	return put < 0 && errno == EAGAIN ? 0 : put;
}

static void close_with(struct server *s, enum outcome outcome, enum mux_field field, uint64_t value)
{
	auto_tlv f = TLV_INIT;
	tlv_add_u64(&f, MUX_F_OUTCOME, outcome);
	tlv_add_u64(&f, field, value);
	tlv_add_u64(&f, MUX_F_OFFSET_OUT, s->out[0] + (s->how == SHORT ? 5 : 0));
	tlv_add_u64(&f, MUX_F_OFFSET_ERR, s->out[1]);
	mux_close(s->m, s->id, &f);
	s->closed = true;
}

static void refuse(struct server *s, enum mux_error e)
{
	auto_tlv f = TLV_INIT;
	tlv_add_u64(&f, MUX_F_OUTCOME, OUTCOME_NOT_STARTED);
	tlv_add_u64(&f, MUX_F_ERROR, e);
	tlv_add_str(&f, MUX_F_MESSAGE, "no");
	mux_close(s->m, s->id, &f);
}

static void on_opened(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct server *s = ctx;
	uint64_t kind = tlv_u64(fields, MUX_F_KIND, 0);
	auto_tlv f = TLV_INIT;
	s->id = stream;
	if (s->how == REFUSE)
		return refuse(s, s->error);
	if (kind == MUX_KIND_RESUME && s->forget)
		return refuse(s, MUX_ERR_NOT_FOUND);
	if (kind == MUX_KIND_RESUME && s->conflicts > 0 && s->conflicts--)
		return refuse(s, MUX_ERR_CONFLICT);
	tlv_add_str(&f, MUX_F_OPERATION, OPERATION);
	if (kind != MUX_KIND_EXEC) {
		s->out[0] = tlv_u64(fields, MUX_F_OFFSET_OUT, 0);
		s->out[1] = tlv_u64(fields, MUX_F_OFFSET_ERR, 0);
		tlv_add_u64(&f, MUX_F_OFFSET_IN, s->in);
	}
	if (kind == MUX_KIND_ATTACH && s->gap > s->out[0]) {
		s->out[0] = s->gap;
		tlv_add_u64(&f, MUX_F_GAP_OUT, s->gap);
	} else if (kind == MUX_KIND_ATTACH && s->behind) {
		for (unsigned i = 0; i < 2; i++) {
			s->out[i] -= s->out[i] < s->behind ? s->out[i] : s->behind;
			tlv_add_u64(&f, i == 0 ? MUX_F_GAP_OUT : MUX_F_GAP_ERR, s->out[i]);
		}
	}
	mux_accept(m, stream, &f, LIMIT_MUX_WINDOW);
	if (kind != MUX_KIND_EXEC) {
		mux_rebase_send(m, stream, MUX_STDOUT, s->out[0]);
		mux_rebase_send(m, stream, MUX_STDERR, s->out[1]);
		mux_rebase_recv(m, stream, MUX_STDIN, s->in);
	}
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct server *s = ctx;
	const unsigned char *b = p;
	if (s->how == END_EARLY && offset >= 10)
		return;
	for (size_t i = 0; i < n && s->how != END_EARLY; i++)
		s->wrong += b[i] != pattern(offset + i);
	s->in = offset + n;
	s->moved += n;
	if (s->how == END_EARLY && s->in >= 10) {
		s->out[0] += mux_send(m, stream, MUX_STDOUT, "y\n", 2);
		close_with(s, OUTCOME_EXITED, MUX_F_EXIT_CODE, 0);
		return;
	}
	if (s->how != ECHO)
		mux_consumed(m, stream, channel, s->in);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct server *s = ctx;
	(void)m;
	(void)stream;
	(void)channel;
	s->in_ended = true;
}

static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *fields)
{
	struct server *s = ctx;
	(void)m;
	(void)stream;
	if (tlv_u64(fields, MUX_F_ACTION, 0) == MUX_CONTROL_SIGNAL) {
		int sig = (int)(tlv_u64(fields, MUX_F_SIGNAL, 0) & 63);
		s->signals[sig]++;
		if (s->how == OBEY)
			close_with(s, OUTCOME_SIGNALED, MUX_F_SIGNAL, (uint64_t)sig);
	}
	if (tlv_u64(fields, MUX_F_ACTION, 0) == MUX_CONTROL_CANCEL) {
		s->cancelled = true;
		close_with(s, OUTCOME_CANCELED, MUX_F_SIGNAL, SIGTERM);
	}
}

static bool send_pattern(struct server *s, unsigned i, uint64_t upto)
{
	static __thread unsigned char chunk[100 * 1000];
	while (s->out[i] < upto) {
		size_t n = upto - s->out[i] < sizeof(chunk) ? (size_t)(upto - s->out[i]) : sizeof(chunk);
		fill(chunk, s->out[i], n);
		size_t put = mux_send(s->m, s->id, MUX_STDOUT + i, chunk, n);
		s->out[i] += put;
		s->moved += put;
		if (put == 0 || (s->drop_every && s->moved >= s->drop_every))
			return false;
	}
	return true;
}

/* The way a lagging reader is told of a gap. */
static void jump(struct server *s)
{
	auto_tlv f = TLV_INIT;
	if (!s->jump_to || !send_pattern(s, 0, s->jump_at))
		return;
	tlv_add_u64(&f, MUX_F_GAP_OUT, s->jump_to);
	mux_control(s->m, s->id, &f);
	s->out[0] = s->jump_to;
	s->jump_to = 0;
}

static void work(struct server *s)
{
	if (!s->id || s->closed)
		return;
	jump(s);
	if (s->how == ECHO) {
		if (send_pattern(s, 0, s->in) && s->in_ended)
			close_with(s, OUTCOME_EXITED, MUX_F_EXIT_CODE, 7);
		mux_consumed(s->m, s->id, MUX_STDIN, s->out[0]);
	}
	if (s->how == TALK || s->how == SHORT) {
		bool out = send_pattern(s, 0, s->total), errs = send_pattern(s, 1, s->total / 2);
		if (out && errs)
			close_with(s, OUTCOME_EXITED, MUX_F_EXIT_CODE, 0);
	}
}

static void on_writable(void *ctx, struct mux *m)
{
	struct server *s = ctx;
	(void)m;
	s->again = true;
}

static const struct mux_handler server_handler = {
	.opened = on_opened, .data = on_data, .eof = on_eof, .control = on_control, .writable = on_writable,
};

static void *serve(void *ctx)
{
	struct server *s = ctx;
	static __thread unsigned char in[300 * 1000];
	struct mux_options o = { .handler = &server_handler, .ctx = s, .sink = server_sink };
	s->m = mux_new(&o);
	mux_hello(s->m, NULL);
	for (;;) {
		struct pollfd p = { .fd = s->fd, .events = (short)(POLLIN | (mux_want_write(s->m) ? POLLOUT : 0)) };
		poll(&p, 1, s->again ? 0 : -1);
		s->again = false;
		ssize_t n = read(s->fd, in, sizeof(in));
		if (n == 0 || (n < 0 && errno != EAGAIN) || s->how == GONE)
			break;
		if (n > 0 && mux_feed(s->m, in, (size_t)n, NULL) != 0)
			break;
		if (mux_flush(s->m) != 0)
			break;
		work(s);
		if (mux_flush(s->m) != 0 || (s->drop_every && s->moved >= s->drop_every && !s->closed))
			break;
	}
	mux_free(s->m);
	close(s->fd);
	return NULL;
}

static void server_join(struct server *s)
{
	if (s->running)
		pthread_join(s->thread, NULL);
	s->running = false;
}

static int dial(void *ctx, const void *early, size_t n, bool redial, int64_t deadline_ms, int *ret_fd, struct buf *ret_rest, struct error *err)
{
	struct server *s = ctx;
	int pair[2];
	(void)deadline_ms;
	(void)ret_rest;
	(void)err;
	assert_int_equal(redial, s->dials > 0);
	server_join(s);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	s->fd = pair[1];
	s->id = 0;
	s->moved = 0;
	s->in_ended = false;
	s->dials++;
	io_set_nonblock(s->fd, true);
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->running = true;
	assert_int_equal(io_write_full(pair[0], early, n), 0);
	*ret_fd = pair[0];
	return 0;
}

/* --- helpers --------------------------------------------------------------------------------------------------------------- */

static int temp_file(void)
{
	char name[] = "/tmp/test_stream.XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);
	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

static int pattern_file(uint64_t n)
{
	int fd = temp_file();
	unsigned char *p = xmalloc(n);
	fill(p, 0, n);
	assert_int_equal(io_write_full(fd, p, n), 0);
	free(p);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

/* The number of leading bytes that are the pattern's, which must be the whole file. */
static uint64_t checked_length(int fd, uint64_t from)
{
	static unsigned char b[65536];
	uint64_t at = 0;
	lseek(fd, 0, SEEK_SET);
	for (ssize_t n; (n = read(fd, b, sizeof(b))) > 0;) {
		for (ssize_t i = 0; i < n; i++) {
			if (b[i] != pattern(from + at + (uint64_t)i))
				fail_msg("wrong byte at %llu", (unsigned long long)(at + (uint64_t)i));
		}
		at += (uint64_t)n;
	}
	return at;
}

struct end {
	struct stream_result r;
	int status;
};

static struct end go(struct server *s, const struct stream_request *with)
{
	auto_tlv open = TLV_INIT;
	tlv_add_u64(&open, MUX_F_KIND, with->attach ? MUX_KIND_ATTACH : MUX_KIND_EXEC);
	if (with->attach) {
		tlv_add_str(&open, MUX_F_OPERATION, OPERATION);
		tlv_add_u64(&open, MUX_F_OFFSET_OUT, with->offset_out);
		tlv_add_u64(&open, MUX_F_OFFSET_ERR, with->offset_err);
	} else {
		tlv_add_str(&open, MUX_F_ARG, "x");
	}
	struct stream_request rq = *with;
	rq.open = &open;
	rq.dialler = (struct dialler){ .dial = dial, .ctx = s };
	rq.quiet = true;
	rq.must_return = true;
	struct end e;
	struct error err = ERROR_INIT;
	assert_int_equal(stream_run(&rq, &e.r, &err), 0);
	server_join(s);
	e.status = ending_status(&e.r);
	return e;
}

static const uint64_t sizes[] = { 0, 1, 4095, 65535, 65536, 65537, 262143, 262144, 262145, 1048575, 1048576, 1048577, 5000001 };

/* --- bytes ----------------------------------------------------------------------------------------------------------------- */

static void echoes_every_size(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct server s = { .how = ECHO };
		int in = pattern_file(sizes[i]), out = temp_file();
		struct end e = go(&s, &(struct stream_request){ .in = in, .out = out, .err = -1, .escape = -1 });
		assert_int_equal(e.status, 7);
		assert_int_equal(s.in, sizes[i]);
		assert_int_equal(s.wrong, 0);
		assert_int_equal(e.r.out_bytes, sizes[i]);
		assert_int_equal(checked_length(out, 0), sizes[i]);
		close(in);
		close(out);
	}
}

struct pipe_reader {
	int fd, to, delay_ms;
	uint64_t limit;
};

static void *read_pipe(void *ctx)
{
	struct pipe_reader *r = ctx;
	static __thread char b[8192];
	uint64_t done = 0;
	poll(NULL, 0, r->delay_ms);
	for (ssize_t n; done < r->limit && (n = read(r->fd, b, sizeof(b))) > 0; done += (uint64_t)n) {
		if (r->to >= 0)
			io_write_full(r->to, b, (size_t)n);
	}
	close(r->fd);
	return NULL;
}

static void keeps_all_output_for_a_slow_reader(void **state)
{
	(void)state;
	int p[2], copy = temp_file();
	pthread_t t;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	struct pipe_reader r = { .fd = p[0], .to = copy, .delay_ms = 300, .limit = UINT64_MAX };
	pthread_create(&t, NULL, read_pipe, &r);
	struct server s = { .how = TALK, .total = 3 * 1024 * 1024 };
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = p[1], .err = -1, .escape = -1 });
	/* stderr was closed and something was written there. */
	assert_int_equal(e.r.left, LEFT_WRITE_FAILED);
	close(p[1]);
	pthread_join(t, NULL);

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(ftruncate(copy, 0), 0);
	lseek(copy, 0, SEEK_SET);
	r.fd = p[0];
	int errs = temp_file();
	pthread_create(&t, NULL, read_pipe, &r);
	struct server s2 = { .how = TALK, .total = 3 * 1024 * 1024 };
	e = go(&s2, &(struct stream_request){ .in = -1, .out = p[1], .err = errs, .escape = -1 });
	assert_int_equal(e.status, 0);
	assert_int_equal(fcntl(p[1], F_GETFL) & O_NONBLOCK, 0);
	close(p[1]);
	pthread_join(t, NULL);
	assert_int_equal(checked_length(copy, 0), 3 * 1024 * 1024);
	assert_int_equal(checked_length(errs, 0), 3 * 1024 * 1024 / 2);
	close(copy);
	close(errs);
}

static void remote_end_decides(void **state)
{
	(void)state;
	struct server s = { .how = END_EARLY };
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), out = temp_file();
	struct end e = go(&s, &(struct stream_request){ .in = zero, .out = out, .err = -1, .escape = -1 });
	assert_int_equal(e.status, 0);
	assert_int_equal(lseek(out, 0, SEEK_END), 2);
	close(zero);

	/* The same with input that stays silent after ten bytes. */
	int p[2];
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(write(p[1], "0123456789", 10), 10);
	struct server s2 = { .how = END_EARLY };
	e = go(&s2, &(struct stream_request){ .in = p[0], .out = out, .err = -1, .escape = -1 });
	assert_int_equal(e.status, 0);
	assert_int_equal(fcntl(p[0], F_GETFL) & O_NONBLOCK, 0);
	close(p[0]);
	close(p[1]);
	close(out);
}

static void a_shorter_output_than_claimed_is_no_success(void **state)
{
	(void)state;
	struct server s = { .how = SHORT, .total = 100 };
	int out = temp_file();
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = out, .err = out, .escape = -1 });
	assert_true(e.r.incomplete);
	assert_int_equal(e.status, STATUS_TOOL);
	close(out);
}

static void captures_head_and_tail(void **state)
{
	(void)state;
	struct capture caps[2] = { { .head = BUF_INIT }, { .head = BUF_INIT } };
	struct server s = { .how = TALK, .total = 1000000 };
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = -1, .err = -1, .escape = -1, .capture_out = &caps[0],
							.capture_err = &caps[1], .capture_max = 600000 });
	assert_int_equal(e.status, 0);
	assert_int_equal(caps[0].total, 1000000);
	assert_int_equal(caps[0].head.len, 600000);
	assert_true(caps[0].tail.len >= LIMIT_OUTPUT_TAIL_MAX);
	assert_int_equal((unsigned char)caps[0].tail.data[caps[0].tail.len - 1], pattern(999999));
	assert_int_equal(caps[1].head.len, 500000);
	assert_int_equal(caps[1].tail.len, 0);
	for (int i = 0; i < 2; i++) {
		buf_done(&caps[i].head);
		buf_done(&caps[i].tail);
	}
}

/* --- resuming -------------------------------------------------------------------------------------------------------------- */

static void resumes_without_losing_or_repeating(void **state)
{
	(void)state;
	static const uint64_t every[] = { 200000, 65536, 33333, 300001 };
	for (size_t i = 0; i < ARRAY_LEN(every); i++) {
		struct server s = { .how = ECHO, .drop_every = every[i] };
		int in = pattern_file(2000003), out = temp_file();
		struct end e = go(&s, &(struct stream_request){ .in = in, .out = out, .err = -1, .escape = -1 });
		assert_int_equal(e.status, 7);
		assert_true(s.dials > 3);
		assert_int_equal(s.wrong, 0);
		assert_int_equal(s.in, 2000003);
		assert_int_equal(checked_length(out, 0), 2000003);
		close(in);
		close(out);
	}
}

static void resumes_two_outputs(void **state)
{
	(void)state;
	struct server s = { .how = TALK, .total = 1500000, .drop_every = 250000, .conflicts = 1 };
	int out = temp_file(), errs = temp_file();
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = out, .err = errs, .escape = -1 });
	assert_int_equal(e.status, 0);
	assert_int_equal(checked_length(out, 0), 1500000);
	assert_int_equal(checked_length(errs, 0), 750000);
	close(out);
	close(errs);
}

static void invents_no_outcome(void **state)
{
	(void)state;
	struct server s = { .how = TALK, .total = 500000, .drop_every = 100000, .forget = true };
	int out = temp_file();
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = out, .err = out, .escape = -1 });
	assert_int_equal(e.r.left, LEFT_CONNECTION);
	assert_int_equal(e.r.result.outcome, OUTCOME_LOST);
	assert_int_equal(e.status, STATUS_TOOL);
	auto_free char *text = ending_text(&e.r, 0);
	assert_non_null(strstr(text, "outcome unknown: lost"));
	close(out);

	/* Before the command was accepted nothing is tried again: it might run twice. */
	struct server gone = { .how = GONE };
	e = go(&gone, &(struct stream_request){ .in = -1, .out = -1, .err = -1, .escape = -1 });
	assert_int_equal(gone.dials, 1);
	assert_int_equal(e.status, STATUS_TOOL);
}

static void attach_begins_behind_a_gap(void **state)
{
	(void)state;
	struct server s = { .how = TALK, .total = 400000, .gap = 150001, .drop_every = 60000 };
	int out = temp_file(), errs = temp_file();
	struct end e = go(&s, &(struct stream_request){ .attach = true, .in = -1, .out = out, .err = errs, .escape = -1, .offset_out = 100,
							.offset_err = 100000 });
	assert_int_equal(e.status, 0);
	assert_int_equal(e.r.gap_out, 150001 - 100);
	assert_int_equal(e.r.gap_err, 0);
	assert_int_equal(checked_length(out, 150001), 400000 - 150001);
	assert_int_equal(checked_length(errs, 100000), 100000);
	close(out);
	close(errs);
}

static void an_attach_shows_no_byte_twice(void **state)
{
	(void)state;
	struct server s = { .how = TALK, .total = 400000, .behind = 20000, .drop_every = 60000 };
	int out = temp_file(), errs = temp_file();
	struct end e = go(&s, &(struct stream_request){ .attach = true, .in = -1, .out = out, .err = errs, .escape = -1, .offset_out = 70000 });
	assert_int_equal(e.status, 0);
	assert_true(s.dials > 3);
	assert_int_equal(checked_length(out, 70000), 330000);
	assert_int_equal(checked_length(errs, 0), 200000);
	assert_int_equal(e.r.gap_out + e.r.gap_err, 0);
	close(out);
	close(errs);
}

static void a_gap_in_the_middle_is_counted_and_offsets_stay_right(void **state)
{
	(void)state;
	static unsigned char b[1000000];
	struct server s = { .how = TALK, .total = 900000, .jump_at = 100000, .jump_to = 400000, .drop_every = 350000 };
	int out = temp_file(), errs = temp_file();
	struct end e = go(&s, &(struct stream_request){ .attach = true, .in = -1, .out = out, .err = errs, .escape = -1 });
	assert_int_equal(e.status, 0);
	assert_int_equal(e.r.gap_out, 300000);
	assert_true(s.dials > 1);
	assert_int_equal(pread(out, b, sizeof(b), 0), 600000);
	for (size_t i = 0; i < 600000; i++) {
		if (b[i] != pattern(i < 100000 ? i : i + 300000))
			fail_msg("wrong byte at %zu", i);
	}
	assert_int_equal(checked_length(errs, 0), 450000);
	close(out);
	close(errs);
}

/* --- leaving --------------------------------------------------------------------------------------------------------------- */

static void a_gone_reader_ends_it_like_a_local_process(void **state)
{
	(void)state;
	int p[2];
	pthread_t t;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	struct pipe_reader r = { .fd = p[0], .to = -1, .limit = 10 };
	pthread_create(&t, NULL, read_pipe, &r);
	struct server s = { .how = TALK, .total = UINT64_MAX / 4 };
	int64_t began = clock_mono_ms();
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = p[1], .err = null, .escape = -1 });
	assert_int_equal(e.status, 141);
	assert_int_equal(s.signals[SIGPIPE], 1);
	assert_true(s.cancelled);
	assert_true(clock_mono_ms() - began < 3000);
	close(p[1]);
	close(null);
	pthread_join(t, NULL);
}

static void a_full_disk_is_reported(void **state)
{
	(void)state;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct server s = { .how = TALK, .total = 100000 };
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = full, .err = full, .escape = -1 });
	assert_int_equal(e.r.left, LEFT_WRITE_FAILED);
	assert_int_equal(e.r.detail, ENOSPC);
	assert_int_equal(e.status, STATUS_TOOL);
	close(full);
}

struct killer {
	int sig, times, gap_ms;
};

static void *send_signals(void *ctx)
{
	struct killer *k = ctx;
	for (int i = 0; i < k->times; i++) {
		poll(NULL, 0, k->gap_ms);
		kill(getpid(), k->sig);
	}
	return NULL;
}

static struct end go_signalled(struct server *s, struct killer k, bool tty)
{
	pthread_t t;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_create(&t, NULL, send_signals, &k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	struct end e = go(s, &(struct stream_request){ .in = -1, .out = -1, .err = -1, .escape = -1, .tty = tty });
	pthread_join(t, NULL);
	return e;
}

static void forwards_signals(void **state)
{
	(void)state;
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	for (size_t i = 0; i < ARRAY_LEN(sigs); i++) {
		struct server s = { .how = OBEY };
		struct end e = go_signalled(&s, (struct killer){ sigs[i], 1, 100 }, false);
		assert_int_equal(s.signals[sigs[i]], 1);
		assert_int_equal(e.status, 128 + sigs[i]);
	}
}

static void a_second_interrupt_cancels(void **state)
{
	(void)state;
	struct server s = { .how = IGNORE };
	struct end e = go_signalled(&s, (struct killer){ SIGINT, 2, 100 }, false);
	assert_int_equal(e.status, 130);
	assert_int_equal(s.signals[SIGINT], 1);
	assert_true(s.cancelled);
}

static void a_deaf_command_is_cancelled_in_the_end(void **state)
{
	(void)state;
	struct server s = { .how = IGNORE };
	int64_t began = clock_mono_ms();
	struct end e = go_signalled(&s, (struct killer){ SIGTERM, 1, 50 }, false);
	assert_int_equal(e.status, 143);
	assert_true(s.cancelled);
	assert_in_range(clock_mono_ms() - began, 4900, 8000);
}

static void term_hangs_a_terminal_session_up(void **state)
{
	(void)state;
	struct server s = { .how = IGNORE };
	int64_t began = clock_mono_ms();
	struct end e = go_signalled(&s, (struct killer){ SIGTERM, 1, 50 }, true);
	assert_int_equal(e.status, 143);
	assert_true(s.cancelled);
	assert_true(clock_mono_ms() - began < 2000);
}

static void refusals_have_the_shells_status(void **state)
{
	(void)state;
	static const struct {
		enum mux_error error;
		int status;
	} rows[] = {
		{ MUX_ERR_NO_PROGRAM, 127 }, { MUX_ERR_NOT_EXECUTABLE, 126 }, { MUX_ERR_TOO_LARGE, 126 }, { MUX_ERR_BAD_CWD, 125 },
		{ MUX_ERR_NOT_FOUND, 125 }, { MUX_ERR_EXPIRED, 125 }, { MUX_ERR_BAD_USER, 125 }, { MUX_ERR_LOST, 125 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct server s = { .how = REFUSE, .error = rows[i].error };
		struct end e = go(&s, &(struct stream_request){ .in = -1, .out = -1, .err = -1, .escape = -1 });
		assert_int_equal(e.status, rows[i].status);
		assert_false(e.r.accepted);
	}
}

static void detach_returns_once_accepted(void **state)
{
	(void)state;
	struct server s = { .how = IGNORE };
	struct end e = go(&s, &(struct stream_request){ .in = -1, .out = -1, .err = -1, .escape = -1, .detach = true });
	assert_true(e.r.accepted);
	assert_string_equal(e.r.operation, OPERATION);
	assert_false(s.cancelled);
}

/* --- small parts ----------------------------------------------------------------------------------------------------------- */

static void escape_keys(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out, *left;
		enum escape_event event;
	} rows[] = {
		{ "ls\r", "ls\r", "", ESCAPE_NONE },
		{ "~.", "", "", ESCAPE_LEAVE },
		{ "ls\r~.rest", "ls\r", "rest", ESCAPE_LEAVE },
		{ "a~.", "a~.", "", ESCAPE_NONE },
		{ "~~.", "~.", "", ESCAPE_NONE },
		{ "~a", "~a", "", ESCAPE_NONE },
		{ "\n~\x1atail", "\n", "tail", ESCAPE_SUSPEND },
		{ "~\r~.", "~\r", "", ESCAPE_LEAVE },
		{ "~/x", "~/x", "", ESCAPE_NONE },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		/* Whole, and byte by byte. */
		for (size_t step = 1; step < 100; step += 98) {
			struct escape e = { .key = '~' };
			enum escape_event event = ESCAPE_NONE;
			const char *p = rows[i].in;
			char out[64];
			size_t len = 0;
			while (*p && event == ESCAPE_NONE) {
				size_t used, n = strlen(p) < step ? strlen(p) : step;
				len += escape_filter(&e, p, n, out + len, &used, &event);
				p += used;
			}
			out[len] = '\0';
			assert_string_equal(out, rows[i].out);
			assert_int_equal(event, rows[i].event);
			assert_string_equal(p, rows[i].left);
		}
	}
	struct escape none = { .key = -1 };
	enum escape_event event;
	size_t used;
	char out[8];
	assert_int_equal(escape_filter(&none, "~.", 2, out, &used, &event), 2);
	assert_int_equal(event, ESCAPE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(echoes_every_size),
		cmocka_unit_test(keeps_all_output_for_a_slow_reader),
		cmocka_unit_test(remote_end_decides),
		cmocka_unit_test(a_shorter_output_than_claimed_is_no_success),
		cmocka_unit_test(captures_head_and_tail),
		cmocka_unit_test(resumes_without_losing_or_repeating),
		cmocka_unit_test(resumes_two_outputs),
		cmocka_unit_test(invents_no_outcome),
		cmocka_unit_test(attach_begins_behind_a_gap),
		cmocka_unit_test(an_attach_shows_no_byte_twice),
		cmocka_unit_test(a_gap_in_the_middle_is_counted_and_offsets_stay_right),
		cmocka_unit_test(a_gone_reader_ends_it_like_a_local_process),
		cmocka_unit_test(a_full_disk_is_reported),
		cmocka_unit_test(forwards_signals),
		cmocka_unit_test(a_second_interrupt_cancels),
		cmocka_unit_test(a_deaf_command_is_cancelled_in_the_end),
		cmocka_unit_test(term_hangs_a_terminal_session_up),
		cmocka_unit_test(refusals_have_the_shells_status),
		cmocka_unit_test(detach_returns_once_accepted),
		cmocka_unit_test(escape_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
