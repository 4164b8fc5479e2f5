/*
 * Groups the worker makes itself. Each controller is placed on its own (version 1, 2 and hybrid hosts): a controller
 * that version 1 has mounted is used there, any other in the version 2 tree, where it is enabled on the way down.
 */
#include "daemon/runtime/cgroup_internal.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOP "sandbox"

enum {
	PERIOD_US = 100000,
	MAKE_TRIES = 10,
	ENTER_PASSES = 100,
	REMOVE_TRIES = 200,
	REMOVE_POLL_US = 10 * 1000,
};

/* cpuacct is only measured; in version 2 it is part of cpu. */
enum controller { MEMORY, PIDS, CPU, CPUACCT, CONTROLLERS };
static const char *const controller_name[CONTROLLERS] = { "memory", "pids", "cpu", "cpuacct" };

/* The roots of the hierarchies. dir "": this controller is not needed apart. */
struct roots {
	struct cgroup_place at[CONTROLLERS];
};

static bool v2_has(const char *point, const char *controller)
{
	struct cgroup_place p = { .v2 = true };
	auto_buf text = BUF_INIT;
	size_t n = strlen(controller);

	snprintf(p.dir, sizeof(p.dir), "%s", point);
	if (!cgroup_text(&p, "cgroup.controllers", &text))
		return false;
	for (const char *at = buf_str(&text); (at = strstr(at, controller)); at += n)
		if ((at == buf_str(&text) || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\n' || at[n] == '\0'))
			return true;
	return false;
}

static int find_roots(struct roots *r, struct error *err)
{
	auto_buf mounts = BUF_INIT;
	char root[PATH_MAX], point[PATH_MAX];

	if (io_read_file("/proc/self/mountinfo", CGROUP_TABLE_MAX, &mounts, err) != 0)
		return -1;
	for (int c = 0; c < CONTROLLERS; c++) {
		struct cgroup_place *p = &r->at[c];

		*p = (struct cgroup_place){ .v2 = false };
		if (!cgroup_mount_of(buf_str(&mounts), controller_name[c], false, root, point, sizeof(root))) {
			p->v2 = true;
			if (c == CPUACCT)
				continue;
			if (!cgroup_mount_of(buf_str(&mounts), controller_name[c], true, root, point, sizeof(root)) || !v2_has(point, controller_name[c]))
				return error_set(err, ERR_UNAVAILABLE, "this host has no %s control group", controller_name[c]);
		}
		snprintf(p->dir, sizeof(p->dir), "%s", point);
	}
	return 0;
}

int cgroup_write(const char *dir, const char *file, const char *value, struct error *err)
{
	auto_free char *path = xasprintf("%s/%s", dir, file);
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		return error_errno(err, "writing %s to %s", value, path);
	return 0;
}

static int write_number(const char *dir, const char *file, int64_t value, struct error *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	return cgroup_write(dir, file, text, err);
}

static bool has_file(const char *dir, const char *file)
{
	auto_free char *path = xasprintf("%s/%s", dir, file);

	return access(path, F_OK) == 0;
}

/* The level above goes with its last sandbox, perhaps between our look and this: the whole way is walked again then. */
static int make_dir(const char *dir, struct error *err)
{
	if (mkdir(dir, 0755) == 0 || errno == EEXIST)
		return 0;
	return error_errno(err, "making the control group %s", dir);
}

/* root/sandbox/NODE/SANDBOX, and the controller enabled in each level above it where that is needed. */
static int make_levels_once(const struct cgroup_place *root, const char *controller, const struct id *node, const struct id *sandbox,
                            struct cgroup_place *ret, struct error *err)
{
	const char *const levels[] = { TOP, node->text, sandbox->text };
	auto_free char *enable = xasprintf("+%s", controller);
	struct cgroup_place p = *root;

	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		size_t n = strlen(p.dir);

		if (p.v2 && cgroup_write(p.dir, "cgroup.subtree_control", enable, err) != 0)
			return -1;
		if ((size_t)snprintf(p.dir + n, sizeof(p.dir) - n, "/%s", levels[i]) >= sizeof(p.dir) - n)
			return error_set(err, ERR_TOO_LARGE, "the path of a control group is too long");
		if (make_dir(p.dir, err) != 0)
			return -1;
	}
	*ret = p;
	return 0;
}

static int make_levels(const struct cgroup_place *root, const char *controller, const struct id *node, const struct id *sandbox,
                       struct cgroup_place *ret, struct error *err)
{
	struct error local = ERROR_INIT;

	for (int i = 0; i < MAKE_TRIES; i++) {
		if (make_levels_once(root, controller, node, sandbox, ret, &local) == 0)
			return 0;
		if (local.sys != ENOENT)
			break;
	}
	return error_set(err, local.code, "%s", local.message);
}

static bool own_place(const struct cgroup_place *root, const struct id *node, const struct id *sandbox, struct cgroup_place *ret)
{
	*ret = *root;
	return *root->dir && snprintf(ret->dir, sizeof(ret->dir), "%s/" TOP "/%s/%s", root->dir, node->text, sandbox->text) < (int)sizeof(ret->dir) &&
	       access(ret->dir, F_OK) == 0;
}

/* Swap comes on top of memory in version 1's files too, so it is forbidden by the sum, or as far as the kernel can. */
static int set_memory(const struct cgroup_place *p, const struct cgroup_limits *l, struct error *err)
{
	int64_t seen;

	if (l->memory_max == 0)
		return 0;
	/* A limit that grows: the sum has to grow first, and one that shrinks is refused here and set below. */
	if (!p->v2 && has_file(p->dir, "memory.memsw.limit_in_bytes"))
		(void)write_number(p->dir, "memory.memsw.limit_in_bytes", l->memory_max, NULL);
	if (write_number(p->dir, p->v2 ? "memory.max" : "memory.limit_in_bytes", l->memory_max, err) != 0)
		return -1;
	if (p->v2) {
		if (has_file(p->dir, "memory.swap.max") && write_number(p->dir, "memory.swap.max", 0, err) != 0)
			return -1;
		if (has_file(p->dir, "memory.oom.group") && write_number(p->dir, "memory.oom.group", 1, err) != 0)
			return -1;
	} else if (has_file(p->dir, "memory.memsw.limit_in_bytes")) {
		if (write_number(p->dir, "memory.memsw.limit_in_bytes", l->memory_max, err) != 0)
			return -1;
	} else if (write_number(p->dir, "memory.swappiness", 0, err) != 0) {
		return -1;
	}
	if (!cgroup_number(p, p->v2 ? "memory.max" : "memory.limit_in_bytes", &seen) || seen != l->memory_max)
		return error_set(err, ERR_UNAVAILABLE, "the memory limit does not hold in %s", p->dir);
	return 0;
}

static int set_pids(const struct cgroup_place *p, const struct cgroup_limits *l, struct error *err)
{
	int64_t seen;

	if (l->pids_max == 0)
		return 0;
	if (write_number(p->dir, "pids.max", l->pids_max, err) != 0)
		return -1;
	if (!cgroup_number(p, "pids.max", &seen) || seen != l->pids_max)
		return error_set(err, ERR_UNAVAILABLE, "the PID limit does not hold in %s", p->dir);
	return 0;
}

static int set_cpu(const struct cgroup_place *p, const struct cgroup_limits *l, struct error *err)
{
	int64_t quota = (int64_t)l->cpu_millis * (PERIOD_US / 1000), seen;
	char both[48];

	if (l->cpu_millis == 0)
		return 0;
	if (p->v2) {
		snprintf(both, sizeof(both), "%lld %d", (long long)quota, PERIOD_US);
		return cgroup_write(p->dir, "cpu.max", both, err);
	}
	if (write_number(p->dir, "cpu.cfs_period_us", PERIOD_US, err) != 0 || write_number(p->dir, "cpu.cfs_quota_us", quota, err) != 0)
		return -1;
	if (!cgroup_number(p, "cpu.cfs_quota_us", &seen) || seen != quota)
		return error_set(err, ERR_UNAVAILABLE, "the CPU limit does not hold in %s", p->dir);
	return 0;
}

int cgroup_make(const struct id *node, const struct id *sandbox, const struct cgroup_limits *l, struct error *err)
{
	static int (*const set[CONTROLLERS])(const struct cgroup_place *, const struct cgroup_limits *, struct error *) = {
		[MEMORY] = set_memory, [PIDS] = set_pids, [CPU] = set_cpu,
	};
	struct roots roots;
	struct cgroup_place p;

	if (find_roots(&roots, err) != 0)
		return -1;
	for (int c = 0; c < CONTROLLERS; c++) {
		if (!*roots.at[c].dir)
			continue;
		if (make_levels(&roots.at[c], controller_name[c], node, sandbox, &p, err) != 0 || (set[c] && set[c](&p, l, err) != 0))
			return error_wrap(err, "making a control group for the sandbox");
	}
	return 0;
}

/* --- moving processes --- */

struct process {
	pid_t pid, parent;
	bool ours;
};

struct processes {
	struct process *items;
	size_t len;
	pid_t *ours;
	size_t ours_len;
};

pid_t cgroup_parent_of(pid_t pid)
{
	auto_free char *path = xasprintf("/proc/%d/stat", (int)pid);
	auto_buf text = BUF_INIT;
	const char *p;
	int parent;

	if (io_read_file(path, 4096, &text, NULL) != 0 || !(p = strrchr(buf_str(&text), ')')) || sscanf(p + 1, " %*c %d", &parent) != 1)
		return -1;
	return parent;
}

static void read_processes(struct processes *ret)
{
	auto_dir DIR *dir = opendir("/proc");

	ret->len = 0;
	for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		struct process p = { .pid = pid };

		if (pid <= 0 || (p.parent = cgroup_parent_of(pid)) < 0)
			continue;
		ret->items = xrealloc(ret->items, ret->len + 1, sizeof(*ret->items));
		ret->items[ret->len++] = p;
	}
}

