/* A real sandbox-init, run as an ordinary process, driven over its socket: statuses, streams, trees, resume, terminals. */
#include "tests/unit/init_peer.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct peer_end peer;

static int set_up(void **state)
{
	(void)state;
	peer_start(&peer, "0", "0");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	peer_stop(&peer);
	return 0;
}

static void check_exit(struct run *r, unsigned code)
{
	if (r->outcome != MUX_OUTCOME_EXITED || r->code != code)
		fail_msg("outcome %d code %d signal %d error %d: %s (output: %s)", (int)r->outcome, (int)r->code, (int)r->sig, (int)r->error,
			 r->message, buf_str(&r->out[1]));
}

static bool alive(pid_t pid)
{
	char path[64], text[256];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	const char *state = strrchr(text, ')');
	return state && state[2] != 'Z';
}

static bool gone_soon(pid_t pid)
{
	for (int i = 0; i < 2000 && alive(pid); i++)
		peer_idle(&peer, 10);
	if (!alive(pid))
		return true;
	char command[128];
	snprintf(command, sizeof(command), "cat /proc/%d/stat /proc/%d/wchan; tr '\\0' ' ' </proc/%d/cmdline", (int)pid, (int)pid, (int)pid);
	struct run *r = run_wait(run_start(&peer, 0, SH(command)));
	print_error("process %d is still there: %s\n", (int)pid, buf_str(&r->out[1]));
	return false;
}

static pid_t pid_in(const struct run *r)
{
	return (pid_t)strtol(buf_str(&r->out[1]), NULL, 10);
}

static void wait_for_line(struct run *r)
{
	PEER_UNTIL(&peer, r->closed || strchr(buf_str(&r->out[1]), '\n'));
}

/* --- statuses --- */

static void statuses_are_the_programs_own(void **state)
{
	(void)state;
	check_exit(run_wait(run_start(&peer, 0, ARGV("true"))), 0);
	check_exit(run_wait(run_start(&peer, 0, ARGV("false"))), 1);
	check_exit(run_wait(run_start(&peer, 0, SH("exit 255"))), 255);
	check_exit(run_wait(run_start(&peer, 0, SH("exit 127"))), 127);
	struct run *r = run_wait(run_start(&peer, 0, SH("kill -TERM $$")));
	assert_int_equal(r->outcome, MUX_OUTCOME_SIGNALED);
	assert_int_equal(r->sig, SIGTERM);
	assert_int_equal(r->code, 999);
	r = run_wait(run_start(&peer, 0, SH("kill -9 $$")));
	assert_int_equal(r->sig, SIGKILL);
	assert_int_equal(r->oom, 0);
}

static void write_file(const char *dir, const char *name, const char *text, mode_t mode)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void what_cannot_run_says_why(void **state)
{
	static const struct {
		const char *argv0;
		unsigned error;
		const char *words[3];
	} rows[] = {
		{ "nosuch-program", MUX_ERR_NO_PROGRAM, { "'nosuch-program'", "PATH" } },
		{ "/nosuch/x", MUX_ERR_NO_PROGRAM, { "'/nosuch/x'" } },
		{ "ls && pwd", MUX_ERR_NO_PROGRAM, { "'ls && pwd'", "sh -c" } },
		{ "cd", MUX_ERR_NO_PROGRAM, { "'cd'", "built-in", "sh -c" } },
		{ "a\nb\x1b", MUX_ERR_NO_PROGRAM, { "\\x0ab\\x1b" } },
		{ "/etc", MUX_ERR_NOT_EXECUTABLE, { "'/etc'", "directory" } },
		{ "/dev/null", MUX_ERR_NOT_EXECUTABLE, { "not a regular file" } },
		{ "%s/mode644", MUX_ERR_NOT_EXECUTABLE, { "0644", "execute" } },
		{ "%s/nointerp", MUX_ERR_NO_PROGRAM, { "/nosuch/interp", "#!" } },
		{ "%s/crlf", MUX_ERR_NO_PROGRAM, { "/bin/sh\\x0d", "Windows" } },
		{ "%s/noformat", MUX_ERR_NOT_EXECUTABLE, { "format" } },
		{ "%s/empty", MUX_ERR_NOT_EXECUTABLE, { "format" } },
		{ "/etc/passwd/x", MUX_ERR_NO_PROGRAM, { "'/etc/passwd/x'" } },
	};
	(void)state;
	char dir[] = "/tmp/sandbox-test-exec-XXXXXX", name[256];
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	write_file(dir, "mode644", "#!/bin/sh\n", 0644);
	write_file(dir, "nointerp", "#! /nosuch/interp -x\necho no\n", 0755);
	write_file(dir, "crlf", "#!/bin/sh\r\necho no\r\n", 0755);
	write_file(dir, "noformat", "\x7f" "XYZ no program\n", 0755);
	write_file(dir, "empty", "", 0755);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(name, sizeof(name), "%s%s", rows[i].argv0[0] == '%' ? dir : "", rows[i].argv0 + (rows[i].argv0[0] == '%' ? 2 : 0));
		struct run *r = run_wait(run_start(&peer, 0, ARGV(name)));
		assert_false(r->accepted);
		assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
		if (r->error != rows[i].error)
			fail_msg("%s: error %d: %s", name, (int)r->error, r->message);
		for (int w = 0; w < 3 && rows[i].words[w]; w++)
			if (!strstr(r->message, rows[i].words[w]))
				fail_msg("'%s' is not in: %s", rows[i].words[w], r->message);
	}
	assert_int_equal(io_remove_tree(dir, NULL), 0);
}

