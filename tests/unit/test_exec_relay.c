/* Streams that are only passed on: credit from end to end, checked beginnings and ends, no leftovers. */
#include "tests/unit/exec_world.h"

static uint32_t client_open(struct world *w, enum mux_kind kind, const char *path)
{
	auto_tlv t = TLV_INIT;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, kind);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_str(&t, MUX_F_PATH, path);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	assert_true(id != 0);
	return id;
}

static uint32_t client_watch(struct world *w)
{
	auto_tlv t = TLV_INIT;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_WATCH);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	return mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
}

static void an_upload_flows_and_is_answered(void **state)
{
	struct world *w = *state;
	uint32_t id = client_open(w, MUX_KIND_FILES_PUT, "/workspace/x");
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	struct tlv got = fields_of(&f->open);
	auto_free char *user = NULL, *path = NULL;
	static uint8_t block[64 * 1024];
	uint64_t sent = 0, total = 5 * 1024 * 1024 + 77;
	auto_tlv end = TLV_INIT;

	assert_int_equal(tlv_u64(&got, MUX_F_KIND, 0), MUX_KIND_FILES_PUT);
	assert_false(tlv_has(&got, MUX_F_SANDBOX));
	assert_int_equal(tlv_str(&got, MUX_F_USER, 100, &user, NULL), 0);
	assert_string_equal(user, "worker");
	assert_int_equal(tlv_str(&got, MUX_F_PATH, 100, &path, NULL), 0);
	assert_string_equal(path, "/workspace/x");
	wait_for(w, c->accepted);
	f->count = f->hold = true;
	for (int i = 0; i < 300; i++) {
		pattern_fill(block, sizeof(block), sent);
		sent += mux_send(w->client.m, id, CH_IN, block, sizeof(block));
		pump(w);
	}
	assert_int_equal(sent, LIMIT_MUX_WINDOW); /* init writes nothing: the client is stopped */
	wait_for(w, f->got[CH_IN] == sent);
	f->hold = false;
	mux_consumed(w->in.m, f->id, CH_IN, sent);
	while (sent < total) {
		size_t n = total - sent < sizeof(block) ? (size_t)(total - sent) : sizeof(block);

		pattern_fill(block, n, sent);
		sent += mux_send(w->client.m, id, CH_IN, block, n);
		pump(w);
	}
	mux_eof(w->client.m, id, CH_IN);
	wait_for(w, f->eof[CH_IN]);
	assert_int_equal(f->got[CH_IN], total);
	mux_close(w->in.m, f->id, &end);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), UINT64_MAX);
}

/* Init is done long before a slow client has everything. */
static void a_download_is_whole_before_its_end(void **state)
{
	struct world *w = *state;
	uint32_t id = client_open(w, MUX_KIND_FILES_GET, "/etc");
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	static uint8_t block[64 * 1024];
	uint64_t sent = 0;
	auto_tlv end = TLV_INIT;

	wait_for(w, c->accepted);
	c->count = true;
	w->client.deaf = true;
	for (int i = 0; i < 200; i++) {
		pattern_fill(block, sizeof(block), sent);
		sent += mux_send(w->in.m, f->id, CH_IN, block, sizeof(block));
		pump(w);
	}
	assert_int_equal(sent, LIMIT_MUX_WINDOW);
	tlv_add_u64(&end, MUX_F_ERROR, MUX_ERR_IO);
	tlv_add_str(&end, MUX_F_MESSAGE, "reading /etc/x:\tinput/output error");
	mux_close(w->in.m, f->id, &end);
	pump(w);
	usleep(20000);
	w->client.deaf = false;
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_IN], sent);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_IO);
	assert_close_says(c, "input/output error");
}

