/* The spool: what it keeps, what it drops, and what is left of it after a kill or on a full disk. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "daemon/worker/exec_priv.h"
#include "daemon/worker/spool.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = LIMIT_OUTPUT_HEAD_MAX, RING = LIMIT_SPOOL_RING };

static char dir[64];
static struct spool_info info;

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

static void append(struct spool *s, enum spool_channel ch, size_t n)
{
	uint64_t at = spool_total(s, ch);
	auto_free uint8_t *p = xmalloc(n + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(at + i);
	spool_append(s, ch, p, n);
}

/* Reads everything from `from` on; every byte must be the one of its offset. Returns the bytes read. */
static uint64_t check_from(const struct spool *s, enum spool_channel ch, uint64_t from)
{
	uint64_t seen = 0, at = from, total = spool_total(s, ch);
	const void *p;

	while (at < total) {
		uint64_t next = spool_next(s, ch, at);
		size_t n;

		if (next != at) {
			assert_true(next > at);
			at = next;
			continue;
		}
		n = spool_read(s, ch, at, &p);
		assert_true(n > 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(((const uint8_t *)p)[i], byte_at(at + i));
		at += n;
		seen += n;
	}
	return seen;
}

static char *path_of(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test-spool-XXXXXX");
	info = (struct spool_info){ .sandbox = id_new(), .owner = "team/uid 1000" };
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return io_remove_tree(dir, NULL);
}

static void keeps_small_output_whole(void **state)
{
	auto_free char *path = path_of("a");
	struct spool *s = spool_create(path, &info);
	struct capture c = { .total = 0 };

	(void)state;
	assert_null(spool_degraded(s));
	for (int i = 0; i < 100; i++) {
		append(s, SPOOL_OUT, 7);
		append(s, SPOOL_ERR, 3);
	}
	assert_int_equal(check_from(s, SPOOL_OUT, 0), 700);
	assert_int_equal(check_from(s, SPOOL_ERR, 150), 150);
	assert_false(spool_capture(s, SPOOL_OUT, &c));
	assert_int_equal(c.head.len, 700);
	assert_int_equal(c.tail.len, 0);
	buf_done(&c.head);
	buf_done(&c.tail);
	spool_free(s);
}

/* Around every border: head, tail, ring. */
static void keeps_head_and_tail_of_every_size(void **state)
{
	static const uint64_t sizes[] = { 0,
					  1,
					  HEAD - 1,
					  HEAD,
					  HEAD + 1,
					  2 * HEAD - 1,
					  2 * HEAD,
					  2 * HEAD + 1,
					  RING,
					  HEAD + RING - 1,
					  HEAD + RING,
					  HEAD + RING + 1,
					  HEAD + 2 * RING + 17,
					  7 * RING + 12345 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct spool *s = spool_create(NULL, &info);
		struct capture c = { .total = 0 };
		uint64_t n = sizes[i], kept = n < HEAD ? n : HEAD, tail;
		bool cut;

		for (uint64_t left = n; left > 0;) {
			size_t piece = left < 50021 ? (size_t)left : 50021;

			append(s, SPOOL_ERR, piece);
			left -= piece;
		}
		assert_int_equal(spool_total(s, SPOOL_ERR), n);
		kept += n > HEAD ? (n - HEAD < RING ? n - HEAD : RING) : 0;
		assert_int_equal(check_from(s, SPOOL_ERR, 0), kept);
		cut = spool_capture(s, SPOOL_ERR, &c);
		tail = n > HEAD ? n - HEAD : 0;
		if (tail > LIMIT_OUTPUT_TAIL_MAX)
			tail = LIMIT_OUTPUT_TAIL_MAX;
		assert_int_equal(c.head.len, n < HEAD ? n : HEAD);
		assert_int_equal(c.tail.len, tail);
		assert_int_equal(cut, n > HEAD + LIMIT_OUTPUT_TAIL_MAX);
		for (size_t k = 0; k < c.tail.len; k++)
			assert_int_equal((uint8_t)c.tail.data[k], byte_at(n - tail + k));
		buf_done(&c.head);
		buf_done(&c.tail);
		spool_free(s);
	}
}

static void a_window_of_unread_bytes_is_never_lost(void **state)
{
	struct spool *s = spool_create(NULL, &info);
	uint64_t read = 0;
	const void *p;

	(void)state;
	/* A reader that is always a whole window behind. */
	for (int i = 0; i < 40; i++) {
		append(s, SPOOL_OUT, (size_t)(read + LIMIT_MUX_WINDOW - spool_total(s, SPOOL_OUT)));
		assert_int_equal(spool_next(s, SPOOL_OUT, read), read);
		size_t n = spool_read(s, SPOOL_OUT, read, &p);
		assert_true(n > 0);
		read += n > 100000 ? 100000 : n;
		assert_int_equal(check_from(s, SPOOL_OUT, read), spool_total(s, SPOOL_OUT) - read);
	}
	spool_free(s);
}

static void a_skip_is_a_gap(void **state)
{
	static const uint64_t before[] = { 0, 100, HEAD, HEAD + 100, HEAD + RING + 5 };
	static const uint64_t skips[] = { 1, 50, HEAD, RING, 3 * RING };

	(void)state;
	for (size_t b = 0; b < ARRAY_LEN(before); b++) {
		for (size_t k = 0; k < ARRAY_LEN(skips); k++) {
			struct spool *s = spool_create(NULL, &info);

			append(s, SPOOL_OUT, (size_t)before[b]);
			spool_skip(s, SPOOL_OUT, before[b] + skips[k]);
			append(s, SPOOL_OUT, 5000);
			assert_int_equal(spool_total(s, SPOOL_OUT), before[b] + skips[k] + 5000);
			assert_true(check_from(s, SPOOL_OUT, 0) >= 5000);
			spool_free(s);
		}
	}
}

static void reopened_it_is_the_same(void **state)
{
	auto_free char *path = path_of("a");
	struct spool *s = spool_create(path, &info);
	struct spool_end end = { .outcome = OUTCOME_SIGNALED, .signal = 9, .oom_killed = true, .text = "killed" }, got;
	struct error err = ERROR_INIT;

	(void)state;
	append(s, SPOOL_OUT, 3 * RING);
	append(s, SPOOL_ERR, 10);
	spool_set_acked(s, SPOOL_OUT, 3 * RING - 1000);
	spool_set_stdin(s, 77);
	spool_free(s);
	assert_int_equal(spool_open(path, &s, &err), 0);
	assert_int_equal(spool_total(s, SPOOL_OUT), 3 * RING);
	assert_int_equal(spool_acked(s, SPOOL_OUT), 3 * RING - 1000);
	assert_int_equal(spool_stdin(s), 77);
	assert_string_equal(spool_info(s)->owner, info.owner);
	assert_string_equal(spool_info(s)->sandbox.text, info.sandbox.text);
	assert_false(spool_finished(s, NULL));
	append(s, SPOOL_OUT, 2 * RING + 3);
	append(s, SPOOL_ERR, HEAD);
	spool_finish(s, &end);
	spool_free(s);
	assert_int_equal(spool_open(path, &s, &err), 0);
	assert_int_equal(check_from(s, SPOOL_OUT, 0), HEAD + RING);
	assert_int_equal(check_from(s, SPOOL_ERR, 0), HEAD + 10);
	assert_true(spool_finished(s, &got));
	assert_int_equal(got.outcome, OUTCOME_SIGNALED);
	assert_int_equal(got.signal, 9);
	assert_true(got.oom_killed);
	assert_string_equal(got.text, "killed");
	spool_free(s);
}

static void what_is_no_spool_is_refused(void **state)
{
	auto_free char *path = path_of("a");
	struct spool *s = spool_create(path, &info);
	struct error err = ERROR_INIT;
	int fd;

	(void)state;
	spool_free(s);
	assert_int_equal(spool_open("/nonexistent/x", &s, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(spool_open(path, &s, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(spool_open(path, &s, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	close(fd);
}

static void small_output_costs_little_disk(void **state)
{
	auto_free char *path = path_of("a");
	struct spool *s = spool_create(path, &info);
	struct stat st;

	(void)state;
	append(s, SPOOL_OUT, 100);
	spool_free(s);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_blocks * 512 <= 32 * 1024);
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* A process that writes without end is killed: what the file promises must be there. */
static void a_killed_writer_leaves_no_lies(void **state)
{
	auto_free char *path = path_of("a");

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct spool *s;
		struct error err = ERROR_INIT;
		pid_t pid = fork();

		if (pid == 0) {
			s = spool_create(path, &info);
			for (;;)
				append(s, SPOOL_OUT, 200003);
		}
		usleep(3000 + round * 1700);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		if (spool_open(path, &s, &err) != 0)
			continue; /* killed before it was one */
		check_from(s, SPOOL_OUT, 0);
		spool_free(s);
	}
}

/* In the child: a file system of 400 KiB on dir, seen by it alone. */
static bool tiny_disk(void)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", dir, "tmpfs", 0, "size=400k") == 0;
}

enum { CANNOT_TRY = 77 };

static int fill_tiny_disk(const char *path)
{
	struct spool *s, *again;

	if (!tiny_disk())
		return CANNOT_TRY;
	s = spool_create(path, &info);
	append(s, SPOOL_OUT, 4 * RING);
	append(s, SPOOL_ERR, RING);
	if (check_from(s, SPOOL_OUT, 0) != HEAD + RING || check_from(s, SPOOL_ERR, 0) != RING)
		return 4;
	if (!spool_degraded(s))
		return 5;
	spool_free(s);
	return spool_open(path, &again, NULL) == 0 ? 6 : 0;
}

/* No space: the bytes are still served, and the file does not claim to be whole. */
static void on_a_full_disk_it_goes_on_in_memory(void **state)
{
	auto_free char *path = path_of("a");
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		_exit(fill_tiny_disk(path));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_TRY)
		skip();
	assert_int_equal(status, 0);
}

static void archived_it_is_the_same(void **state)
{
	auto_free char *path = path_of("a"), *kept = path_of("b");
	struct spool *s = spool_create(path, &info);
	struct spool_end end = { .outcome = OUTCOME_EXITED, .exit_code = 3 }, got;
	struct error err = ERROR_INIT;
	struct stat st;

	(void)state;
	append(s, SPOOL_OUT, 200);
	append(s, SPOOL_ERR, HEAD + 5000);
	spool_finish(s, &end);
	assert_int_equal(spool_archive(path, kept, &err), 0);
	spool_free(s);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(spool_open(kept, &s, &err), 0);
	assert_int_equal(check_from(s, SPOOL_OUT, 0), 200);
	assert_int_equal(check_from(s, SPOOL_ERR, 0), HEAD + 5000);
	assert_true(spool_finished(s, &got));
	assert_int_equal(got.exit_code, 3);
	spool_free(s);
	assert_int_equal(stat(kept, &st), 0);
	assert_true(st.st_blocks * 512 < 512 * 1024);
	assert_int_equal(spool_archive(path, kept, &err), -1);
}

static void without_a_directory_it_lives_in_memory(void **state)
{
	struct spool *s = spool_create("/nonexistent/dir/x", &info);

	(void)state;
	assert_non_null(spool_degraded(s));
	append(s, SPOOL_OUT, 2 * RING);
	assert_int_equal(check_from(s, SPOOL_OUT, 0), HEAD + RING);
	spool_free(s);
}

static char *make_aged(int64_t age_s, size_t bytes)
{
	struct id id = id_new();
	char *path = path_of(id.text);
	struct spool *s = spool_create(path, &info);
	struct timespec t[2] = { { .tv_sec = time(NULL) - age_s }, { .tv_sec = time(NULL) - age_s } };

	append(s, SPOOL_OUT, bytes);
	spool_free(s);
	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
	return path;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void the_sweep_removes_the_oldest_and_spares_the_open(void **state)
{
	struct id open_id = id_new();
	auto_free char *open_path = path_of(open_id.text);
	struct spool *open_one = spool_create(open_path, &info);
	auto_free char *a = make_aged(100, 1), *b = make_aged(50, 1), *other = path_of("notes.txt");

	(void)state;
	assert_int_equal(io_write_file_atomic(other, "x", 1, 0600, false, NULL), 0);
	assert_int_equal(spool_sweep(dir, 3600 * 1000, 1LL << 40), 0);
	/* ctime cannot be set back: everything is older than a retention that ended in the future. */
	assert_int_equal(spool_sweep(dir, -2000, 1LL << 40), 2);
	assert_false(exists(a));
	assert_false(exists(b));
	assert_true(exists(open_path));
	assert_true(exists(other));
	spool_free(open_one);
	assert_int_equal(spool_sweep(dir, 3600 * 1000, 0), 1);
	assert_false(exists(open_path));
}

/* A killed daemon leaves its spools in memory; once its state directory has gone too, the next daemon clears them away. */
static void memory_of_a_vanished_state_is_freed(void **state)
{
	auto_free char *gone = path_of("gone"), *here = path_of("here");
	auto_free char *old = NULL, *fresh = NULL, *left = NULL;

	(void)state;
	assert_int_equal(io_mkdirs(gone, 0700, NULL), 0);
	assert_int_equal(io_mkdirs(here, 0700, NULL), 0);
	old = live_dir_open(gone);
	if (!old)
		skip();
	left = xasprintf("%s/%s", old, info.sandbox.text);
	assert_int_equal(io_write_file_atomic(left, "x", 1, 0600, false, NULL), 0);
	fresh = live_dir_open(here);
	assert_non_null(fresh);
	assert_string_not_equal(old, fresh);
	live_dir_close(old); /* it holds a spool: it stays */
	assert_true(exists(left));
	assert_int_equal(io_remove_tree(gone, NULL), 0);
	live_dir_close(fresh);
	assert_false(exists(fresh));
	free(fresh);
	fresh = live_dir_open(here);
	assert_non_null(fresh);
	assert_false(exists(old));
	live_dir_close(fresh);
}

/* --- arrival times --- */

/* Every byte has a time between begin and end that never goes back; what has none is counted. */
static uint64_t check_times(const struct spool *s, enum spool_channel ch, int64_t begin_us, int64_t end_us)
{
	uint64_t unknown = 0, end;
	int64_t last = begin_us;

	for (uint64_t at = spool_next(s, ch, 0); at < spool_total(s, ch); at = spool_next(s, ch, end)) {
		int64_t t = spool_time(s, ch, at, &end);

		assert_true(end > at);
		if (end > spool_total(s, ch))
			end = spool_total(s, ch);
		if (t == 0) {
			unknown += end - at;
			continue;
		}
		assert_true(t >= last && t <= end_us);
		last = t;
	}
	return unknown;
}

static void bytes_have_the_time_at_which_they_arrived(void **state)
{
	(void)state;
	auto_free char *path = path_of("times");
	struct spool *s = spool_create(path, &info);
	uint64_t at[4], end;
	int64_t before[4], begin = clock_wall_us();

	for (int i = 0; i < 4; i++) {
		at[i] = spool_total(s, SPOOL_OUT);
		before[i] = clock_wall_us();
		append(s, SPOOL_OUT, i == 2 ? HEAD : 100); /* the third reaches into the ring */
		usleep(3000);
	}
	for (int reopened = 0; reopened < 2; reopened++) {
		for (int i = 0; i < 4; i++) {
			int64_t t = spool_time(s, SPOOL_OUT, at[i] + 50, &end);

			assert_true(t >= before[i] && (i == 3 || t < before[i + 1]));
			assert_int_equal(end, i == 3 ? UINT64_MAX : i == 2 ? HEAD : at[i + 1]);
			assert_int_equal(spool_since(s, SPOOL_OUT, before[i]), at[i]);
		}
		assert_int_equal(spool_since(s, SPOOL_OUT, clock_wall_us() + 1000000), spool_total(s, SPOOL_OUT));
		assert_int_equal(spool_since(s, SPOOL_ERR, 1), 0);
		assert_int_equal(check_times(s, SPOOL_OUT, begin, clock_wall_us()), 0);
		spool_free(s);
		assert_int_equal(spool_open(path, &s, NULL), 0);
	}
	spool_free(s);
}

static void times_are_bounded_like_the_bytes(void **state)
{
	(void)state;
	auto_free char *path = path_of("many");
	struct spool *s = spool_create(path, &info);
	int64_t begin = clock_wall_us();

	/* More lines at different times than there are places; then a ring full of bytes at once. */
	for (int i = 0; i < 10000; i++) {
		append(s, SPOOL_OUT, i < 1500 ? 40 : 60);
		int64_t now = clock_wall_us();

		while (clock_wall_us() / 1000 == now / 1000)
			continue;
	}
	assert_int_equal(check_times(s, SPOOL_OUT, begin, clock_wall_us()), 0);
	uint64_t old = spool_total(s, SPOOL_OUT);

	append(s, SPOOL_OUT, 2 * RING);
	assert_int_equal(check_times(s, SPOOL_OUT, begin, clock_wall_us()), 0);
	assert_int_equal(spool_since(s, SPOOL_OUT, clock_wall_us() - 1), spool_total(s, SPOOL_OUT));
	assert_true(spool_total(s, SPOOL_OUT) == old + 2 * RING);
	spool_free(s);
	assert_int_equal(spool_open(path, &s, NULL), 0);
	spool_free(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(bytes_have_the_time_at_which_they_arrived),
		T(times_are_bounded_like_the_bytes),
		T(keeps_small_output_whole),
		T(keeps_head_and_tail_of_every_size),
		T(a_window_of_unread_bytes_is_never_lost),
		T(a_skip_is_a_gap),
		T(reopened_it_is_the_same),
		T(what_is_no_spool_is_refused),
		T(small_output_costs_little_disk),
		T(a_killed_writer_leaves_no_lies),
		T(on_a_full_disk_it_goes_on_in_memory),
		T(archived_it_is_the_same),
		T(without_a_directory_it_lives_in_memory),
		T(memory_of_a_vanished_state_is_freed),
		T(the_sweep_removes_the_oldest_and_spares_the_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
