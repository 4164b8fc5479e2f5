/* stdin: see input.h. */
#include "daemon/init/input.h"

#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

static void ready(struct watch *w, uint32_t events);

void input_init(struct input *i, struct loop *l)
{
	*i = (struct input){ .loop = l, .w = { .fd = -1, .ready = ready } };
}

void input_open(struct input *i, int take_fd, bool terminal)
{
	i->terminal = terminal;
	if (take_fd >= 0)
		watch_open(i->loop, &i->w, take_fd, 0);
}

static void report(struct input *i)
{
	if (i->mux)
		mux_consumed(i->mux, i->stream, MUX_STDIN, i->taken);
}

static void drop_queue(struct input *i)
{
	buf_done(&i->q);
	i->head = 0;
}

void input_close(struct input *i)
{
	watch_close(i->loop, &i->w);
	drop_queue(i);
	i->taken = i->got;
	report(i);
}

void input_attach(struct input *i, struct mux *m, uint32_t stream)
{
	i->mux = m;
	i->stream = stream;
	mux_rebase_recv(m, stream, MUX_STDIN, i->taken);
}

void input_detach(struct input *i)
{
	i->mux = NULL;
	i->stream = 0;
	if (i->got > i->taken)
		i->eof = false; /* it comes again, behind the bytes it follows */
	i->got = i->taken;
	drop_queue(i);
	watch_set(i->loop, &i->w, 0);
}

/* Writes what it can. False when the command reads no more. */
static bool write_some(struct input *i, const char *p, size_t n, size_t *ret)
{
	*ret = 0;
	while (*ret < n) {
		ssize_t w = write(i->w.fd, p + *ret, n - *ret);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN) {
			if (!i->roomy && !i->terminal)
				fcntl(i->w.fd, F_SETPIPE_SZ, INPUT_WINDOW);
			i->roomy = true;
			return true;
		}
		if (w < 0)
			return false;
		*ret += (size_t)w;
		i->taken += (uint64_t)w;
		i->mid_line = p[*ret - 1] != '\n';
	}
	return true;
}

/* End of input on a terminal is the VEOF character, which only ends input at the start of a line: twice in the middle of one. */
static void send_veof(struct input *i)
{
	struct termios t;
	char c[2] = { 4, 4 };
	if (tcgetattr(i->w.fd, &t) == 0)
		c[0] = c[1] = (char)t.c_cc[VEOF];
	ssize_t n = write(i->w.fd, c, i->mid_line ? 2 : 1);
	(void)n; /* a terminal too full for one character has a command that does not read */
}

static void finish(struct input *i)
{
	if (i->terminal)
		send_veof(i);
	else
		watch_close(i->loop, &i->w);
}

static void push(struct input *i)
{
	size_t n = 0;
	bool alive = write_some(i, i->q.data + i->head, i->q.len - i->head, &n);
	i->head += n;
	if (!alive) {
		input_close(i);
		return;
	}
	if (i->head == i->q.len) {
		drop_queue(i);
		watch_set(i->loop, &i->w, 0);
		if (i->eof)
			finish(i);
	}
	report(i);
}

static void ready(struct watch *w, uint32_t events)
{
	struct input *i = container_of(w, struct input, w);
	if (i->q.len)
		push(i);
	else if (events & (EPOLLERR | EPOLLHUP)) /* every reader has gone */
		input_close(i);
}

void input_data(struct input *i, const void *p, size_t n)
{
	i->got += n;
	if (i->w.fd < 0 || i->eof) {
		i->taken = i->got;
		report(i);
		return;
	}
	size_t wrote = 0;
	if (i->q.len == 0 && !write_some(i, p, n, &wrote)) {
		input_close(i);
		return;
	}
	if (wrote < n) {
		if (i->head > INPUT_WINDOW) {
			buf_consume(&i->q, i->head);
			i->head = 0;
		}
		buf_add(&i->q, (const char *)p + wrote, n - wrote);
		watch_set(i->loop, &i->w, EPOLLOUT);
	}
	report(i);
}

void input_eof(struct input *i)
{
	if (i->eof)
		return;
	i->eof = true;
	if (i->w.fd >= 0 && i->q.len == 0)
		finish(i);
}