static void a_dial_is_a_pipe_both_ways(void **state)
{
	struct world *w = *state;
	auto_tlv t = TLV_INIT;
	uint32_t id;
	struct flow_seen *c, *f;
	struct tlv got;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_u64(&t, MUX_F_PORT, 8080);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	c = flow_of(&w->client, id);
	f = in_accept(w, 0);
	got = fields_of(&f->open);
	assert_int_equal(tlv_u64(&got, MUX_F_PORT, 0), 8080);
	wait_for(w, c->accepted);
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "GET /\n", 6), 6);
	mux_eof(w->client.m, id, CH_IN);
	wait_for(w, f->eof[CH_IN]);
	assert_memory_equal(f->data[CH_IN].data, "GET /\n", 6);
	assert_int_equal(mux_send(w->in.m, f->id, CH_IN, "200\n", 4), 4);
	mux_eof(w->in.m, f->id, CH_IN);
	wait_for(w, c->eof[CH_IN]);
	assert_memory_equal(c->data[CH_IN].data, "200\n", 4);
	mux_close(w->client.m, id, NULL);
	wait_for(w, f->closed);
}

static void a_query_is_answered_in_its_accept(void **state)
{
	struct world *w = *state;
	uint32_t id = client_open(w, MUX_KIND_PS, NULL);
	struct flow_seen *c = flow_of(&w->client, id);
	auto_tlv t = TLV_INIT, end = TLV_INIT;
	auto_free char *text = NULL;
	struct tlv got;

	wait_for(w, w->in.n == 1);
	tlv_add_str(&t, MUX_F_TEXT, "1 init\n");
	mux_accept(w->in.m, w->in.flows[0].id, &t, LIMIT_MUX_WINDOW);
	mux_close(w->in.m, w->in.flows[0].id, &end);
	wait_for(w, c->closed);
	got = fields_of(&c->accept);
	assert_int_equal(tlv_str(&got, MUX_F_TEXT, 100, &text, NULL), 0);
	assert_string_equal(text, "1 init\n");
}

static void refusals_and_losses_are_told(void **state)
{
	struct world *w = *state;
	uint32_t id = client_open(w, MUX_KIND_FILES_GET, "/nope");
	struct flow_seen *c = flow_of(&w->client, id);
	auto_tlv t = TLV_INIT;

	wait_for(w, w->in.n == 1);
	tlv_add_u64(&t, MUX_F_ERROR, 4711);
	tlv_add_str(&t, MUX_F_MESSAGE, "no such file\n");
	mux_close(w->in.m, w->in.flows[0].id, &t);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_REFUSED);
	id = client_open(w, MUX_KIND_FILES_GET, "/etc");
	c = flow_of(&w->client, id);
	in_accept(w, 1);
	wait_for(w, c->accepted);
	end_stop(&w->in);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_LOST);
}

static unsigned closed_streams(struct world *w)
{
	unsigned n = 0;

	for (size_t i = 0; i < w->client.n; i++)
		n += w->client.flows[i].closed;
	return n;
}

static void restart_without_link(struct world *w)
{
	daemon_stop(w);
	end_stop(&w->in);
	daemon_start(w);
	client_connect(w);
}