static void claim(struct processes *all, struct process *p)
{
	p->ours = true;
	all->ours = xrealloc(all->ours, all->ours_len + 1, sizeof(*all->ours));
	all->ours[all->ours_len++] = p->pid;
}

/* Finds what descends from root, root included: all->ours grows while it is walked. */
static void mark(struct processes *all, pid_t root)
{
	all->ours_len = 0;
	for (size_t i = 0; i < all->len; i++)
		if (all->items[i].pid == root)
			claim(all, &all->items[i]);
	for (size_t k = 0; k < all->ours_len; k++)
		for (size_t i = 0; i < all->len; i++)
			if (!all->items[i].ours && all->items[i].parent == all->ours[k])
				claim(all, &all->items[i]);
}

static bool is_inside(pid_t pid, const struct id *sandbox)
{
	auto_free char *path = xasprintf("/proc/%d/cgroup", (int)pid);
	auto_buf text = BUF_INIT;

	return io_read_file(path, CGROUP_TABLE_MAX, &text, NULL) == 0 && strstr(buf_str(&text), sandbox->text) != NULL;
}

static int move_one(const struct roots *roots, const struct id *node, const struct id *sandbox, pid_t pid, struct error *err)
{
	struct cgroup_place p;
	struct error local = ERROR_INIT;

	for (int c = 0; c < CONTROLLERS; c++) {
		if (!own_place(&roots->at[c], node, sandbox, &p))
			continue;
		if (write_number(p.dir, "cgroup.procs", pid, &local) != 0 && local.sys != ESRCH)
			return error_set(err, local.code, "%s", local.message);
	}
	return 0;
}

