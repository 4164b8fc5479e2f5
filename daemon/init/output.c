/* Output channels: see output.h. */
#include "daemon/init/output.h"

#include "shared/base/io.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	RING_FIRST = 16 * 1024,
	RING_KEEP = 64 * 1024, /* an empty ring larger than this is given back when the command is quiet */
	READS_PER_EVENT = 8,   /* then others get their turn */
	PIPE_LARGE = 256 * 1024,
	TRIM_MS = 1000,
	DISCARD_STEP = 1024 * 1024,
};

/* Rings come from mmap: their pages are not copied into supervisors, and go back to the kernel at once. */
static uint8_t *ring_new(size_t n)
{
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, n, MADV_DONTFORK);
	return p;
}

static void ring_free(struct output *o)
{
	if (o->ring)
		munmap(o->ring, o->cap);
	o->ring = NULL;
	o->cap = 0;
}

/* The run of ring bytes at an offset, at most n. */
static size_t run_at(const struct output *o, uint64_t offset, size_t n, uint8_t **ret)
{
	size_t at = (size_t)(offset & (o->cap - 1));
	*ret = o->ring + at;
	return n < o->cap - at ? n : o->cap - at;
}

static bool ring_grow(struct output *o)
{
	size_t cap = o->cap ? o->cap * 4 : RING_FIRST;
	if (o->cap >= o->window)
		return false;
	uint8_t *ring = ring_new(cap);
	if (!ring)
		return false;
	for (uint64_t at = o->start; at < o->end;) {
		uint8_t *from;
		size_t n = run_at(o, at, (size_t)(o->end - at), &from);
		size_t to = (size_t)(at & (cap - 1));
		n = n < cap - to ? n : cap - to;
		memcpy(ring + to, from, n);
		at += n;
	}
	ring_free(o);
	o->ring = ring;
	o->cap = cap;
	return true;
}

static size_t room(const struct output *o)
{
	size_t held = (size_t)(o->end - o->start);
	size_t most = o->cap < o->window ? o->cap : o->window;
	return held < most ? most - held : 0;
}

static void ready(struct watch *w, uint32_t events);
static void trim(struct timer *t);

void output_init(struct output *o, struct loop *l, unsigned channel, uint32_t window, void (*changed)(struct output *o))
{
	*o = (struct output){ .loop = l, .channel = channel, .changed = changed, .w = { .fd = -1, .ready = ready }, .trim = { .fired = trim } };
	o->window = window ? window : LIMIT_MUX_WINDOW;
}

void output_open(struct output *o, int take_fd)
{
	if (watch_open(o->loop, &o->w, take_fd, EPOLLIN) < 0)
		o->ended = true;
}

static void end(struct output *o)
{
	watch_close(o->loop, &o->w);
	o->ended = true;
	output_pump(o);
}

/* A producer that fills its pipe gets a larger one; all pipes of a user share one allowance, so not everyone does. */
static void enlarge_pipe(struct output *o)
{
	if (!o->roomy)
		fcntl(o->w.fd, F_SETPIPE_SZ, PIPE_LARGE);
	o->roomy = true;
}

/* One read into the free part of the ring. Bytes, 0 at the end, -1 when nothing is there now. */
static ssize_t read_once(struct output *o)
{
	struct iovec iov[2];
	size_t free_bytes = room(o);
	uint8_t *p;
	iov[0].iov_len = run_at(o, o->end, free_bytes, &p);
	iov[0].iov_base = p;
	iov[1] = (struct iovec){ o->ring, free_bytes - iov[0].iov_len };
	ssize_t n = readv(o->w.fd, iov, iov[1].iov_len ? 2 : 1);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -1 : 0; /* EIO: a terminal whose last user left */
	o->end += (uint64_t)n;
	if ((size_t)n == free_bytes)
		ring_grow(o);
	if (n >= RING_KEEP)
		enlarge_pipe(o);
	return n;
}