static void open_with(struct run *r, struct tlv *t)
{
	run_open(r, t, LIMIT_MUX_WINDOW);
	run_wait(r);
}

static void a_bad_directory_runs_nothing(void **state)
{
	static const char *const dirs[] = { "/nope", "/etc/passwd", "rel", "/nope\n" };
	(void)state;
	char marker[] = "/tmp/sandbox-test-marker-XXXXXX";
	int fd = mkstemp(marker);
	close(fd);
	unlink(marker);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		auto_tlv t = TLV_INIT;
		struct run *r = run_new(&peer);
		run_fields(&t, r, ARGV("touch", marker), 0);
		tlv_add_str(&t, MUX_F_CWD, dirs[i]);
		open_with(r, &t);
		assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
		assert_int_equal(r->error, dirs[i][0] == '/' ? MUX_ERR_BAD_CWD : MUX_ERR_REFUSED);
		if (dirs[i][0] == '/' && !strchr(dirs[i], '\n'))
			assert_non_null(strstr(r->message, dirs[i]));
		assert_int_equal(access(marker, F_OK), -1);
	}
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	run_fields(&t, r, ARGV("pwd"), 0);
	tlv_add_str(&t, MUX_F_CWD, "/usr/bin/..");
	open_with(r, &t);
	assert_string_equal(buf_str(&r->out[1]), "/usr\n");
}

static void bad_requests_are_refused(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		auto_tlv t = TLV_INIT;
		struct run *r = run_new(&peer);
		run_fields(&t, r, i == 0 ? (const char *const[]){ NULL } : ARGV(i == 1 ? "" : "true"), i == 2 ? 1 << 20 : 0);
		if (i == 3)
			tlv_add_str(&t, (enum mux_field)777, "?");
		if (i == 4)
			tlv_add_bytes(&t, MUX_F_ARG, "a\0b", 3);
		if (i == 5)
			tlv_add_str(&t, MUX_F_ENV, "=x");
		if (i == 6)
			tlv_add_str(&t, MUX_F_ENV, "NOVALUE");
		if (i == 7)
			tlv_add_str(&t, MUX_F_SANDBOX, "me");
		open_with(r, &t);
		assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
		if (r->error != MUX_ERR_REFUSED)
			fail_msg("row %d: error %d %s", i, (int)r->error, r->message);
	}
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, 99);
	open_with(r, &t);
	assert_int_equal(r->error, MUX_ERR_REFUSED);
	check_exit(run_wait(run_start(&peer, 0, ARGV("true"))), 0);
}

static void long_arguments_work_up_to_the_limit(void **state)
{
	(void)state;
	auto_free char *arg = xmalloc(LIMIT_ARG_ONE_MAX + 2);
	memset(arg, 'x', LIMIT_ARG_ONE_MAX + 1);
	arg[LIMIT_ARG_ONE_MAX] = '\0';
	struct run *r = run_wait(run_start(&peer, 0, ARGV("printf", "%s", arg)));
	check_exit(r, 0);
	assert_int_equal(r->got[1], LIMIT_ARG_ONE_MAX);
	arg[LIMIT_ARG_ONE_MAX] = 'x';
	arg[LIMIT_ARG_ONE_MAX + 1] = '\0';
	r = run_wait(run_start(&peer, 0, ARGV("printf", "%s", arg)));
	assert_int_equal(r->error, MUX_ERR_TOO_LARGE);
	/* Together more than the kernel takes (a quarter of the stack limit, and this process's limits are init's). */
	arg[120 * 1024] = '\0';
	auto_tlv t = TLV_INIT;
	r = run_new(&peer);
	run_fields(&t, r, ARGV("true", arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg), 0);
	open_with(r, &t);
	check_exit(r, 0);
}

static void words_and_environment_arrive_byte_for_byte(void **state)
{
	(void)state;
	struct run *r = run_wait(run_start(&peer, 0, ARGV("printf", "<%s>\n", " a b", "", "x\ny", "-n", "--help", "\xc3\xa9\xff", "$HOME", "*",
							 "\"q\"", "it's", "\\\\")));
	assert_string_equal(buf_str(&r->out[1]),
			    "< a b>\n<>\n<x\ny>\n<-n>\n<--help>\n<\xc3\xa9\xff>\n<$HOME>\n<*>\n<\"q\">\n<it's>\n<\\\\>\n");
	auto_tlv t = TLV_INIT;
	r = run_new(&peer);
	run_fields(&t, r, ARGV("env", "-0"), 0);
	tlv_add_str(&t, MUX_F_ENV, "A=x=y");
	tlv_add_str(&t, MUX_F_ENV, "B=l1\nl2");
	tlv_add_str(&t, MUX_F_ENV, "C=");
	tlv_add_str(&t, MUX_F_ENV, "A=last");
	tlv_add_str(&t, MUX_F_ENV, "HOME=/h");
	open_with(r, &t);
	static const char want[] = "PATH=/usr/bin:/bin\0A=last\0B=l1\nl2\0C=\0HOME=/h";
	assert_int_equal(r->out[1].len, sizeof(want));
	assert_memory_equal(r->out[1].data, want, sizeof(want));
}