/* One pass; ret_moved: how many were still outside. */
static int move_all(const struct roots *roots, const struct id *node, const struct id *sandbox, pid_t root, struct processes *all,
                    size_t *ret_moved, struct error *err)
{
	*ret_moved = 0;
	read_processes(all);
	mark(all, root);
	for (size_t i = 0; i < all->ours_len; i++) {
		if (is_inside(all->ours[i], sandbox))
			continue;
		if (move_one(roots, node, sandbox, all->ours[i], err) != 0)
			return -1;
		++*ret_moved;
	}
	return 0;
}

int cgroup_enter(const struct id *node, const struct id *sandbox, pid_t pid, struct error *err)
{
	struct roots roots;
	struct processes all = { .items = NULL };
	size_t moved = 1;
	int rc = find_roots(&roots, err);

	if (rc == 0)
		rc = move_one(&roots, node, sandbox, pid, err);
	for (int i = 0; rc == 0 && moved > 0; i++) {
		if (i == ENTER_PASSES)
			rc = error_set(err, ERR_UNAVAILABLE, "process %d makes others faster than they can be moved", (int)pid);
		else
			rc = move_all(&roots, node, sandbox, pid, &all, &moved, err);
	}
	free(all.items);
	free(all.ours);
	return rc;
}

/* --- afterwards --- */

