/* A tar stream on standard input as records: ustar, pax, and GNU's long names. Directories get their modes and times at the end. */
#include "cli/transfer_priv.h"

#include "cli/localio.h"
#include "cli/tar.h"
#include "shared/base/clock.h"
#include "shared/base/limits.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <string.h>

enum { CHUNK = 256 * 1024, META_MAX = 1024 * 1024 };

/* A directory whose mode and time are set when nothing will be put into it any more. */
struct later {
	char *path;
	unsigned mode;
	int64_t sec;
	uint32_t nsec;
};

struct tar_reader {
	struct copy *copy;
	struct local_fd from;
	struct buf in;
	size_t in_at;
	bool in_ended;
	bool begun, ended;
	struct tar_entry entry;
	bool has_entry;      /* strings of entry are held */
	struct buf meta;     /* contents of a pax header or long name */
	char meta_type;      /* of the contents being collected, 0: none */
	struct buf pax;      /* for the next entry */
	char *long_path, *long_link; /* for the next entry */
	uint64_t left, padding; /* of the contents at hand */
	bool sending;        /* they go on as DATA; else they are dropped */
	struct buf dir;      /* the directory entered last */
	struct later *later;
	size_t n_later, cap_later;
};

struct tar_reader *tar_reader_new(struct copy *c, int fd)
{
	struct tar_reader *t = xcalloc(1, sizeof(*t));
	t->copy = c;
	local_open(&t->from, fd, false);
	return t;
}

static void drop_entry(struct tar_reader *t)
{
	if (t->has_entry) {
		free(t->entry.path);
		free(t->entry.link);
		buf_done(&t->entry.xattrs);
	}
	t->has_entry = false;
}

void tar_reader_free(struct tar_reader *t)
{
	for (size_t i = 0; i < t->n_later; i++)
		free(t->later[i].path);
	free(t->later);
	drop_entry(t);
	local_close(&t->from);
	buf_done(&t->in);
	buf_done(&t->meta);
	buf_done(&t->pax);
	buf_done(&t->dir);
	free(t->long_path);
	free(t->long_link);
	free(t);
}

/* --- input ----------------------------------------------------------------------------------------------------------------- */

static size_t have(const struct tar_reader *t)
{
	return t->in.len - t->in_at;
}

/* Reads once. 1: something came or the end, 0: nothing now, -1. */
static int fill(struct tar_reader *t, struct error *err)
{
	buf_consume(&t->in, t->in_at);
	t->in_at = 0;
	char *p = buf_reserve(&t->in, CHUNK);
	ssize_t n = local_read(&t->from, p, CHUNK);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		return error_errno(err, "cannot read the tar stream");
	t->in_ended = n == 0;
	buf_commit(&t->in, (size_t)n);
	return 1;
}

/* --- entries --------------------------------------------------------------------------------------------------------------- */

static void refuse(struct tar_reader *t, const char *why)
{
	t->copy->stats->failed++;
	copy_warn(t->copy, t->entry.path, why);
}

/* The path below the top: without leading "/" and "./" and trailing "/". NULL when it would lead out. */
static const char *clean(char *path)
{
	for (;;) {
		if (path[0] == '/')
			path++;
		else if (path[0] == '.' && path[1] == '/')
			path += 2;
		else
			break;
	}
	size_t n = strlen(path);
	while (n > 0 && path[n - 1] == '/')
		path[--n] = '\0';
	if (strcmp(path, ".") == 0)
		path[0] = '\0';
	return record_path_valid(path, strlen(path)) ? path : NULL;
}

static void add_directory(struct buf *out, const char *path)
{
	struct record_entry e = { .kind = RECORD_DIRECTORY, .mode = 0755, .path = path, .target = "" };
	record_add_entry(out, RECORD_ENTRY, &e);
}

/* Whether dir is path, or stands above it. */
static bool holds(const char *dir, size_t n, const char *path)
{
	return strncmp(dir, path, n) == 0 && (n == 0 || path[n] == '/' || path[n] == '\0');
}

/* A tar stream need not name the directories its files stand in; making one again does no harm. */
static void enter_parents(struct tar_reader *t, struct buf *out, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	if (n == 0 || (t->dir.len >= n && holds(path, n, buf_str(&t->dir))))
		return;
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' || (t->dir.len >= i && holds(path, i, buf_str(&t->dir))))
			continue;
		auto_free char *part = xstrndup(path, i);
		add_directory(out, part);
	}
	buf_reset(&t->dir);
	buf_add(&t->dir, path, n);
}

