/* Running commands through the data plane: what init is asked, what the client gets, what the record says. */
#include "tests/unit/exec_world.h"

static bool has_env(const struct flow_seen *f, const char *entry)
{
	struct tlv t = fields_of(&f->open);
	auto_strv env = STRV_INIT;

	assert_int_equal(tlv_strv(&t, MUX_F_ENV, LIMIT_ENV_MAX, LIMIT_ARG_ONE_MAX, &env, NULL), 0);
	return strv_has(&env, entry);
}

static void assert_open_str(const struct flow_seen *f, enum mux_field field, const char *want)
{
	struct tlv t = fields_of(&f->open);
	auto_free char *got = NULL;

	assert_int_equal(tlv_str(&t, field, LIMIT_PATH_BYTES_MAX, &got, NULL), 0);
	assert_non_null(got);
	assert_string_equal(got, want);
}

static void output_and_status_reach_client_and_record(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	struct operation o;

	assert_true(has_env(f, "FROM_IMAGE=image"));
	assert_true(has_env(f, "FROM_SPEC=spec"));
	assert_true(has_env(f, "BOTH=spec"));
	assert_true(has_env(f, "FROM_CALLER=caller"));
	assert_open_str(f, MUX_F_CWD, "/workspace");
	assert_open_str(f, MUX_F_USER, "worker");
	assert_open_str(f, MUX_F_OPERATION, op);
	assert_int_equal(mux_send(w->in.m, f->id, CH_OUT, "hello\n", 6), 6);
	assert_int_equal(mux_send(w->in.m, f->id, CH_ERR, "oops\0\n", 6), 6);
	in_exit(w, f->id, 3, 6, 6);
	wait_for(w, c->closed);
	ended_record(w, op, &o);
	assert_int_equal(o.result.outcome, OUTCOME_EXITED);
	assert_int_equal(o.result.exit_code, 3);
	assert_int_equal(o.result.err.total, 6);
	assert_memory_equal(o.result.err.head.data, "oops\0\n", 6);
	assert_false(o.result.truncated);
	assert_memory_equal(c->data[CH_OUT].data, "hello\n", 6);
	assert_memory_equal(c->data[CH_ERR].data, "oops\0\n", 6);
	assert_true(c->eof[CH_OUT] && c->eof[CH_ERR]);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_EXITED);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 3);
	assert_int_equal(close_u64(c, MUX_F_OFFSET_OUT), 6);
	operation_done(&o);
}

static void stdin_reaches_the_command_and_eof_follows(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f;

	wait_for(w, c->accepted);
	/* Before init has accepted. */
	assert_int_equal(mux_send(w->client.m, id, CH_IN, "abc", 3), 3);
	mux_eof(w->client.m, id, CH_IN);
	f = in_accept(w, 0);
	wait_for(w, f->eof[CH_IN]);
	assert_int_equal(f->data[CH_IN].len, 3);
	assert_memory_equal(f->data[CH_IN].data, "abc", 3);
	wait_for(w, c->consumed[CH_IN] == 3);
	in_exit(w, f->id, 0, 0, 0);
	wait_for(w, c->closed);
}

/* Credit is end to end: what the program does not read stays with the client. */
static void an_unread_stdin_stops_the_client(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	static uint8_t block[64 * 1024];
	uint64_t sent = 0;

	f->hold = true;
	wait_for(w, c->accepted);
	for (int i = 0; i < 400; i++) {
		pattern_fill(block, sizeof(block), sent);
		sent += mux_send(w->client.m, id, CH_IN, block, sizeof(block));
		pump(w);
	}
	assert_int_equal(sent, LIMIT_MUX_WINDOW);
	assert_int_equal(c->consumed[CH_IN], 0);
	wait_for(w, f->data[CH_IN].len == sent);
	mux_consumed(w->in.m, f->id, CH_IN, sent);
	f->hold = false;
	wait_for(w, c->consumed[CH_IN] == sent);
	pattern_fill(block, sizeof(block), sent);
	assert_int_equal(mux_send(w->client.m, id, CH_IN, block, sizeof(block)), sizeof(block));
	wait_for(w, f->data[CH_IN].len == sent + sizeof(block));
	for (size_t i = 0; i < f->data[CH_IN].len; i++)
		assert_int_equal((uint8_t)f->data[CH_IN].data[i], pattern(i));
	in_exit(w, f->id, 0, 0, 0);
	wait_for(w, c->closed);
}