static void the_shell_is_a_fallback_only_when_asked(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, MUX_OPEN_STDIN | MUX_OPEN_SHELL_FALLBACK, ARGV("no-such-shell"));
	r->feed = "echo here\nexit 7\n";
	r->feed_len = strlen(r->feed);
	r->feed_eof = true;
	check_exit(run_wait(r), 7);
	assert_string_equal(buf_str(&r->out[1]), "here\n");
	assert_int_equal(run_wait(run_start(&peer, 0, ARGV("no-such-shell")))->error, MUX_ERR_NO_PROGRAM);
}

/* --- users --- */

static void run_as(struct run *r, const char *user, const char *const *argv, uint64_t keep_caps)
{
	auto_tlv t = TLV_INIT;
	run_fields(&t, r, argv, 0);
	tlv_add_str(&t, MUX_F_USER, user);
	if (keep_caps)
		tlv_add_u64(&t, MUX_F_KEEP_CAPS, 1);
	open_with(r, &t);
}

static void commands_run_as_their_user_without_rights(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("not root: changing users is not tested\n");
		skip();
	}
	struct run *r = run_new(&peer);
	run_as(r, "1234:5678", SH("id -u; id -g; id -G; echo $HOME; grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; umask; ulimit -c"), 0);
	assert_string_equal(buf_str(&r->out[1]), "1234\n5678\n5678\n/\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
						 "CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n0022\n0\n");
	r = run_new(&peer);
	run_as(r, "root", SH("id -u; echo $HOME; grep CapEff /proc/self/status; cat /proc/self/oom_score_adj"), 0);
	assert_string_equal(buf_str(&r->out[1]), "0\n/root\nCapEff:\t0000000000000000\n500\n");
	r = run_new(&peer);
	run_as(r, "0", SH("grep -E 'Cap(Prm|Eff)' /proc/self/status"), 1);
	assert_string_equal(buf_str(&r->out[1]), "CapPrm:\t00000000000000cb\nCapEff:\t00000000000000cb\n");
	r = run_new(&peer);
	run_as(r, "1234", SH("grep CapEff /proc/self/status"), 1); /* only root may keep them */
	assert_string_equal(buf_str(&r->out[1]), "CapEff:\t0000000000000000\n");
	r = run_new(&peer);
	run_as(r, "daemon", SH("id -un; echo $HOME"), 0);
	assert_string_equal(buf_str(&r->out[1]), "daemon\n/usr/sbin\n");
	static const char *const wrong[] = { "no-such-user", "root:no-such-group", ":", "root:", "4294967295", "-1" };
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		r = run_new(&peer);
		run_as(r, wrong[i], ARGV("true"), 0);
		assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
		assert_int_equal(r->error, MUX_ERR_BAD_USER);
	}
}

