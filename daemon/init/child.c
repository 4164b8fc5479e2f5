/*
 * From the supervisor to the program. Between vfork and exec the child shares the supervisor's memory: it only makes
 * system calls and leaves its result there. The order matters: the terminal and the score while still root, then the
 * ids, then the capabilities, then the directory, so that every check is the one the program itself would meet.
 */
#include "daemon/init/launch.h"
#include "daemon/init/sys.h"
#include "shared/base/limits.h"
#include "shared/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GROUPS_TOTAL = IDENTITY_GROUPS_MAX + REQUEST_GROUPS_MAX };

/* Written by the child, read by the supervisor after it has gone. */
struct result {
	enum launch_stage stage;
	int sys;
	char tried[LIMIT_PATH_BYTES_MAX + 1];
};

static void raise_oom_score(void)
{
	/* The kernel shall pick the command, never process 1. Raising needs no right; where /proc is missing nothing is lost. */
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = write(fd, "500", 3);
	(void)n;
	close(fd);
}

static int set_ids(const struct launch *l)
{
	gid_t all[GROUPS_TOTAL];
	size_t n = 0;
	const struct identity *who = l->who;
	for (size_t i = 0; i < who->group_count; i++)
		all[n++] = who->groups[i];
	for (size_t i = 0; i < l->request->group_count; i++)
		all[n++] = l->request->groups[i];
	/* Without the right to change them (init not run as root) the ids stay, and only others are an error. */
	if (setgroups(n, all) < 0 && (errno != EPERM || n))
		return -1;
	if (setresgid(who->gid, who->gid, who->gid) < 0)
		return -1;
	return setresuid(who->uid, who->uid, who->uid);
}

static int set_stdio(const int stdio[3])
{
	/* Above 2 first: one of them may already be a low number. */
	int high[3];
	for (int i = 0; i < 3; i++)
		if ((high[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3)) < 0)
			return -1;
	for (int i = 0; i < 3; i++)
		if (dup2(high[i], i) < 0)
			return -1;
	sys_close_from(3);
	return 0;
}

static void default_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;
	for (int s = 1; s < 65; s++)
		sigaction(s, &dfl, NULL); /* KILL, STOP and libc's own refuse */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int try_exec(const struct launch *l, struct result *r, const char *dir, size_t dir_len, char *const argv[])
{
	size_t n = strlen(argv[0]), at = 0;
	if (dir_len + n + 2 > sizeof(r->tried)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (dir_len) {
		memcpy(r->tried, dir, dir_len);
		r->tried[dir_len] = '/';
		at = dir_len + 1;
	}
	memcpy(r->tried + at, argv[0], n + 1);
	return execve(r->tried, argv, l->request->env.items ? l->request->env.items : (char *[]){ NULL });
}

/* A file that is there and still gives ENOENT lacks its interpreter: a later directory would only hide that. */
static bool missing(const char *path)
{
	return (errno == ENOENT && access(path, F_OK) < 0) || errno == ENOTDIR || errno == ENAMETOOLONG;
}

/* Returns only when nothing could be run; errno says why, r->tried what. */
static void search_and_exec(const struct launch *l, struct result *r, char *const argv[])
{
	const char *path = request_getenv(l->request, "PATH"), *denied = NULL;
	if (strchr(argv[0], '/')) {
		try_exec(l, r, NULL, 0, argv);
		return;
	}
	for (path = path && *path ? path : l->default_path;; path++) {
		size_t n = strcspn(path, ":");
		try_exec(l, r, n ? path : ".", n ? n : 1, argv);
		if (errno == EACCES)
			denied = denied ? denied : path;
		else if (!missing(r->tried))
			return;
		path += n;
		if (!*path)
			break;
	}
	r->tried[0] = '\0';
	errno = ENOENT;
	if (denied) /* again, for the name and the reason */
		try_exec(l, r, strcspn(denied, ":") ? denied : ".", strcspn(denied, ":") ? strcspn(denied, ":") : 1, argv);
}

static _Noreturn void child_main(const struct launch *l, struct result *r)
{
	char *const *argv = l->request->args.items;
	bool root = l->who->uid == 0;
	setsid();
	umask(022);
	sys_ordinary_priority();
	raise_oom_score();
	setrlimit(RLIMIT_NOFILE, &l->nofile);
	r->stage = STAGE_TERMINAL;
	if (set_stdio(l->stdio) < 0 || (l->terminal && ioctl(0, TIOCSCTTY, 0) < 0))
		goto failed;
	r->stage = STAGE_USER;
	if (set_ids(l) < 0)
		goto failed;
	r->stage = STAGE_CAPS;
	if (sys_set_caps(root && l->request->keep_caps ? sys_root_caps : 0) < 0)
		goto failed;
	r->stage = STAGE_CWD;
	if (chdir(l->request->cwd) < 0)
		goto failed;
	r->stage = STAGE_EXEC;
	default_signals();
	search_and_exec(l, r, argv);
	if ((l->request->flags & MUX_OPEN_SHELL_FALLBACK) && (errno == ENOENT || errno == ENOTDIR)) {
		char sh[] = "/bin/sh";
		char *const shell[] = { sh, NULL };
		try_exec(l, r, NULL, 0, shell);
	}
failed:
	r->sys = errno;
	_exit(127);
}

static void explain_stage(const struct launch *l, const struct result *r, struct sup_message *m)
{
	char shown[400];
	const char *cwd = l->request->cwd;
	switch (r->stage) {
	case STAGE_USER:
		m->error = MUX_ERR_BAD_USER;
		snprintf(m->text, sizeof(m->text), "cannot become user %u, group %u: %s", (unsigned)l->who->uid, (unsigned)l->who->gid,
			 strerror(r->sys));
		return;
	case STAGE_CWD:
		m->error = MUX_ERR_BAD_CWD;
		snprintf(m->text, sizeof(m->text), "cannot enter the working directory '%s': %s",
			 text_escape(cwd, strlen(cwd), shown, sizeof(shown)), strerror(r->sys));
		return;
	case STAGE_EXEC:
		explain_exec(l, r->tried, r->sys, m);
		return;
	case STAGE_NONE:
	case STAGE_CAPS:
	case STAGE_TERMINAL:
		break;
	}
	m->error = MUX_ERR_RESOURCES;
	snprintf(m->text, sizeof(m->text), "cannot prepare the command's %s: %s", r->stage == STAGE_TERMINAL ? "input and output" : "rights",
		 strerror(r->sys));
}

pid_t child_start(const struct launch *l, struct sup_message *failed)
{
	static struct result r; /* outlives any frame the vfork child could disturb */
	r = (struct result){ .stage = STAGE_NONE };
	pid_t pid = vfork();
	if (pid == 0)
		child_main(l, &r);
	*failed = (struct sup_message){ .type = SUP_FAILED };
	if (pid < 0) {
		failed->error = MUX_ERR_RESOURCES;
		snprintf(failed->text, sizeof(failed->text), "cannot start a process: %s%s", strerror(errno),
			 errno == EAGAIN ? " (the sandbox's process limit is reached)" : "");
		return 0;
	}
	if (r.sys == 0)
		return pid;
	waitpid(pid, NULL, 0);
	explain_stage(l, &r, failed);
	return 0;
}
