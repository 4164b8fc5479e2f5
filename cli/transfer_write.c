/*
 * Records of a hostile sandbox as a local tree. The destination's own path is the user's and followed like any; below the tree's top no link is
 * ever followed, so that a link sent first cannot redirect what is sent later. Files appear under their names complete or not at all.
 */
#include "cli/transfer_priv.h"

#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

enum { TEMP_MAX = 40 };

struct tree_writer {
	struct copy *copy;
	char *dest;
	char *name;        /* of the source, NULL: contents only */
	bool placed;
	bool top_given;    /* the top was there and was named itself: its mode is not ours to change */
	int parent;        /* of the top */
	char *top_name;
	int top;           /* when it is a directory */
	struct buf cached; /* path of the directory below */
	int cached_fd;
	int file;          /* being written, or -1 */
	int file_dir;      /* borrowed */
	char temp[TEMP_MAX];
	struct record_entry entry; /* of it; its strings are gone */
	struct buf path;   /* of the entry at hand */
	uint64_t at;       /* where the next bytes belong */
	uint64_t wrote;    /* where the file ends so far: less than `at` behind a hole */
};

struct tree_writer *tree_writer_new(struct copy *c, const char *dest, const char *name)
{
	struct tree_writer *w = xcalloc(1, sizeof(*w));
	w->copy = c;
	w->dest = xstrdup(dest);
	w->name = xstrdup0(name);
	w->parent = w->top = w->cached_fd = w->file = -1;
	return w;
}

static void drop_file(struct tree_writer *w)
{
	if (w->file < 0)
		return;
	unlinkat(w->file_dir, w->temp, 0);
	close_fdp(&w->file);
}

void tree_writer_free(struct tree_writer *w)
{
	drop_file(w);
	close_fdp(&w->parent);
	close_fdp(&w->top);
	close_fdp(&w->cached_fd);
	buf_done(&w->cached);
	buf_done(&w->path);
	free(w->dest);
	free(w->name);
	free(w->top_name);
	free(w);
}

/* --- places ---------------------------------------------------------------------------------------------------------------- */

/* For kernels and filters without openat2: one component at a time, never through a link. */
static int walk_beneath(int dir, const char *path, int flags)
{
	auto_free char *copy = xstrdup(path);
	auto_close int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	char *name = copy;
	for (char *end; at >= 0 && (end = strchr(name, '/')) != NULL; name = end + 1) {
		*end = '\0';
		int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(at);
		at = next;
	}
	return at < 0 ? -1 : openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);
}

int open_beneath(int dir, const char *path, int flags)
{
	if (!*path)
		path = ".";
	struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		return walk_beneath(dir, path, flags);
	return fd;
}

/* The directory an entry stands in; borrowed. Trees come in order, so the last one is remembered. */
static int directory_of(struct tree_writer *w, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	if (!*path)
		return w->parent;
	if (n == 0)
		return w->top;
	if (w->cached_fd >= 0 && w->cached.len == n && memcmp(w->cached.data, path, n) == 0)
		return w->cached_fd;
	close_fdp(&w->cached_fd);
	buf_reset(&w->cached);
	buf_add(&w->cached, path, n);
	return w->cached_fd = open_beneath(w->top, w->cached.data, O_PATH | O_DIRECTORY);
}

static const char *name_of(const struct tree_writer *w, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!*path)
		return w->top_name;
	return slash ? slash + 1 : path;
}

static void failed(struct tree_writer *w, const char *why)
{
	w->copy->stats->failed++;
	copy_warn(w->copy, buf_str(&w->path), why);
}

/* A full disk ends the copy: every further file would fail too. */
static int failed_errno(struct tree_writer *w, struct error *err)
{
	int sys = errno;
	if (sys == ENOSPC || sys == EDQUOT || sys == EFBIG) {
		errno = sys;
		return error_errno(err, "writing %s", buf_str(&w->path)[0] ? buf_str(&w->path) : w->dest);
	}
	failed(w, strerror(sys));
	return 0;
}

/* --- the top --------------------------------------------------------------------------------------------------------------- */

static int set_top(struct tree_writer *w, const char *dir, const char *name, struct error *err)
{
	w->parent = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->parent < 0)
		return error_errno(err, "%s", dir);
	w->top_name = xstrdup(name);
	return 0;
}