static void a_command_inherits_nothing(void **state)
{
	(void)state;
	struct run *r = run_wait(run_start(&peer, 0, SH("ls /proc/$$/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status")));
	assert_string_equal(buf_str(&r->out[1]), "0\n1\n2\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

/* --- streams --- */

static void stdin_reaches_its_end(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, MUX_OPEN_STDIN, ARGV("cat"));
	r->feed = "x";
	r->feed_len = 1;
	r->feed_eof = true;
	check_exit(run_wait(r), 0);
	assert_string_equal(buf_str(&r->out[1]), "x");
	for (int i = 0; i < 100; i++) { /* empty, and over before the program runs */
		r = run_start(&peer, MUX_OPEN_STDIN, ARGV("cat"));
		mux_eof(peer.m, r->id, MUX_STDIN);
		check_exit(run_wait(r), 0);
		assert_int_equal(r->got[1], 0);
	}
	r = run_wait(run_start(&peer, 0, ARGV("cat"))); /* none at all */
	check_exit(r, 0);
}

static void a_program_may_leave_its_input(void **state)
{
	(void)state;
	auto_free char *much = xmalloc(8 << 20);
	memset(much, 'y', 8 << 20);
	much[0] = '1';
	much[1] = '\n';
	struct run *r = run_start(&peer, MUX_OPEN_STDIN, ARGV("head", "-n1"));
	r->feed = much;
	r->feed_len = 8 << 20;
	r->feed_eof = true;
	check_exit(run_wait(r), 0);
	assert_string_equal(buf_str(&r->out[1]), "1\n");
	/* It closes stdin and goes on: the sender is not stopped. */
	r = run_start(&peer, MUX_OPEN_STDIN, SH("exec <&-; sleep 0.3; echo done"));
	r->feed = much;
	r->feed_len = 8 << 20;
	r->feed_eof = true;
	run_wait(r);
	check_exit(r, 0);
	assert_string_equal(buf_str(&r->out[1]), "done\n");
	assert_int_equal(r->fed, 8 << 20);
}

static void streams_stay_apart_and_end_before_the_result(void **state)
{
	(void)state;
	struct run *r = run_wait(run_start(&peer, 0, SH("echo O; echo E >&2; exit 3")));
	check_exit(r, 3);
	assert_string_equal(buf_str(&r->out[1]), "O\n");
	assert_string_equal(buf_str(&r->out[2]), "E\n");
	assert_int_equal(r->eofs[1], 1);
	assert_int_equal(r->eofs[2], 1);
	assert_int_equal(r->total_out, 2);
	assert_int_equal(r->total_err, 2);
	r = run_wait(run_start(&peer, 0, ARGV("seq", "1", "200000")));
	assert_int_equal(r->got[1], 1288895);
	r = run_wait(run_start(&peer, 0, SH("printf '\\000\\200\\376\\015'")));
	assert_int_equal(r->out[1].len, 4);
	assert_memory_equal(r->out[1].data, "\x00\x80\xfe\x0d", 4);
}

/* Through cat and back, at sizes around every limit, in both directions at once, with the transport cut in odd places. */
static void bytes_are_exact_at_every_size(void **state)
{
	static const size_t sizes[] = { 1, 4095, 4096, 4097, 65535, 65536, 65537, LIMIT_MUX_FRAME_MAX - 1, LIMIT_MUX_FRAME_MAX,
					LIMIT_MUX_FRAME_MAX + 1, LIMIT_MUX_WINDOW - 1, LIMIT_MUX_WINDOW, LIMIT_MUX_WINDOW + 1,
					3 * LIMIT_MUX_WINDOW + 12345 };
	(void)state;
	auto_free char *data = xmalloc(4 << 20);
	srand(11);
	for (size_t i = 0; i < 4 << 20; i++)
		data[i] = (char)(rand() >> 7);
	for (int round = 0; round < 100; round++) {
		size_t n = round < (int)ARRAY_LEN(sizes) ? sizes[round] : (size_t)rand() % (2 << 20);
		size_t at = (size_t)rand() % ((4 << 20) - n);
		peer.read_size = round % 3 ? 1 << 20 : 1 + (size_t)rand() % 70000;
		struct run *r = run_start(&peer, MUX_OPEN_STDIN, ARGV("cat"));
		r->feed = data + at;
		r->feed_len = n;
		r->feed_eof = true;
		run_wait(r);
		check_exit(r, 0);
		assert_int_equal(r->out[1].len, n);
		assert_memory_equal(r->out[1].data, data + at, n);
		run_free(r);
	}
	peer.read_size = 1 << 20;
}

static long resident_kib(pid_t pid)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	const char *at = strstr(text, "RssAnon:"); /* its own memory, without the pages of the program file */
	return at ? strtol(at + 8, NULL, 10) : -1;
}

static void a_stopped_reader_stops_the_command(void **state)
{
	(void)state;
	struct run *r = run_new(&peer);
	long before = resident_kib(peer.init);
	auto_tlv t = TLV_INIT;
	run_fields(&t, r, SH("head -c 50000000 /dev/zero; echo end >&2"), 0);
	r->hold = true;
	r->count_only = true;
	run_open(r, &t, 100000);
	PEER_UNTIL(&peer, r->got[1] == 100000);
	peer_idle(&peer, 300);
	assert_int_equal(r->got[1], 100000);
	assert_false(r->closed);
	assert_int_equal(r->got[2], 0);
	assert_true(resident_kib(peer.init) < before + 512);
	check_exit(run_wait(run_start(&peer, 0, ARGV("true"))), 0); /* others go on */
	r->hold = false;
	mux_consumed(peer.m, r->id, 1, r->got[1]);
	run_wait(r);
	check_exit(r, 0);
	assert_int_equal(r->got[1], 50000000);
	assert_int_equal(r->got[2], 4);
	assert_true(resident_kib(peer.init) < before + 1024);
}

static void a_finished_command_waits_for_a_stopped_reader(void **state)
{
	(void)state;
	struct run *r = run_new(&peer);
	auto_tlv t = TLV_INIT;
	run_fields(&t, r, SH("head -c 60000 /dev/zero; (sleep 1; echo late) & exit 5"), 0);
	r->hold = true;
	run_open(r, &t, 10000);
	PEER_UNTIL(&peer, r->got[1] == 10000);
	peer_idle(&peer, 700); /* longer than the drain window */
	assert_false(r->closed);
	r->hold = false;
	mux_consumed(peer.m, r->id, 1, r->got[1]);
	run_wait(r);
	check_exit(r, 5);
	assert_true(r->got[1] >= 60000); /* all that was in the pipe when it ended */
}

