/*
 * The connection to the worker: init dials, and dials again for ever; on a serial port the host says when one is there.
 * Losing it ends no command.
 */
#include "daemon/init/init.h"

#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	BACKOFF_FIRST_MS = 5,
	BACKOFF_MAX_MS = 250,
	READ_SIZE = 256 * 1024,
	READS_PER_EVENT = 4, /* then others get their turn */
};

static ssize_t sink(void *ctx, const struct iovec *iov, int n)
{
	struct init *in = ctx;
	if (in->link.port)
		return serial_send(in->link.port, in->link.w.fd, iov, n);
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t r;
	do {
		r = sendmsg(in->link.w.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (r < 0 && errno == EINTR);
	return r < 0 && (errno == EAGAIN || errno == ENOBUFS) ? 0 : r;
}

static struct endpoint *endpoint_of(struct mux *m, uint32_t stream)
{
	return mux_user(m, stream);
}

void link_set_endpoint(struct init *in, uint32_t stream, struct endpoint *e)
{
	if (in->link.mux)
		mux_set_user(in->link.mux, stream, e);
}

void link_refuse(struct init *in, uint32_t stream, enum mux_error why, const char *fmt, ...)
{
	char text[ERROR_TEXT_MAX];
	auto_tlv t = TLV_INIT;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tlv_add_u64(&t, MUX_F_ERROR, why);
	tlv_add_str(&t, MUX_F_MESSAGE, text);
	mux_close(in->link.mux, stream, &t);
}

/* --- what comes in --- */

static void on_hello(void *ctx, struct mux *m, const struct tlv *t)
{
	struct init *in = ctx;
	(void)m;
	in->link.backoff_ms = BACKOFF_FIRST_MS;
	if (tlv_has(t, MUX_F_DEADLINE_US))
		init_set_deadline(in, (int64_t)tlv_u64(t, MUX_F_DEADLINE_US, 0));
}

static void on_opened(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	struct init *in = ctx;
	enum mux_kind kind = (enum mux_kind)tlv_u64(t, MUX_F_KIND, 0);
	if (in->through.len > 0 && kind != MUX_KIND_EXEC && kind != MUX_KIND_RESUME && kind != MUX_KIND_DEADLINE) {
		link_refuse(in, stream, MUX_ERR_REFUSED, "this sandbox's runtime driver runs commands only: no files, ports or process list");
		return;
	}
	if (kind != MUX_KIND_RESUME && kind != MUX_KIND_DEADLINE && !memory_ready()) {
		link_refuse(in, stream, MUX_ERR_RESOURCES, "no memory is left in the sandbox to begin anything: end some of what runs in it");
		return;
	}
	switch (kind) {
	case MUX_KIND_EXEC:
		exec_open(in, stream, t);
		return;
	case MUX_KIND_RESUME:
		exec_resume(in, stream, t);
		return;
	case MUX_KIND_DEADLINE:
		init_set_deadline(in, (int64_t)tlv_u64(t, MUX_F_DEADLINE_US, 0));
		mux_close(m, stream, NULL);
		return;
	case MUX_KIND_FILES_GET:
	case MUX_KIND_FILES_PUT:
		files_open(in, stream, t);
		return;
	case MUX_KIND_DIAL:
		dial_open(in, stream, t);
		return;
	case MUX_KIND_PS:
		ps_open(in, stream, t);
		return;
	case MUX_KIND_SECRET:
		secret_open(in, stream, t);
		return;
	case MUX_KIND_PROXY:
		proxy_open(in, stream, t);
		return;
	case MUX_KIND_ATTACH:
	case MUX_KIND_WATCH:
	case MUX_KIND_SHARE:
	case MUX_KIND_CALL:
	case MUX_KIND_EGRESS:
		break;
	}
	link_refuse(in, stream, MUX_ERR_REFUSED, "sandbox-init " SANDBOX_VERSION " does not know this kind of stream");
}

static void on_accepted(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	(void)t;
	if (e && e->ops->accepted)
		e->ops->accepted(e);
}

static void on_data(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t offset, const void *p, size_t n)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	(void)offset;
	if (e && e->ops->data)
		e->ops->data(e, channel, p, n);
}

static void on_eof(void *ctx, struct mux *m, uint32_t stream, unsigned channel)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	if (e && e->ops->eof)
		e->ops->eof(e, channel);
}

