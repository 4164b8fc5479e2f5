/* Ending part of a group that is stopped, on this machine's kernel: what descends from one child ends, the rest goes on. */
#include "daemon/runtime/cgroup.h"

#include "shared/base/buf.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { BELOW = 40 };

struct family {
	char dir[128]; /* its group; "": none could be made */
	bool v2;
	pid_t first, supervisor, other;
	int go;
};

static bool try_group(struct family *f, const char *root, const char *file)
{
	auto_free char *path = NULL;

	snprintf(f->dir, sizeof(f->dir), "%s/sbx-unit-%d", root, (int)getpid());
	if (mkdir(f->dir, 0755) != 0)
		return false;
	path = xasprintf("%s/%s", f->dir, file);
	if (access(path, W_OK) == 0)
		return true;
	rmdir(f->dir);
	return false;
}

static void put(const struct family *f, const char *file, const char *text)
{
	auto_free char *path = xasprintf("%s/%s", f->dir, file);
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static pid_t child_that_waits(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	for (;;)
		pause();
}

/* The supervisor of a chain and a crowd. */
static _Noreturn void supervise(int grown)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int i = 0; i < BELOW / 2; i++)
		child_that_waits();
	pid_t pid = fork();
	for (int depth = 1; pid == 0 && depth < BELOW / 2; depth++)
		pid = fork();
	if (pid == 0 && write(grown, "x", 1) == 1) /* the last of the chain */
		for (;;)
			pause();
	for (;;)
		pause();
}

static _Noreturn void be_first(int go, int told, int grown)
{
	pid_t pids[2];
	char c;

	if (read(go, &c, 1) != 1)
		_exit(1);
	pids[0] = fork();
	if (pids[0] == 0)
		supervise(grown);
	pids[1] = child_that_waits();
	if (write(told, pids, sizeof(pids)) != sizeof(pids))
		_exit(1);
	for (;;)
		pause();
}

static int each_setup(void **state)
{
	struct family *f = xcalloc(1, sizeof(*f));
	int go[2], told[2], grown[2];
	char number[16], c;
	pid_t pids[2];

	*state = f;
	f->v2 = false;
	if (!try_group(f, "/sys/fs/cgroup/freezer", "freezer.state")) {
		f->v2 = try_group(f, "/sys/fs/cgroup", "cgroup.freeze");
		if (!f->v2) {
			f->dir[0] = '\0';
			return 0;
		}
	}
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(told), 0);
	assert_int_equal(pipe(grown), 0);
	f->first = fork();
	if (f->first == 0)
		be_first(go[0], told[1], grown[1]);
	snprintf(number, sizeof(number), "%d", (int)f->first);
	put(f, "cgroup.procs", number);
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(told[0], pids, sizeof(pids)), sizeof(pids));
	assert_int_equal(read(grown[0], &c, 1), 1);
	f->supervisor = pids[0];
	f->other = pids[1];
	f->go = go[1];
	close(go[0]);
	close(told[0]);
	close(told[1]);
	close(grown[0]);
	close(grown[1]);
	return 0;
}

static int each_teardown(void **state)
{
	struct family *f = *state;
	auto_free char *procs = xasprintf("%s/cgroup.procs", f->dir);

	if (f->dir[0])
		put(f, f->v2 ? "cgroup.freeze" : "freezer.state", f->v2 ? "0" : "THAWED");
	for (int i = 0; f->dir[0] && rmdir(f->dir) != 0 && errno == EBUSY && i < 500; i++) {
		auto_buf text = BUF_INIT;

		if (io_read_file(procs, 65536, &text, NULL) == 0)
			for (const char *line = buf_str(&text); *line; line = strchr(line, '\n') + 1)
				kill((pid_t)strtol(line, NULL, 10), SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		usleep(10 * 1000);
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	close(f->go);
	free(f);
	return 0;
}

static struct family *family(void **state)
{
	struct family *f = *state;

	if (!f->dir[0]) {
		if (getenv("SANDBOX_TESTS_MUST_RUN"))
			fail_msg("no control group that stops processes can be made");
		print_message("skipped: no control group that stops processes can be made\n");
		skip();
	}
	return f;
}

static size_t alive(const struct family *f)
{
	auto_free char *path = xasprintf("%s/cgroup.procs", f->dir);
	auto_buf text = BUF_INIT;
	size_t n = 0;

	assert_int_equal(io_read_file(path, 65536, &text, NULL), 0);
	for (const char *p = buf_str(&text); *p; p++)
		n += *p == '\n';
	return n;
}

/* The dead of the supervisor are its zombies, and of no group any more where the kernel says so: what counts is who runs. */
static bool runs(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/stat", (int)pid);
	auto_buf text = BUF_INIT;
	const char *p;

	return io_read_file(path, 4096, &text, NULL) == 0 && (p = strrchr(buf_str(&text), ')')) && p[2] != 'Z' && p[2] != 'X';
}

static bool can_end(pid_t pid)
{
	kill(pid, SIGKILL);
	for (int i = 0; i < 2000; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		usleep(10 * 1000);
	}
	return false;
}

static void what_descends_from_one_child_ends(void **state)
{
	struct family *f = family(state);
	struct error err = ERROR_INIT;
	size_t ended = 0;

	assert_int_equal(alive(f), BELOW + 3);
	if (cgroup_end_below(f->first, f->supervisor, &ended, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(ended, BELOW);
	assert_true(runs(f->first) && runs(f->supervisor) && runs(f->other));
	/* It goes on: it can end. */
	assert_true(can_end(f->first));
}

static void nothing_ends_for_a_number_that_is_no_child(void **state)
{
	struct family *f = family(state);
	struct error err = ERROR_INIT;
	size_t ended = 7;

	assert_int_equal(cgroup_end_below(f->first, f->first, &ended, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(cgroup_end_below(f->first, getpid(), &ended, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(alive(f), BELOW + 3);
	assert_int_equal(ended, 7);
}

static void what_was_left_standing_goes_on(void **state)
{
	struct family *f = family(state);
	struct error err = ERROR_INIT;

	assert_int_equal(cgroup_thaw(f->first, &err), 0);
	put(f, f->v2 ? "cgroup.freeze" : "freezer.state", f->v2 ? "1" : "FROZEN");
	assert_int_equal(cgroup_thaw(f->first, &err), 0);
	assert_true(can_end(f->first));
}

static void its_own_group_is_never_stopped(void **state)
{
	struct error err = ERROR_INIT;
	size_t ended;
	pid_t pid = child_that_waits();

	(void)state;
	assert_int_equal(cgroup_end_below(pid, 1, &ended, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_descends_from_one_child_ends, each_setup, each_teardown),
		cmocka_unit_test_setup_teardown(nothing_ends_for_a_number_that_is_no_child, each_setup, each_teardown),
		cmocka_unit_test_setup_teardown(what_was_left_standing_goes_on, each_setup, each_teardown),
		cmocka_unit_test(its_own_group_is_never_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
