/* Broken connections and restarts: a command survives its client, its link and the daemon, byte for byte. */
#include "tests/unit/exec_world.h"

#include "daemon/worker/exec_priv.h"

#include <ftw.h>
#include <sys/stat.h>

static uint32_t client_resume(struct world *w, const char *op, uint64_t out, uint64_t errs)
{
	auto_tlv t = TLV_INIT;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_RESUME);
	tlv_add_str(&t, MUX_F_OPERATION, op);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, out);
	tlv_add_u64(&t, MUX_F_OFFSET_ERR, errs);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	mux_rebase_recv(w->client.m, id, CH_OUT, out);
	mux_rebase_recv(w->client.m, id, CH_ERR, errs);
	return id;
}

static uint64_t accept_u64(const struct flow_seen *f, enum mux_field field)
{
	struct tlv t = fields_of(&f->accept);

	return tlv_u64(&t, field, UINT64_MAX);
}

static uint64_t open_u64(const struct flow_seen *f, enum mux_field field)
{
	struct tlv t = fields_of(&f->open);

	return tlv_u64(&t, field, UINT64_MAX);
}

/* Init answers a RESUME: it goes on from the asked offsets, stdin from its own. */
static struct flow_seen *in_take_up(struct world *w, size_t nth, uint64_t stdin_at)
{
	struct flow_seen *f;
	auto_tlv t = TLV_INIT;

	wait_for(w, w->in.n > nth);
	f = &w->in.flows[nth];
	assert_int_equal(open_u64(f, MUX_F_KIND), MUX_KIND_RESUME);
	tlv_add_u64(&t, MUX_F_OFFSET_IN, stdin_at);
	mux_rebase_send(w->in.m, f->id, CH_OUT, open_u64(f, MUX_F_OFFSET_OUT));
	mux_rebase_send(w->in.m, f->id, CH_ERR, open_u64(f, MUX_F_OFFSET_ERR));
	mux_rebase_recv(w->in.m, f->id, CH_IN, stdin_at);
	assert_int_equal(mux_accept(w->in.m, f->id, &t, LIMIT_MUX_WINDOW), 0);
	return f;
}

static void a_client_comes_back_and_misses_nothing(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	uint64_t sent = 0, total = 2 * 1024 * 1024, have;

	c->count = true;
	in_send(w, f->id, CH_OUT, &sent, 700000);
	wait_for(w, c->got[CH_OUT] == 700000);
	/* The client writes no more, and its connection breaks in the middle. */
	c->hold = true;
	in_send(w, f->id, CH_OUT, &sent, 1000000);
	wait_for(w, c->got[CH_OUT] > 700000);
	have = 700000 + (c->got[CH_OUT] - 700000) / 2;
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "first", 5), 5);
	wait_for(w, f->data[CH_IN].len == 5);
	client_connect(w);
	id = client_resume(w, op, have, 0);
	c = flow_of(&w->client, id);
	c->count = true;
	wait_for(w, c->accepted);
	/* Consumption is reported in large steps: what is not, is sent again. */
	assert_int_equal(accept_u64(c, MUX_F_OFFSET_IN), 0);
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "firstsecond", 11), 11);
	in_send(w, f->id, CH_OUT, &sent, total);
	wait_for(w, f->data[CH_IN].len == 11);
	assert_memory_equal(f->data[CH_IN].data, "firstsecond", 11);
	in_exit(w, f->id, 9, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->first[CH_OUT], have);
	assert_int_equal(c->got[CH_OUT], total - have);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 9);
	assert_int_equal(f->controls, 0);
}

/* What the program had not consumed when the client went is sent again by it, and arrives once. */
static void stdin_sent_twice_arrives_once(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);

	f->hold = true;
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "0123456789", 10), 10);
	wait_for(w, f->data[CH_IN].len == 10);
	client_connect(w);
	id = client_resume(w, op, 0, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->accepted);
	assert_int_equal(accept_u64(c, MUX_F_OFFSET_IN), 0);
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "0123456789ab", 12), 12);
	mux_eof(w->client.m, id, CH_IN);
	wait_for(w, f->eof[CH_IN]);
	assert_int_equal(f->data[CH_IN].len, 12);
	assert_memory_equal(f->data[CH_IN].data, "0123456789ab", 12);
	in_exit(w, f->id, 0, 0, 0);
	wait_for(w, c->closed);
}

