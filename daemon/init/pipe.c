/* Byte pipes and helper processes: see pipe.h. */
#include "daemon/init/pipe.h"

#include "daemon/init/sys.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024, CHUNKS_PER_EVENT = 4 };

static const struct endpoint_ops pipe_ops;

static void on_accepted(struct endpoint *e);
static void ready(struct watch *w, uint32_t events);

struct pipe *pipe_new(struct init *in, uint32_t stream)
{
	struct pipe *p = xcalloc(1, sizeof(*p));
	p->ep = (struct endpoint){ &pipe_ops, stream };
	p->in = in;
	p->w = (struct watch){ .fd = -1, .ready = ready };
	p->next = in->pipes;
	in->pipes = p;
	link_set_endpoint(in, stream, &p->ep);
	return p;
}

void pipe_free(struct pipe *p)
{
	struct pipe **at = &p->in->pipes;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->ep.stream)
		link_set_endpoint(p->in, p->ep.stream, NULL);
	if (p->helper && !p->tidies_up)
		kill(p->helper, SIGKILL);
	watch_close(&p->in->loop, &p->w);
	buf_done(&p->q);
	buf_done(&p->text);
	loop_free_later(&p->in->loop, p);
}

void pipe_fail(struct pipe *p, enum mux_error why, const char *text)
{
	uint32_t stream = p->ep.stream;
	struct init *in = p->in;
	pipe_free(p);
	link_refuse(in, stream, why, "%s", text);
}

static void finish(struct pipe *p)
{
	struct mux *m = p->in->link.mux;
	uint32_t stream = p->ep.stream;
	char text[96];
	if (p->status) {
		snprintf(text, sizeof(text), "the helper process was ended by signal %d%s", p->status & 0x7f,
			 (p->status & 0x7f) == SIGKILL ? " (the sandbox may be out of memory)" : "");
		pipe_fail(p, MUX_ERR_IO, text);
		return;
	}
	if (p->collect && p->exit_status) {
		pipe_fail(p, MUX_ERR_RESOURCES, strerror(p->exit_status));
		return;
	}
	if (p->collect) {
		auto_tlv t = TLV_INIT;
		tlv_add_bytes(&t, MUX_F_TEXT, buf_str(&p->text), p->text.len);
		mux_accept(m, stream, &t, 0);
	}
	pipe_free(p);
	mux_close(m, stream, NULL);
}

static bool all_moved(const struct pipe *p)
{
	if (!p->out_eof)
		return false;
	/* A peer on loopback may still read when it has written its last. */
	return p->collect || p->status || p->in_dead || (p->in_eof && p->q.len == 0);
}

static void maybe_finish(struct pipe *p)
{
	if (all_moved(p) && !p->helper)
		finish(p);
}

/* --- to the descriptor --- */

static void report(struct pipe *p)
{
	mux_consumed(p->in->link.mux, p->ep.stream, 0, p->taken);
}

static void stop_input(struct pipe *p)
{
	p->in_dead = true;
	p->taken = p->got;
	buf_done(&p->q);
	p->head = 0;
	report(p);
}

static void write_some(struct pipe *p, const char *bytes, size_t n, size_t *ret)
{
	*ret = 0;
	while (*ret < n) {
		ssize_t w = send(p->w.fd, bytes + *ret, n - *ret, MSG_NOSIGNAL);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			return;
		if (w < 0) {
			p->was_reset = errno == ECONNRESET;
			stop_input(p);
			*ret = n;
			return;
		}
		*ret += (size_t)w;
		p->taken += (uint64_t)w;
	}
}

static void half_close(struct pipe *p)
{
	if (p->in_eof && p->q.len == 0 && !p->in_dead && p->w.fd >= 0)
		shutdown(p->w.fd, SHUT_WR);
}

static void push(struct pipe *p)
{
	size_t n = 0;
	write_some(p, p->q.data + p->head, p->q.len - p->head, &n);
	p->head += n;
	if (p->head >= p->q.len) {
		buf_done(&p->q);
		p->head = 0;
		half_close(p);
	}
	report(p);
}

static void on_data(struct endpoint *e, unsigned channel, const void *bytes, size_t n)
{
	struct pipe *p = container_of(e, struct pipe, ep);
	size_t wrote = 0;
	if (channel != 0)
		return;
	p->got += n;
	if (p->in_dead || p->w.fd < 0) {
		stop_input(p);
		return;
	}
	if (p->q.len == 0)
		write_some(p, bytes, n, &wrote);
	if (wrote < n && !p->in_dead) {
		if (p->head > PIPE_WINDOW) {
			buf_consume(&p->q, p->head);
			p->head = 0;
		}
		buf_add(&p->q, (const char *)bytes + wrote, n - wrote);
		watch_set(&p->in->loop, &p->w, p->w.events | EPOLLOUT);
	}
	report(p);
}

static void on_eof(struct endpoint *e, unsigned channel)
{
	struct pipe *p = container_of(e, struct pipe, ep);
	if (channel != 0)
		return;
	p->in_eof = true;
	half_close(p);
	maybe_finish(p);
}

/* --- from the descriptor --- */

static void end_output(struct pipe *p)
{
	p->out_eof = true;
	if (p->has_helper) /* its end says all; it may have been reaped by now */
		p->in_dead = true;
	if (!p->collect)
		mux_eof(p->in->link.mux, p->ep.stream, 0);
}

