/*
 * sandbox-init: process 1 of every sandbox. The order of main is its design: nothing can interrupt it, then nothing can
 * look into it, then it has no right it does not need, and only then it speaks to anyone. It never ends on an error.
 */
#include "daemon/init/init.h"
#include "daemon/init/sys.h"
#include "shared/base/clock.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEADLINE_STEP_MS = 30 * 1000 };

struct arguments {
	const char *exercise; /* a probe's: see exercise.c */
	const char *socket;
	const char *serial; /* a port, in place of the socket */
	int64_t deadline_us;
	int64_t grace_ms;
	struct strv through;
};

static int parse_arguments(int argc, char **argv, struct arguments *ret, struct error *err)
{
	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		int r = 0;
		if (!value)
			return error_set(err, ERR_INVALID, "%s needs a value", argv[i]);
		if (strcmp(argv[i], "--socket") == 0)
			ret->socket = value;
		else if (strcmp(argv[i], "--serial") == 0)
			ret->serial = value;
		else if (strcmp(argv[i], "--deadline-us") == 0)
			r = parse_i64("--deadline-us", value, 0, INT64_MAX, &ret->deadline_us, err);
		else if (strcmp(argv[i], "--grace-ms") == 0)
			r = parse_i64("--grace-ms", value, 0, INT32_MAX, &ret->grace_ms, err);
		else if (strcmp(argv[i], "--exercise") == 0)
			ret->exercise = value;
		else if (strcmp(argv[i], "--through") == 0)
			strv_add(&ret->through, value);
		else
			return error_set(err, ERR_INVALID, "unknown option %s", argv[i]);
		if (r < 0)
			return -1;
	}
	return ret->socket || ret->serial || ret->exercise ? 0 : error_set(err, ERR_INVALID, "--socket or --serial is missing");
}

static void block_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t all;
	for (int s = 1; s < 65; s++)
		sigaction(s, &dfl, NULL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

/* Descriptors 0 to 2 are always open, so that no pipe of a command becomes one of them. */
static void hold_stdio(void)
{
	int fd;
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		fd = fd < 0 ? eventfd(0, EFD_CLOEXEC) : fd; /* an image may come without /dev */
	} while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

static void take_descriptors(struct init *in)
{
	/* Many commands mean many descriptors; each command gets the old limit back. */
	if (getrlimit(RLIMIT_NOFILE, &in->nofile) == 0) {
		struct rlimit most = { in->nofile.rlim_max, in->nofile.rlim_max };
		setrlimit(RLIMIT_NOFILE, &most);
	}
}

static int give_up_rights(struct error *err)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	sys_bound_caps(sys_init_caps);
	sys_set_caps(sys_init_caps);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	return sys_deny_calls() == 0 ? 0 : error_errno(err, "filtering system calls");
}

static void deadline_tick(struct timer *t)
{
	struct init *in = (struct init *)((char *)t - offsetof(struct init, deadline));
	int64_t left_ms = (in->deadline_us - clock_wall_us()) / 1000 + in->grace_ms;
	if (in->deadline_us == 0)
		return;
	/* With a worker there, ending the sandbox is the worker's; the wall clock may jump, so look again now and then. */
	if (left_ms <= 0 && !(in->link.mux && mux_greeted(in->link.mux)))
		in->stopping = true;
	timer_arm(&in->loop, &in->deadline, left_ms > 0 && left_ms < DEADLINE_STEP_MS ? left_ms + 1 : left_ms > 0 ? DEADLINE_STEP_MS : 1000);
}

void init_set_deadline(struct init *in, int64_t deadline_us)
{
	in->deadline_us = deadline_us < 0 ? 0 : deadline_us;
	timer_arm(&in->loop, &in->deadline, 0);
}

static int set_up(struct init *in, const struct arguments *a, struct error *err)
{
	if (loop_init(&in->loop, err) < 0 || reap_init(in, err) < 0)
		return -1;
	if ((a->serial ? link_init_serial(in, a->serial, err) : link_init(in, a->socket, err)) < 0)
		return -1;
	in->subreaper = sys_become_subreaper();
	in->through = a->through;
	in->grace_ms = a->grace_ms;
	in->deadline.fired = deadline_tick;
	init_set_deadline(in, a->deadline_us);
	return 0;
}

int main(int argc, char **argv)
{
	static struct init in;
	struct arguments a = { .grace_ms = 0 };
	struct error err = ERROR_INIT;
	block_signals();
	memory_init();
	hold_stdio();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	int parsed = parse_arguments(argc, argv, &a, &err);
	if ((parsed < 0 || a.through.len == 0) && give_up_rights(&err) < 0)
		parsed = -1;
	take_descriptors(&in);
	umask(022);
	int at_root = chdir("/");
	(void)at_root; /* nothing depends on it */
	if (parsed == 0 && a.exercise)
		return exercise(a.exercise);
	if (parsed < 0 || set_up(&in, &a, &err) < 0) {
		fprintf(stderr, "sandbox-init: %s\nusage: sandbox-init --socket PATH | --serial PATH [--deadline-us N] [--grace-ms N]\n", err.message);
		return 2;
	}
	link_dial(&in);
	while (!in.stopping) {
		link_settle(&in);
		loop_turn(&in.loop);
	}
	reap_kill_all(&in);
	return 0;
}