static void the_end_while_nobody_looked_is_still_told(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *f = in_accept(w, 0), *c;
	auto_free char *op = accepted_operation(w, id);
	struct operation o;

	end_stop(&w->client);
	assert_int_equal(mux_send(w->in.m, f->id, CH_OUT, "done\n", 5), 5);
	in_exit(w, f->id, 4, 5, 0);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	operation_done(&o);
	client_connect(w);
	id = client_resume(w, op, 2, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_int_equal(c->data[CH_OUT].len, 3);
	assert_memory_equal(c->data[CH_OUT].data, "ne\n", 3);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 4);
}

static void only_the_owner_resumes(void **state)
{
	struct world *w = *state;
	struct caller colleague = { .role = ROLE_OPERATOR, .tenant = "team", .who = "uid 1001" };
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c;
	auto_free char *op = accepted_operation(w, id);

	in_accept(w, 0);
	client_connect_as(w, &colleague);
	id = client_resume(w, op, 0, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_FORBIDDEN);
}

/* The link breaks: what no reader has acknowledged is asked for again, and nothing arrives twice. */
static void a_broken_link_is_resumed(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	uint64_t sent = 0, total = 3 * 1024 * 1024;

	wait_for(w, c->accepted);
	c->count = true;
	in_send(w, f->id, CH_OUT, &sent, 800000);
	wait_for(w, c->got[CH_OUT] == 800000);
	f->hold = true;
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "abcdef", 6), 6);
	mux_eof(w->client.m, id, CH_IN);
	wait_for(w, f->eof[CH_IN]);
	in_dial(w);
	f = in_take_up(w, 0, 4); /* it had taken four bytes */
	assert_true(open_u64(f, MUX_F_OFFSET_OUT) <= 800000);
	assert_true(open_u64(f, MUX_F_OFFSET_OUT) + LIMIT_MUX_WINDOW >= 800000);
	wait_for(w, f->eof[CH_IN]);
	assert_int_equal(f->first[CH_IN], 4);
	assert_int_equal(f->data[CH_IN].len, 2);
	sent = open_u64(f, MUX_F_OFFSET_OUT);
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 0, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_EXITED);
}

/* A stalled reader and a link that breaks again and again: what is under way never outgrows the window. */
static void many_breaks_lose_nothing(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	uint64_t sent = 0, total;
	static uint8_t block[64 * 1024];

	wait_for(w, c->accepted);
	c->count = c->hold = true;
	for (int round = 0; round < 5; round++) {
		if (round > 0) {
			in_dial(w);
			f = in_take_up(w, 0, 0);
			sent = open_u64(f, MUX_F_OFFSET_OUT);
			assert_int_equal(sent, 0); /* the client has acknowledged nothing */
		}
		for (int i = 0; i < 60; i++) {
			pattern_fill(block, sizeof(block), sent);
			sent += mux_send(w->in.m, f->id, CH_OUT, block, sizeof(block));
			pump(w);
		}
		assert_int_equal(sent, LIMIT_MUX_WINDOW);
	}
	wait_for(w, c->got[CH_OUT] == sent);
	c->hold = false;
	mux_consumed(w->client.m, id, CH_OUT, sent);
	total = sent + 100000;
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 0, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total);
}

static void restart(struct world *w)
{
	struct operation_list execs;
	struct sandbox_list live;
	struct error err = ERROR_INIT;

	daemon_stop(w);
	assert_int_equal(controller_desired(w->controller, &w->node, &live, &execs, &err), 0);
	daemon_start(w);
	execs_recover(w->execs, &execs);
	sandbox_list_done(&live);
	operation_list_done(&execs);
}

