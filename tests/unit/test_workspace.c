/* Workspaces: size enforced, space reserved, nothing left behind. Needs root and loop devices for most of it. */
#include "daemon/worker/workspace.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cmocka.h>

enum { DISK_MIB = 32 };

struct fixture {
	char dir[64];
	struct workspaces *w;
};

/* True (after skip or failure) when this machine cannot mount. */
static void need_mounts(struct fixture *f)
{
	struct workspace_mount m;
	struct error err = ERROR_INIT;

	if (workspaces_probe_make(f->w, &m, &err) == 0) {
		workspaces_probe_drop(f->w);
		workspaces_set_mode(f->w, WORKSPACE_MODE_LOOP, "test");
		return;
	}
	if (getenv("SANDBOX_TESTS_MUST_RUN"))
		fail_msg("cannot mount: %s", err.message);
	print_message("skipped: cannot mount: %s\n", err.message);
	skip();
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/sandbox-ws-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	f->w = workspaces_new(f->dir);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	auto_strv ids = STRV_INIT;

	workspaces_probe_drop(f->w);
	workspaces_list(f->w, &ids, NULL);
	for (size_t i = 0; i < ids.len; i++) {
		struct id id;

		id_parse(ids.items[i], &id);
		workspace_drop(f->w, &id, NULL);
	}
	workspaces_free(f->w);
	io_remove_tree(f->dir, NULL);
	free(f);
	return 0;
}

static bool mentioned(const char *file, const char *text)
{
	auto_buf all = BUF_INIT;

	assert_int_equal(io_read_file(file, 8 << 20, &all, NULL), 0);
	return strstr(buf_str(&all), text) != NULL;
}

/* No loop device still has a file of ours behind it. */
static bool loop_in_use(const char *needle)
{
	for (int i = 0; i < 256; i++) {
		auto_free char *path = xasprintf("/sys/block/loop%d/loop/backing_file", i);
		auto_buf text = BUF_INIT;

		if (io_read_file(path, 8192, &text, NULL) == 0 && strstr(buf_str(&text), needle))
			return true;
	}
	return false;
}

static void made_bounded_and_dropped(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = DISK_MIB, .memory_mib = 64, .image_user = "1234:567" };
	struct workspace_mount m;
	struct error err = ERROR_INIT;
	struct stat st;
	struct statvfs fs;
	auto_free char *file = NULL;
	auto_free char *image = NULL;
	auto_free char *chunk = xcalloc(1, 1 << 20);
	auto_close int fd = -1;
	int hold = 99;
	size_t written = 0;
	ssize_t n;

	need_mounts(f);
	if (workspace_make(f->w, &r, &m, &hold, &err) != 0)
		fail_msg("%s", err.message);
	assert_int_equal(hold, -1);
	assert_int_equal(m.kind, WORKSPACE_DIR);
	assert_int_equal(stat(m.source, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 567);
	assert_int_equal(st.st_mode & 07777, 0777);
	assert_int_equal(statvfs(m.source, &fs), 0);
	assert_true(fs.f_flag & ST_NOSUID);
	assert_true(fs.f_flag & ST_NODEV);
	assert_true((uint64_t)fs.f_blocks * (uint64_t)fs.f_frsize <= (uint64_t)DISK_MIB << 20);
	/* All of it is reserved on the host before a byte is written. */
	image = xasprintf("%s/sandboxes/%s/workspace.img", f->dir, r.sandbox.text);
	assert_int_equal(stat(image, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= (uint64_t)DISK_MIB << 20);
	file = xasprintf("%s/fill", m.source);
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while ((n = write(fd, chunk, 1 << 20)) > 0)
		written += (size_t)n;
	assert_int_equal(errno, ENOSPC);
	assert_in_range(written, (DISK_MIB - 4) << 20, DISK_MIB << 20);
	close_fdp(&fd);
	assert_int_equal(workspace_drop(f->w, &r.sandbox, &err), 0);
	assert_false(mentioned("/proc/self/mountinfo", r.sandbox.text));
	assert_false(loop_in_use(r.sandbox.text));
	assert_int_equal(stat(image, &st), -1);
	assert_int_equal(workspace_drop(f->w, &r.sandbox, &err), 0);
}

static void a_busy_workspace_still_goes(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = DISK_MIB, .memory_mib = 64, .image_user = "" };
	struct workspace_mount m;
	auto_close int fd = -1;
	int hold = -1;

	need_mounts(f);
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	fd = open(m.source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(workspace_drop(f->w, &r.sandbox, NULL), 0);
	assert_false(mentioned("/proc/self/mountinfo", r.sandbox.text));
	close_fdp(&fd);
}

static void made_again_over_a_leftover(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = DISK_MIB, .memory_mib = 64, .image_user = "app" };
	struct workspace_mount m;
	struct stat st;
	auto_free char *marker = NULL;
	int hold = -1;

	need_mounts(f);
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	marker = xasprintf("%s/marker", m.source);
	assert_int_equal(mkdir(marker, 0700), 0);
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	assert_int_equal(stat(marker, &st), -1);
	assert_int_equal(workspace_drop(f->w, &r.sandbox, NULL), 0);
	assert_false(mentioned("/proc/self/mountinfo", r.sandbox.text));
}

