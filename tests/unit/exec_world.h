/*
 * A world for the tests of running commands: the real controller on a store of its own, the data plane on its loop
 * thread, one running sandbox, and two scripted ends: `in`, which plays sandbox-init, and clients. Everything waits by
 * pumping both ends until a condition holds or a deadline passes.
 */
#ifndef TESTS_UNIT_EXEC_WORLD_H
#define TESTS_UNIT_EXEC_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/config.h"
#include "daemon/controller/controller.h"
#include "daemon/link/gate.h"
#include "daemon/runtime/runtime.h"
#include "daemon/store/store.h"
#include "daemon/worker/exec.h"
#include "daemon/worker/initlink.h"
#include "daemon/worker/mailbox.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"
#include "shared/mux/mux.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))

enum { WAIT_MS = 20000, FLOWS_MAX = 32, CH_IN = MUX_STDIN, CH_OUT = MUX_STDOUT, CH_ERR = MUX_STDERR };

/* One stream as an end saw it. */
struct flow_seen {
	uint32_t id;
	bool opened, accepted, closed, lost;
	struct buf open, accept, close, control; /* raw fields; control: the last */
	unsigned controls;
	struct buf data[MUX_CHANNELS];
	uint64_t first[MUX_CHANNELS]; /* offset of data[] */
	bool eof[MUX_CHANNELS];
	uint64_t consumed[MUX_CHANNELS]; /* by the peer */
	bool hold;			 /* does not report what it consumed */
	bool count;			 /* data is counted and checked by the pattern, not kept */
	uint64_t got[MUX_CHANNELS];
};

struct end {
	int fd;
	struct mux *m;
	bool greeted, broken;
	bool deaf; /* does not read its socket */
	struct flow_seen flows[FLOWS_MAX];
	size_t n;
};

struct world {
	char dir[64];
	struct daemon_config config;
	struct store *store;
	struct controller *controller;
	struct event_base *base;
	pthread_t loop;
	struct initlinks *links;
	struct upstream *up;
	struct execs *execs;
	struct node_port *port;
	struct node_ports *ports;
	struct gate *gate;
	struct caller who;
	struct id node;
	struct sandbox sandbox;
	char sock[300];
	struct end in;
	struct end client;
};

/* The byte of an offset, for data too long to keep. */
static inline uint8_t pattern(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

static MAYBE_UNUSED void pattern_fill(uint8_t *p, size_t n, uint64_t offset)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(offset + i);
}

/* --- ends --- */

static struct flow_seen *flow_of(struct end *e, uint32_t id)
{
	for (size_t i = 0; i < e->n; i++) {
		if (e->flows[i].id == id)
			return &e->flows[i];
	}
	assert_true(e->n < FLOWS_MAX);
	e->flows[e->n].id = id;
	return &e->flows[e->n++];
}

static void keep_fields(struct buf *b, const struct tlv *t)
{
	size_t n;
	const void *p = tlv_raw(t, &n);

	buf_reset(b);
	buf_add(b, p, n);
}

static MAYBE_UNUSED struct tlv fields_of(const struct buf *b)
{
	struct tlv t;

	assert_int_equal(tlv_parse(&t, buf_str(b), b->len, NULL), 0);
	return t;
}

static void seen_hello(void *ctx, struct mux *m, const struct tlv *t)
{
	(void)m;
	(void)t;
	((struct end *)ctx)->greeted = true;
}

static void seen_opened(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct flow_seen *f = flow_of(ctx, id);

	(void)m;
	f->opened = true;
	keep_fields(&f->open, t);
}

static void seen_accepted(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct flow_seen *f = flow_of(ctx, id);

	(void)m;
	f->accepted = true;
	keep_fields(&f->accept, t);
}

static void seen_data(void *ctx, struct mux *m, uint32_t id, unsigned ch, uint64_t offset, const void *p, size_t n)
{
	struct flow_seen *f = flow_of(ctx, id);

	if (f->data[ch].len == 0 && f->got[ch] == 0)
		f->first[ch] = offset;
	f->got[ch] += n;
	if (f->count) {
		for (size_t i = 0; i < n; i++)
			assert_int_equal(((const uint8_t *)p)[i], pattern(offset + i));
	} else {
		buf_add(&f->data[ch], p, n);
	}
	if (!f->hold)
		mux_consumed(m, id, ch, offset + n);
}