static void a_restart_of_the_daemon_goes_unnoticed(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	uint64_t sent = 0, total = 2 * 1024 * 1024, have;
	struct operation o;

	c->count = true;
	in_send(w, f->id, CH_OUT, &sent, 600000);
	wait_for(w, c->got[CH_OUT] == 600000);
	have = 600000;
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "one", 3), 3);
	wait_for(w, f->data[CH_IN].len == 3);
	restart(w);
	/* The client is quicker than init: it is answered when init has said where stdin stands. */
	client_connect(w);
	id = client_resume(w, op, have, 0);
	c = flow_of(&w->client, id);
	c->count = true;
	usleep(20000);
	pump(w);
	assert_false(c->accepted || c->closed);
	in_dial(w);
	f = in_take_up(w, 0, 3);
	wait_for(w, c->accepted);
	assert_int_equal(accept_u64(c, MUX_F_OFFSET_IN), 3);
	mux_rebase_send(w->client.m, id, CH_IN, 3);
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "two", 3), 3);
	wait_for(w, f->data[CH_IN].len == 3);
	assert_memory_equal(f->data[CH_IN].data, "two", 3);
	sent = open_u64(f, MUX_F_OFFSET_OUT);
	assert_true(sent <= have);
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 6, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total - have);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 6);
	ended_record(w, op, &o);
	assert_int_equal(o.result.out.total, total);
	assert_int_equal((uint8_t)o.result.out.head.data[1000], pattern(1000));
	operation_done(&o);
}

/* Init is quicker than the client, which has more than the daemon knew when it asked init. */
static void a_client_ahead_of_the_question_is_no_loss(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0), nobody;
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	uint64_t sent = 0, total = 700000, have = 600000;

	c->count = true;
	in_send(w, f->id, CH_OUT, &sent, have);
	wait_for(w, c->got[CH_OUT] == have);
	restart(w);
	in_dial(w);
	wait_for(w, w->in.n > 0);
	assert_true(open_u64(&w->in.flows[0], MUX_F_OFFSET_OUT) < have);
	client_connect(w);
	id = client_resume(w, op, have, 0);
	nobody = client_resume(w, id_new().text, 0, 0);
	wait_for(w, flow_of(&w->client, nobody)->closed); /* so the one before it has been taken too */
	c = flow_of(&w->client, id);
	c->count = true;
	f = in_take_up(w, 0, 0);
	wait_for(w, c->accepted || c->closed);
	assert_false(c->closed);
	sent = open_u64(f, MUX_F_OFFSET_OUT);
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 6, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total - have);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 6);
}

static void after_a_restart_an_unknown_command_is_lost(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	auto_free char *op = accepted_operation(w, id);
	auto_tlv t = TLV_INIT;
	struct operation o;

	in_accept(w, 0);
	restart(w);
	in_dial(w);
	wait_for(w, w->in.n > 0);
	tlv_add_u64(&t, MUX_F_ERROR, MUX_ERR_NOT_FOUND);
	mux_close(w->in.m, w->in.flows[0].id, &t);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.result.outcome, OUTCOME_LOST);
	operation_done(&o);
}

static void a_detached_command_survives_a_restart_alone(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_DETACH);
	struct flow_seen *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	uint64_t sent = 0, total = 300000;
	struct operation o;

	in_send(w, f->id, CH_OUT, &sent, 100000);
	wait_for(w, f->consumed[CH_OUT] > 0 || sent < LIMIT_MUX_WINDOW / 4);
	usleep(20000);
	restart(w);
	end_stop(&w->client);
	in_dial(w);
	f = in_take_up(w, 0, 0);
	sent = open_u64(f, MUX_F_OFFSET_OUT);
	assert_int_equal(sent, 100000);
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 0, total, 0);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.state, OP_SUCCEEDED);
	assert_int_equal(o.result.out.total, total);
	for (size_t i = 0; i < o.result.out.tail.len; i++)
		assert_int_equal((uint8_t)o.result.out.tail.data[i], pattern(total - o.result.out.tail.len + i));
	operation_done(&o);
}

static int remove_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	return type == FTW_F ? unlink(path) : 0;
}

/* Nothing but the record says then that no client has to come back: what is sent beyond a window is taken at once. */
static void a_detached_command_stays_detached_without_its_spool(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_DETACH);
	struct flow_seen *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	auto_free char *kept = xasprintf("%s/execs", w->dir);
	uint64_t sent = 0, total = 3 * LIMIT_MUX_WINDOW;
	struct operation o;

	wait_for(w, f->accepted || f->opened);
	end_stop(&w->client);
	assert_int_equal(nftw(w->execs->live_dir, remove_file, 8, FTW_PHYS), 0);
	assert_int_equal(nftw(kept, remove_file, 8, FTW_PHYS), 0);
	restart(w);
	in_dial(w);
	f = in_take_up(w, 0, 0);
	in_send(w, f->id, CH_OUT, &sent, total);
	assert_int_equal(f->controls, 0);
	in_exit(w, f->id, 0, total, 0);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.state, OP_SUCCEEDED);
	assert_int_equal(o.result.out.total, total);
	operation_done(&o);
}