static void a_full_host_is_a_clear_refusal(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = 1 << 30, .memory_mib = 64, .image_user = "" };
	struct workspace_mount m;
	struct error err = ERROR_INIT;
	auto_free char *small = xasprintf("%s/sandboxes", f->dir);
	auto_free char *base = NULL;
	int hold = -1;

	need_mounts(f);
	r.disk_mib = 64;
	assert_int_equal(io_mkdirs(small, 0700, NULL), 0);
	assert_int_equal(mount("none", small, "tmpfs", 0, "size=48m"), 0);
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, &err), -1);
	assert_int_equal(err.code, ERR_NO_CAPACITY);
	assert_non_null(strstr(err.message, "64 MiB"));
	base = xasprintf("%s/%s/workspace.img", small, r.sandbox.text);
	assert_int_equal(access(base, F_OK), -1);
	umount(small);
}

static void an_engine_mount_hands_over_the_device(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = DISK_MIB, .memory_mib = 64, .image_user = "7" };
	struct workspace_mount m;
	auto_free char *where = xasprintf("%s/by-engine", f->dir);
	struct stat st;
	int hold = -1;

	need_mounts(f);
	workspaces_set_mode(f->w, WORKSPACE_MODE_ENGINE, "test");
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	assert_int_equal(m.kind, WORKSPACE_DEVICE);
	assert_true(hold >= 0);
	assert_false(mentioned("/proc/self/mountinfo", r.sandbox.text));
	assert_int_equal(mkdir(where, 0700), 0);
	assert_int_equal(mount(m.source, where, "ext4", 0, ""), 0);
	close_fdp(&hold);
	assert_int_equal(stat(where, &st), 0);
	assert_int_equal(st.st_uid, 7);
	assert_int_equal(umount(where), 0);
	assert_int_equal(workspace_drop(f->w, &r.sandbox, NULL), 0);
	assert_false(loop_in_use(r.sandbox.text));
}

static void memory_workspaces_leave_room_for_programs(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = 10240, .memory_mib = 1024, .image_user = "" };
	struct workspace_mount m;
	int hold = -1;

	workspaces_set_mode(f->w, WORKSPACE_MODE_MEMORY, "test");
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	assert_int_equal(m.kind, WORKSPACE_TMPFS);
	assert_int_equal(m.size_bytes, 768LL << 20);
	r.disk_mib = 100;
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	assert_int_equal(m.size_bytes, 100LL << 20);
}

static void space_counts_what_is_held(void **state)
{
	struct fixture *f = *state;
	struct workspace_request r = { .sandbox = id_new(), .disk_mib = DISK_MIB, .memory_mib = 64, .image_user = "" };
	struct workspace_mount m;
	int64_t room = 0, held = -1;
	int hold = -1;

	need_mounts(f);
	assert_int_equal(workspaces_space(f->w, &room, &held, NULL), 0);
	assert_int_equal(held, 0);
	assert_int_equal(workspace_make(f->w, &r, &m, &hold, NULL), 0);
	assert_int_equal(workspaces_space(f->w, &room, &held, NULL), 0);
	assert_true(held >= (int64_t)DISK_MIB << 20);
	assert_true(room > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(made_bounded_and_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(a_busy_workspace_still_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(made_again_over_a_leftover, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_host_is_a_clear_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(an_engine_mount_hands_over_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_workspaces_leave_room_for_programs, setup, teardown),
		cmocka_unit_test_setup_teardown(space_counts_what_is_held, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