static void a_background_child_does_not_hold_the_result(void **state)
{
	(void)state;
	int64_t start = clock_mono_ms();
	struct run *r = run_wait(run_start(&peer, 0, SH("sleep 60 & echo $!")));
	check_exit(r, 0);
	assert_true(clock_mono_ms() - start < 2000);
	pid_t child = pid_in(r);
	assert_true(alive(child));
	kill(child, SIGKILL);
	assert_true(gone_soon(child));
	/* One that writes for ever is cut off, and neither dies nor stops. */
	start = clock_mono_ms();
	r = run_wait(run_start(&peer, 0, SH("(while :; do echo x; done) & echo $! >&2; exit 0")));
	check_exit(r, 0);
	assert_true(clock_mono_ms() - start < 6000);
	child = (pid_t)strtol(buf_str(&r->out[2]), NULL, 10);
	peer_idle(&peer, 200);
	assert_true(alive(child));
	kill(child, SIGKILL);
	assert_true(gone_soon(child));
}

/* --- trees --- */

static void a_timeout_ends_the_whole_tree(void **state)
{
	static const char *const scripts[] = {
		"sleep 300 & echo $!; sleep 300; :",
		"setsid sh -c 'echo $$; exec sleep 300' & sleep 300; :",
		"trap '' TERM; (trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &) ; while :; do sleep 1; done",
		"sh -c 'setsid setsid sh -c \"echo \\$\\$; exec sleep 300\" &' ; sleep 300; :",
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
		auto_tlv t = TLV_INIT;
		struct run *r = run_new(&peer);
		int64_t start = clock_mono_ms();
		run_fields(&t, r, SH(scripts[i]), 0);
		tlv_add_u64(&t, MUX_F_TIMEOUT_MS, 500);
		open_with(r, &t);
		int64_t took = clock_mono_ms() - start;
		assert_int_equal(r->outcome, MUX_OUTCOME_TIMEOUT);
		assert_in_range(took, 490, 2500);
		pid_t child = pid_in(r);
		assert_true(child > 1);
		if (alive(child))
			fail_msg("script %zu: %d is still there", i, (int)child);
	}
}

static void a_server_left_behind_survives_later_timeouts(void **state)
{
	(void)state;
	struct run *r = run_wait(run_start(&peer, 0, SH("setsid sleep 300 >/dev/null 2>&1 & echo $!")));
	pid_t server = pid_in(r);
	auto_tlv t = TLV_INIT;
	r = run_new(&peer);
	run_fields(&t, r, SH("sleep 300; :"), 0);
	tlv_add_u64(&t, MUX_F_TIMEOUT_MS, 100);
	open_with(r, &t);
	assert_int_equal(r->outcome, MUX_OUTCOME_TIMEOUT);
	assert_true(alive(server));
	kill(server, SIGKILL);
	assert_true(gone_soon(server));
}

static unsigned zombies_of(pid_t parent)
{
	char command[160];
	snprintf(command, sizeof(command), "n=0; for f in /proc/[0-9]*/stat; do read -r _ _ s p _ < $f 2>/dev/null; [ \"$s$p\" = Z%d ] && n=$((n+1)); done; echo $n", (int)parent);
	struct run *r = run_wait(run_start(&peer, 0, SH(command)));
	return (unsigned)strtoul(buf_str(&r->out[1]), NULL, 10);
}

static void zombies_are_reaped(void **state)
{
	(void)state;
	struct run *r = run_wait(run_start(&peer, 0, SH("for i in 1 2 3 4 5 6 7 8; do (sleep 0.2 &) ; done >/dev/null 2>&1")));
	check_exit(r, 0);
	peer_idle(&peer, 500);
	assert_int_equal(zombies_of(peer.init), 0);
}

static void cancel_and_signals(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("trap 'echo got; exit 9' INT; echo ready; while :; do sleep 0.05; done"));
	wait_for_line(r);
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_ACTION, MUX_CONTROL_SIGNAL);
	tlv_add_u64(&t, MUX_F_SIGNAL, SIGINT);
	mux_control(peer.m, r->id, &t);
	run_wait(r);
	check_exit(r, 9);
	assert_string_equal(buf_str(&r->out[1]), "ready\ngot\n");

	auto_tlv cancel = TLV_INIT;
	tlv_add_u64(&cancel, MUX_F_ACTION, MUX_CONTROL_CANCEL);
	r = run_start(&peer, 0, SH("setsid sleep 300 & echo $!; wait"));
	wait_for_line(r);
	mux_control(peer.m, r->id, &cancel);
	run_wait(r);
	assert_int_equal(r->outcome, MUX_OUTCOME_CANCELED);
	assert_int_equal(r->sig, SIGTERM);
	assert_false(alive(pid_in(r)));

	r = run_start(&peer, 0, SH("kill -STOP $$; sleep 300")); /* stopped ones too */
	PEER_UNTIL(&peer, r->accepted);
	peer_idle(&peer, 100);
	mux_control(peer.m, r->id, &cancel);
	run_wait(r);
	assert_int_equal(r->outcome, MUX_OUTCOME_CANCELED);
}

