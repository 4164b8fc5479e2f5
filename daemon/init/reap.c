/* Signals and dead processes. Every child that ends is reaped here, whoever it belonged to. */
#include "daemon/init/init.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUNT_MS = 2 };

static void list_strangers(const struct init *in, struct pids *ret)
{
	auto_pids all = { .items = NULL };
	tree_children(getpid(), &all);
	for (size_t i = 0; i < all.len; i++)
		if (!pids_has(&in->helpers, all.items[i]) && !pids_has(&in->left, all.items[i]))
			pids_add(ret, all.items[i]);
}

/* True when there was any. */
static bool reap_children(struct init *in)
{
	int status;
	pid_t pid;
	bool any = false;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		any = true;
		pids_remove(&in->helpers, pid);
		pids_remove(&in->left, pid);
		/* What a finished command left behind became init's when its supervisor ended, not before. */
		if (pids_has(&in->leaving, pid)) {
			pids_remove(&in->leaving, pid);
			list_strangers(in, &in->left);
		}
		if (!exec_reaped(in, pid, status))
			pipe_reaped(in, pid, status);
	}
	return any;
}

static void on_signal(struct watch *w, uint32_t events)
{
	struct init *in = (struct init *)((char *)w - offsetof(struct init, signals));
	struct signalfd_siginfo s;
	(void)events;
	while (read(w->fd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		/* TERM counts only from outside: as process 1, a sender inside has a pid of its own here. */
		if (s.ssi_signo == SIGTERM && (getpid() != 1 || s.ssi_pid == 0))
			in->stopping = true;
	}
	reap_children(in);
}

static void hunt(struct timer *t);

int reap_init(struct init *in, struct error *err)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(err, "signalfd");
	in->signals.ready = on_signal;
	in->strangers.fired = hunt;
	return watch_open(&in->loop, &in->signals, fd, EPOLLIN) < 0 ? error_errno(err, "epoll_ctl") : 0;
}

void reap_hunt(struct init *in)
{
	timer_arm(&in->loop, &in->strangers, 0);
}

static void hunt(struct timer *t)
{
	struct init *in = (struct init *)((char *)t - offsetof(struct init, strangers));
	auto_pids found = { .items = NULL };
	/* A supervisor that ended in order may have handed over its processes just before the list was made: it can be reaped by
	 * then, which marks them. So list again until nothing was reaped meanwhile. */
	do {
		found.len = 0;
		list_strangers(in, &found);
	} while (reap_children(in));
	/* What the killed ones had below them is adopted next, so look again until there is nothing. */
	tree_kill(&found, true);
	if (found.len || exec_awaits_reaper(in))
		timer_arm(&in->loop, &in->strangers, HUNT_MS);
}

/* Where supervisors cannot adopt, init does. With one command running, whatever was adopted is that command's; else only what
 * stayed in its session or group is sure. */
static void list_group(const struct init *in, pid_t main, struct pids *ret)
{
	auto_pids found = { .items = NULL };
	list_strangers(in, &found);
	for (size_t i = 0; i < found.len; i++) {
		struct process_stat st;
		if (process_stat(found.items[i], &st) < 0)
			continue;
		if (in->running == 1 || st.session == main || st.pgrp == main)
			pids_add(ret, found.items[i]);
	}
}

void reap_kill_group(struct init *in, pid_t main)
{
	auto_pids ours = { .items = NULL };
	list_group(in, main, &ours);
	tree_kill(&ours, true);
}

void reap_leave_group(struct init *in, pid_t main)
{
	list_group(in, main, &in->left);
}

void reap_kill_all(struct init *in)
{
	auto_pids self = { .items = NULL };
	pids_add(&self, getpid());
	for (int pass = 0; pass < 100; pass++) {
		if (tree_kill(&self, false) == 0)
			break;
		reap_children(in);
		usleep(2000);
	}
}
