/*
 * sandbox-init where its calls fail, one after the other: memory, bytes of files, pipes and sockets, descriptors, forks, names.
 * Each round does one thing with the n-th call failing, n = 1, 2, … until a round meets no failure. What says it succeeded did, what
 * did not says why, nothing half made is left, and process 1 goes on as before.
 */
#include "tests/faults/fault.h"
#include "tests/unit/init_peer.h"

#include "shared/mux/records.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/stat.h>

enum { CALLS_MAX = 5000 };

static struct peer_end peer;
static struct faults *faults;
static char base[64], page[96];

static int set_up(void **state)
{
	(void)state;
	snprintf(base, sizeof(base), "/tmp/sandbox-test-faults-XXXXXX");
	assert_non_null(mkdtemp(base));
	snprintf(page, sizeof(page), "%s.page", base);
	faults = faults_map(page);
	assert_non_null(faults);
	assert_int_equal(setenv(FAULTS_ENV, page, 1), 0);
	peer_start_program(&peer, "tools/sandbox-init-faults", "0", "0");
	assert_int_equal(unsetenv(FAULTS_ENV), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	faults->classes = 0;
	peer_stop(&peer);
	munmap(faults, 4096);
	unlink(page);
	assert_int_equal(io_remove_tree(base, NULL), 0);
	return 0;
}

static const char *in_base(const char *name)
{
	static char text[4][192];
	static unsigned turn;
	char *out = text[turn++ % 4];
	snprintf(out, sizeof(text[0]), "%s/%s", base, name);
	return out;
}

/* --- what is done in a round: true when it succeeded, false when it was refused with a reason --- */

static bool told(const struct run *r)
{
	if (r->outcome == MUX_OUTCOME_EXITED || r->message[0])
		return false;
	fail_msg("outcome %d, error %d, and no word why", (int)r->outcome, (int)r->error);
	return false;
}

static bool ended(struct run *r, unsigned code, const char *out, const char *text)
{
	run_wait(r);
	bool good = r->outcome == MUX_OUTCOME_EXITED && r->code == code;
	if (r->outcome == MUX_OUTCOME_EXITED) {
		assert_int_equal(r->code, code);
		assert_string_equal(buf_str(&r->out[1]), out);
		assert_string_equal(buf_str(&r->out[2]), text);
	} else {
		told(r);
	}
	run_free(r);
	return good;
}

static bool command(void)
{
	struct run *r = run_start(&peer, MUX_OPEN_STDIN, SH("cat; echo to-stderr >&2; exit 3"));
	r->feed = "what cat is given\n";
	r->feed_len = strlen(r->feed);
	r->feed_eof = true;
	return ended(r, 3, "what cat is given\n", "to-stderr\n");
}

static bool terminal(void)
{
	return ended(run_start(&peer, MUX_OPEN_STDIN | MUX_OPEN_TTY, SH("test -t 0 && echo a terminal")), 0, "a terminal\r\n", "");
}

static bool no_such_program(void)
{
	struct run *r = run_wait(run_start(&peer, 0, ARGV("nosuch-program")));
	bool good = r->error == MUX_ERR_NO_PROGRAM;
	assert_int_equal(r->outcome, MUX_OUTCOME_NOT_STARTED);
	assert_true(r->message[0]);
	run_free(r);
	return good;
}

/* Its link goes while the command runs, and what it said is taken over the next one. */
static bool taken_up_again(void)
{
	struct run *r = run_start(&peer, 0, SH("echo before; sleep 0.05; echo after"));
	PEER_UNTIL(&peer, r->closed || r->out[1].len > 0);
	if (r->closed)
		return ended(r, 0, "before\nafter\n", "");
	peer_drop(&peer);
	peer_accept(&peer);
	run_resume(r, 0);
	return ended(r, 0, "before\nafter\n", "");
}

static bool process_list(void)
{
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_PS);
	run_open(r, &t, LIMIT_MUX_WINDOW);
	run_wait(r);
	bool good = r->error == 0;
	if (good)
		assert_non_null(strstr(buf_str(&r->out[0]), "sandbox-init"));
	else
		assert_true(r->message[0]);
	run_free(r);
	return good;
}