static void what_comes_before_the_link_waits_for_it(void **state)
{
	struct world *w = *state;
	uint32_t get, ps, put;
	struct flow_seen *last;
	auto_free char *path = NULL;
	struct tlv got;

	restart_without_link(w);
	get = client_open(w, MUX_KIND_FILES_GET, "/etc");
	ps = client_open(w, MUX_KIND_PS, NULL);
	put = client_open(w, MUX_KIND_FILES_PUT, "/workspace/x");
	mux_eof(w->client.m, get, CH_IN);
	mux_close(w->client.m, put, NULL); /* one that does not wait */
	/* A later stream's answer shows that these were read. */
	last = flow_of(&w->client, client_watch(w));
	wait_for(w, last->accepted);
	assert_int_equal(closed_streams(w), 0);
	in_dial(w);
	in_accept(w, 0);
	in_accept(w, 1);
	wait_for(w, flow_of(&w->client, get)->accepted && flow_of(&w->client, ps)->accepted);
	assert_int_equal(w->in.n, 2);
	got = fields_of(&w->in.flows[0].open);
	/* The list of a box has the newest first. */
	assert_int_equal(tlv_u64(&got, MUX_F_KIND, 0), MUX_KIND_PS);
	got = fields_of(&w->in.flows[1].open);
	assert_int_equal(tlv_u64(&got, MUX_F_KIND, 0), MUX_KIND_FILES_GET);
	assert_int_equal(tlv_str(&got, MUX_F_PATH, 100, &path, NULL), 0);
	assert_string_equal(path, "/etc");
	wait_for(w, w->in.flows[1].eof[CH_IN]);
	assert_int_equal(mux_send(w->in.m, w->in.flows[1].id, CH_IN, "tree", 4), 4);
	wait_for(w, flow_of(&w->client, get)->data[CH_IN].len == 4);
}

static void a_link_that_does_not_come_is_told(void **state)
{
	struct world *w = *state;
	struct flow_seen *gone, *late;
	int64_t start;

	restart_without_link(w);
	start = clock_mono_ms();
	late = flow_of(&w->client, client_open(w, MUX_KIND_FILES_GET, "/etc"));
	wait_for(w, late->closed);
	assert_true(clock_mono_ms() - start >= LIMIT_LINK_WAIT_MS - 100);
	assert_int_equal(close_u64(late, MUX_F_ERROR), MUX_ERR_UNAVAILABLE);
	assert_close_says(late, "has not connected");
	gone = flow_of(&w->client, client_open(w, MUX_KIND_FILES_GET, "/etc"));
	pump(w);
	execs_drop(w->execs, &w->sandbox.id, OUTCOME_EXPIRED, NULL);
	wait_for(w, gone->closed);
	assert_int_equal(close_u64(gone, MUX_F_ERROR), MUX_ERR_EXPIRED);
}

static void a_client_that_goes_ends_its_streams(void **state)
{
	struct world *w = *state;
	struct flow_seen *f, *g;

	client_open(w, MUX_KIND_FILES_GET, "/a");
	client_open(w, MUX_KIND_FILES_PUT, "/b");
	f = in_accept(w, 0);
	g = in_accept(w, 1);
	pump(w);
	client_connect(w);
	wait_for(w, f->closed && g->closed);
}

static void a_deleted_sandbox_ends_them_too(void **state)
{
	struct world *w = *state;
	uint32_t id = client_open(w, MUX_KIND_FILES_GET, "/a");
	struct flow_seen *c = flow_of(&w->client, id);

	in_accept(w, 0);
	wait_for(w, c->accepted);
	execs_drop(w->execs, &w->sandbox.id, OUTCOME_DELETED, NULL);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_DELETED);
	assert_close_says(c, "sandbox deleted");
}

/* It outlives the link: a command line waits on it for the end of the sandbox. */
static void a_watch_tells_the_end(void **state)
{
	struct world *w = *state;
	uint32_t id = client_watch(w);
	struct flow_seen *c = flow_of(&w->client, id);

	wait_for(w, c->accepted);
	mux_send(w->client.m, id, CH_IN, "nobody reads this", 17);
	end_stop(&w->in);
	pump(w);
	assert_false(c->closed);
	execs_drop(w->execs, &w->sandbox.id, OUTCOME_EXPIRED, NULL);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_EXPIRED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(an_upload_flows_and_is_answered), T(a_download_is_whole_before_its_end),
		T(a_dial_is_a_pipe_both_ways),	    T(a_query_is_answered_in_its_accept),
		T(refusals_and_losses_are_told),    T(a_client_that_goes_ends_its_streams),
		T(a_deleted_sandbox_ends_them_too), T(a_watch_tells_the_end),
		T(what_comes_before_the_link_waits_for_it), T(a_link_that_does_not_come_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
