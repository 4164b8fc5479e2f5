/*
 * Ending part of a group from outside. What forks faster than it can be killed is stopped first, as a whole: a group that stands still
 * cannot change its tree while that is read.
 */
#include "daemon/runtime/cgroup_internal.h"

#include "shared/base/clock.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each process has to run once to be stopped: many that share little CPU take their time. */
enum { STOP_MS = 6 * 1000, POLL_US = 5 * 1000, STATUS_MAX = 16 * 1024, LEVELS_MAX = 32, MEMBERS_MAX = 1024 * 1024 };

struct member {
	pid_t pid, parent;
};

struct members {
	struct member *items; /* by parent */
	size_t len;
};

static int place_of(pid_t pid, struct cgroup_place *ret, struct error *err)
{
	auto_buf table = BUF_INIT, mounts = BUF_INIT;
	auto_free char *path = xasprintf("/proc/%d/cgroup", (int)pid);

	if (io_read_file(path, CGROUP_TABLE_MAX, &table, err) != 0 || io_read_file("/proc/self/mountinfo", CGROUP_TABLE_MAX, &mounts, err) != 0)
		return -1;
	if (cgroup_place_of(buf_str(&table), buf_str(&mounts), "freezer", ret) != 0)
		return error_set(err, ERR_UNAVAILABLE, "no control group that stops process %d is mounted here", (int)pid);
	return 0;
}

/* A group that holds this process too would never be let go. */
static int group_of(pid_t first, struct cgroup_place *ret, struct error *err)
{
	struct cgroup_place own;
	size_t n;

	if (place_of(first, ret, err) != 0 || place_of(getpid(), &own, err) != 0)
		return -1;
	n = strlen(ret->dir);
	if (strncmp(own.dir, ret->dir, n) == 0 && (own.dir[n] == '\0' || own.dir[n] == '/'))
		return error_set(err, ERR_UNAVAILABLE, "process %d shares its control group with the daemon", (int)first);
	return 0;
}

static bool stopped(const struct cgroup_place *p)
{
	auto_buf text = BUF_INIT;

	if (!cgroup_text(p, p->v2 ? "cgroup.events" : "freezer.state", &text))
		return false;
	return p->v2 ? cgroup_keyed(buf_str(&text), "frozen") == 1 : strcmp(buf_str(&text), "FROZEN\n") == 0;
}

/* Version 1 takes those that were forked meanwhile only with another write. */
static int stop(const struct cgroup_place *p, struct error *err)
{
	int64_t until = clock_mono_ms() + STOP_MS;

	do {
		if (cgroup_write(p->dir, p->v2 ? "cgroup.freeze" : "freezer.state", p->v2 ? "1" : "FROZEN", err) != 0)
			return -1;
		if (stopped(p))
			return 0;
		usleep(POLL_US);
	} while (clock_mono_ms() < until);
	return error_set(err, ERR_TIMEOUT, "the processes in %s did not stop within %d s", p->dir, STOP_MS / 1000);
}

static int let_go(const struct cgroup_place *p, struct error *err)
{
	return cgroup_write(p->dir, p->v2 ? "cgroup.freeze" : "freezer.state", p->v2 ? "0" : "THAWED", err);
}

/* --- the tree --- */

static int by_parent(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return (x->parent > y->parent) - (x->parent < y->parent);
}

static int members_read(const struct cgroup_place *p, struct members *ret, struct error *err)
{
	auto_free char *path = xasprintf("%s/cgroup.procs", p->dir);
	auto_buf text = BUF_INIT;

	if (io_read_file(path, CGROUP_TABLE_MAX, &text, err) != 0)
		return -1;
	for (const char *line = buf_str(&text); line && *line && ret->len < MEMBERS_MAX; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		struct member m = { .pid = (pid_t)strtol(line, NULL, 10) };

		if (m.pid <= 1 || (m.parent = cgroup_parent_of(m.pid)) < 0)
			continue;
		ret->items = xrealloc(ret->items, ret->len + 1, sizeof(*ret->items));
		ret->items[ret->len++] = m;
	}
	if (ret->len > 0)
		qsort(ret->items, ret->len, sizeof(*ret->items), by_parent);
	return 0;
}

/* The first of a parent's children; the others follow it. */
static size_t first_child(const struct members *all, pid_t parent)
{
	size_t low = 0, high = all->len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (all->items[mid].parent < parent)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The numbers of a process, from the name space of this /proc down to its own. */
static size_t numbers_of(pid_t pid, pid_t ret[LEVELS_MAX])
{
	auto_free char *path = xasprintf("/proc/%d/status", (int)pid);
	auto_buf text = BUF_INIT;
	const char *at;
	size_t n = 0;

	if (io_read_file(path, STATUS_MAX, &text, NULL) != 0 || !(at = strstr(buf_str(&text), "\nNSpid:")))
		return 0;
	for (at += 7; n < LEVELS_MAX && *at != '\n' && *at != '\0'; n++) {
		char *end;

		ret[n] = (pid_t)strtol(at, &end, 10);
		if (end == at)
			break;
		at = end;
	}
	return n;
}

/* 0: process 1 has no such child. A child in a name space further down has another number there, and more of them. */
static pid_t child_numbered(const struct members *all, pid_t first, pid_t inside)
{
	pid_t numbers[LEVELS_MAX];
	size_t depth = numbers_of(first, numbers);

	for (size_t i = first_child(all, first); depth > 0 && i < all->len && all->items[i].parent == first; i++)
		if (numbers_of(all->items[i].pid, numbers) >= depth && numbers[depth - 1] == inside)
			return all->items[i].pid;
	return 0;
}

static size_t kill_below(const struct members *all, pid_t top)
{
	auto_free pid_t *list = xcalloc(all->len + 1, sizeof(*list));
	size_t n = 1;

	list[0] = top;
	for (size_t k = 0; k < n; k++)
		for (size_t i = first_child(all, list[k]); i < all->len && all->items[i].parent == list[k] && n <= all->len; i++)
			list[n++] = all->items[i].pid;
	for (size_t k = 1; k < n; k++)
		kill(list[k], SIGKILL);
	return n - 1;
}

static int end_stopped(const struct cgroup_place *p, pid_t first, pid_t inside, size_t *ret_ended, struct error *err)
{
	struct members all = { .items = NULL };
	pid_t top = 0;
	int rc = members_read(p, &all, err);

	if (rc == 0 && (top = child_numbered(&all, first, inside)) == 0)
		rc = error_set(err, ERR_NOT_FOUND, "process 1 of the sandbox has no child %d", (int)inside);
	if (rc == 0)
		*ret_ended = kill_below(&all, top);
	free(all.items);
	return rc;
}

int cgroup_end_below(pid_t first, pid_t inside, size_t *ret_ended, struct error *err)
{
	struct cgroup_place p;
	struct error local = ERROR_INIT;
	int rc;

	if (group_of(first, &p, err) != 0)
		return -1;
	rc = stop(&p, err);
	if (rc == 0)
		rc = end_stopped(&p, first, inside, ret_ended, err);
	if (let_go(&p, &local) != 0 && rc == 0)
		rc = error_set(err, local.code, "%s", local.message);
	return rc;
}

int cgroup_thaw(pid_t first, struct error *err)
{
	struct cgroup_place p;

	return group_of(first, &p, err) != 0 ? -1 : let_go(&p, err); /* also one that is on its way to a stop */
}