static void a_slow_reader_holds_the_command_back_and_loses_nothing(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	uint64_t sent = 0, total = 5 * 1024 * 1024 + 4321;
	static uint8_t block[64 * 1024];

	c->count = c->hold = true;
	for (int i = 0; i < 300; i++) {
		pattern_fill(block, sizeof(block), sent);
		sent += mux_send(w->in.m, f->id, CH_OUT, block, sizeof(block));
		pump(w);
	}
	assert_int_equal(sent, LIMIT_MUX_WINDOW);
	wait_for(w, c->got[CH_OUT] == sent);
	c->hold = false;
	mux_consumed(w->client.m, id, CH_OUT, sent);
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 0, total, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total);
	assert_int_equal(close_u64(c, MUX_F_OFFSET_OUT), total);
}

static void long_output_is_cut_in_the_record_alone(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	uint64_t sent = 0, total = 3 * 1024 * 1024;
	struct operation o;

	c->count = true;
	in_send(w, f->id, CH_ERR, &sent, total);
	in_exit(w, f->id, 0, 0, total);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_ERR], total);
	ended_record(w, op, &o);
	assert_true(o.result.truncated);
	assert_int_equal(o.result.err.total, total);
	assert_int_equal(o.result.err.head.len, LIMIT_OUTPUT_HEAD_MAX);
	assert_int_equal(o.result.err.tail.len, LIMIT_OUTPUT_TAIL_MAX);
	assert_int_equal((uint8_t)o.result.err.tail.data[0], pattern(total - LIMIT_OUTPUT_TAIL_MAX));
	operation_done(&o);
}

static void what_cannot_start_says_why(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id);
	auto_free char *op = accepted_operation(w, id);
	auto_tlv t = TLV_INIT;
	struct operation o;

	wait_for(w, w->in.n > 0);
	tlv_add_u64(&t, MUX_F_ERROR, MUX_ERR_NO_PROGRAM);
	tlv_add_str(&t, MUX_F_MESSAGE, "no program \x1b[31mtrue");
	mux_close(w->in.m, w->in.flows[0].id, &t);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_NOT_STARTED);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_NO_PROGRAM);
	assert_close_says(c, "no program \\x1b[31mtrue");
	ended_record(w, op, &o);
	assert_int_equal(o.state, OP_FAILED);
	assert_int_equal(o.result.outcome, OUTCOME_NOT_STARTED);
	operation_done(&o);
}

static void signals_and_sizes_are_checked_and_passed_on(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_TTY | MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id), *f;
	auto_tlv sig = TLV_INIT, size = TLV_INIT, bad = TLV_INIT;
	struct tlv got;

	wait_for(w, c->accepted);
	tlv_add_u64(&sig, MUX_F_ACTION, MUX_CONTROL_SIGNAL);
	tlv_add_u64(&sig, MUX_F_SIGNAL, 15);
	mux_control(w->client.m, id, &sig); /* before init accepted: kept for then */
	f = in_accept(w, 0);
	assert_true(has_env(f, "TERM=xterm"));
	wait_for(w, f->controls == 1);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_SIGNAL, 0), 15);
	tlv_add_u64(&bad, MUX_F_ACTION, MUX_CONTROL_SIGNAL);
	tlv_add_u64(&bad, MUX_F_SIGNAL, 1000);
	mux_control(w->client.m, id, &bad);
	tlv_add_u64(&size, MUX_F_ACTION, MUX_CONTROL_RESIZE);
	tlv_add_u64(&size, MUX_F_ROWS, 40);
	tlv_add_u64(&size, MUX_F_COLS, 100);
	mux_control(w->client.m, id, &size);
	wait_for(w, f->controls == 2);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_ROWS, 0), 40);
	in_exit(w, f->id, 0, 0, 0);
	wait_for(w, c->closed);
}

static void closing_the_stream_cancels(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	struct operation o;
	struct tlv got;
	auto_tlv t = TLV_INIT;

	mux_close(w->client.m, id, NULL);
	wait_for(w, f->controls == 1);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_ACTION, 0), MUX_CONTROL_CANCEL);
	tlv_add_u64(&t, MUX_F_OUTCOME, OUTCOME_SIGNALED);
	tlv_add_u64(&t, MUX_F_SIGNAL, 15);
	mux_close(w->in.m, f->id, &t);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.result.outcome, OUTCOME_CANCELED);
	operation_done(&o);
}