static void closing_the_stream_ends_the_command(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("echo $$; exec sleep 300"));
	wait_for_line(r);
	pid_t pid = pid_in(r);
	mux_close(peer.m, r->id, NULL);
	assert_true(gone_soon(pid));
	r = run_start(&peer, 0, SH("echo $$; exec cat /dev/zero")); /* blocked in its write */
	r->hold = true;
	PEER_UNTIL(&peer, r->got[1] == LIMIT_MUX_WINDOW);
	pid = (pid_t)r->pid;
	mux_close(peer.m, r->id, NULL);
	assert_true(gone_soon(pid));
	check_exit(run_wait(run_start(&peer, 0, ARGV("true"))), 0);
}

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512];
	int ppid = -1;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	const char *at = strrchr(text, ')');
	if (at)
		sscanf(at + 1, " %*c %d", &ppid);
	return ppid;
}

static void a_killed_supervisor_takes_its_tree_along(void **state)
{
	(void)state;
	struct run *server = run_wait(run_start(&peer, 0, SH("setsid sleep 300 >/dev/null 2>&1 & echo $!")));
	struct run *other = run_start(&peer, 0, SH("echo $$; sleep 0.7; exit 4"));
	struct run *r = run_start(&peer, 0, SH("setsid sleep 300 & echo $!; sleep 300; :"));
	wait_for_line(other);
	wait_for_line(r);
	pid_t supervisor = parent_of((pid_t)r->pid);
	assert_int_equal(parent_of(supervisor), peer.init);
	kill(supervisor, SIGKILL);
	run_wait(r);
	assert_int_equal(r->outcome, MUX_OUTCOME_SIGNALED);
	assert_int_equal(r->sig, SIGKILL);
	assert_true(gone_soon(pid_in(r)));
	assert_true(alive(pid_in(server))); /* what was left behind on purpose stays */
	check_exit(run_wait(other), 4);     /* and so does every other command */
	kill(pid_in(server), SIGKILL);
}

/* --- resume --- */

static void output_survives_a_lost_link(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done; exit 6"));
	PEER_UNTIL(&peer, r->got[1] > 20000);
	uint8_t key[32];
	memcpy(key, peer.key, sizeof(key));
	for (int i = 0; i < 20 && !r->closed; i++) {
		peer_drop(&peer);
		assert_true(r->lost);
		peer_accept(&peer);
		assert_memory_equal(key, peer.key, sizeof(key));
		run_resume(r, 0);
		uint64_t before = r->got[1];
		PEER_UNTIL(&peer, r->closed || r->got[1] > before + 10000);
	}
	run_wait(r);
	check_exit(r, 6);
	struct run *want = run_wait(run_start(&peer, 0, SH("i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done")));
	assert_int_equal(r->out[1].len, want->out[1].len);
	assert_memory_equal(r->out[1].data, want->out[1].data, want->out[1].len);
}

static void a_command_goes_on_and_ends_without_a_link(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("echo before; sleep 0.3; echo after; exit 8"));
	struct run *big = run_start(&peer, 0, SH("head -c 5000000 /dev/zero; exit 9"));
	big->hold = big->count_only = true;
	wait_for_line(r);
	peer_drop(&peer);
	usleep(700 * 1000);
	peer_accept(&peer);
	run_resume(r, 0);
	run_wait(r);
	check_exit(r, 8);
	assert_string_equal(buf_str(&r->out[1]), "before\nafter\n");
	big->hold = false;
	run_resume(big, 0);
	run_wait(big);
	check_exit(big, 9);
	assert_int_equal(big->got[1], 5000000);
	/* Confirmed by the PONG this side sent: now it is forgotten. */
	peer_idle(&peer, 50);
	run_resume(r, 0);
	run_wait(r);
	assert_int_equal(r->error, MUX_ERR_NOT_FOUND);
}

static void stdin_goes_on_where_it_was_taken(void **state)
{
	(void)state;
	size_t n = 3 << 20;
	auto_free char *data = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 2654435761u >> 11);
	struct run *r = run_start(&peer, MUX_OPEN_STDIN, SH("sleep 0.3; cat"));
	r->feed = data;
	r->feed_len = n;
	PEER_UNTIL(&peer, r->fed > 100000);
	peer_drop(&peer);
	peer_accept(&peer);
	run_resume(r, 0);
	r->feed_len = 0;
	PEER_UNTIL(&peer, r->accepted);
	assert_true(r->offset_in <= r->fed);
	r->feed = data + r->offset_in;
	r->feed_len = n - r->offset_in;
	r->feed_eof = true;
	peer_feed(r);
	run_wait(r);
	check_exit(r, 0);
	assert_int_equal(r->out[1].len, n);
	assert_memory_equal(r->out[1].data, data, n);
}