static void remember(struct tar_reader *t, const char *path)
{
	if (t->n_later == t->cap_later) {
		t->cap_later = t->cap_later ? 2 * t->cap_later : 64;
		t->later = xrealloc(t->later, t->cap_later, sizeof(*t->later));
	}
	t->later[t->n_later++] = (struct later){ xstrdup(path), t->entry.mode, t->entry.sec, t->entry.nsec };
}

static void put_entry(struct tar_reader *t, struct buf *out, enum record_kind kind, const char *path)
{
	bool link = kind == RECORD_SYMLINK || kind == RECORD_HARDLINK;
	struct record_entry e = {
		.kind = kind, .mode = t->entry.mode, .sec = t->entry.sec, .nsec = t->entry.nsec,
		.size = kind == RECORD_FILE ? t->entry.size : 0, .path = path, .target = link ? t->entry.link : "",
	};
	enter_parents(t, out, path);
	record_add_entry(out, RECORD_ENTRY, &e);
	if (!link)
		buf_add(out, buf_str(&t->entry.xattrs), t->entry.xattrs.len);
	t->sending = kind == RECORD_FILE;
	if (kind != RECORD_DIRECTORY)
		return;
	remember(t, path);
	buf_reset(&t->dir);
	buf_adds(&t->dir, path);
}

/* A hard link's target is a path of the archive. */
static void put_hard_link(struct tar_reader *t, struct buf *out, const char *path)
{
	auto_free char *link = steal(&t->entry.link);
	const char *target = clean(link);
	t->entry.link = xstrdup(target ? target : "");
	if (target && *target)
		put_entry(t, out, RECORD_HARDLINK, path);
	else
		refuse(t, "refused: a hard link to something outside of the destination");
}

static void on_entry(struct tar_reader *t, struct buf *out)
{
	const char *path = clean(t->entry.path);
	t->sending = false;
	if (!path) {
		refuse(t, "refused: it leads out of the destination");
	} else if (t->entry.sparse || t->entry.type == 'S') {
		refuse(t, "not copied: tar's sparse formats are not read");
	} else if (t->entry.type == '5') {
		if (*path)
			put_entry(t, out, RECORD_DIRECTORY, path);
	} else if (!*path) {
		refuse(t, "not copied: it has no name");
	} else if (t->entry.type == '0' || t->entry.type == '7') {
		put_entry(t, out, RECORD_FILE, path);
	} else if (t->entry.type == '2') {
		put_entry(t, out, RECORD_SYMLINK, path);
	} else if (t->entry.type == '1') {
		put_hard_link(t, out, path);
	} else {
		t->copy->stats->skipped++;
		copy_warn(t->copy, path, "skipped: a FIFO, a device, or of an unknown kind");
	}
}

/* --- headers --------------------------------------------------------------------------------------------------------------- */

static bool is_meta(char type)
{
	return type == 'x' || type == 'g' || type == 'L' || type == 'K';
}

static int take_overrides(struct tar_reader *t, struct error *err)
{
	if (t->long_path) {
		free(t->entry.path);
		t->entry.path = steal(&t->long_path);
	}
	if (t->long_link) {
		free(t->entry.link);
		t->entry.link = steal(&t->long_link);
	}
	int r = tar_apply_pax(buf_str(&t->pax), t->pax.len, &t->entry, err);
	buf_reset(&t->pax);
	return r;
}

static int on_header(struct tar_reader *t, struct buf *out, struct error *err)
{
	bool end;
	drop_entry(t);
	if (tar_parse_header((const unsigned char *)t->in.data + t->in_at, &t->entry, &end, err) != 0)
		return -1;
	t->in_at += TAR_BLOCK;
	if (end) {
		t->ended = true;
		return 0;
	}
	t->has_entry = true;
	t->meta_type = is_meta(t->entry.type) ? t->entry.type : 0;
	if (t->meta_type && t->entry.size > META_MAX)
		return error_set(err, ERR_TOO_LARGE, "a header of the tar stream is longer than %d bytes", META_MAX);
	if (!t->meta_type && take_overrides(t, err) != 0)
		return -1;
	bool contents = t->meta_type || strchr("07S", t->entry.type) || t->entry.sparse;
	t->left = contents ? t->entry.size : 0;
	t->padding = (TAR_BLOCK - t->left % TAR_BLOCK) % TAR_BLOCK;
	if (!t->meta_type)
		on_entry(t, out);
	if (t->left == 0 && t->sending) {
		record_add_number(out, RECORD_END, 0);
		t->copy->stats->files++;
		t->sending = false;
	}
	return 0;
}