bool cgroup_harm(const struct id *node, const struct id *sandbox, struct cgroup_harm *ret)
{
	struct roots roots;
	struct cgroup_place p;
	auto_buf text = BUF_INIT;

	*ret = (struct cgroup_harm){ .oom_kills = 0 };
	if (find_roots(&roots, NULL) != 0 || !own_place(&roots.at[MEMORY], node, sandbox, &p))
		return false;
	if (cgroup_text(&p, p.v2 ? "memory.events" : "memory.oom_control", &text))
		ret->oom_kills = cgroup_keyed(buf_str(&text), "oom_kill");
	if (own_place(&roots.at[PIDS], node, sandbox, &p) && cgroup_text(&p, "pids.events", &text))
		ret->pids_refused = cgroup_keyed(buf_str(&text), "max");
	if (own_place(&roots.at[CPU], node, sandbox, &p) && cgroup_text(&p, "cpu.stat", &text))
		ret->throttled = cgroup_keyed(buf_str(&text), "nr_throttled");
	return true;
}

static void kill_members(const struct cgroup_place *p)
{
	auto_buf text = BUF_INIT;

	if (!cgroup_text(p, "cgroup.procs", &text))
		return;
	for (const char *line = buf_str(&text); line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		pid_t pid = (pid_t)strtol(line, NULL, 10);

		if (pid > 1 && pid != getpid())
			kill(pid, SIGKILL);
	}
}

static int remove_place(const struct cgroup_place *p, struct error *err)
{
	for (int i = 0; i < REMOVE_TRIES; i++) {
		if (rmdir(p->dir) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY)
			break;
		kill_members(p);
		usleep(REMOVE_POLL_US);
	}
	return error_errno(err, "removing the control group %s", p->dir);
}

int cgroup_remove(const struct id *node, const struct id *sandbox, struct error *err)
{
	struct roots roots;
	struct cgroup_place p;

	if (find_roots(&roots, NULL) != 0)
		return 0; /* then none was made */
	for (int c = 0; c < CONTROLLERS; c++) {
		if (!own_place(&roots.at[c], node, sandbox, &p))
			continue;
		if (remove_place(&p, err) != 0)
			return -1;
		*strrchr(p.dir, '/') = '\0';
		rmdir(p.dir); /* the node's, when this was its last */
	}
	return 0;
}

void cgroup_list(const struct id *node, struct strv *ret)
{
	struct roots roots;
	struct id id;

	if (find_roots(&roots, NULL) != 0)
		return;
	for (int c = 0; c < CONTROLLERS; c++) {
		auto_free char *path = xasprintf("%s/" TOP "/%s", roots.at[c].dir, node->text);
		auto_dir DIR *dir = *roots.at[c].dir ? opendir(path) : NULL;

		for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
			if (id_parse(e->d_name, &id) == 0)
				strv_add(ret, id.text);
	}
}