static void canceling_by_name_works_once(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	struct error err = ERROR_INIT;
	struct id key, other = id_new();
	struct tlv got;
	auto_tlv t = TLV_INIT;

	assert_int_equal(id_parse(op, &key), 0);
	assert_int_equal(execs_cancel(w->execs, &other, 0, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(execs_cancel(w->execs, &key, 2, &err), 0);
	wait_for(w, f->controls == 1);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_SIGNAL, 0), 2);
	assert_int_equal(execs_cancel(w->execs, &key, 0, &err), 0);
	wait_for(w, f->controls == 2);
	got = fields_of(&f->control);
	assert_int_equal(tlv_u64(&got, MUX_F_ACTION, 0), MUX_CONTROL_CANCEL);
	tlv_add_u64(&t, MUX_F_OUTCOME, OUTCOME_CANCELED);
	mux_close(w->in.m, f->id, &t);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_CANCELED);
}

static void a_dropped_sandbox_ends_its_commands(void **state)
{
	static const struct {
		enum outcome why;
		enum mux_error error;
		const char *word, *reason;
	} rows[] = { { OUTCOME_EXPIRED, MUX_ERR_EXPIRED, "sandbox expired", "its time" },
		     { OUTCOME_DELETED, MUX_ERR_DELETED, "sandbox deleted", NULL },
		     { OUTCOME_LOST, MUX_ERR_LOST, "ended by itself", NULL },
		     { OUTCOME_LOST, MUX_ERR_LOST, "while the command ran: its disk is full", "its disk is full" } };
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint32_t id = client_exec(w, 0);
		struct flow_seen *c = flow_of(&w->client, id);

		in_accept(w, i);
		execs_drop(w->execs, &w->sandbox.id, rows[i].why, rows[i].reason);
		wait_for(w, c->closed);
		assert_int_equal(close_u64(c, MUX_F_OUTCOME), rows[i].why);
		assert_int_equal(close_u64(c, MUX_F_ERROR), rows[i].error);
		assert_close_says(c, rows[i].word);
	}
}

static void start_detached(struct world *w, char op[static ID_TEXT_LEN + 1])
{
	struct exec_grant grant;
	struct command cmd;
	struct error err = ERROR_INIT;

	command_init(&cmd);
	strv_add(&cmd.argv, "build");
	if (controller_exec_begin(w->controller, &w->who, w->sandbox.id.text, &cmd, &grant, &err) != 0)
		fail_msg("%s", err.message);
	execs_start_detached(w->execs, &grant, &cmd);
	command_done(&cmd);
	memcpy(op, grant.operation.text, ID_TEXT_LEN + 1);
}

static uint32_t client_attach(struct world *w, const char *op, uint64_t from)
{
	auto_tlv t = TLV_INIT;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_ATTACH);
	if (op)
		tlv_add_str(&t, MUX_F_OPERATION, op);
	else
		tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, from);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	mux_rebase_recv(w->client.m, id, CH_OUT, from);
	return id;
}

/* Without a reader nothing is held back; who attaches gets the head, is told of the gap, and gets the rest. */
static void a_detached_command_runs_on_and_can_be_watched(void **state)
{
	struct world *w = *state;
	char op[ID_TEXT_LEN + 1];
	uint64_t sent = 0, total = 3 * 1024 * 1024, ring_from = total - LIMIT_SPOOL_RING;
	struct flow_seen *f, *c;
	struct tlv got;
	uint32_t id;

	start_detached(w, op);
	f = in_accept(w, 0);
	in_send(w, f->id, CH_OUT, &sent, total);
	wait_for(w, f->consumed[CH_OUT] > total - LIMIT_MUX_WINDOW);
	usleep(20000);
	id = client_attach(w, op, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->accepted && c->got[CH_OUT] >= LIMIT_OUTPUT_HEAD_MAX + LIMIT_SPOOL_RING);
	got = fields_of(&c->accept);
	assert_int_equal(tlv_u64(&got, MUX_F_GAP_OUT, 99), 0);
	assert_int_equal(tlv_u64(&got, MUX_F_OFFSET_OUT, 0), total);
	assert_int_equal(c->controls, 1);
	got = fields_of(&c->control);
	assert_int_equal(tlv_u64(&got, MUX_F_GAP_OUT, 0), ring_from);
	for (size_t i = 0; i < LIMIT_OUTPUT_HEAD_MAX; i++)
		assert_int_equal((uint8_t)c->data[CH_OUT].data[i], pattern(i));
	for (size_t i = 0; i < LIMIT_SPOOL_RING; i++)
		assert_int_equal((uint8_t)c->data[CH_OUT].data[LIMIT_OUTPUT_HEAD_MAX + i], pattern(ring_from + i));
	in_send(w, f->id, CH_OUT, &sent, total + 10);
	in_exit(w, f->id, 5, total + 10, 0);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], LIMIT_OUTPUT_HEAD_MAX + LIMIT_SPOOL_RING + 10);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 5);
	/* After its end the same is served from spool and record. */
	id = client_attach(w, op, total);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], 10);
	assert_int_equal(c->first[CH_OUT], total);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 5);
}