static void seen_eof(void *ctx, struct mux *m, uint32_t id, unsigned ch)
{
	(void)m;
	flow_of(ctx, id)->eof[ch] = true;
}

static void seen_window(void *ctx, struct mux *m, uint32_t id, unsigned ch, uint64_t consumed)
{
	(void)m;
	flow_of(ctx, id)->consumed[ch] = consumed;
}

static void seen_control(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct flow_seen *f = flow_of(ctx, id);

	(void)m;
	f->controls++;
	keep_fields(&f->control, t);
}

static void seen_closed(void *ctx, struct mux *m, uint32_t id, const struct tlv *t)
{
	struct flow_seen *f = flow_of(ctx, id);

	(void)m;
	f->closed = true;
	keep_fields(&f->close, t);
}

static const struct mux_handler end_handler = {
	.hello = seen_hello,
	.opened = seen_opened,
	.accepted = seen_accepted,
	.data = seen_data,
	.eof = seen_eof,
	.window = seen_window,
	.control = seen_control,
	.closed = seen_closed,
};

static ssize_t end_sink(void *ctx, const struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t r = sendmsg(((struct end *)ctx)->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

	return r < 0 && errno == EAGAIN ? 0 : r;
}

static void end_start(struct end *e, int take_fd, bool with_key)
{
	auto_tlv hello = TLV_INIT;
	static const uint8_t key[32] = { 42 };

	e->fd = take_fd;
	e->greeted = e->broken = false;
	e->m = mux_new(&(struct mux_options){ .handler = &end_handler, .ctx = e, .sink = end_sink, .dialled = true });
	if (with_key)
		tlv_add_bytes(&hello, MUX_F_KEY, key, sizeof(key));
	mux_hello(e->m, &hello);
}

static void end_stop(struct end *e)
{
	if (e->m)
		mux_free(e->m);
	e->m = NULL;
	close_fdp(&e->fd);
	for (size_t i = 0; i < e->n; i++) {
		struct flow_seen *f = &e->flows[i];

		buf_done(&f->open);
		buf_done(&f->accept);
		buf_done(&f->close);
		buf_done(&f->control);
		for (unsigned ch = 0; ch < MUX_CHANNELS; ch++)
			buf_done(&f->data[ch]);
	}
	memset(e, 0, sizeof(*e));
	e->fd = -1;
}

static void end_pump(struct end *e)
{
	static char buffer[256 * 1024];
	ssize_t n;

	if (!e->m || e->broken)
		return;
	mux_flush(e->m);
	while (!e->deaf && (n = recv(e->fd, buffer, sizeof(buffer), MSG_DONTWAIT)) != 0) {
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 || mux_feed(e->m, buffer, (size_t)n, NULL) != 0)
			break;
	}
	e->broken = !e->deaf;
}

static void pump(struct world *w)
{
	struct pollfd fds[2] = { { .fd = w->in.m ? w->in.fd : -1, .events = POLLIN },
				 { .fd = w->client.m ? w->client.fd : -1, .events = POLLIN } };

	if (w->in.deaf || w->in.broken)
		fds[0].fd = -1;
	if (w->client.deaf || w->client.broken)
		fds[1].fd = -1;
	poll(fds, 2, 2);
	end_pump(&w->in);
	end_pump(&w->client);
}