static void resume_is_refused_where_it_makes_no_sense(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("echo hello; sleep 0.5"));
	wait_for_line(r);
	struct run *twin = run_new(&peer);
	snprintf(twin->operation, sizeof(twin->operation), "%s", r->operation);
	run_resume(twin, 0);
	assert_int_equal(run_wait(twin)->error, MUX_ERR_CONFLICT);
	auto_tlv again = TLV_INIT;
	run_fields(&again, twin, ARGV("true"), 0);
	open_with(twin, &again);
	assert_int_equal(twin->error, MUX_ERR_CONFLICT); /* started once, and only once */
	peer_drop(&peer);
	peer_accept(&peer);
	twin->got[1] = 7; /* past what there is */
	run_resume(twin, 0);
	assert_int_equal(run_wait(twin)->error, MUX_ERR_REFUSED);
	twin->got[1] = 0;
	run_resume(twin, MUX_OPEN_FORGET);
	assert_int_equal(run_wait(twin)->error, MUX_ERR_CONFLICT); /* it runs */
	usleep(900 * 1000);
	run_resume(twin, MUX_OPEN_FORGET);
	assert_int_equal(run_wait(twin)->error, 0);
	run_resume(twin, 0);
	assert_int_equal(run_wait(twin)->error, MUX_ERR_NOT_FOUND);
}

static void a_start_that_failed_unseen_is_told_later(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, ARGV("no-such-program"));
	mux_flush(peer.m);
	shutdown(peer.fd, SHUT_RD);
	peer_drop(&peer);
	peer_accept(&peer);
	run_resume(r, 0);
	run_wait(r);
	assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
	assert_int_equal(r->error, MUX_ERR_NO_PROGRAM);
}

static void a_broken_peer_is_dropped_and_dialled_again(void **state)
{
	(void)state;
	struct run *r = run_start(&peer, 0, SH("sleep 0.3; exit 3"));
	PEER_UNTIL(&peer, r->accepted);
	static const char rubbish[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	assert_int_equal(io_write_full(peer.fd, rubbish, sizeof(rubbish)), 0);
	for (int i = 0; i < 500 && peer_step(&peer, 10); i++)
		;
	peer_drop(&peer);
	peer_accept(&peer);
	run_resume(r, 0);
	check_exit(run_wait(r), 3);
}

/* --- terminals --- */

static struct run *start_tty(const char *const *argv, unsigned rows, unsigned cols)
{
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	run_fields(&t, r, argv, MUX_OPEN_TTY | MUX_OPEN_STDIN);
	if (rows)
		tlv_add_u64(&t, MUX_F_ROWS, rows);
	if (cols)
		tlv_add_u64(&t, MUX_F_COLS, cols);
	run_open(r, &t, LIMIT_MUX_WINDOW);
	return r;
}

static void a_terminal_has_its_size_at_the_first_read(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		struct run *r = run_wait(start_tty(SH("stty size; test -t 0 && test -t 1 && test -t 2; echo $? $TERM"), 50, 200));
		check_exit(r, 0);
		assert_string_equal(buf_str(&r->out[1]), "50 200\r\n0 xterm\r\n");
		assert_int_equal(r->got[2], 0);
		assert_int_equal(r->eofs[1] + r->eofs[2], 2);
	}
	struct run *r = run_wait(start_tty(SH("stty size"), 0, 0));
	assert_string_equal(buf_str(&r->out[1]), "24 80\r\n");
}

static void type(struct run *r, const char *text)
{
	r->feed = text;
	r->feed_len = strlen(text);
	peer_feed(r);
}

static void a_terminal_resizes_interrupts_and_ends(void **state)
{
	(void)state;
	struct run *r = start_tty(SH("trap 's=$(stty size); echo $s' WINCH; trap 'echo int' INT; echo ready; while :; do read x && echo \"<$x>\"; [ \"$x\" = q ] && exit 7; done"), 24, 80);
	wait_for_line(r);
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_ACTION, MUX_CONTROL_RESIZE);
	tlv_add_u64(&t, MUX_F_ROWS, 33);
	tlv_add_u64(&t, MUX_F_COLS, 111); /* echoed by the shell itself: an INT must not hit stty */
	mux_control(peer.m, r->id, &t);
	type(r, "a\n"); /* the trap runs when read returns */
	PEER_UNTIL(&peer, strstr(buf_str(&r->out[1]), "33 111"));
	type(r, "\x03");
	PEER_UNTIL(&peer, strstr(buf_str(&r->out[1]), "int"));
	type(r, "q\n");
	check_exit(run_wait(r), 7);
	r = start_tty(ARGV("cat"), 24, 80);
	PEER_UNTIL(&peer, r->accepted);
	type(r, "partial");
	mux_eof(peer.m, r->id, MUX_STDIN);
	check_exit(run_wait(r), 0);
	assert_non_null(strstr(buf_str(&r->out[1]), "partial"));
}

static void a_canceled_terminal_hangs_up(void **state)
{
	(void)state;
	struct run *r = start_tty(SH("trap 'echo hup; exit 5' HUP; trap '' TERM; echo ready; while :; do sleep 0.05; done"), 24, 80);
	wait_for_line(r);
	auto_tlv cancel = TLV_INIT;
	tlv_add_u64(&cancel, MUX_F_ACTION, MUX_CONTROL_CANCEL);
	mux_control(peer.m, r->id, &cancel);
	run_wait(r);
	assert_int_equal(r->outcome, MUX_OUTCOME_CANCELED);
	assert_non_null(strstr(buf_str(&r->out[1]), "hup"));
}