/* A watcher that stands still costs neither the command nor the daemon anything. */
static void a_stopped_watcher_holds_nobody_back(void **state)
{
	struct world *w = *state;
	char op[ID_TEXT_LEN + 1];
	uint64_t sent = 0, total = 8 * 1024 * 1024;
	struct flow_seen *f, *c;
	uint32_t id;

	start_detached(w, op);
	f = in_accept(w, 0);
	id = client_attach(w, op, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->accepted);
	c->hold = true;
	in_send(w, f->id, CH_OUT, &sent, total);
	in_exit(w, f->id, 0, total, 0);
	wait_for(w, c->got[CH_OUT] == LIMIT_MUX_WINDOW);
	c->hold = false;
	mux_consumed(w->client.m, id, CH_OUT, c->got[CH_OUT]);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_OFFSET_OUT), total);
	assert_true(c->controls >= 1);
}

static void the_start_command_is_shown_by_the_sandbox(void **state)
{
	struct world *w = *state;
	struct flow_seen *f, *c;
	struct tlv got;
	uint32_t id;

	assert_int_equal(execs_start_main(w->execs, &w->sandbox, NULL), 0);
	f = in_accept(w, 0);
	got = fields_of(&f->open);
	assert_true(tlv_u64(&got, MUX_F_FLAGS, 0) & MUX_OPEN_MAIN);
	assert_int_equal(mux_send(w->in.m, f->id, CH_OUT, "up\n", 3), 3);
	id = client_attach(w, NULL, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->got[CH_OUT] == 3);
	in_exit(w, f->id, 1, 3, 0);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 1);
	id = client_attach(w, NULL, 0);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], 3);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 1);
}

static void the_detach_flag_lets_the_client_go(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, MUX_OPEN_DETACH);
	struct flow_seen *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	struct operation o;

	client_connect(w);
	usleep(50000);
	pump(w);
	assert_int_equal(f->controls, 0);
	in_exit(w, f->id, 0, 0, 0);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.state, OP_SUCCEEDED);
	operation_done(&o);
}

/* An end that cannot be is not believed. */
static void init_cannot_make_up_an_outcome(void **state)
{
	static const struct {
		uint64_t outcome, code, sig;
	} rows[] = { { OUTCOME_EXITED, 256, 0 }, { OUTCOME_SIGNALED, 0, 0 }, { OUTCOME_SIGNALED, 0, 65 },
		     { OUTCOME_NONE, 0, 0 },	 { OUTCOME_DELETED, 0, 0 },  { 77, 0, 0 } };
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint32_t id = client_exec(w, 0);
		struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, i);
		auto_tlv t = TLV_INIT;

		tlv_add_u64(&t, MUX_F_OUTCOME, rows[i].outcome);
		tlv_add_u64(&t, MUX_F_EXIT_CODE, rows[i].code);
		tlv_add_u64(&t, MUX_F_SIGNAL, rows[i].sig);
		mux_close(w->in.m, f->id, &t);
		wait_for(w, c->closed);
		assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_LOST);
	}
}

static void bytes_that_init_counts_and_never_sent_are_reported(void **state)
{
	struct world *w = *state;
	uint32_t id = client_exec(w, 0);
	struct flow_seen *c = flow_of(&w->client, id), *f = in_accept(w, 0);
	auto_free char *op = accepted_operation(w, id);
	struct operation o;

	in_exit(w, f->id, 0, 1000, 0);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_TRUNCATED), 1);
	ended_record(w, op, &o);
	assert_true(o.result.truncated);
	operation_done(&o);
}

/* --- refusals --- */