static bool dialled(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	auto_tlv t = TLV_INIT;
	auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, MUX_KIND_DIAL);
	tlv_add_u64(&t, MUX_F_PORT, ntohs(a.sin_port));
	run_open(r, &t, LIMIT_MUX_WINDOW);
	PEER_UNTIL(&peer, r->accepted || r->closed);
	bool good = r->accepted && !r->closed;
	if (good) {
		auto_close int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		assert_true(server >= 0);
		assert_int_equal(io_write_full(server, "pong", 4), 0);
		close_fdp(&server);
		r->feed_eof = true;
		peer_feed(r);
		run_wait(r);
		good = r->error == 0;
	}
	if (good)
		assert_string_equal(buf_str(&r->out[0]), "pong");
	else
		assert_true(r->message[0]);
	run_free(r);
	return good;
}

/* --- transfers --- */

struct story {
	struct buf data;
	uint64_t failed;
	bool done, explained;
};

static int tell(void *ctx, const struct record *r, struct error *err)
{
	struct story *s = ctx;
	(void)err;
	if (r->type == RECORD_DATA)
		buf_add(&s->data, r->data, r->len);
	if ((r->type == RECORD_SKIPPED || r->type == RECORD_FAIL || r->type == RECORD_ABORT) && *r->text)
		s->explained = true;
	if (r->type == RECORD_DONE) {
		s->done = true;
		s->failed = r->failed;
	}
	return 0;
}

/* True when everything arrived; false when something was left out or refused, and it was said. */
static bool transferred(struct run *r, struct story *s)
{
	struct record_reader reader;
	struct error err = ERROR_INIT;
	run_wait(r);
	record_reader_init(&reader, tell, s);
	if (record_feed(&reader, buf_str(&r->out[0]), r->out[0].len, &err) < 0)
		fail_msg("%s", err.message);
	record_reader_done(&reader);
	bool good = r->error == 0 && s->done && s->failed == 0;
	if (!good && !s->explained && !r->message[0])
		fail_msg("a transfer ended with error %d (done %d, failed %d) and no word why", (int)r->error, s->done, (int)s->failed);
	run_free(r);
	return good;
}

static struct run *files(enum mux_kind kind, const char *path)
{
	auto_tlv t = TLV_INIT;
	struct run *r = run_new(&peer);
	tlv_add_u64(&t, MUX_F_KIND, kind);
	tlv_add_str(&t, MUX_F_PATH, path);
	run_open(r, &t, LIMIT_MUX_WINDOW);
	return r;
}

static char contents[40000];

static void fill_contents(void)
{
	for (size_t i = 0; i < sizeof(contents); i++)
		contents[i] = (char)('a' + i % 23);
}

static void add_entry(struct buf *b, enum record_type type, enum record_kind kind, const char *path, const char *target)
{
	record_add_entry(b, type, &(struct record_entry){ .kind = kind, .path = path, .target = target, .mode = kind == RECORD_DIRECTORY ? 0755 : 0640, .sec = 1 });
}

static void add_file(struct buf *b, const char *path)
{
	uint8_t head[RECORD_HEAD_LEN];
	add_entry(b, RECORD_ENTRY, RECORD_FILE, path, "");
	record_put_head(head, RECORD_DATA, sizeof(contents));
	buf_add(b, head, sizeof(head));
	buf_add(b, contents, sizeof(contents));
	record_add_number(b, RECORD_END, sizeof(contents));
}

static bool file_is(const char *path, bool may_be_absent)
{
	auto_buf got = BUF_INIT;
	struct stat st;
	if (lstat(path, &st) < 0)
		return may_be_absent;
	return io_read_file(path, 2 * sizeof(contents), &got, NULL) == 0 && got.len == sizeof(contents) && memcmp(got.data, contents, got.len) == 0;
}

static unsigned names_in(const char *path)
{
	unsigned n = 0;
	auto_dir DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	return n > 2 ? n - 2 : 0;
}