/* The destination is a directory: the top goes into it under its own name, or its contents do. */
static int place_into(struct tree_writer *w, bool directory, struct error *err)
{
	struct stat st;
	if (!w->name) {
		if (!directory)
			return error_set(err, ERR_INVALID, "%s is a directory", w->dest);
		w->top = open(w->dest, O_PATH | O_DIRECTORY | O_CLOEXEC);
		w->top_given = true;
		return w->top >= 0 ? 0 : error_errno(err, "%s", w->dest);
	}
	if (set_top(w, w->dest, w->name, err) != 0)
		return -1;
	if (fstatat(w->parent, w->name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode) == directory)
		return 0;
	return error_set(err, ERR_CONFLICT, directory ? "%s/%s is there and no directory" : "%s/%s is a directory", w->dest, w->name);
}

/* The destination names the top itself: what is there and no directory, or nothing yet. */
static int place_at(struct tree_writer *w, bool there, bool directory, struct error *err)
{
	if (there && directory)
		return error_set(err, ERR_CONFLICT, "%s is there and no directory", w->dest);
	/* A link the user named is the user's wish. */
	auto_free char *real = there ? realpath(w->dest, NULL) : NULL;
	const char *path = real ? real : w->dest;
	auto_free char *name = tree_source_name(path);
	size_t end = strlen(path);
	if (!name || (path[end - 1] == '/' && !directory))
		return error_set(err, ERR_NOT_FOUND, "%s: no such directory", w->dest);
	while (path[end - 1] == '/')
		end--;
	end -= strlen(name);
	auto_free char *dir = end ? xstrndup(path, end) : xstrdup(".");
	return set_top(w, dir, name, err);
}

static int place_top(struct tree_writer *w, bool directory, struct error *err)
{
	struct stat st;
	w->placed = true;
	if (stat(w->dest, &st) == 0)
		return S_ISDIR(st.st_mode) ? place_into(w, directory, err) : place_at(w, true, directory, err);
	if (errno != ENOENT)
		return error_errno(err, "%s", w->dest);
	return place_at(w, false, directory, err);
}

/* --- entries --------------------------------------------------------------------------------------------------------------- */

static struct timespec time_of(const struct record_entry *e)
{
	return (struct timespec){ .tv_sec = (time_t)e->sec, .tv_nsec = (long)e->nsec };
}

/* Random once, then counted: a name that is taken makes the entry fail, never overwrites. */
static void make_temp_name(char out[static TEMP_MAX])
{
	static uint64_t v;
	if (v == 0)
		random_bytes(&v, sizeof(v));
	snprintf(out, TEMP_MAX, ".sandbox-cp-%016llx", (unsigned long long)v++);
}

static int start_file(struct tree_writer *w, int dir, const struct record_entry *e, struct error *err)
{
	make_temp_name(w->temp);
	w->file = openat(dir, w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (w->file < 0)
		return failed_errno(w, err);
	w->file_dir = dir;
	w->entry = *e;
	w->at = w->wrote = 0;
	return 0;
}

static int write_file(struct tree_writer *w, const char *p, size_t n, struct error *err)
{
	while (w->file >= 0 && n > 0) {
		ssize_t put = pwrite(w->file, p, n, (off_t)w->at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0) {
			int r = failed_errno(w, err);
			drop_file(w);
			return r;
		}
		p += put;
		n -= (size_t)put;
		w->at += (uint64_t)put;
		w->wrote = w->at;
		w->copy->stats->bytes += (uint64_t)put;
	}
	return 0;
}

static int end_file(struct tree_writer *w, uint64_t size, struct error *err)
{
	struct timespec times[2] = { time_of(&w->entry), time_of(&w->entry) };
	int r = 0;
	if (w->file < 0)
		return 0;
	/* The mode last: incomplete, a file must not be more open than it will be. Set-id bits are not for us to grant. */
	if ((w->wrote != size && ftruncate(w->file, (off_t)size) != 0) || fchmod(w->file, w->entry.mode & 0777) != 0 ||
	    futimens(w->file, times) != 0 || renameat(w->file_dir, w->temp, w->file_dir, name_of(w, buf_str(&w->path))) != 0) {
		r = failed_errno(w, err);
		drop_file(w);
		return r;
	}
	close_fdp(&w->file);
	w->copy->stats->entries++;
	w->copy->stats->files++;
	return 0;
}

static int make_link(struct tree_writer *w, int dir, const struct record_entry *e, struct error *err)
{
	struct timespec times[2] = { time_of(e), time_of(e) };
	char temp[TEMP_MAX];
	make_temp_name(temp);
	if (symlinkat(e->target, dir, temp) != 0)
		return failed_errno(w, err);
	utimensat(dir, temp, times, AT_SYMLINK_NOFOLLOW);
	if (renameat(dir, temp, dir, name_of(w, e->path)) != 0) {
		int r = failed_errno(w, err);
		unlinkat(dir, temp, 0);
		return r;
	}
	w->copy->stats->entries++;
	return 0;
}

static int make_directory(struct tree_writer *w, int dir, const struct record_entry *e, struct error *err)
{
	const char *name = name_of(w, e->path);
	if (mkdirat(dir, name, 0700) != 0 && errno != EEXIST)
		return failed_errno(w, err);
	auto_close int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		failed(w, "something that is no directory is in the way");
		return 0;
	}
	if (!*e->path)
		w->top = steal_fd(&fd);
	w->copy->stats->entries++;
	return 0;
}

