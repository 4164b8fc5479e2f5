/* Calls over a link whose other side leaves in the midst of an answer. */
#include "daemon/link/call.h"
#include "daemon/worker/mailbox.h"
#include "daemon/worker/muxconn.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { WAIT_MS = 30 * 1000, ANSWER = 4 * LIMIT_MUX_WINDOW };

/* Both ends on one loop, which is this thread's. */
struct world {
	struct event_base *base;
	struct mailbox *mail;
	struct muxloop *loop;
	struct call_pool *pool;
	struct muxconn *asking, *answering; /* NULL: gone */
	struct stream stream;
	size_t got;
	atomic_int held;
	bool waits; /* the answer is sent as it is made */
	atomic_int unwanted;
};

static void hold(void *ctx)
{
	atomic_fetch_add(&((struct world *)ctx)->held, 1);
}

static void release(void *ctx)
{
	atomic_fetch_sub(&((struct world *)ctx)->held, 1);
}

static int answer(void *ctx, struct call_in *c, struct buf *ret, struct error *err)
{
	struct world *w = ctx;
	auto_free char *piece = xcalloc(1, LIMIT_MUX_WINDOW);
	(void)err;
	for (int i = 0; i < ANSWER / LIMIT_MUX_WINDOW; i++) {
		if (!w->waits)
			buf_add(ret, piece, LIMIT_MUX_WINDOW);
	}
	while (w->waits && call_send_all(c, piece, LIMIT_MUX_WINDOW))
		;
	atomic_fetch_add(&w->unwanted, w->waits);
	return 0;
}

static void on_opened(void *ctx, struct muxconn *conn, uint32_t stream, const struct tlv *fields)
{
	struct world *w = ctx;
	struct call_service s = { .handle = answer, .hold = hold, .release = release, .ctx = w, .pool = w->pool, .mail = w->mail };
	call_take(&s, muxconn_mux(conn), stream, fields);
}

static void on_gone(void *ctx, struct muxconn *conn, const char *why)
{
	struct world *w = ctx;
	(void)why;
	if (conn == w->asking)
		w->asking = NULL;
	else
		w->answering = NULL;
}

static const struct muxconn_ops conn_ops = { .opened = on_opened, .gone = on_gone };

/* Takes what comes and asks for no more. */
static void on_data(struct stream *s, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	(void)channel;
	(void)offset;
	(void)p;
	container_of(s, struct world, stream)->got += n;
}

static const struct stream_ops stream_ops = { .data = on_data };

static struct muxconn *connected(struct world *w, int fd, bool dialled)
{
	auto_tlv hello = TLV_INIT;
	struct muxconn *c = muxconn_new(w->loop, fd, &conn_ops, w, dialled);
	mux_hello(muxconn_mux(c), &hello);
	return c;
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return -1;
	w->base = event_base_new();
	w->mail = mailbox_new(w->base);
	w->loop = muxloop_new(w->base);
	w->pool = call_pool_new();
	w->asking = connected(w, fds[0], true);
	w->answering = connected(w, fds[1], false);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	if (w->asking)
		muxconn_drop(w->asking, "the test ends");
	if (w->answering)
		muxconn_drop(w->answering, "the test ends");
	call_pool_free(w->pool);
	mailbox_free(w->mail);
	muxloop_free(w->loop);
	event_base_free(w->base);
	free(w);
	return 0;
}

static bool turn_until(struct world *w, const atomic_int *what, int value, const size_t *at_least)
{
	int64_t until = clock_mono_ms() + WAIT_MS;
	while ((what && atomic_load(what) != value) || (at_least && *at_least < LIMIT_MUX_WINDOW)) {
		if (clock_mono_ms() > until)
			return false;
		event_base_loop(w->base, EVLOOP_NONBLOCK);
		usleep(1000);
	}
	return true;
}

static void ask(struct world *w)
{
	auto_tlv fields = TLV_INIT;
	struct mux *m = muxconn_mux(w->asking);
	tlv_add_u64(&fields, MUX_F_KIND, MUX_KIND_CALL);
	tlv_add_str(&fields, MUX_F_METHOD, "much");
	uint32_t id = mux_open(m, &fields, LIMIT_MUX_WINDOW, NULL);
	assert_int_not_equal(id, 0);
	stream_bind(&w->stream, &stream_ops, m, id);
	mux_eof(m, id, 0);
	assert_true(turn_until(w, NULL, 0, &w->got));
}

/* The first window of it was taken; the thread is done and the rest waits. */
static void an_answer_nobody_waits_for_is_let_go(void **state)
{
	struct world *w = *state;
	ask(w);
	assert_int_equal(atomic_load(&w->held), 1);
	stream_close(&w->stream, NULL);
	assert_true(turn_until(w, &w->held, 0, NULL));
}

static void so_is_one_whose_link_is_lost(void **state)
{
	struct world *w = *state;
	ask(w);
	muxconn_close(w->asking, "the test wants it");
	assert_true(turn_until(w, &w->held, 0, NULL));
}

/* Who sends as the other side takes waits for it, and for no longer than it is there. */
static void a_sender_that_waits_ends_with_its_reader(void **state)
{
	struct world *w = *state;
	w->waits = true;
	ask(w);
	assert_int_equal(atomic_load(&w->unwanted), 0);
	stream_close(&w->stream, NULL);
	assert_true(turn_until(w, &w->held, 0, NULL));
	assert_int_equal(atomic_load(&w->unwanted), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_answer_nobody_waits_for_is_let_go, setup, teardown),
		cmocka_unit_test_setup_teardown(so_is_one_whose_link_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(a_sender_that_waits_ends_with_its_reader, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