/* A single file replaces an old one whole, or not at all. */
static bool file_put(void)
{
	auto_buf b = BUF_INIT;
	struct story s = { .done = false };
	auto_buf old = BUF_INIT;
	char dir[192], path[192 + 8];
	snprintf(dir, sizeof(dir), "%s", in_base("one"));
	assert_int_equal(mkdir(dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/file", dir);
	assert_int_equal(io_write_file_atomic(path, "what was there", 14, 0644, false, NULL), 0);
	add_file(&b, "");
	record_add_done(&b, 1, sizeof(contents), 0, "");
	struct run *r = files(MUX_KIND_FILES_PUT, path);
	r->feed = buf_str(&b);
	r->feed_len = b.len;
	r->feed_eof = true;
	bool good = transferred(r, &s);
	buf_done(&s.data);
	if (good)
		assert_true(file_is(path, false));
	else if (io_read_file(path, 2 * sizeof(contents), &old, NULL) != 0 || (strcmp(buf_str(&old), "what was there") != 0 && !file_is(path, false)))
		fail_msg("a refused file left %zu bytes", old.len);
	assert_int_equal(names_in(dir), 1);
	assert_int_equal(io_remove_tree(dir, NULL), 0);
	return good;
}

static bool tree_put(void)
{
	auto_buf b = BUF_INIT;
	struct story s = { .done = false };
	char dir[192], path[256];
	snprintf(dir, sizeof(dir), "%s", in_base("tree"));
	add_entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "", "");
	add_file(&b, "first");
	add_entry(&b, RECORD_ENTRY, RECORD_DIRECTORY, "sub", "");
	add_file(&b, "sub/second");
	add_entry(&b, RECORD_ENTRY, RECORD_SYMLINK, "sub/link", "second");
	add_entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "sub", "");
	add_entry(&b, RECORD_LEAVE, RECORD_DIRECTORY, "", "");
	record_add_done(&b, 5, 2 * sizeof(contents), 0, "");
	struct run *r = files(MUX_KIND_FILES_PUT, dir);
	r->feed = buf_str(&b);
	r->feed_len = b.len;
	r->feed_eof = true;
	bool good = transferred(r, &s);
	buf_done(&s.data);
	snprintf(path, sizeof(path), "%s/first", dir);
	assert_true(file_is(path, !good));
	assert_true(names_in(dir) <= 2); /* no file of a half-made name */
	snprintf(path, sizeof(path), "%s/sub/second", dir);
	assert_true(file_is(path, !good));
	snprintf(path, sizeof(path), "%s/sub", dir);
	assert_true(names_in(path) <= 2 && (!good || names_in(path) == 2));
	io_remove_tree(dir, NULL);
	return good;
}

