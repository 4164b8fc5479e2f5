/*
 * The supervisor of one command: parent of its first process and reaper of all it leaves behind. It ends with that
 * process (what stays up then belongs to init), unless it was told to end the tree: then it goes on until nothing is left.
 */
#include "daemon/init/launch.h"
#include "daemon/init/sys.h"
#include "daemon/init/tree.h"
#include "shared/base/clock.h"
#include "shared/base/io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_PASS_MS = 2 };

struct supervisor {
	int sock;
	int sigfd;
	pid_t main;
	bool exited;
	int status;
	bool killing;
	int64_t kill_at_ms; /* from when on KILL is sent */
	bool orphaned;      /* init is gone */
};

static void everything(int sig)
{
	auto_pids self = { .items = NULL };
	pids_add(&self, getpid());
	tree_signal(&self, false, sig);
}

/* What stayed in the command's group goes at once: the kernel lets no fork happen meanwhile. The first process's number is not
 * given to another while its group has a member; with none left the group is nobody's, and then nothing is sent. */
static void kill_everything(const struct supervisor *s)
{
	auto_pids self = { .items = NULL };
	bool own = !s->exited;
	pids_add(&self, getpid());
	if (!own) {
		auto_pids left = { .items = NULL };
		struct process_stat st;
		tree_children(getpid(), &left);
		for (size_t i = 0; i < left.len && !own; i++)
			own = process_stat(left.items[i], &st) == 0 && st.pgrp == s->main;
	}
	if (own)
		kill(-s->main, SIGKILL);
	tree_kill(&self, false);
}

/* Reaps what has ended. True when no child is left. */
static bool reap(struct supervisor *s)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == s->main) {
			s->exited = true;
			s->status = status;
		}
	}
	return pid < 0 && errno == ECHILD;
}

static _Noreturn void report_and_end(const struct supervisor *s, bool more)
{
	struct sup_message m = { .type = SUP_EXITED, .status = s->status, .more = more };
	sup_send(s->sock, &m);
	_exit(0);
}

static void start_killing(struct supervisor *s, int64_t grace_ms, bool terminal)
{
	int64_t kill_at = clock_mono_ms() + grace_ms;
	s->kill_at_ms = s->killing && s->kill_at_ms < kill_at ? s->kill_at_ms : kill_at;
	s->killing = true;
	if (terminal)
		everything(SIGHUP);
	everything(SIGTERM);
	everything(SIGCONT); /* a stopped process gets its TERM only when it goes on */
}

static void take_messages(struct supervisor *s)
{
	struct sup_message m;
	int r;
	while ((r = sup_receive(s->sock, &m)) > 0) {
		if (m.type == SUP_KILL)
			start_killing(s, m.status, m.more);
		else if (m.type == SUP_SIGNAL && !s->exited && kill(-s->main, m.status) < 0)
			kill(s->main, m.status);
	}
	if (r < 0) {
		/* init is gone, so this is no process 1 and nobody else will clean up. */
		s->orphaned = true;
		start_killing(s, 0, false);
	}
}

static int wait_time(const struct supervisor *s)
{
	if (!s->killing)
		return -1;
	int64_t left = s->kill_at_ms - clock_mono_ms();
	return left > 0 ? (int)left : KILL_PASS_MS;
}

static void wait_for_something(struct supervisor *s)
{
	struct pollfd p[2] = { { s->orphaned ? -1 : s->sock, POLLIN, 0 }, { s->sigfd, POLLIN, 0 } };
	struct signalfd_siginfo info;
	poll(p, 2, wait_time(s));
	if (p[0].revents)
		take_messages(s);
	if (p[1].revents)
		while (read(s->sigfd, &info, sizeof(info)) > 0)
			;
}

_Noreturn void supervise(const struct launch *l, int sock)
{
	struct supervisor s = { .sock = sock };
	struct sup_message m;
	sigset_t chld;
	prctl(PR_SET_NAME, "sandbox-exec", 0, 0, 0);
	sys_become_subreaper();
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	s.sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	s.main = child_start(l, &m);
	if (s.main > 0)
		m = (struct sup_message){ .type = SUP_STARTED, .pid = s.main };
	sup_send(sock, &m);
	if (s.main == 0)
		_exit(0);
	/* The command's ends of its pipes are its own now: held here, they would never show end of file. */
	int keep[] = { 0, 1, 2, s.sock, s.sigfd };
	sys_close_all_but(keep, sizeof(keep) / sizeof(keep[0]));
	for (;;) {
		bool none = reap(&s);
		if (none || (s.exited && !s.killing))
			report_and_end(&s, !none);
		if (s.killing && clock_mono_ms() >= s.kill_at_ms)
			kill_everything(&s);
		wait_for_something(&s);
	}
}
