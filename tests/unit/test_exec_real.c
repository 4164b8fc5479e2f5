/* The data plane with a real sandbox-init, run as an ordinary process: the two ends of the protocol meet. */
#include "tests/unit/exec_world.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static pid_t init_pid;

/* BUILD/sandbox-init, beside BUILD/tests/. */
static void init_path(char *out, size_t n)
{
	char self[PATH_MAX / 2];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(len > 0);
	self[len] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(out, n, "%s/../sandbox-init", self);
}

static int real_setup(void **state)
{
	struct world *w;
	char path[PATH_MAX];

	if (world_setup(state) != 0)
		return -1;
	w = *state;
	end_stop(&w->in);
	init_path(path, sizeof(path));
	if (access(path, X_OK) != 0) {
		fprintf(stderr, "%s is missing: make it first\n", path);
		return -1;
	}
	init_pid = fork();
	if (init_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir("/") != 0)
			_exit(1);
		execl(path, path, "--socket", w->sock, "--deadline-us", "0", "--grace-ms", "1000000", (char *)NULL);
		_exit(127);
	}
	/* The scripted end gave this sandbox its key: a real one has its own. */
	snprintf(path, sizeof(path), "%s/sandboxes/%s/init.key", w->dir, w->sandbox.id.text);
	daemon_stop(w);
	unlink(path);
	daemon_start(w);
	initlink_expect(w->links, &w->sandbox.id, init_pid, false);
	client_connect(w);
	return initlink_wait(w->links, &w->sandbox.id, WAIT_MS, NULL);
}

static int real_teardown(void **state)
{
	kill(init_pid, SIGKILL);
	waitpid(init_pid, NULL, 0);
	return world_teardown(state);
}

/* The tests' own user: without being root init cannot become another. */
static void add_place(struct tlv *t)
{
	char user[32];

	snprintf(user, sizeof(user), "%u:%u", (unsigned)getuid(), (unsigned)getgid());
	tlv_add_str(t, MUX_F_CWD, "/");
	tlv_add_str(t, MUX_F_USER, user);
}

/* A command that waits for let_go: it cannot end before the test wants it to, however slow the machine is. */
#define WAIT_TO_GO "while [ ! -e \"$GO\" ]; do sleep 0.02; done; "

static void let_go(const struct world *w)
{
	auto_free char *path = xasprintf("%s/go", w->dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static uint32_t run(struct world *w, const char *script, unsigned flags)
{
	auto_free char *go = xasprintf("GO=%s/go", w->dir);
	auto_tlv t = TLV_INIT;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_str(&t, MUX_F_ARG, "sh");
	tlv_add_str(&t, MUX_F_ARG, "-c");
	tlv_add_str(&t, MUX_F_ARG, script);
	tlv_add_str(&t, MUX_F_ENV, go);
	add_place(&t);
	if (flags)
		tlv_add_u64(&t, MUX_F_FLAGS, flags);
	return mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
}

static void restart(struct world *w)
{
	struct operation_list execs;
	struct sandbox_list live;

	daemon_stop(w);
	assert_int_equal(controller_desired(w->controller, &w->node, &live, &execs, NULL), 0);
	daemon_start(w);
	execs_recover(w->execs, &execs);
	initlink_expect(w->links, &w->sandbox.id, init_pid, false);
	sandbox_list_done(&live);
	operation_list_done(&execs);
}

static uint32_t resume(struct world *w, const char *op, uint64_t out)
{
	auto_tlv t = TLV_INIT;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_RESUME);
	tlv_add_str(&t, MUX_F_OPERATION, op);
	tlv_add_u64(&t, MUX_F_OFFSET_OUT, out);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	mux_rebase_recv(w->client.m, id, CH_OUT, out);
	return id;
}

/* Removes an operation's file from whichever place in memory the daemon chose. */
static void drop_spools(struct world *w, const char *op)
{
	auto_free char *kept = xasprintf("%s/execs/%s", w->dir, op);
	glob_t found;

	if (glob("/dev/shm/sandboxd-*", 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			auto_free char *path = xasprintf("%s/%s", found.gl_pathv[i], op);

			unlink(path);
		}
		globfree(&found);
	}
	unlink(kept);
}

static void a_command_runs(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "echo out; echo err >&2; exit 7", 0);
	struct flow_seen *c = flow_of(&w->client, id);

	wait_for(w, c->closed);
	assert_memory_equal(buf_str(&c->data[CH_OUT]), "out\n", 4);
	assert_memory_equal(buf_str(&c->data[CH_ERR]), "err\n", 4);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 7);
}

static void stdin_and_large_output_go_through(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "cat; cat /dev/zero | head -c 20000000", MUX_OPEN_STDIN);
	struct flow_seen *c = flow_of(&w->client, id);
	static uint8_t block[64 * 1024];
	uint64_t sent = 0, total = 3 * 1024 * 1024 + 1;

	while (sent < total) {
		size_t n = total - sent < sizeof(block) ? (size_t)(total - sent) : sizeof(block);

		pattern_fill(block, n, sent);
		sent += mux_send(w->client.m, id, CH_IN, block, n);
		pump(w);
	}
	mux_eof(w->client.m, id, CH_IN);
	wait_for(w, c->closed);
	assert_int_equal(c->got[CH_OUT], total + 20000000);
	for (size_t i = 0; i < total; i++)
		assert_int_equal((uint8_t)c->data[CH_OUT].data[i], pattern(i));
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_EXITED);
}