static void on_window(void *ctx, struct mux *m, uint32_t stream, unsigned channel, uint64_t consumed)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	if (e && e->ops->window)
		e->ops->window(e, channel, consumed);
}

static void on_control(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	if (e && e->ops->control)
		e->ops->control(e, t);
}

static void on_closed(void *ctx, struct mux *m, uint32_t stream, const struct tlv *t)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	(void)t;
	if (e && e->ops->closed)
		e->ops->closed(e);
}

static void on_lost(void *ctx, struct mux *m, uint32_t stream)
{
	struct endpoint *e = endpoint_of(m, stream);
	(void)ctx;
	if (e && e->ops->lost)
		e->ops->lost(e);
}

static void writable_one(void *ctx, struct mux *m, uint32_t stream, void *user)
{
	struct endpoint *e = user;
	(void)ctx;
	(void)m;
	(void)stream;
	if (e && e->ops->writable)
		e->ops->writable(e);
}

static void on_writable(void *ctx, struct mux *m)
{
	mux_each(m, writable_one, ctx);
}

static void on_pong(void *ctx, struct mux *m)
{
	struct init *in = ctx;
	(void)m;
	in->link.pongs++;
	exec_confirmed(in);
}

static const struct mux_handler handler = {
	.hello = on_hello,
	.opened = on_opened,
	.accepted = on_accepted,
	.data = on_data,
	.eof = on_eof,
	.window = on_window,
	.control = on_control,
	.closed = on_closed,
	.lost = on_lost,
	.writable = on_writable,
	.pong = on_pong,
};

/* --- the connection --- */

