/*
 * A sandbox's directory is made before anything else of it and removed after everything else, so whatever dies in between, delete finds
 * what there is. Its group is the one its QEMU runs as, and has no right to it: that is how the ids in use are known.
 */
#include "daemon/runtime/drivers/qemu/qemu.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UIDS = 65536, STAT_MAX = 4096, KILL_MS = 10 * 1000, KEEPER_MS = 500, POLL_US = 2000 };

void box_at(const struct qemu_config *c, const struct id *sandbox, struct box *ret)
{
	*ret = (struct box){ .id = *sandbox, .dir = xasprintf("%s/boxes/%s", c->state_dir, sandbox->text) };
}

void box_done(struct box *b)
{
	free(b->dir);
	b->dir = NULL;
}

char *box_path(const struct box *b, const char *file)
{
	return xasprintf("%s/%s", b->dir, file);
}

bool box_exists(const struct box *b)
{
	return access(b->dir, F_OK) == 0;
}

int state_lock(const struct qemu_config *c, const char *name, struct error *err)
{
	auto_free char *path = xasprintf("%s/%s.lock", c->state_dir, name);
	auto_close int fd = -1;

	if (io_mkdirs(c->state_dir, 0711, err) != 0)
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, "opening %s", path);
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR)
			return error_errno(err, "locking %s", path);
	return steal_fd(&fd);
}

/* --- users --- */

/* The lowest that no directory belongs to. */
static int free_uid(const struct qemu_config *c, const char *boxes, uid_t *ret, struct error *err)
{
	auto_free bool *used = xcalloc(UIDS, sizeof(*used));
	auto_dir DIR *dir = opendir(boxes);
	struct stat st;

	if (!dir)
		return error_errno(err, "opening %s", boxes);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (st.st_gid >= c->uid_base && st.st_gid < c->uid_base + UIDS)
			used[st.st_gid - c->uid_base] = true;
	}
	for (int i = 0; i < UIDS; i++) {
		if (used[i])
			continue;
		*ret = (uid_t)(c->uid_base + i);
		return 0;
	}
	return error_set(err, ERR_NO_CAPACITY, "all %d user ids from %lld on are in use", UIDS, (long long)c->uid_base);
}

int box_make(const struct qemu_config *c, struct box *b, uid_t *ret_uid, struct error *err)
{
	auto_free char *boxes = xasprintf("%s/boxes", c->state_dir);
	auto_close int lock = state_lock(c, "users", err);
	uid_t uid = 0;

	if (lock < 0 || io_mkdirs(boxes, 0711, err) != 0 || free_uid(c, boxes, &uid, err) != 0)
		return -1;
	if (mkdir(b->dir, 0700) != 0)
		return errno == EEXIST ? error_set(err, ERR_CONFLICT, "%s exists", b->dir) : error_errno(err, "making %s", b->dir);
	if (chown(b->dir, 0, uid) != 0) {
		error_errno(err, "giving %s to user %u", b->dir, (unsigned)uid);
		rmdir(b->dir);
		return -1;
	}
	*ret_uid = uid;
	return 0;
}

/* --- processes --- */

struct process process_of(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/stat", (int)pid);
	auto_buf text = BUF_INIT;
	struct process p = { .pid = pid };
	const char *at;
	char state;

	if (io_read_file(path, STAT_MAX, &text, NULL) != 0 || !(at = strrchr(buf_str(&text), ')')))
		return (struct process){ .pid = 0 };
	if (sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld", &state, &p.born) != 2)
		return (struct process){ .pid = 0 };
	return state == 'Z' || state == 'X' ? (struct process){ .pid = 0 } : p;
}

bool process_lives(const struct process *p)
{
	struct process now = process_of((pid_t)p->pid);

	return p->pid > 1 && now.pid == p->pid && now.born == p->born;
}

int box_note_process(const struct box *b, const char *name, const struct process *p, struct error *err)
{
	auto_free char *path = box_path(b, name);
	auto_free char *text = xasprintf("%lld %lld\n", p->pid, p->born);

	return io_write_file_atomic(path, text, strlen(text), 0600, false, err);
}

bool box_process(const struct box *b, const char *name, struct process *ret)
{
	auto_free char *path = box_path(b, name);
	auto_buf text = BUF_INIT;

	return io_read_file(path, 128, &text, NULL) == 0 && sscanf(buf_str(&text), "%lld %lld", &ret->pid, &ret->born) == 2;
}

static bool noted_lives(const struct box *b, const char *name, struct process *ret)
{
	return box_process(b, name, ret) && process_lives(ret);
}

/* The machine first: its keeper takes note of the end and ends too. One that does not, or has no machine yet, is killed. */
int box_kill(const struct box *b, struct error *err)
{
	int64_t started = clock_mono_ms();
	struct process vm = { .pid = 0 }, keeper = { .pid = 0 };

	for (;;) {
		bool machine = noted_lives(b, "vm", &vm), kept = noted_lives(b, "keeper", &keeper);
		int64_t passed = clock_mono_ms() - started;

		if (!machine && !kept)
			return 0;
		if (passed > KILL_MS)
			return error_set(err, ERR_TIMEOUT, "the virtual machine of %s does not end", b->id.text);
		if (machine)
			kill((pid_t)vm.pid, SIGKILL);
		if (kept && (vm.pid == 0 || passed > KEEPER_MS))
			kill((pid_t)keeper.pid, SIGKILL);
		usleep(POLL_US);
	}
}

int box_remove(const struct box *b, struct error *err)
{
	if (!box_exists(b))
		return 0;
	if (box_kill(b, err) != 0)
		return -1;
	return io_remove_tree(b->dir, err);
}