static void take_meta(struct tar_reader *t)
{
	if (t->meta_type == 'x') {
		buf_reset(&t->pax);
		buf_add(&t->pax, buf_str(&t->meta), t->meta.len);
	} else if (t->meta_type == 'L') {
		free(t->long_path);
		t->long_path = xstrdup(buf_str(&t->meta));
	} else if (t->meta_type == 'K') {
		free(t->long_link);
		t->long_link = xstrdup(buf_str(&t->meta));
	}
	buf_reset(&t->meta);
	t->meta_type = 0;
}

static void on_contents(struct tar_reader *t, struct buf *out)
{
	size_t n = have(t) < t->left ? have(t) : (size_t)t->left, most = RECORD_DATA_MAX - RECORD_HEAD_LEN;
	n = n < most ? n : most;
	const char *p = t->in.data + t->in_at;
	if (t->meta_type) {
		buf_add(&t->meta, p, n);
	} else if (t->sending) {
		uint8_t head[RECORD_HEAD_LEN];
		record_put_head(head, RECORD_DATA, n);
		buf_add(out, head, sizeof(head));
		buf_add(out, p, n);
		t->copy->stats->bytes += n;
	}
	t->in_at += n;
	t->left -= n;
	if (t->left > 0)
		return;
	if (t->meta_type)
		take_meta(t);
	if (t->sending) {
		record_add_number(out, RECORD_END, t->entry.size);
		t->copy->stats->files++;
		t->sending = false;
	}
}

/* --- the whole ------------------------------------------------------------------------------------------------------------- */

static void finish(struct tar_reader *t, struct buf *out)
{
	while (t->n_later > 0) {
		struct later *l = &t->later[--t->n_later];
		struct record_entry e = { .kind = RECORD_DIRECTORY, .mode = l->mode, .sec = l->sec, .nsec = l->nsec, .path = l->path, .target = "" };
		record_add_entry(out, RECORD_LEAVE, &e);
		free(l->path);
	}
	int64_t now_us = clock_wall_us();
	struct record_entry top = { .kind = RECORD_DIRECTORY, .mode = 0755, .sec = now_us / 1000000, .path = "", .target = "" };
	record_add_entry(out, RECORD_LEAVE, &top);
	record_add_done(out, 0, t->copy->stats->bytes, t->copy->stats->failed + t->copy->stats->skipped, "");
}

/* One step with what is there. 1: done something, 0: more input is needed, -1. */
static int step(struct tar_reader *t, struct buf *out, struct error *err)
{
	size_t n = have(t);
	if (t->left > 0) {
		if (n > 0)
			on_contents(t, out);
		return n > 0;
	}
	if (t->padding > 0) {
		size_t k = n < t->padding ? n : (size_t)t->padding;
		t->in_at += k;
		t->padding -= k;
		return k > 0;
	}
	if (n < TAR_BLOCK)
		return 0;
	return on_header(t, out, err) == 0 ? 1 : -1;
}

static int need_input(struct tar_reader *t, struct error *err)
{
	if (!t->in_ended)
		return fill(t, err);
	/* Without the blocks of zeros at its end a stream that was cut between entries looks whole. */
	if (have(t) == 0 && t->left == 0 && t->padding == 0 && t->has_entry) {
		t->ended = true;
		return 1;
	}
	return error_set(err, ERR_INVALID, t->has_entry ? "the tar stream is cut short" : "the input is not a tar stream: it is empty or too short");
}

/* What follows the end is read and dropped: closing a pipe under its writer would make the writer fail. 1: all, 0: not yet, -1. */
static int drain(struct tar_reader *t, struct error *err)
{
	int r = 1;
	while (!t->in_ended && r > 0) {
		t->in_at = t->in.len;
		r = fill(t, err);
	}
	return r;
}

enum produce tar_produce(void *reader, struct buf *out, int *ret_fd, struct error *err)
{
	struct tar_reader *t = reader;
	if (!t->begun)
		add_directory(out, "");
	t->begun = true;
	while (out->len < CHUNK && !t->ended) {
		int r = step(t, out, err);
		if (r == 0) {
			r = need_input(t, err);
			if (r == 0) {
				*ret_fd = local_pollfd(&t->from);
				return PRODUCE_WAIT;
			}
		}
		if (r < 0)
			return PRODUCE_FAILED;
	}
	if (!t->ended)
		return PRODUCE_MORE;
	int r = drain(t, err);
	if (r < 0)
		return PRODUCE_FAILED;
	*ret_fd = local_pollfd(&t->from);
	if (r == 0)
		return PRODUCE_WAIT;
	finish(t, out);
	return PRODUCE_ALL;
}
