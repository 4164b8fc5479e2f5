/* Records as a tar stream on standard output. Holes are written out as zeros; owners are 0, since none of them means anything here. */
#include "cli/transfer_priv.h"

#include "cli/interrupt.h"
#include "cli/localio.h"
#include "cli/tar.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH = 256 * 1024, ZEROS = 64 * 1024 };

struct tar_writer {
	struct copy *copy;
	char *prefix;      /* of every path: the source's name, or "." */
	struct outlet to;
	struct buf out;
	struct tar_entry pending; /* its header waits for the attributes that follow; path and link are those below */
	bool has_pending;
	bool open;         /* a file is being written */
	uint64_t size;     /* as its header says */
	uint64_t left;     /* to come until then */
	struct buf path, link;
};

struct tar_writer *tar_writer_new(struct copy *c, const char *name)
{
	struct tar_writer *w = xcalloc(1, sizeof(*w));
	w->copy = c;
	w->prefix = xstrdup(name ? name : ".");
	outlet_open(&w->to, STDOUT_FILENO);
	return w;
}

void tar_writer_free(struct tar_writer *w)
{
	outlet_close(&w->to);
	buf_done(&w->out);
	buf_done(&w->path);
	buf_done(&w->link);
	buf_done(&w->pending.xattrs);
	free(w->prefix);
	free(w);
}

static int write_failed(const struct tar_writer *w, struct error *err)
{
	errno = w->to.error;
	return error_errno(err, "cannot write the tar stream");
}

/* Waits until the reader took everything, or an interrupt. */
static int flush(struct tar_writer *w, struct error *err)
{
	if (outlet_write(&w->to, buf_str(&w->out), w->out.len) != 0)
		return write_failed(w, err);
	buf_reset(&w->out);
	while (outlet_waiting(&w->to)) {
		struct pollfd p[2] = { { .fd = local_pollfd(&w->to.local), .events = POLLOUT }, { .fd = interrupt_fd(), .events = POLLIN } };
		poll(p, 2, -1);
		if (interrupt_signal()) {
			error_set(err, ERR_TIMEOUT, "interrupted; the tar stream is incomplete");
			err->sys = EINTR;
			return -1;
		}
		if (outlet_flush(&w->to) != 0)
			return write_failed(w, err);
	}
	return 0;
}

static int flush_if_long(struct tar_writer *w, struct error *err)
{
	return w->out.len >= FLUSH ? flush(w, err) : 0;
}

static int add_zeros(struct tar_writer *w, uint64_t n, struct error *err)
{
	static const char zeros[ZEROS];
	for (; n > 0; n -= n < ZEROS ? n : ZEROS) {
		buf_add(&w->out, zeros, n < ZEROS ? (size_t)n : ZEROS);
		if (flush_if_long(w, err) != 0)
			return -1;
	}
	return 0;
}

/* A tar entry has the size its header gave, whatever became of the file. */
static int end_file(struct tar_writer *w, struct error *err)
{
	if (!w->open)
		return 0;
	w->open = false;
	w->copy->stats->files++;
	if (add_zeros(w, w->left, err) != 0)
		return -1;
	return add_zeros(w, (TAR_BLOCK - w->size % TAR_BLOCK) % TAR_BLOCK, err);
}

static int send_header(struct tar_writer *w, struct error *err)
{
	if (!w->has_pending)
		return 0;
	w->has_pending = false;
	w->pending.path = w->path.data;
	w->pending.link = (char *)(uintptr_t)buf_str(&w->link);
	tar_add_header(&w->out, &w->pending);
	buf_reset(&w->pending.xattrs);
	return flush_if_long(w, err);
}

static int on_entry(struct tar_writer *w, const struct record_entry *e, struct error *err)
{
	static const char types[] = { [RECORD_FILE] = '0', [RECORD_DIRECTORY] = '5', [RECORD_SYMLINK] = '2', [RECORD_HARDLINK] = '1' };
	if (end_file(w, err) != 0)
		return -1;
	buf_reset(&w->path);
	buf_addf(&w->path, "%s%s", w->prefix, *e->path ? "/" : "");
	buf_adds(&w->path, e->path);
	if (e->kind == RECORD_DIRECTORY)
		buf_addc(&w->path, '/');
	buf_reset(&w->link);
	if (e->kind == RECORD_HARDLINK)
		buf_addf(&w->link, "%s/", w->prefix);
	buf_adds(&w->link, e->target);
	struct buf xattrs = w->pending.xattrs;
	w->pending = (struct tar_entry){
		.type = types[e->kind], .mode = e->mode & 01777, .size = e->kind == RECORD_FILE ? e->size : 0, .sec = e->sec, .nsec = e->nsec,
		.xattrs = xattrs,
	};
	w->has_pending = true;
	w->open = e->kind == RECORD_FILE;
	w->size = w->left = w->pending.size;
	w->copy->stats->entries++;
	return 0;
}

static int on_data(struct tar_writer *w, const char *p, size_t n, struct error *err)
{
	size_t k = n < w->left ? n : (size_t)w->left;
	buf_add(&w->out, p, k);
	w->left -= k;
	w->copy->stats->bytes += k;
	return flush_if_long(w, err);
}

static int on_hole(struct tar_writer *w, uint64_t n, struct error *err)
{
	uint64_t k = n < w->left ? n : w->left;
	w->left -= k;
	return add_zeros(w, k, err);
}

static void on_trouble(struct tar_writer *w, const char *path, const char *text, bool benign)
{
	*(benign ? &w->copy->stats->skipped : &w->copy->stats->failed) += 1;
	copy_warn(w->copy, path, text);
}

static int on_end(struct tar_writer *w, uint64_t size, struct error *err)
{
	if (size != w->size)
		on_trouble(w, buf_str(&w->path), "changed its size while it was read; the tar entry has the size it had before", false);
	return end_file(w, err);
}

int tar_on_record(void *writer, const struct record *r, struct error *err)
{
	struct tar_writer *w = writer;
	if (r->type != RECORD_XATTR && send_header(w, err) != 0)
		return -1;
	switch (r->type) {
	case RECORD_XATTR:
		if (w->has_pending)
			tar_add_xattr(&w->pending.xattrs, r->name, r->data, r->len);
		return 0;
	case RECORD_ENTRY:
		return on_entry(w, &r->entry, err);
	case RECORD_DATA:
		return on_data(w, r->data, r->len, err);
	case RECORD_HOLE:
		return on_hole(w, r->number, err);
	case RECORD_END:
		return w->open ? on_end(w, r->number, err) : 0;
	case RECORD_ABORT:
		on_trouble(w, buf_str(&w->path), r->text, false);
		return end_file(w, err);
	case RECORD_SKIPPED:
		on_trouble(w, r->path, r->text, r->code == 0);
		return 0;
	case RECORD_FAIL:
		return record_failed(r, err);
	case RECORD_LEAVE:
	case RECORD_DONE:
		break;
	}
	return 0;
}

int tar_writer_finish(struct tar_writer *w, struct error *err)
{
	if (end_file(w, err) != 0 || add_zeros(w, 2 * TAR_BLOCK, err) != 0)
		return -1;
	return flush(w, err);
}
