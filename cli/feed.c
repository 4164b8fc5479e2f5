/* The ring between local input and the mux: see feed.h. */
#include "cli/feed.h"

#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>

enum { RING = LIMIT_MUX_WINDOW, READ_MAX = LIMIT_MUX_FRAME_MAX, TYPED_MAX = 4096 };

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

void feed_open(struct feed *f, int fd, int escape_key)
{
	*f = (struct feed){ .escape = { .key = escape_key }, .typed = BUF_INIT };
	local_open(&f->local, fd, false);
	f->ended = f->local.fd < 0 || f->local.null_device;
	/* Nobody was told to expect input. */
	f->none = f->eof_sent = fd < 0;
}

void feed_close(struct feed *f)
{
	local_close(&f->local);
	buf_done(&f->typed);
	free(f->ring);
	f->ring = NULL;
}

bool feed_wants(const struct feed *f, const struct mux *m, uint32_t stream)
{
	return !f->ended && f->sent == f->end && f->end - f->acked < RING && mux_sendable(m, stream, MUX_STDIN) > 0;
}

/* The free part of the ring that follows `end` without wrapping. */
static size_t space(const struct feed *f)
{
	size_t used = (size_t)(f->end - f->acked);
	return smaller(RING - used, RING - (size_t)(f->end % RING));
}

static void append(struct feed *f, const char *p, size_t n)
{
	while (n > 0) {
		size_t k = smaller(n, space(f));
		memcpy(f->ring + f->end % RING, p, k);
		f->end += k;
		p += k;
		n -= k;
	}
}

/* 0 at the end or on an error, which end the input; -1: nothing now. */
static ssize_t read_local(struct feed *f, void *p, size_t n)
{
	ssize_t got = local_read(&f->local, p, n);
	if (got < 0 && errno == EAGAIN)
		return -1;
	if (got < 0)
		f->error = errno;
	if (got <= 0) {
		f->ended = true;
		return 0;
	}
	return got;
}

static enum escape_event read_typed(struct feed *f, size_t room)
{
	enum escape_event event;
	size_t used;
	char passed[TYPED_MAX + 1];
	if (f->typed.len == 0) {
		char in[TYPED_MAX];
		ssize_t got = read_local(f, in, smaller(sizeof(in), room));
		if (got <= 0)
			return ESCAPE_NONE;
		buf_add(&f->typed, in, (size_t)got);
	}
	size_t n = escape_filter(&f->escape, f->typed.data, smaller(f->typed.len, room), passed, &used, &event);
	buf_consume(&f->typed, used);
	append(f, passed, n);
	return event;
}

enum escape_event feed_read(struct feed *f, const struct mux *m, uint32_t stream)
{
	size_t room = smaller(mux_sendable(m, stream, MUX_STDIN), RING - (size_t)(f->end - f->acked));
	if (!f->ring)
		f->ring = xmalloc(RING);
	if (f->local.terminal && terminal_is_raw() && f->escape.key >= 0) {
		/* One more may come out than goes in: an escape key that turned out to be text. */
		return room > 1 ? read_typed(f, room - 1) : ESCAPE_NONE;
	}
	ssize_t got = read_local(f, f->ring + f->end % RING, smaller(smaller(room, space(f)), READ_MAX));
	if (got > 0)
		f->end += (uint64_t)got;
	return ESCAPE_NONE;
}

void feed_push(struct feed *f, struct mux *m, uint32_t stream)
{
	while (f->sent < f->end) {
		size_t at = (size_t)(f->sent % RING);
		size_t n = mux_send(m, stream, MUX_STDIN, f->ring + at, smaller((size_t)(f->end - f->sent), RING - at));
		if (n == 0)
			return;
		f->sent += n;
	}
	if (f->ended && f->typed.len == 0 && !f->eof_sent) {
		mux_eof(m, stream, MUX_STDIN);
		f->eof_sent = true;
	}
}

void feed_acked(struct feed *f, uint64_t offset)
{
	if (offset > f->acked && offset <= f->sent)
		f->acked = offset;
}

bool feed_rewind(struct feed *f, uint64_t offset)
{
	if (offset < f->acked || offset > f->end)
		return false;
	f->acked = f->sent = offset;
	f->eof_sent = f->none;
	return true;
}