/* Restarts in the middle, again and again, client and all: every line once, the real status at the end. */
static void restarts_lose_and_repeat_nothing(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.005; done; exit 5", 0);
	struct flow_seen *c = flow_of(&w->client, id);
	auto_free char *op = accepted_operation(w, id);
	auto_buf all = BUF_INIT, want = BUF_INIT;

	for (int round = 0; round < 4; round++) {
		uint64_t more = c->got[CH_OUT] + 300;

		wait_for(w, c->got[CH_OUT] >= more || c->closed);
		buf_add(&all, c->data[CH_OUT].data, c->data[CH_OUT].len);
		restart(w);
		client_connect(w);
		id = resume(w, op, all.len);
		c = flow_of(&w->client, id);
		wait_for(w, c->accepted);
	}
	wait_for(w, c->closed);
	buf_add(&all, c->data[CH_OUT].data, c->data[CH_OUT].len);
	for (int i = 0; i < 400; i++)
		buf_addf(&want, "line %d\n", i);
	assert_int_equal(all.len, want.len);
	assert_memory_equal(all.data, want.data, want.len);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 5);
}

/* It ended while there was no daemon: init kept how. */
static void an_end_during_a_restart_is_not_lost(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "echo before; " WAIT_TO_GO "echo after; exit 9", 0);
	auto_free char *op = accepted_operation(w, id);
	struct flow_seen *c = flow_of(&w->client, id);
	struct operation_list execs;
	struct sandbox_list live;

	wait_for(w, c->got[CH_OUT] == 7);
	daemon_stop(w);
	let_go(w);
	usleep(300000);
	assert_int_equal(controller_desired(w->controller, &w->node, &live, &execs, NULL), 0);
	assert_int_equal(execs.len, 1);
	daemon_start(w);
	execs_recover(w->execs, &execs);
	initlink_expect(w->links, &w->sandbox.id, init_pid, false);
	client_connect(w);
	id = resume(w, op, 7);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_memory_equal(buf_str(&c->data[CH_OUT]), "after\n", 6);
	assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 9);
	sandbox_list_done(&live);
	operation_list_done(&execs);
}

/* The daemon is killed and its spools are gone: the command still ends with its own status, and what is missing is said. */
static void a_lost_spool_is_a_gap_not_an_end(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "head -c 2000000 /dev/zero; " WAIT_TO_GO "echo end; exit 3", MUX_OPEN_DETACH);
	auto_free char *op = accepted_operation(w, id);
	struct operation_list execs;
	struct sandbox_list live;
	struct operation o;

	/* The output has been taken by then, and init was told so. */
	for (int i = 0; i < 40; i++) {
		pump(w);
		usleep(10000);
	}
	daemon_stop(w);
	drop_spools(w, op);
	assert_int_equal(controller_desired(w->controller, &w->node, &live, &execs, NULL), 0);
	assert_int_equal(execs.len, 1);
	let_go(w);
	daemon_start(w);
	execs_recover(w->execs, &execs);
	initlink_expect(w->links, &w->sandbox.id, init_pid, false);
	operation_init(&o);
	wait_for(w, controller_operation(w->controller, &w->who, op, &o, NULL) == 0 && op_ended(o.state));
	assert_int_equal(o.result.outcome, OUTCOME_EXITED);
	assert_int_equal(o.result.exit_code, 3);
	assert_int_equal(o.result.out.total, 2000004);
	assert_true(o.result.truncated);
	assert_memory_equal(o.result.out.tail.data + o.result.out.tail.len - 4, "end\n", 4);
	operation_done(&o);
	sandbox_list_done(&live);
	operation_list_done(&execs);
}

static void cancel_ends_the_tree(void **state)
{
	struct world *w = *state;
	uint32_t id = run(w, "sleep 1000 & sleep 1000; :", 0);
	auto_free char *op = accepted_operation(w, id);
	struct flow_seen *c = flow_of(&w->client, id);
	struct id key;

	assert_int_equal(id_parse(op, &key), 0);
	assert_int_equal(execs_cancel(w->execs, &key, 0, NULL), 0);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_OUTCOME), OUTCOME_CANCELED);
}

static void what_does_not_exist_says_so(void **state)
{
	struct world *w = *state;
	auto_tlv t = TLV_INIT;
	struct flow_seen *c;
	uint32_t id;

	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_EXEC);
	tlv_add_str(&t, MUX_F_SANDBOX, w->sandbox.id.text);
	tlv_add_str(&t, MUX_F_ARG, "no-such-program");
	add_place(&t);
	id = mux_open(w->client.m, &t, LIMIT_MUX_WINDOW, NULL);
	c = flow_of(&w->client, id);
	wait_for(w, c->closed);
	assert_int_equal(close_u64(c, MUX_F_ERROR), MUX_ERR_NO_PROGRAM);
	assert_close_says(c, "no-such-program");
}

static void many_commands_at_once(void **state)
{
	struct world *w = *state;
	uint32_t ids[24];

	for (int i = 0; i < 24; i++)
		ids[i] = run(w, "echo one; sleep 0.05; echo two", 0);
	for (int i = 0; i < 24; i++) {
		struct flow_seen *c = flow_of(&w->client, ids[i]);

		wait_for(w, c->closed);
		assert_int_equal(c->data[CH_OUT].len, 8);
		assert_int_equal(close_u64(c, MUX_F_EXIT_CODE), 0);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, real_setup, real_teardown)
	const struct CMUnitTest tests[] = {
		T(a_command_runs),
		T(stdin_and_large_output_go_through),
		T(restarts_lose_and_repeat_nothing),
		T(an_end_during_a_restart_is_not_lost),
		T(a_lost_spool_is_a_gap_not_an_end),
		T(cancel_ends_the_tree),
		T(what_does_not_exist_says_so),
		T(many_commands_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
