/* Control groups of our own, on this machine's kernel: limits that hold, counts of what they did, and nothing left behind. */
#include "daemon/runtime/cgroup.h"

#include "shared/base/clock.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { MIB = 1024 * 1024 };

static struct id node, box;
static const struct cgroup_limits limits = { .memory_max = 48 * MIB, .pids_max = 8, .cpu_millis = 200 };

static int each_setup(void **state)
{
	(void)state;
	box = id_new();
	return 0;
}

static int each_teardown(void **state)
{
	(void)state;
	return cgroup_remove(&node, &box, NULL);
}

static void make_group(void)
{
	struct error err = ERROR_INIT;

	if (cgroup_make(&node, &box, &limits, &err) == 0)
		return;
	if (getenv("SANDBOX_TESTS_MUST_RUN"))
		fail_msg("%s", err.message);
	print_message("skipped: %s\n", err.message);
	skip();
}

/* A child that waits to be told before it runs fn. */
static pid_t start_child(void (*fn)(void), int *ret_go)
{
	int p[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		close(p[1]);
		if (read(p[0], &c, 1) == 1)
			fn();
		_exit(0);
	}
	close(p[0]);
	*ret_go = p[1];
	return pid;
}

static int let_go(pid_t pid, int go)
{
	int status;

	assert_int_equal(write(go, "x", 1), 1);
	close(go);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void eat(void)
{
	for (int i = 0; i < 512; i++) {
		volatile char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (int at = 0; at < MIB; at += 4096)
			p[at] = 1;
	}
}

static void multiply(void)
{
	for (int i = 0; i < 32; i++)
		if (fork() == 0) {
			sleep(30);
			_exit(0);
		}
}

static void spin(void)
{
	int64_t until = clock_mono_ms() + 500;

	while (clock_mono_ms() < until)
		;
}

static void limits_hold_for_a_process_that_entered(void **state)
{
	struct cgroup_view v;
	struct error err = ERROR_INIT;
	int go;
	pid_t pid;

	(void)state;
	make_group();
	pid = start_child(spin, &go);
	if (cgroup_enter(&node, &box, pid, &err) != 0 || cgroup_read(pid, &v, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(v.memory_max, limits.memory_max);
	assert_int_equal(v.pids_max, limits.pids_max);
	assert_int_equal(v.cpu_quota_us * 5, v.cpu_period_us);
	let_go(pid, go);
}

static void every_limit_bites_and_is_counted(void **state)
{
	struct cgroup_harm harm;
	int go, status;
	pid_t pid;

	(void)state;
	make_group();
	pid = start_child(spin, &go);
	assert_int_equal(cgroup_enter(&node, &box, pid, NULL), 0);
	let_go(pid, go);
	pid = start_child(multiply, &go);
	assert_int_equal(cgroup_enter(&node, &box, pid, NULL), 0);
	let_go(pid, go);
	assert_true(cgroup_harm(&node, &box, &harm));
	assert_true(harm.pids_refused > 0);
	assert_int_equal(harm.oom_kills, 0);
	/* Removing kills what is left; then there is room for the next. */
	assert_int_equal(cgroup_remove(&node, &box, NULL), 0);
	make_group();
	pid = start_child(eat, &go);
	assert_int_equal(cgroup_enter(&node, &box, pid, NULL), 0);
	status = let_go(pid, go);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(cgroup_harm(&node, &box, &harm));
	assert_true(harm.oom_kills > 0);
}

/* One, and those that a sanitizer's library adds. */
static int tasks_of(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	int n = 0;

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void descendants_come_along(void **state)
{
	struct cgroup_view v;
	int go, pid_pipe[2];
	pid_t pid, grandchild = 0;

	(void)state;
	make_group();
	assert_int_equal(pipe(pid_pipe), 0);
	pid = fork();
	if (pid == 0) {
		grandchild = fork();
		if (grandchild == 0) {
			sleep(30);
			_exit(0);
		}
		_exit(write(pid_pipe[1], &grandchild, sizeof(grandchild)) != sizeof(grandchild) || sleep(30) != 0);
	}
	assert_int_equal(read(pid_pipe[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	assert_int_equal(cgroup_enter(&node, &box, pid, NULL), 0);
	assert_int_equal(cgroup_read(grandchild, &v, NULL), 0);
	assert_int_equal(v.pids_max, limits.pids_max);
	assert_int_equal(v.pids_used, tasks_of(pid) + tasks_of(grandchild));
	assert_int_equal(cgroup_remove(&node, &box, NULL), 0);
	assert_int_equal(waitpid(pid, &go, 0), pid);
	close(pid_pipe[0]);
	close(pid_pipe[1]);
}

static void listed_until_removed(void **state)
{
	auto_strv found = { .items = NULL };
	auto_strv after = { .items = NULL };
	struct cgroup_harm harm;

	(void)state;
	make_group();
	cgroup_list(&node, &found);
	assert_true(strv_has(&found, box.text));
	assert_int_equal(cgroup_remove(&node, &box, NULL), 0);
	assert_int_equal(cgroup_remove(&node, &box, NULL), 0);
	cgroup_list(&node, &after);
	assert_int_equal(after.len, 0);
	assert_false(cgroup_harm(&node, &box, &harm));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(limits_hold_for_a_process_that_entered, each_setup, each_teardown),
		cmocka_unit_test_setup_teardown(every_limit_bites_and_is_counted, each_setup, each_teardown),
		cmocka_unit_test_setup_teardown(descendants_come_along, each_setup, each_teardown),
		cmocka_unit_test_setup_teardown(listed_until_removed, each_setup, each_teardown),
	};

	node = id_new();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