static void redial_later(struct init *in)
{
	struct link *l = &in->link;
	timer_arm(&in->loop, &l->redial, l->backoff_ms);
	l->backoff_ms = l->backoff_ms * 2 < BACKOFF_MAX_MS ? l->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void lose(struct init *in)
{
	struct link *l = &in->link;
	if (!l->mux)
		return;
	mux_lost(l->mux);
	mux_free(l->mux);
	l->mux = NULL;
	exec_link_lost(in);
}

static void drop(struct init *in)
{
	if (in->link.port) {
		serial_tell(in->link.port, SERIAL_DETACH, NULL);
	} else {
		watch_close(&in->loop, &in->link.w);
		redial_later(in);
	}
	lose(in);
}

static void greet(struct init *in)
{
	struct link *l = &in->link;
	auto_tlv hello = TLV_INIT;
	l->pings = l->pongs = 0;
	l->mux = mux_new(&(struct mux_options){ .handler = &handler, .ctx = in, .sink = sink, .dialled = true });
	tlv_add_bytes(&hello, MUX_F_KEY, l->key, sizeof(l->key));
	tlv_add_str(&hello, MUX_F_PROGRAM, "sandbox-init " SANDBOX_VERSION);
	mux_hello(l->mux, &hello);
}

static struct init *init_of(struct watch *w)
{
	return (struct init *)((char *)w - offsetof(struct init, link.w));
}

static void ready(struct watch *w, uint32_t events)
{
	static uint8_t bytes[READ_SIZE];
	struct init *in = init_of(w);
	struct link *l = &in->link;
	if (events & EPOLLOUT)
		mux_flush(l->mux);
	for (int i = 0; i < READS_PER_EVENT && events & (EPOLLIN | EPOLLHUP | EPOLLERR); i++) {
		ssize_t n = recv(w->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || mux_feed(l->mux, bytes, (size_t)n, NULL) < 0) {
			drop(in);
			return;
		}
		if ((size_t)n < sizeof(bytes))
			return;
	}
}

/* --- a serial port --- */

static void take_event(struct init *in, const struct serial_event *e)
{
	struct link *l = &in->link;
	switch (e->control) {
	case SERIAL_ATTACH:
		lose(in);
		serial_tell(l->port, SERIAL_ATTACH, e->p);
		greet(in);
		return;
	case SERIAL_DETACH:
		lose(in);
		return;
	case SERIAL_READY:
		return;
	}
	if (l->mux && mux_feed(l->mux, e->p, e->n, NULL) < 0)
		drop(in);
}

/* The host is trusted to speak the protocol; what is none of it is skipped, so that nothing it sends can stop this. */
static void take_bytes(struct init *in, const uint8_t *p, size_t n)
{
	struct serial_event e;
	bool some;
	while (n > 0) {
		size_t used = serial_read(&in->link.port->reader, p, n, &e, &some);
		if (used == 0) {
			in->link.port->reader = (struct serial_reader){ .have = 0 };
			return;
		}
		if (some)
			take_event(in, &e);
		p += used;
		n -= used;
	}
}

static void port_ready(struct watch *w, uint32_t events)
{
	static uint8_t bytes[READ_SIZE];
	struct init *in = init_of(w);
	struct link *l = &in->link;
	ssize_t n;
	(void)events;
	serial_flush(l->port, w->fd);
	if (l->mux)
		mux_flush(l->mux);
	n = read(w->fd, bytes, sizeof(bytes));
	if (n > 0) {
		l->backoff_ms = BACKOFF_FIRST_MS;
		take_bytes(in, bytes, (size_t)n);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		/* No host at the other end: the port would be ready for ever. */
		l->port_fd = watch_release(&in->loop, w);
		redial_later(in);
	}
}

static void port_open(struct init *in)
{
	struct link *l = &in->link;
	int fd = l->port_fd >= 0 ? l->port_fd : open(l->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	bool first = l->port_fd < 0;
	l->port_fd = -1;
	if (fd < 0 || watch_open(&in->loop, &l->w, fd, EPOLLIN) < 0) {
		redial_later(in);
		return;
	}
	if (first)
		serial_tell(l->port, SERIAL_READY, NULL);
}

/* --- both --- */

void link_settle(struct init *in)
{
	struct link *l = &in->link;
	bool more;
	if (l->mux && mux_want_write(l->mux) && mux_flush(l->mux) < 0)
		drop(in);
	if (l->port && l->w.fd >= 0)
		serial_flush(l->port, l->w.fd);
	more = (l->mux && mux_want_write(l->mux)) || (l->port && serial_waits(l->port));
	watch_set(&in->loop, &l->w, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void redial(struct timer *t)
{
	link_dial((struct init *)((char *)t - offsetof(struct init, link.redial)));
}

void link_dial(struct init *in)
{
	struct link *l = &in->link;
	if (l->port) {
		port_open(in);
		return;
	}
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&l->address, sizeof(l->address)) < 0) {
		close(fd);
		fd = -1;
	}
	if (fd < 0 || watch_open(&in->loop, &l->w, fd, EPOLLIN) < 0)
		redial_later(in);
	else
		greet(in);
}

int link_init_serial(struct init *in, const char *path, struct error *err)
{
	struct link *l = &in->link;
	if (link_init(in, path, err) < 0)
		return -1;
	l->w.ready = port_ready;
	l->path = path;
	l->port_fd = -1;
	l->port = xcalloc(1, sizeof(*l->port));
	return 0;
}

int link_init(struct init *in, const char *path, struct error *err)
{
	struct link *l = &in->link;
	if (strlen(path) >= sizeof(l->address.sun_path))
		return error_set(err, ERR_INVALID, "the socket path is longer than %zu bytes", sizeof(l->address.sun_path) - 1);
	l->address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(l->address.sun_path, path, strlen(path) + 1);
	l->w = (struct watch){ .fd = -1, .ready = ready };
	l->redial.fired = redial;
	l->backoff_ms = BACKOFF_FIRST_MS;
	random_bytes(l->key, sizeof(l->key));
	return 0;
}