void output_read(struct output *o)
{
	ssize_t n = 1;
	for (int i = 0; i < READS_PER_EVENT && o->w.fd >= 0; i++) {
		if (room(o) == 0 && !ring_grow(o))
			break;
		n = read_once(o);
		if (n <= 0)
			break;
		output_pump(o);
	}
	if (n == 0)
		end(o);
	/* At a full window nothing is asked of epoll: the command waits in its write. */
	watch_set(o->loop, &o->w, output_blocked(o) ? 0 : EPOLLIN);
	o->changed(o);
}

static void ready(struct watch *w, uint32_t events)
{
	(void)events;
	struct output *o = container_of(w, struct output, w);
	if (output_blocked(o)) /* hang-up is reported even when nothing is asked for; the bytes before it are still in the pipe */
		watch_set(o->loop, w, EPOLLET);
	else
		output_read(o);
}

bool output_blocked(const struct output *o)
{
	return !o->ended && o->end - o->start >= o->window;
}

uint64_t output_kept(const struct output *o, uint64_t offset)
{
	return offset < o->start ? o->start : offset;
}

void output_pump(struct output *o)
{
	while (o->mux && o->sent < o->end) {
		uint8_t *p;
		size_t n = run_at(o, o->sent, (size_t)(o->end - o->sent), &p);
		size_t took = mux_send(o->mux, o->stream, o->channel, p, n);
		o->sent += took;
		if (took < n)
			return;
	}
	if (o->mux && o->ended && !o->eof_sent) {
		mux_eof(o->mux, o->stream, o->channel);
		o->eof_sent = true;
	}
}

void output_attach(struct output *o, struct mux *m, uint32_t stream, uint64_t offset)
{
	o->mux = m;
	o->stream = stream;
	o->eof_sent = false;
	o->sent = offset;
	mux_rebase_send(m, stream, o->channel, offset);
	output_acked(o, offset);
}

void output_detach(struct output *o)
{
	o->mux = NULL;
	o->stream = 0;
}

static void trim(struct timer *t)
{
	struct output *o = container_of(t, struct output, trim);
	if (o->start == o->end)
		ring_free(o);
}

void output_acked(struct output *o, uint64_t offset)
{
	if (offset <= o->start || offset > o->end)
		return;
	o->start = offset;
	if (o->start == o->end && o->ended)
		ring_free(o);
	else if (o->start == o->end && o->cap > RING_KEEP)
		timer_arm(o->loop, &o->trim, TRIM_MS);
	if (!output_blocked(o))
		watch_set(o->loop, &o->w, EPOLLIN);
}

bool output_delivered(const struct output *o)
{
	return o->ended && o->eof_sent && o->sent == o->end;
}

/* --- what background processes write after their command has ended --- */

struct discard {
	struct loop *loop;
	struct watch w;
	int null;
};

static void discard_ready(struct watch *w, uint32_t events)
{
	struct discard *d = container_of(w, struct discard, w);
	(void)events;
	ssize_t n = splice(w->fd, NULL, d->null, NULL, DISCARD_STEP, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0 && errno == EINVAL) {
		char waste[4096];
		n = read(w->fd, waste, sizeof(waste));
	}
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	watch_close(d->loop, w);
	close(d->null);
	loop_free_later(d->loop, d);
}

static void discard(struct loop *l, int take_fd)
{
	struct discard *d = xcalloc(1, sizeof(*d));
	d->loop = l;
	d->w.ready = discard_ready;
	d->null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (watch_open(l, &d->w, take_fd, EPOLLIN) < 0) {
		close_fdp(&d->null);
		free(d);
	}
}

void output_stop(struct output *o, bool keep_reading)
{
	int fd = watch_release(o->loop, &o->w);
	if (fd >= 0 && keep_reading)
		discard(o->loop, fd);
	else if (fd >= 0)
		close(fd);
	if (!o->ended)
		end(o);
}

void output_done(struct output *o)
{
	watch_close(o->loop, &o->w);
	timer_stop(&o->trim);
	ring_free(o);
	output_detach(o);
}