static int leave_directory(struct tree_writer *w, const struct record_entry *e, struct error *err)
{
	struct timespec times[2] = { time_of(e), time_of(e) };
	if (!*e->path && w->top_given)
		return 0;
	int dir = directory_of(w, e->path);
	/* O_RDONLY: fchmod does not take an O_PATH descriptor. One that could not be made was reported then. */
	auto_close int fd = dir < 0 ? -1 : openat(dir, name_of(w, e->path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && (futimens(fd, times) != 0 || fchmod(fd, e->mode & 01777) != 0))
		return failed_errno(w, err);
	return 0;
}

static int on_entry(struct tree_writer *w, const struct record_entry *e, struct error *err)
{
	drop_file(w); /* one that never ended */
	buf_reset(&w->path);
	buf_adds(&w->path, e->path);
	if (w->placed == !*e->path)
		return error_set(err, ERR_PROTOCOL, "the sandbox sent a tree that does not begin with its top");
	if (!w->placed && place_top(w, e->kind == RECORD_DIRECTORY, err) != 0)
		return -1;
	if (!*e->path && w->top_given) {
		w->copy->stats->entries++;
		return 0;
	}
	if (*e->path && w->top < 0)
		return error_set(err, ERR_PROTOCOL, "the sandbox sent an entry below something that is no directory: %s", e->path);
	int dir = directory_of(w, e->path);
	if (dir < 0) {
		/* ELOOP and ENOTDIR are how a link in the way looks: that is no tree anybody made by accident. */
		failed(w, errno == ELOOP || errno == ENOTDIR ? "refused: what holds it is not a directory" : strerror(errno));
		return 0;
	}
	if (e->kind == RECORD_FILE)
		return start_file(w, dir, e, err);
	return e->kind == RECORD_SYMLINK ? make_link(w, dir, e, err) : make_directory(w, dir, e, err);
}

static void on_skipped(struct tree_writer *w, const struct record *r)
{
	if (r->code) {
		w->copy->stats->failed++;
		copy_warn(w->copy, r->path, r->text);
		return;
	}
	auto_free char *text = xasprintf("skipped: %s", r->text);
	w->copy->stats->skipped++;
	copy_warn(w->copy, r->path, text);
}

static int on_hole(struct tree_writer *w, uint64_t n, struct error *err)
{
	if (n > INT64_MAX - w->at)
		return error_set(err, ERR_PROTOCOL, "the sandbox sent a file larger than any");
	w->at += n;
	return 0;
}

int tree_on_record(void *writer, const struct record *r, struct error *err)
{
	struct tree_writer *w = writer;
	switch (r->type) {
	case RECORD_ENTRY:
		return on_entry(w, &r->entry, err);
	case RECORD_DATA:
		return write_file(w, r->data, r->len, err);
	case RECORD_HOLE:
		return on_hole(w, r->number, err);
	case RECORD_END:
		return r->number <= INT64_MAX ? end_file(w, r->number, err)
					      : error_set(err, ERR_PROTOCOL, "the sandbox sent a file larger than any");
	case RECORD_ABORT:
		if (w->file >= 0)
			failed(w, r->text);
		drop_file(w);
		return 0;
	case RECORD_LEAVE:
		drop_file(w);
		return w->placed ? leave_directory(w, &r->entry, err) : 0;
	case RECORD_SKIPPED:
		on_skipped(w, r);
		return 0;
	case RECORD_DONE:
		drop_file(w);
		return w->placed || w->copy->stats->failed || w->copy->stats->skipped
		       ? 0 : error_set(err, ERR_PROTOCOL, "the sandbox sent an empty tree");
	case RECORD_FAIL:
		return record_failed(r, err);
	}
	return 0;
}

int tree_writer_open(struct tree_writer *w, const char *path)
{
	if (*path)
		return open_beneath(w->top, path, O_RDONLY);
	return openat(w->parent, w->top_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}