/* --- all of it at once --- */

static unsigned open_files(pid_t pid)
{
	char command[96];
	snprintf(command, sizeof(command), "ls /proc/%d/fd | wc -l", (int)pid);
	struct run *r = run_wait(run_start(&peer, 0, SH(command)));
	return (unsigned)strtoul(buf_str(&r->out[1]), NULL, 10);
}

static void five_hundred_commands_leave_nothing_behind(void **state)
{
	struct run *running[20] = { NULL };
	(void)state;
	unsigned before = open_files(peer.init);
	long resident = resident_kib(peer.init);
	for (int i = 0; i < 520; i++) {
		struct run **slot = &running[i % 20];
		char text[16];
		if (*slot) {
			run_wait(*slot);
			check_exit(*slot, (unsigned)(i - 20) % 7);
			assert_int_equal(strtol(buf_str(&(*slot)->out[1]), NULL, 10), i - 20);
			run_free(*slot);
			*slot = NULL;
		}
		snprintf(text, sizeof(text), "%d", i);
		if (i < 500)
			*slot = run_start(&peer, 0, ARGV("sh", "-c", "echo $1; exit $(($1 % 7))", "-", text));
	}
	for (int i = 0; i < 100 && open_files(peer.init) != before; i++)
		peer_idle(&peer, 50); /* the last supervisors end after their commands */
	assert_int_equal(open_files(peer.init), before);
	assert_int_equal(zombies_of(peer.init), 0);
	assert_true(resident_kib(peer.init) < resident + 512);
}

static void the_deadline_ends_an_init_without_a_worker(void **state)
{
	struct peer_end own;
	char at[32];
	int status;
	(void)state;
	snprintf(at, sizeof(at), "%lld", (long long)clock_wall_us() + 300 * 1000);
	peer_start(&own, at, "300");
	struct run *r = run_start(&own, 0, SH("echo $$; exec sleep 300"));
	PEER_UNTIL(&own, r->got[1]);
	pid_t child = pid_in(r);
	int64_t until = clock_mono_ms() + 1000;
	while (clock_mono_ms() < until) /* with a worker there it stays */
		peer_step(&own, 20);
	assert_int_equal(waitpid(own.init, &status, WNOHANG), 0);
	peer_drop(&own);
	close_fdp(&own.listener);
	for (int i = 0; i < 300 && waitpid(own.init, &status, WNOHANG) == 0; i++)
		usleep(10000);
	assert_true(WIFEXITED(status));
	own.init = 0;
	assert_false(alive(child));
	peer_stop(&own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statuses_are_the_programs_own),
		cmocka_unit_test(what_cannot_run_says_why),
		cmocka_unit_test(a_bad_directory_runs_nothing),
		cmocka_unit_test(bad_requests_are_refused),
		cmocka_unit_test(long_arguments_work_up_to_the_limit),
		cmocka_unit_test(words_and_environment_arrive_byte_for_byte),
		cmocka_unit_test(the_shell_is_a_fallback_only_when_asked),
		cmocka_unit_test(commands_run_as_their_user_without_rights),
		cmocka_unit_test(a_command_inherits_nothing),
		cmocka_unit_test(stdin_reaches_its_end),
		cmocka_unit_test(a_program_may_leave_its_input),
		cmocka_unit_test(streams_stay_apart_and_end_before_the_result),
		cmocka_unit_test(bytes_are_exact_at_every_size),
		cmocka_unit_test(a_stopped_reader_stops_the_command),
		cmocka_unit_test(a_finished_command_waits_for_a_stopped_reader),
		cmocka_unit_test(a_background_child_does_not_hold_the_result),
		cmocka_unit_test(a_timeout_ends_the_whole_tree),
		cmocka_unit_test(a_server_left_behind_survives_later_timeouts),
		cmocka_unit_test(zombies_are_reaped),
		cmocka_unit_test(cancel_and_signals),
		cmocka_unit_test(closing_the_stream_ends_the_command),
		cmocka_unit_test(a_killed_supervisor_takes_its_tree_along),
		cmocka_unit_test(output_survives_a_lost_link),
		cmocka_unit_test(a_command_goes_on_and_ends_without_a_link),
		cmocka_unit_test(stdin_goes_on_where_it_was_taken),
		cmocka_unit_test(resume_is_refused_where_it_makes_no_sense),
		cmocka_unit_test(a_start_that_failed_unseen_is_told_later),
		cmocka_unit_test(a_broken_peer_is_dropped_and_dialled_again),
		cmocka_unit_test(a_terminal_has_its_size_at_the_first_read),
		cmocka_unit_test(a_terminal_resizes_interrupts_and_ends),
		cmocka_unit_test(a_canceled_terminal_hangs_up),
		cmocka_unit_test(five_hundred_commands_leave_nothing_behind),
		cmocka_unit_test(the_deadline_ends_an_init_without_a_worker),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