#define wait_for(w, condition)                                                                                                   \
	do {                                                                                                                     \
		int64_t until_ = clock_mono_ms() + WAIT_MS;                                                                      \
		while (!(condition)) {                                                                                           \
			pump(w);                                                                                                 \
			if (clock_mono_ms() > until_)                                                                            \
				fail_msg("waited too long for " #condition);                                                     \
		}                                                                                                                \
	} while (0)

/* --- the daemon's side --- */

static void world_break(void *arg)
{
	event_base_loopbreak(arg);
}

static void *world_loop(void *arg)
{
	event_base_loop(arg, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

static void daemon_start(struct world *w)
{
	char io[256];

	w->base = event_base_new();
	w->links = initlinks_new(w->base, w->dir);
	w->up = upstream_local(w->controller);
	w->execs = execs_new(w->base, w->up, w->links, w->dir);
	w->port = node_port_local(NULL, w->execs, &w->node, "here");
	w->ports = node_ports_new();
	node_ports_add(w->ports, w->port);
	w->gate = gate_new(initlinks_muxloop(w->links), initlinks_mailbox(w->links), w->controller, w->ports);
	pthread_create(&w->loop, NULL, world_loop, w->base);
	assert_int_equal(initlink_listen(w->links, &w->sandbox.id, io, sizeof(io), NULL), 0);
	initlink_expect(w->links, &w->sandbox.id, getpid(), false);
	snprintf(w->sock, sizeof(w->sock), "%s/worker.sock", io);
}

static void daemon_stop(struct world *w)
{
	mailbox_post(initlinks_mailbox(w->links), world_break, w->base);
	pthread_join(w->loop, NULL);
	gate_free(w->gate);
	execs_free(w->execs);
	node_ports_free(w->ports);
	node_port_local_free(w->port);
	w->up->ops->free(w->up);
	initlinks_free(w->links);
	event_base_free(w->base);
	w->base = NULL;
}

static MAYBE_UNUSED void in_dial(struct world *w)
{
	end_stop(&w->in);
	end_start(&w->in, io_connect_unix(w->sock, NULL), true);
	assert_true(w->in.fd >= 0);
	wait_for(w, w->in.greeted);
}

static MAYBE_UNUSED void client_connect_as(struct world *w, const struct caller *who)
{
	int fds[2];

	end_stop(&w->client);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	gate_serve(w->gate, who, fds[1], NULL, 0, NULL, NULL);
	end_start(&w->client, fds[0], false);
	wait_for(w, w->client.greeted);
}

static MAYBE_UNUSED void client_connect(struct world *w)
{
	client_connect_as(w, &w->who);
}

static void make_sandbox(struct world *w)
{
	struct node_report report = {
		.node = w->node, .name = "here", .max_sandboxes = 10, .network = { [NETWORK_DENY] = true }
	};
	struct spec spec;
	struct create_result created;
	struct lease lease;
	struct error err = ERROR_INIT;
	struct completion done = { .success = true };

	report.total = (struct resources){ .cpu_millis = 64000, .memory_mib = 65536, .disk_mib = 1 << 20, .pids = 100000 };
	report.tiers[TIER_CONTAINER].offered = true;
	if (controller_heartbeat(w->controller, &report, &err) != 0)
		fail_msg("%s", err.message);
	spec_init(&spec);
	spec.image = xstrdup("test");
	map_set(&spec.env, "FROM_SPEC", "spec");
	map_set(&spec.env, "BOTH", "spec");
	strv_add(&spec.command, "server");
	create_result_init(&created);
	if (controller_create(w->controller, &w->who, &spec, false, NULL, &created, &err) != 0)
		fail_msg("%s", err.message);
	create_result_done(&created);
	spec_done(&spec);
	assert_int_equal(controller_lease(w->controller, &w->node, &lease, &err), 1);
	done.operation = lease.operation;
	done.attempt = lease.attempt;
	assert_int_equal(controller_complete(w->controller, &done, &err), 0);
	sandbox_init(&w->sandbox);
	sandbox_copy(&w->sandbox, &lease.sandbox);
	lease_done(&lease);
}

static void set_defaults(struct world *w)
{
	struct image_config image = { .user = (char *)(uintptr_t) "worker", .workdir = (char *)(uintptr_t) "/" };
	struct error err = ERROR_INIT;

	strv_add(&image.env, "FROM_IMAGE=image");
	strv_add(&image.env, "BOTH=image");
	if (execs_set_defaults(w->execs, &w->sandbox, &image, &err) != 0)
		fail_msg("%s", err.message);
	strv_done(&image.env);
}

static MAYBE_UNUSED int world_setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	auto_free char *path = NULL;
	struct error err = ERROR_INIT;

	evthread_use_pthreads();
	snprintf(w->dir, sizeof(w->dir), "/tmp/test-exec-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->in.fd = w->client.fd = -1;
	assert_int_equal(daemon_config_defaults(&w->config, &err), 0);
	path = xasprintf("%s/store.db", w->dir);
	if (store_open(&(struct store_options){ .path = path }, &w->store, &err) != 0 ||
	    controller_new(&w->config, w->store, &w->controller, &err) != 0)
		fail_msg("%s", err.message);
	w->who = (struct caller){ .role = ROLE_OPERATOR, .tenant = "team", .who = "uid 1000" };
	w->node = id_new();
	make_sandbox(w);
	daemon_start(w);
	set_defaults(w);
	in_dial(w);
	client_connect(w);
	*state = w;
	return 0;
}

static MAYBE_UNUSED int world_teardown(void **state)
{
	struct world *w = *state;

	if (w->base) /* a test that failed between stop and start has none */
		daemon_stop(w);
	end_stop(&w->in);
	end_stop(&w->client);
	controller_free(w->controller);
	store_close(w->store);
	daemon_config_done(&w->config);
	sandbox_done(&w->sandbox);
	io_remove_tree(w->dir, NULL);
	free(w);
	return 0;
}

/* --- steps --- */

/* The client opens an exec of `true`; returns its stream. */
static MAYBE_UNUSED uint32_t client_exec(struct world *w, unsigned flags)
{
	auto_tlv t = TLV_INIT;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_str(&t, MUX_F_ARG, "true");
	tlv_add_str(&t, MUX_F_ENV, "FROM_CALLER=caller");
	if (flags)
		tlv_add_u64(&t, MUX_F_FLAGS, flags);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	assert_true(id != 0);
	return id;
}

/* Init's newest stream, accepted. */
static MAYBE_UNUSED struct flow_seen *in_accept(struct world *w, size_t nth)
{
	auto_tlv t = TLV_INIT;
	struct flow_seen *f;

	wait_for(w, w->in.n > nth);
	f = &w->in.flows[nth];
	tlv_add_u64(&t, MUX_F_PID, 7);
	assert_int_equal(mux_accept(w->in.m, f->id, &t, LIMIT_MUX_WINDOW), 0);
	return f;
}

/* Init sends the pattern up to offset `to` on a channel. */
static MAYBE_UNUSED void in_send(struct world *w, uint32_t id, unsigned ch, uint64_t *at, uint64_t to)
{
	static uint8_t buffer[64 * 1024];
	int64_t until = clock_mono_ms() + WAIT_MS;

	while (*at < to) {
		size_t n = to - *at < sizeof(buffer) ? (size_t)(to - *at) : sizeof(buffer);

		pattern_fill(buffer, n, *at);
		*at += mux_send(w->in.m, id, ch, buffer, n);
		pump(w);
		if (clock_mono_ms() > until)
			fail_msg("init could not send: stuck at %llu", (unsigned long long)*at);
	}
}

static MAYBE_UNUSED void in_exit(struct world *w, uint32_t id, unsigned code, uint64_t out, uint64_t errs)
{
	auto_tlv t = TLV_INIT;

	mux_eof(w->in.m, id, CH_OUT);
	mux_eof(w->in.m, id, CH_ERR);
	tlv_add_u64(&t, MUX_F_OUTCOME, OUTCOME_EXITED);
	tlv_add_u64(&t, MUX_F_EXIT_CODE, code);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, out);
	tlv_add_u64(&t, MUX_F_OFFSET_ERR, errs);
	mux_close(w->in.m, id, &t);
}

static MAYBE_UNUSED char *accepted_operation(struct world *w, uint32_t id)
{
	struct flow_seen *f = flow_of(&w->client, id);
	struct tlv t;
	char *op = NULL;

	wait_for(w, f->accepted);
	t = fields_of(&f->accept);
	assert_int_equal(tlv_str(&t, MUX_F_OPERATION, ID_TEXT_LEN, &op, NULL), 0);
	assert_non_null(op);
	return op;
}

static MAYBE_UNUSED uint64_t close_u64(struct flow_seen *f, enum mux_field field)
{
	struct tlv t = fields_of(&f->close);

	return tlv_u64(&t, field, UINT64_MAX);
}

static MAYBE_UNUSED void assert_close_says(struct flow_seen *f, const char *word)
{
	struct tlv t = fields_of(&f->close);
	auto_free char *text = NULL;

	assert_int_equal(tlv_str(&t, MUX_F_MESSAGE, 1024, &text, NULL), 0);
	assert_non_null(text);
	assert_non_null(strstr(text, word));
}

/* The record, which must exist and have ended. */
static MAYBE_UNUSED void ended_record(struct world *w, const char *op, struct operation *ret)
{
	operation_init(ret);
	assert_int_equal(controller_operation(w->controller, &w->who, op, ret, NULL), 0);
	assert_true(op_ended(ret->state));
}

#endif