/* Session managers remove what a user has there; daemons that see other mounts share the place. */
static void the_place_in_memory_comes_back_and_is_left_alone(void **state)
{
	struct world *w = *state;
	auto_free char *foreign = xasprintf("/dev/shm/sandboxd-%u-%d-test", (unsigned)geteuid(), (int)getpid());
	auto_free char *note = xasprintf("%s/state-dir", foreign);
	auto_free char *op = NULL;
	auto_free char *spool = NULL;
	uint32_t id;

	if (strncmp(w->execs->live_dir, "/dev/shm/", 9) != 0)
		skip();
	assert_int_equal(mkdir(foreign, 0700), 0);
	assert_int_equal(io_write_file_atomic(note, "1 /nowhere/to/be/seen", 21, 0600, false, NULL), 0);
	assert_int_equal(io_remove_tree(w->execs->live_dir, NULL), 0);
	id = client_exec(w, MUX_OPEN_DETACH);
	in_accept(w, 0);
	op = accepted_operation(w, id);
	spool = xasprintf("%s/%s", w->execs->live_dir, op);
	assert_int_equal(access(spool, F_OK), 0);
	free(live_dir_open(w->dir)); /* looks for orphans */
	assert_int_equal(access(note, F_OK), 0);
	assert_int_equal(io_remove_tree(foreign, NULL), 0);
}

static void a_start_command_survives_a_restart(void **state)
{
	struct world *w = *state;
	struct flow_seen *f, *c;
	auto_tlv t = TLV_INIT;
	uint32_t id;

	assert_int_equal(execs_start_main(w->execs, &w->sandbox, NULL), 0);
	f = in_accept(w, 0);
	assert_int_equal(mux_send(w->in.m, f->id, CH_OUT, "up\n", 3), 3);
	pump(w);
	usleep(20000);
	restart(w);
	in_dial(w);
	f = in_take_up(w, 0, 0);
	assert_int_equal(open_u64(f, MUX_F_OFFSET_OUT), 3);
	client_connect(w);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_ATTACH);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	c = flow_of(&w->client, id);
	assert_int_equal(mux_send(w->in.m, f->id, CH_OUT, "more\n", 5), 5);
	in_exit(w, f->id, 0, 8, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->data[CH_OUT].len, 8);
	assert_memory_equal(c->data[CH_OUT].data, "up\nmore\n", 8);
}

/* Both graces at once, since they take their time: a client that stays away, and (afterwards) a link that does. */
static void who_does_not_come_back_is_given_up(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	int64_t start = clock_mono_ms();
	struct tlv got;

	wait_for(w, c->accepted);
	client_connect(w);
	wait_for(w, f->controls == 1);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_ACTION, 0), MUX_CONTROL_CANCEL);
	assert_true(clock_mono_ms() - start >= LIMIT_RESUME_GRACE_MS - 100);
	id = client_exec(w, 0);
	c = flow_of(&w->client, id);
	in_accept(w, 1);
	start = clock_mono_ms();
	end_stop(&w->in);
	wait_for(w, c->closed);
	assert_true(clock_mono_ms() - start >= LIMIT_LINK_WAIT_MS - 100);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_LOST);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(a_client_comes_back_and_misses_nothing),
		T(stdin_sent_twice_arrives_once),
		T(the_end_while_nobody_looked_is_still_told),
		T(only_the_owner_resumes),
		T(a_broken_link_is_resumed),
		T(many_breaks_lose_nothing),
		T(a_restart_of_the_daemon_goes_unnoticed),
		T(a_client_ahead_of_the_question_is_no_loss),
		T(after_a_restart_an_unknown_command_is_lost),
		T(a_detached_command_survives_a_restart_alone),
		T(a_detached_command_stays_detached_without_its_spool),
		T(the_place_in_memory_comes_back_and_is_left_alone),
		T(a_start_command_survives_a_restart),
		T(who_does_not_come_back_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
