/* sandbox daemon: start, stop, status and logs of the daemon on this machine. */
#include "cli/command.h"

#include "cli/interrupt.h"
#include "cli/local.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cli/session.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLLOW_POLL_MS = 200 };

/* --- start ------------------------------------------------------------------------------------------------------ */

static int no_address(const struct cli *cli, struct error *err)
{
	if (!cli->server)
		return 0;
	return error_set(err, ERR_INVALID, "a server is given (%s); start and stop are for this user's own daemon: unset SANDBOX_URL",
			 cli->server);
}

static int print_daemon(struct cli *cli, const struct local_paths *p, pid_t pid, struct error *err)
{
	auto_json *j = cJSON_CreateObject();
	json_add_bool(j, "running", pid > 0);
	if (pid > 0)
		json_add_i64(j, "pid", pid);
	else
		cJSON_AddNullToObject(j, "pid");
	json_add_str(j, "socket", p->socket);
	json_add_str(j, "log", p->log);
	return out_json(cli, j, err);
}

static int run_start(struct cli *cli, void *opaque, struct error *err)
{
	(void)opaque;
	auto_paths p = { .state = NULL };
	bool started;
	pid_t pid = 0;
	if (no_address(cli, err) != 0 || local_paths_find(&p, err) != 0 || local_start(cli, &p, &started, err) != 0)
		return -1;
	if (local_pid(p.socket, &pid, err) != 0)
		return -1;
	if (cli->json)
		return print_daemon(cli, &p, pid, err);
	out_note(cli, "the daemon %s (process %d, %s)", started ? "is running" : "was running already", (int)pid, p.socket);
	return 0;
}

static const struct verb daemon_start = {
	.name = "start",
	.summary = "start it; harmless when it runs",
	.run = run_start,
};

/* --- stop ------------------------------------------------------------------------------------------------------- */

struct stop_options {
	int64_t timeout_ms;
};

static const struct stop_options stop_defaults = { .timeout_ms = 30 * 1000 };

static const struct option_row stop_options[] = {
	OPT_DURATION('t', "timeout", struct stop_options, timeout_ms, "TIME", 100, 3600 * 1000LL, "wait for its end at most this long (default 30s)"),
	OPT_END,
};

/* *ret_pid: the one that ended, 0 when none ran. */
static int stop_it(struct cli *cli, const struct stop_options *o, struct local_paths *p, pid_t *ret_pid, struct error *err)
{
	struct error e = ERROR_INIT;
	*ret_pid = 0;
	if (no_address(cli, err) != 0 || local_paths_find(p, err) != 0)
		return -1;
	if (local_pid(p->socket, ret_pid, &e) != 0 && e.code != ERR_UNREACHABLE) {
		*err = e;
		return -1;
	}
	return *ret_pid > 0 ? local_stop(*ret_pid, o->timeout_ms, err) : 0;
}

static int run_stop(struct cli *cli, void *opaque, struct error *err)
{
	const struct stop_options *o = opaque;
	auto_paths p = { .state = NULL };
	pid_t pid;
	if (stop_it(cli, o, &p, &pid, err) != 0)
		return -1;
	if (cli->json)
		return print_daemon(cli, &p, 0, err);
	out_note(cli, pid > 0 ? "the daemon ended; sandboxes stay as they are, and the next command that needs it starts it again" : "no daemon was running");
	return 0;
}

static const struct verb daemon_stop = {
	.name = "stop",
	.summary = "stop it; sandboxes stay as they are",
	.options = stop_options,
	.size = sizeof(struct stop_options),
	.defaults = &stop_defaults,
	.run = run_stop,
};

/* --- restart ---------------------------------------------------------------------------------------------------- */

static int run_restart(struct cli *cli, void *opaque, struct error *err)
{
	const struct stop_options *o = opaque;
	auto_paths p = { .state = NULL };
	pid_t pid;
	if (stop_it(cli, o, &p, &pid, err) != 0)
		return -1;
	return run_start(cli, NULL, err);
}

static const struct verb daemon_restart = {
	.name = "restart",
	.summary = "stop and start it; sandboxes and commands go on",
	.options = stop_options,
	.size = sizeof(struct stop_options),
	.defaults = &stop_defaults,
	.run = run_restart,
};

/* --- status ----------------------------------------------------------------------------------------------------- */

static cJSON *status_json(const char *socket, const char *log, pid_t pid, const cJSON *health, const struct error *failure)
{
	cJSON *j = cJSON_CreateObject();
	json_add_bool(j, "running", health != NULL);
	if (pid > 0)
		json_add_i64(j, "pid", pid);
	else
		cJSON_AddNullToObject(j, "pid");
	json_add_str(j, "version", health ? json_text(health, "version") : NULL);
	json_add_str(j, "socket", socket);
	json_add_str(j, "log", log);
	json_add_str(j, "error", health ? NULL : failure->message);
	return j;
}

