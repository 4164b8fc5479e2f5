/* Starting a command: the request, its user, its pipes or terminal, its supervisor. Whatever fails is an answer on the stream. */
#include "daemon/init/exec.h"

#include "daemon/init/pty.h"
#include "shared/base/io.h"
#include "shared/base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* Both ends of a command's input and output. [0] theirs, [1] ours; -1: none. */
struct plumbing {
	int theirs[3];
	int ours[3];
};

static void plumbing_done(struct plumbing *p)
{
	for (int i = 0; i < 3; i++) {
		close_fdp(&p->theirs[i]);
		close_fdp(&p->ours[i]);
	}
}

static int make_pipe(int *ret_read, int *ret_write)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC) < 0)
		return -1;
	*ret_read = fd[0];
	*ret_write = fd[1];
	return 0;
}

static int plumb_pipes(struct plumbing *p, bool with_stdin, struct error *err)
{
	bool ok = make_pipe(&p->ours[1], &p->theirs[1]) == 0 && make_pipe(&p->ours[2], &p->theirs[2]) == 0;
	if (with_stdin)
		ok = ok && make_pipe(&p->theirs[0], &p->ours[0]) == 0;
	else if (ok && (p->theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		ok = make_pipe(&p->theirs[0], &p->ours[0]) == 0; /* closed at once: as empty as /dev/null */
	if (!ok)
		return error_errno(err, "no pipe for the command's input and output");
	if (!with_stdin)
		close_fdp(&p->ours[0]);
	/* Only our ends: each end is an open file of its own, so the command's stay blocking. */
	for (int i = 0; i < 3; i++)
		if (p->ours[i] >= 0)
			io_set_nonblock(p->ours[i], true);
	return 0;
}

static int plumb_terminal(struct plumbing *p, const struct request *r, uid_t uid, struct error *err)
{
	int slave;
	if (pty_open(r->rows, r->cols, uid, &p->ours[1], &slave, err) < 0)
		return -1;
	p->theirs[0] = slave;
	p->theirs[1] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
	p->theirs[2] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
	p->ours[0] = fcntl(p->ours[1], F_DUPFD_CLOEXEC, 3);
	if (p->theirs[1] < 0 || p->theirs[2] < 0 || p->ours[0] < 0)
		return error_errno(err, "no descriptors for the terminal");
	return 0;
}

static int run(struct exec *x, const struct request *r, const struct identity *who, struct error *err)
{
	__attribute__((cleanup(plumbing_done))) struct plumbing p = { { -1, -1, -1 }, { -1, -1, -1 } };
	bool tty = r->flags & MUX_OPEN_TTY;
	int sock;
	if ((tty ? plumb_terminal(&p, r, who->uid, err) : plumb_pipes(&p, r->flags & MUX_OPEN_STDIN, err)) < 0)
		return -1;
	struct launch l = {
		.request = r,
		.who = who,
		.default_path = default_path,
		.stdio = { p.theirs[0], p.theirs[1], p.theirs[2] },
		.terminal = tty,
		.nofile = x->in->nofile,
	};
	if (launch_start(&l, &x->supervisor, &sock) < 0)
		return error_errno(err, "cannot start a process%s", errno == EAGAIN ? " (the sandbox's process limit is reached)" : "");
	pids_add(&x->in->helpers, x->supervisor);
	x->terminal = tty;
	x->slave = tty ? steal_fd(&p.theirs[0]) : -1;
	input_open(&x->input, steal_fd(&p.ours[0]), tty);
	output_open(&x->out[0], steal_fd(&p.ours[1]));
	if (tty)
		output_stop(&x->out[1], false);
	else
		output_open(&x->out[1], steal_fd(&p.ours[2]));
	exec_watch_supervisor(x, sock);
	return 0;
}

static enum mux_error code_of(const struct error *err)
{
	return err->code == ERR_TOO_LARGE ? MUX_ERR_TOO_LARGE : MUX_ERR_REFUSED;
}

static void start(struct init *in, uint32_t stream, struct request *r)
{
	struct error err = ERROR_INIT;
	struct identity who;
	struct exec *x = exec_new(in, r->operation, r->window);
	exec_attach(x, stream, 0, 0);
	x->timeout_ms = r->timeout_ms;
	x->oom_before = oom_count();
	if (in->through.len > 0) {
		if (r->flags & MUX_OPEN_TTY) {
			exec_not_started(x, MUX_ERR_REFUSED, "this sandbox's runtime driver has no terminals");
			return;
		}
		through_rewrite(in, r);
		x->timeout_ms = r->timeout_ms;
	}
	if (users_resolve(r->user, &who, &err) < 0) {
		exec_not_started(x, MUX_ERR_BAD_USER, err.message);
		return;
	}
	if (in->through.len == 0)
		request_setenv(r, "HOME", who.home);
	if (r->flags & MUX_OPEN_TTY)
		request_setenv(r, "TERM", "xterm");
	if (run(x, r, &who, &err) < 0)
		exec_not_started(x, MUX_ERR_RESOURCES, err.message);
}

/* A request that cannot even be kept as a command. */
static void refuse(struct init *in, uint32_t stream, enum mux_error code, const char *text)
{
	auto_tlv t = TLV_INIT;
	tlv_add_u64(&t, MUX_F_OUTCOME, MUX_OUTCOME_NOT_STARTED);
	tlv_add_u64(&t, MUX_F_ERROR, code);
	tlv_add_str(&t, MUX_F_MESSAGE, text);
	mux_close(in->link.mux, stream, &t);
}

void exec_open(struct init *in, uint32_t stream, const struct tlv *fields)
{
	auto_request r = { .cwd = NULL };
	struct error err = ERROR_INIT;
	char text[96];
	if (request_parse(&r, fields, &err) < 0) {
		refuse(in, stream, code_of(&err), err.message);
	} else if (exec_find(in, r.operation)) {
		refuse(in, stream, MUX_ERR_CONFLICT, "this operation has been started already");
	} else if (in->running >= LIMIT_EXECS_PER_SANDBOX) {
		snprintf(text, sizeof(text), "%d commands run in this sandbox, the limit", LIMIT_EXECS_PER_SANDBOX);
		refuse(in, stream, MUX_ERR_RESOURCES, text);
	} else {
		start(in, stream, &r);
	}
}