static bool tree_get(void)
{
	struct story s = { .done = false };
	char dir[192], path[256];
	snprintf(dir, sizeof(dir), "%s", in_base("out"));
	assert_int_equal(mkdir(dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/a", dir);
	assert_int_equal(io_write_file_atomic(path, contents, sizeof(contents), 0644, false, NULL), 0);
	snprintf(path, sizeof(path), "%s/b", dir);
	assert_int_equal(symlink("a", path), 0);
	bool good = transferred(files(MUX_KIND_FILES_GET, dir), &s);
	if (good) {
		assert_int_equal(s.data.len, sizeof(contents));
		assert_memory_equal(s.data.data, contents, sizeof(contents));
	}
	buf_done(&s.data);
	assert_int_equal(io_remove_tree(dir, NULL), 0);
	return good;
}

static const struct step {
	const char *name;
	bool (*run)(void);
} steps[] = {
	{ "a command", command }, { "a terminal", terminal }, { "no such program", no_such_program },
	{ "a command taken up again", taken_up_again }, { "a process list", process_list }, { "a dialled port", dialled },
	{ "a file in", file_put }, { "a tree in", tree_put }, { "a tree out", tree_get },
};

/* --- the rounds --- */

static void still_there(const char *after)
{
	int status;
	if (waitpid(peer.init, &status, WNOHANG) != 0)
		fail_msg("process 1 ended (status %x) after %s", status, after);
}

/* Returns how many calls there were. must_work: the failure is one that is to be hidden. */
static int64_t each_call(const struct step *step, uint32_t classes, int error, int64_t span, bool must_work)
{
	for (int64_t n = 1; n < CALLS_MAX; n++) {
		faults_arm(faults, classes, error, n, span);
		bool good = step->run();
		int64_t failed = faults->failed;
		faults->classes = 0;
		still_there(step->name);
		if (!good && (must_work || failed == 0))
			fail_msg("%s did not succeed with call %d (classes %x) failing by %d", step->name, (int)n, classes, error);
		if (failed == 0)
			return n - 1;
	}
	fail_msg("%s never came to an end", step->name);
	return 0;
}

static void all_steps(uint32_t classes, int error, int64_t span, bool must_work)
{
	int64_t calls = 0;
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		calls += each_call(&steps[i], classes, error, span, must_work);
	print_message("# %d calls of classes %x failed in turn by %d\n", (int)calls, classes, error);
	assert_true(calls > 0);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	all_steps(FAULT_ALLOC, ENOMEM, 1, false); /* opendir's own is refused */
	if (getenv("FULL"))
		all_steps(FAULT_ALLOC, ENOMEM, 2, false); /* also the first try with the reserve given back */
}

/* Nothing to be had at all: what runs goes on when there is something again. */
static void process_1_waits_for_memory(void **state)
{
	int status;
	(void)state;
	faults_arm(faults, FAULT_ALLOC, ENOMEM, 1, INT64_MAX);
	struct run *r = run_start(&peer, 0, SH("echo late; exit 3"));
	peer_idle(&peer, 300);
	assert_true(faults->failed > 1);
	assert_int_equal(waitpid(peer.init, &status, WNOHANG), 0);
	assert_false(r->closed);
	faults->classes = 0;
	assert_true(ended(r, 3, "late\n", ""));
	assert_true(command());
}

/* With the reserve gone and not to be had again, what runs is served and nothing new begins. */
static void short_of_memory_nothing_new_begins(void **state)
{
	(void)state;
	struct run *running = run_start(&peer, MUX_OPEN_STDIN, ARGV("cat"));
	PEER_UNTIL(&peer, running->accepted);
	faults_arm(faults, FAULT_ALLOC, ENOMEM, 1, INT64_MAX);
	struct run *r = run_start(&peer, 0, ARGV("true"));
	PEER_UNTIL(&peer, faults->failed > 1);
	faults->least = 400 * 1024; /* little can be had again */
	run_wait(r);
	assert_int_equal(r->error, MUX_ERR_RESOURCES);
	assert_non_null(strstr(r->message, "no memory is left"));
	run_free(r);
	running->feed = "still served";
	running->feed_len = strlen(running->feed);
	running->feed_eof = true;
	peer_feed(running);
	assert_true(ended(running, 0, "still served", ""));
	faults->classes = 0;
	assert_true(command());
}

static void nothing_is_kept_for_what_has_ended(void **state)
{
	(void)state;
	int64_t least = INT64_MAX, most = 0;
	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < ARRAY_LEN(steps); i++)
			assert_true(steps[i].run());
		struct run *r = run_start(&peer, 0, ARGV("true"));
		run_wait(r);
		run_free(r);
		peer_idle(&peer, 20);
		int64_t live = faults->live;
		least = live < least ? live : least;
		most = live > most ? live : most;
	}
	if (most - least > 4)
		fail_msg("%d to %d allocations are held", (int)least, (int)most);
}

static void interrupted_and_short_calls_are_gone_on_with(void **state)
{
	(void)state;
	all_steps(FAULT_FILE | FAULT_STREAM, EINTR, 1, true);
	all_steps(FAULT_FILE | FAULT_STREAM, FAULT_SHORT, 1, true);
	faults_arm(faults, FAULT_FILE | FAULT_STREAM, FAULT_SHORT, 1, INT64_MAX); /* every call moves half of what it could */
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		assert_true(steps[i].run());
	faults->classes = 0;
}

static void what_fails_is_said(void **state)
{
	static const struct {
		uint32_t classes;
		int error;
	} rows[] = {
		{ FAULT_FILE, EIO }, { FAULT_OPEN, EMFILE }, { FAULT_FORK, EAGAIN }, { FAULT_NAME, ENOSPC },
		{ FAULT_FILE, ENOSPC }, { FAULT_OPEN, ENFILE }, { FAULT_FORK, ENOMEM }, { FAULT_NAME, EROFS },
	};
	/* The second four take the same ways. */
	size_t n = getenv("FULL") ? ARRAY_LEN(rows) : ARRAY_LEN(rows) / 2;
	(void)state;
	for (size_t i = 0; i < n; i++)
		all_steps(rows[i].classes, rows[i].error, 1, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(process_1_waits_for_memory),
		cmocka_unit_test(short_of_memory_nothing_new_begins),
		cmocka_unit_test(nothing_is_kept_for_what_has_ended),
		cmocka_unit_test(interrupted_and_short_calls_are_gone_on_with),
		cmocka_unit_test(what_fails_is_said),
	};
	fill_contents();
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("init_faults", tests, set_up, tear_down);
}