/* One chunk. False when there is no more now. */
static bool pull(struct pipe *p)
{
	static char chunk[CHUNK];
	size_t most = p->collect ? COLLECT_MAX + 1 - p->text.len : mux_sendable(p->in->link.mux, p->ep.stream, 0);
	most = most < sizeof(chunk) ? most : sizeof(chunk);
	if (most == 0)
		return false;
	ssize_t n = recv(p->w.fd, chunk, most, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if ((n < 0 || (n == 0 && p->was_reset)) && !p->has_helper) { /* an end in order is not what it was: who reads must be able to tell */
		p->broken = true;
		return false;
	}
	if (n <= 0) {
		if (n < 0)
			stop_input(p);
		end_output(p);
		return false;
	}
	if (p->collect)
		buf_add(&p->text, chunk, (size_t)n);
	else
		mux_send(p->in->link.mux, p->ep.stream, 0, chunk, (size_t)n);
	return (size_t)n == most;
}

static bool wants_bytes(const struct pipe *p)
{
	if (p->out_eof)
		return false;
	return p->collect ? p->text.len <= COLLECT_MAX : mux_sendable(p->in->link.mux, p->ep.stream, 0) > 0;
}

static void settle(struct pipe *p)
{
	uint32_t events = (wants_bytes(p) ? (uint32_t)EPOLLIN : 0) | (p->q.len ? (uint32_t)EPOLLOUT : 0);
	if (p->collect && p->text.len > COLLECT_MAX) {
		pipe_fail(p, MUX_ERR_TOO_LARGE, "the answer is longer than 1 MiB");
		return;
	}
	if (all_moved(p))
		watch_close(&p->in->loop, &p->w);
	/* A closed peer is reported even when nothing is asked for: once is enough until there is room for its last bytes. */
	watch_set(&p->in->loop, &p->w, events ? events : (uint32_t)EPOLLET);
	maybe_finish(p);
}

static void ready(struct watch *w, uint32_t events)
{
	struct pipe *p = container_of(w, struct pipe, w);
	if (!p->connected)
		return;
	if (events & EPOLLOUT && p->q.len)
		push(p);
	for (int i = 0; i < CHUNKS_PER_EVENT && wants_bytes(p) && pull(p); i++)
		;
	if (p->broken)
		pipe_fail(p, MUX_ERR_IO, "the connection was reset inside the sandbox");
	else
		settle(p);
}

static void on_room(struct endpoint *e)
{
	struct pipe *p = container_of(e, struct pipe, ep);
	if (p->connected && p->w.fd >= 0)
		settle(p);
}

static void on_window(struct endpoint *e, unsigned channel, uint64_t consumed)
{
	(void)channel;
	(void)consumed;
	on_room(e);
}

static void on_gone(struct endpoint *e)
{
	struct pipe *p = container_of(e, struct pipe, ep);
	p->ep.stream = 0;
	/* The other side went without saying that it had sent everything: a server must not take what came for the whole. */
	if (!p->has_helper && !p->in_eof && p->w.fd >= 0)
		setsockopt(p->w.fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
	pipe_free(p);
}

static const struct endpoint_ops pipe_ops = {
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.closed = on_gone,
	.lost = on_gone,
	.writable = on_room,
};

void pipe_start(struct pipe *p, int take_fd, pid_t helper)
{
	p->helper = helper;
	p->has_helper = helper != 0;
	p->connected = true;
	if (watch_open(&p->in->loop, &p->w, take_fd, EPOLLIN) < 0) {
		pipe_fail(p, MUX_ERR_RESOURCES, "out of memory for events inside the sandbox");
		return;
	}
	if (!p->collect)
		mux_accept(p->in->link.mux, p->ep.stream, NULL, PIPE_WINDOW);
}

void pipe_offer(struct pipe *p, int take_fd)
{
	p->egress = true;
	/* Nothing may be sent yet, so nothing is asked for but the program's end. */
	if (watch_open(&p->in->loop, &p->w, take_fd, EPOLLET) < 0)
		pipe_fail(p, MUX_ERR_RESOURCES, "out of memory for events inside the sandbox");
}

static void on_accepted(struct endpoint *e)
{
	struct pipe *p = container_of(e, struct pipe, ep);
	p->connected = true;
	settle(p);
}

void pipe_reaped(struct init *in, pid_t pid, int status)
{
	for (struct pipe *p = in->pipes; p; p = p->next) {
		if (p->helper != pid)
			continue;
		p->helper = 0;
		p->status = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		p->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
		maybe_finish(p);
		return;
	}
}

/* --- helpers --- */

static _Noreturn void helper_main(const char *name, int far, int (*fn)(int fd, void *arg), void *arg)
{
	int keep[] = { 0, 1, 2, far };
	sigset_t none;
	sys_close_all_but(keep, ARRAY_LEN(keep));
	prctl(PR_SET_NAME, name, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	sys_ordinary_priority();
	/* If memory runs out this goes before process 1 does. */
	int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t n = score < 0 ? 0 : write(score, "500", 3);
	(void)n;
	close_fdp(&score);
	sys_set_caps(sys_file_caps);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	io_set_nonblock(far, false);
	_exit(fn(far, arg));
}

int helper_start(struct init *in, const char *name, int (*fn)(int fd, void *arg), void *arg, pid_t *ret_pid)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -1;
	auto_close int near = pair[0], far = pair[1];
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0)
		helper_main(name, far, fn, arg);
	*ret_pid = pid;
	pids_add(&in->helpers, pid);
	return steal_fd(&near);
}