static int run_status(struct cli *cli, void *opaque, struct error *err)
{
	(void)opaque;
	auto_paths p = { .state = NULL };
	auto_json *health = NULL;
	struct error e = ERROR_INIT;
	const char *socket;
	pid_t pid = 0;
	struct call c = { .method = "GET", .target = "/healthz", .timeout_ms = 5000, .no_start = true };
	if (local_paths_find(&p, err) != 0 || session_socket(cli, &socket, err) != 0)
		return -1;
	int rc = session_call(cli, &c, &health, &e);
	/* The first call may have found the system's daemon in place of the user's. */
	if (session_socket(cli, &socket, err) != 0)
		return -1;
	const char *log = strcmp(socket, p.socket) == 0 ? p.log : NULL;
	if (rc == 0)
		local_pid(socket, &pid, NULL);
	int status = rc == 0 ? 0 : error_exit_status(e.code == ERR_UNREACHABLE ? ERR_NOT_FOUND : e.code);
	if (cli->json) {
		auto_json *j = status_json(socket, log, pid, health, &e);
		return out_json(cli, j, err) == 0 ? status : -1;
	}
	if (rc != 0) {
		out_line("not running");
		out_note(cli, "%s", e.message);
		return status;
	}
	out_line("running, process %d, version %s, %s", (int)pid, json_text(health, "version"), socket);
	return 0;
}

static const struct verb daemon_status = {
	.name = "status",
	.summary = "say whether it runs: exit status 0, or 3 if not",
	.run = run_status,
};

/* --- logs ------------------------------------------------------------------------------------------------------- */

struct logs_options {
	bool follow;
	int64_t lines;
};

static const struct logs_options logs_defaults = { .lines = 50 };

static const struct option_row logs_options[] = {
	OPT_FLAG('f', "follow", struct logs_options, follow, "go on with what is added, until Ctrl-C"),
	OPT_INT('n', "lines", struct logs_options, lines, "N", 1, 100000, "the last N lines (default 50)"),
	OPT_END,
};

static int print_new(const char *path, off_t *at)
{
	struct stat st;
	char piece[8192], safe[4 * sizeof(piece) + 1];
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		return -1;
	if (st.st_size < *at)
		*at = 0;
	for (ssize_t n; (n = pread(fd, piece, sizeof(piece), *at)) > 0; *at += n) {
		for (char *p = piece, *end = piece + n; p < end;) {
			char *nl = memchr(p, '\n', (size_t)(end - p));
			size_t len = nl ? (size_t)(nl - p) : (size_t)(end - p);
			fputs(text_escape(p, len, safe, sizeof(safe)), stdout);
			if (nl)
				fputc('\n', stdout);
			p += len + (nl != NULL);
		}
	}
	return fflush(stdout) == 0 ? 0 : -1;
}

static int run_logs(struct cli *cli, void *opaque, struct error *err)
{
	const struct logs_options *o = opaque;
	auto_paths p = { .state = NULL };
	struct stat st;
	if (cli->json)
		return error_set(err, ERR_INVALID, "a log is text: leave --json out");
	if (local_paths_find(&p, err) != 0)
		return -1;
	if (stat(p.log, &st) != 0) {
		cli_hint(cli, "a daemon started by systemd logs to its journal: journalctl -u sandboxd");
		return error_set(err, ERR_NOT_FOUND, "there is no log at %s: the daemon was never started by this program", p.log);
	}
	if (local_log_tail(p.log, (unsigned)o->lines, 0, "", stdout) != 0)
		return error_errno(err, "reading %s", p.log);
	if (!o->follow)
		return 0;
	off_t at = st.st_size;
	struct pollfd w = { .events = POLLIN };
	interrupt_watch();
	w.fd = interrupt_fd();
	do {
		if (print_new(p.log, &at) != 0)
			return error_errno(err, "following %s", p.log);
	} while (poll(&w, 1, FOLLOW_POLL_MS) == 0);
	return 0;
}

static const struct verb daemon_logs = {
	.name = "logs",
	.summary = "show its log",
	.options = logs_options,
	.size = sizeof(struct logs_options),
	.defaults = &logs_defaults,
	.run = run_logs,
};

static const struct verb *const subverbs[] = { &daemon_start, &daemon_stop, &daemon_restart, &daemon_status, &daemon_logs, NULL };

static const struct example examples[] = {
	{ "sandbox daemon status", "is it running, and where" },
	{ "sandbox daemon logs -f", "follow what it says" },
	{ NULL, NULL },
};

const struct verb verb_daemon = {
	.name = "daemon",
	.group = GROUP_SYSTEM,
	.summary = "start, stop and watch the local daemon",
	.manual = "Every command that needs the daemon starts it when no server is configured and none answers, so these are seldom needed. It runs "
		  "as the calling user, without a terminal, until it is stopped; sandboxes and the commands in them outlive it and are found "
		  "again by the next one. When a daemon of the system answers at /run/sandbox/sandboxd.sock it is used instead of a new one.",
	.examples = examples,
	.subverbs = subverbs,
};
