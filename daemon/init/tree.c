/* Walking and signalling process trees: see tree.h. */
#include "daemon/init/tree.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIDS_MAX = 65536, STOP_ROUNDS_MAX = 32 };

void pids_done(struct pids *p)
{
	free(p->items);
	*p = (struct pids){ .items = NULL };
}

void pids_add(struct pids *p, pid_t pid)
{
	if (p->len == PIDS_MAX)
		return;
	if (p->len == p->cap) {
		p->cap = p->cap ? p->cap * 2 : 32;
		p->items = xrealloc(p->items, p->cap, sizeof(*p->items));
	}
	p->items[p->len++] = pid;
}

bool pids_has(const struct pids *p, pid_t pid)
{
	for (size_t i = 0; i < p->len; i++)
		if (p->items[i] == pid)
			return true;
	return false;
}

void pids_remove(struct pids *p, pid_t pid)
{
	for (size_t i = 0; i < p->len; i++) {
		if (p->items[i] == pid) {
			p->items[i] = p->items[--p->len];
			return;
		}
	}
}

static pid_t number(const char *s)
{
	long v = 0;
	for (; *s >= '0' && *s <= '9' && v < 1L << 30; s++)
		v = v * 10 + (*s - '0');
	return *s ? 0 : (pid_t)v;
}

/* Adds the numbers of a children file. False when the kernel has none. */
static bool read_children(pid_t pid, pid_t task, struct pids *ret)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)task);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	pid_t v = 0;
	ssize_t n;
	while ((n = read(fd, text, sizeof(text))) > 0 || (n < 0 && errno == EINTR)) {
		for (ssize_t i = 0; i < n; i++) {
			if (text[i] >= '0' && text[i] <= '9') {
				v = v * 10 + (text[i] - '0');
			} else if (v) {
				pids_add(ret, v);
				v = 0;
			}
		}
	}
	if (v)
		pids_add(ret, v);
	return n == 0;
}

int process_stat(pid_t pid, struct process_stat *ret)
{
	char path[32], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : io_read_full(fd, text, sizeof(text) - 1);
	if (n == 0)
		errno = ESRCH;
	if (n <= 0)
		return -1;
	text[n] = '\0';
	/* The name may hold anything, also parentheses: it ends at the last one. */
	char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
	int ppid, pgrp, session;
	*ret = (struct process_stat){ .state = '?' };
	errno = EPROTO;
	if (!open_at || !close_at || close_at < open_at)
		return -1;
	if (sscanf(close_at + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %*u %*u %ld", &ret->state,
		   &ppid, &pgrp, &session, &ret->utime, &ret->stime, &ret->rss_pages) < 4)
		return -1;
	ret->ppid = ppid;
	ret->pgrp = pgrp;
	ret->session = session;
	size_t len = (size_t)(close_at - open_at - 1);
	len = len < sizeof(ret->comm) ? len : sizeof(ret->comm) - 1;
	memcpy(ret->comm, open_at + 1, len);
	return 0;
}

static void scan_for_children(pid_t of, struct pids *ret)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	while (d && (e = readdir(d))) {
		struct process_stat st;
		pid_t pid = number(e->d_name);
		if (pid > 0 && process_stat(pid, &st) == 0 && st.ppid == of)
			pids_add(ret, pid);
	}
	if (d)
		closedir(d);
}

void tree_children(pid_t of, struct pids *ret)
{
	char path[32];
	bool any = false;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)of);
	DIR *d = opendir(path);
	struct dirent *e;
	while (d && (e = readdir(d))) {
		pid_t task = number(e->d_name);
		if (task > 0)
			any |= read_children(of, task, ret);
	}
	if (d)
		closedir(d);
	if (!any)
		scan_for_children(of, ret);
}

/* Breadth first: a parent is before its children, so it is signalled before they can be looked up again. */
static void list_tree(const struct pids *roots, struct pids *ret)
{
	ret->len = 0;
	for (size_t i = 0; i < roots->len; i++)
		pids_add(ret, roots->items[i]);
	for (size_t i = 0; i < ret->len; i++)
		tree_children(ret->items[i], ret);
}

static size_t signal_from(const struct pids *all, size_t first, int sig)
{
	size_t n = 0;
	for (size_t i = first; i < all->len; i++)
		n += all->items[i] > 1 && kill(all->items[i], sig) == 0;
	return n;
}

size_t tree_signal(const struct pids *roots, bool with_roots, int sig)
{
	auto_pids all = { .items = NULL };
	list_tree(roots, &all);
	return signal_from(&all, with_roots ? 0 : roots->len, sig);
}

static int by_number(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Leaves `now` sorted in `before`. */
static bool same_as_before(const struct pids *now, struct pids *before)
{
	auto_pids sorted = { .items = NULL };
	for (size_t i = 0; i < now->len; i++)
		pids_add(&sorted, now->items[i]);
	if (sorted.len)
		qsort(sorted.items, sorted.len, sizeof(*sorted.items), by_number);
	bool same = sorted.len == before->len && (sorted.len == 0 || memcmp(sorted.items, before->items, sorted.len * sizeof(*sorted.items)) == 0);
	struct pids old = *before;
	*before = sorted;
	sorted = old;
	return same;
}

size_t tree_kill(const struct pids *roots, bool with_roots)
{
	auto_pids all = { .items = NULL };
	auto_pids before = { .items = NULL };
	size_t first = with_roots ? 0 : roots->len;
	for (int round = 0; round < STOP_ROUNDS_MAX; round++) {
		list_tree(roots, &all);
		if (same_as_before(&all, &before))
			break;
		signal_from(&all, first, SIGSTOP);
	}
	return signal_from(&all, first, SIGKILL);
}