static void assert_refused(struct world *w, const struct tlv *t, enum mux_error why)
{
	uint32_t id = mux_open(w->client.m, t, LIMIT_MUX_WINDOW, NULL);
	struct flow_seen *c = flow_of(&w->client, id);

	wait_for(w, c->closed);
	assert_false(c->accepted);
	assert_int_equal(close_u64(c, MUX_F_ERROR), why);
	assert_int_equal(w->in.n, 0);
}

static void base_fields(struct world *w, struct tlv *t, uint64_t kind)
{
	tlv_add_u64(t, MUX_F_KIND, kind);
	tlv_add_str(t, MUX_F_SANDBOX, w->sandbox.id.text);
}

static void what_a_client_may_not_ask_is_refused(void **state)
{
	struct world *w = *state;
	auto_tlv unknown = TLV_INIT, forged = TLV_INIT, flags = TLV_INIT, none = TLV_INIT, nobody = TLV_INIT, no_argv = TLV_INIT,
		 relative = TLV_INIT;
	auto_tlv attach = TLV_INIT;

	base_fields(w, &unknown, 99);
	assert_refused(w, &unknown, MUX_ERR_REFUSED);
	base_fields(w, &forged, MUX_KIND_EXEC);
	tlv_add_str(&forged, MUX_F_ARG, "true");
	tlv_add_str(&forged, MUX_F_OPERATION, w->sandbox.id.text);
	assert_refused(w, &forged, MUX_ERR_REFUSED);
	base_fields(w, &flags, MUX_KIND_EXEC);
	tlv_add_str(&flags, MUX_F_ARG, "true");
	tlv_add_u64(&flags, MUX_F_FLAGS, MUX_OPEN_MAIN);
	assert_refused(w, &flags, MUX_ERR_REFUSED);
	tlv_add_u64(&none, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&none, MUX_F_ARG, "true");
	assert_refused(w, &none, MUX_ERR_REFUSED);
	tlv_add_u64(&nobody, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&nobody, MUX_F_ARG, "true");
	tlv_add_str(&nobody, MUX_F_SANDBOX, "no-such-sandbox");
	assert_refused(w, &nobody, MUX_ERR_NOT_FOUND);
	base_fields(w, &no_argv, MUX_KIND_EXEC);
	assert_refused(w, &no_argv, MUX_ERR_REFUSED);
	base_fields(w, &relative, MUX_KIND_EXEC);
	tlv_add_str(&relative, MUX_F_ARG, "true");
	tlv_add_str(&relative, MUX_F_CWD, "rel");
	assert_refused(w, &relative, MUX_ERR_REFUSED);
	base_fields(w, &attach, MUX_KIND_ATTACH);
	assert_refused(w, &attach, MUX_ERR_NOT_FOUND); /* no start command ran */
}

static void others_neither_see_nor_touch(void **state)
{
	struct world *w = *state;
	struct caller stranger = { .role = ROLE_OPERATOR, .tenant = "other", .who = "uid 2000" };
	struct caller viewer = { .role = ROLE_VIEWER, .tenant = "team", .who = "uid 3000" };
	auto_tlv t = TLV_INIT, ps = TLV_INIT;

	base_fields(w, &t, MUX_KIND_EXEC);
	tlv_add_str(&t, MUX_F_ARG, "true");
	client_connect_as(w, &stranger);
	assert_refused(w, &t, MUX_ERR_NOT_FOUND);
	client_connect_as(w, &viewer);
	assert_refused(w, &t, MUX_ERR_FORBIDDEN);
	base_fields(w, &ps, MUX_KIND_PS);
	assert_refused(w, &ps, MUX_ERR_FORBIDDEN);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(output_and_status_reach_client_and_record),
		T(stdin_reaches_the_command_and_eof_follows),
		T(an_unread_stdin_stops_the_client),
		T(a_slow_reader_holds_the_command_back_and_loses_nothing),
		T(long_output_is_cut_in_the_record_alone),
		T(what_cannot_start_says_why),
		T(signals_and_sizes_are_checked_and_passed_on),
		T(closing_the_stream_cancels),
		T(canceling_by_name_works_once),
		T(a_dropped_sandbox_ends_its_commands),
		T(a_detached_command_runs_on_and_can_be_watched),
		T(a_stopped_watcher_holds_nobody_back),
		T(the_start_command_is_shown_by_the_sandbox),
		T(the_detach_flag_lets_the_client_go),
		T(init_cannot_make_up_an_outcome),
		T(bytes_that_init_counts_and_never_sent_are_reported),
		T(what_a_client_may_not_ask_is_refused),
		T(others_neither_see_nor_touch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
