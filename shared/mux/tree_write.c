/*
 * Records as a tree, from a sender that may be hostile. The target's own path is the user's and followed like any; below the tree's top no link
 * is ever followed, so that a link sent first cannot redirect what is sent later. Files appear under their names complete or not at all; the
 * outermost directory that was not there before is built under a temporary name and appears whole, which also saves a rename per file.
 */
#include "shared/mux/tree.h"

#include "shared/base/id.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/mux/tree_put.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree_write *tree_write_new(const struct tree_target *to)
{
	struct tree_write *w = xcalloc(1, sizeof(*w));
	w->to = *to;
	w->umask = umask(0);
	umask(w->umask);
	w->parent = w->top = w->cached_fd = w->file = w->aside.dir = w->aside.fd = w->entered = -1;
	return w;
}

static void drop_aside(struct tree_write *w)
{
	if (w->aside.dir >= 0)
		io_remove_tree_at(w->aside.dir, w->aside.temp, NULL);
	close_fdp(&w->aside.dir);
	close_fdp(&w->aside.fd);
}

void tree_write_free(struct tree_write *w)
{
	if (!w)
		return;
	tree_put_drop(w);
	drop_aside(w);
	close_fdp(&w->parent);
	close_fdp(&w->top);
	close_fdp(&w->cached_fd);
	buf_done(&w->cached);
	buf_done(&w->path);
	buf_done(&w->top_path);
	strv_done(&w->lost);
	free(w->aside.path);
	free(w->top_name);
	free(w);
}

const struct tree_counts *tree_write_counts(const struct tree_write *w)
{
	return &w->counts;
}

const char *tree_write_top(const struct tree_write *w)
{
	return buf_str(&w->top_path);
}

int tree_write_open(struct tree_write *w, const char *path)
{
	if (*path)
		return io_open_beneath(w->top, path, O_RDONLY);
	return openat(w->parent, w->top_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

/* --- places ---------------------------------------------------------------------------------------------------------------- */

/* What is left of a path below dir ("" when it is dir itself); NULL when it stands elsewhere. */
static const char *below(const char *dir, const char *path, size_t n)
{
	size_t len = strlen(dir);
	if (len == 0)
		return path;
	if (len > n || memcmp(dir, path, len) != 0 || (len < n && path[len] != '/'))
		return NULL;
	return path + len + (len < n);
}

static int open_directory(struct tree_write *w, const char *path, size_t n)
{
	const char *rest = w->aside.dir >= 0 && *w->aside.path ? below(w->aside.path, path, n) : NULL;
	auto_free char *rel = rest ? xstrndup(rest, n - (size_t)(rest - path)) : xstrndup(path, n);
	int base = rest ? w->aside.fd : w->top;
	/* For its attributes it must be readable; a directory that only lets one pass will do too. */
	int fd = io_open_beneath(base, rel, O_RDONLY | O_DIRECTORY);
	return fd < 0 && errno == EACCES ? io_open_beneath(base, rel, O_PATH | O_DIRECTORY) : fd;
}

/* The directory an entry stands in; borrowed. Trees come in order, so the last one is remembered. */
static int directory_of(struct tree_write *w, const char *path)
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
	return w->cached_fd = open_directory(w, path, n);
}

const char *tree_put_name(const struct tree_write *w, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!*path)
		return w->top_name;
	return slash ? slash + 1 : path;
}

bool tree_put_unseen(const struct tree_write *w, const char *path)
{
	const char *rest = w->aside.dir >= 0 ? below(w->aside.path, path, strlen(path)) : NULL;
	return rest && *rest;
}

void tree_put_own(const struct tree_write *w, int dir, const char *name)
{
	if (!w->to.owned || (w->to.uid == geteuid() && w->to.gid == getegid()))
		return;
	/* Where that is not allowed it stays ours: the bytes matter more. */
	if (fchownat(dir, name ? name : "", w->to.uid, w->to.gid, name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH) != 0)
		return;
}

/* Random once, then counted: a name that is taken makes the entry fail, never overwrites. */
void tree_put_temp_name(char out[static TREE_TEMP_MAX])
{
	static uint64_t v;
	if (v == 0)
		random_bytes(&v, sizeof(v));
	snprintf(out, TREE_TEMP_MAX, ".sandbox-cp-%016llx", (unsigned long long)v++);
}

/* --- troubles -------------------------------------------------------------------------------------------------------------- */

static void tell(struct tree_write *w, enum tree_loss loss, int sys, const char *text)
{
	struct tree_trouble t = { .loss = loss, .path = buf_str(&w->path), .sys = sys, .text = text };
	w->to.trouble(w->to.ctx, &t);
}

void tree_put_left_out(struct tree_write *w, const char *text)
{
	tell(w, TREE_LEFT_OUT, 0, text);
}

void tree_put_failed(struct tree_write *w, int sys, const char *text)
{
	if (w->lost.len < TREE_LOST_MAX)
		strv_add(&w->lost, buf_str(&w->path));
	tell(w, TREE_FAILED, sys, text ? text : strerror(sys));
}

int tree_put_failed_errno(struct tree_write *w, struct error *err)
{
	int sys = errno;
	if (sys == ENOSPC || sys == EDQUOT || sys == EFBIG) {
		errno = sys;
		return error_errno(err, "writing %s", buf_str(&w->path)[0] ? buf_str(&w->path) : w->to.path);
	}
	tree_put_failed(w, sys, NULL);
	return 0;
}

/* --- the top --------------------------------------------------------------------------------------------------------------- */

static int set_top(struct tree_write *w, const char *dir, const char *name, struct error *err)
{
	w->parent = w->to.open_path(dir, O_PATH | O_DIRECTORY);
	if (w->parent < 0) {
		error_errno(err, "%s", dir);
		if (err && err->sys == ENOENT)
			err->code = ERR_NOT_FOUND;
		return -1;
	}
	w->top_name = xstrdup(name);
	buf_addf(&w->top_path, "%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/");
	buf_adds(&w->top_path, name);
	return 0;
}

/* The target is a directory: the top goes into it under its own name, or its contents do. */
static int place_into(struct tree_write *w, bool directory, struct error *err)
{
	const char *path = w->to.path, *name = w->to.name;
	struct stat st;
	if (!name) {
		if (!directory)
			return error_set(err, ERR_INVALID, "%s is a directory", path);
		w->top = w->to.open_path(path, O_RDONLY | O_DIRECTORY);
		if (w->top < 0 && errno == EACCES)
			w->top = w->to.open_path(path, O_PATH | O_DIRECTORY);
		w->top_given = true;
		buf_adds(&w->top_path, path);
		return w->top >= 0 ? 0 : error_errno(err, "%s", path);
	}
	if (set_top(w, path, name, err) != 0)
		return -1;
	if (fstatat(w->parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode) == directory)
		return 0;
	return error_set(err, ERR_CONFLICT, directory ? "%s is there and no directory" : "%s is a directory", buf_str(&w->top_path));
}

/* The target names the top itself: what is there and no directory, or nothing yet. */
static int place_at(struct tree_write *w, bool there, bool directory, struct error *err)
{
	if (there && directory)
		return error_set(err, ERR_CONFLICT, "%s is there and no directory", w->to.path);
	/* A link the user named is the user's wish. */
	auto_free char *real = there ? realpath(w->to.path, NULL) : NULL;
	const char *path = real ? real : w->to.path;
	auto_free char *name = tree_name(path);
	size_t end = strlen(path);
	if (!name || (path[end - 1] == '/' && !directory))
		return error_set(err, ERR_NOT_FOUND, "%s: no such directory", w->to.path);
	while (path[end - 1] == '/')
		end--;
	end -= strlen(name);
	auto_free char *dir = end ? xstrndup(path, end) : xstrdup(".");
	return set_top(w, dir, name, err);
}

static int place_top(struct tree_write *w, bool directory, struct error *err)
{
	struct stat st;
	w->placed = true;
	if (stat(w->to.path, &st) == 0)
		return S_ISDIR(st.st_mode) ? place_into(w, directory, err) : place_at(w, true, directory, err);
	if (errno != ENOENT) {
		error_errno(err, "%s", w->to.path);
		if (err && err->sys == ENOTDIR)
			err->code = ERR_NOT_FOUND;
		return -1;
	}
	return place_at(w, false, directory, err);
}

/* --- directories ----------------------------------------------------------------------------------------------------------- */

/* A directory that is open is where the next entries go. */
static void go_into(struct tree_write *w, const char *path, int take_fd)
{
	w->entered = take_fd;
	if (!*path) {
		w->top = take_fd;
		return;
	}
	close_fdp(&w->cached_fd);
	buf_reset(&w->cached);
	buf_adds(&w->cached, path);
	w->cached_fd = take_fd;
}

/* Makes dir/name and opens it. -1 with errno; ENOTDIR when something else is there. */
static int make_and_open(struct tree_write *w, int dir, const char *name)
{
	if (mkdirat(dir, name, 0700) == 0)
		tree_put_own(w, dir, name);
	else if (errno != EEXIST)
		return -1;
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd;
}

/* Only what is not there can be built aside; 0 when it was begun. */
static int begin_aside(struct tree_write *w, int dir, const char *path)
{
	struct stat st;
	if (w->aside.dir >= 0 || fstatat(dir, tree_put_name(w, path), &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return -1;
	tree_put_temp_name(w->aside.temp);
	auto_close int parent = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	auto_close int fd = parent < 0 ? -1 : make_and_open(w, parent, w->aside.temp);
	auto_close int kept = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (kept < 0) {
		unlinkat(dir, w->aside.temp, AT_REMOVEDIR);
		return -1;
	}
	free(w->aside.path);
	w->aside.path = xstrdup(path);
	w->aside.dir = steal_fd(&parent);
	w->aside.fd = steal_fd(&kept);
	go_into(w, path, steal_fd(&fd));
	return 0;
}

static int make_directory(struct tree_write *w, int dir, const struct record_entry *e, struct error *err)
{
	if (begin_aside(w, dir, e->path) != 0) {
		int fd = make_and_open(w, dir, tree_put_name(w, e->path));
		if (fd < 0 && !*e->path)
			return error_errno(err, "%s", buf_str(&w->top_path));
		if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
			tree_put_failed(w, errno, "something that is no directory is in the way");
			return 0;
		}
		if (fd < 0)
			return tree_put_failed_errno(w, err);
		go_into(w, e->path, fd);
	}
	w->counts.entries++;
	return 0;
}

static int set_mode_and_time(const struct tree_write *w, int fd, const struct record_entry *e)
{
	struct timespec times[2] = { tree_put_time(e), tree_put_time(e) };
	return fchmod(fd, e->mode & w->to.dir_mode) == 0 && futimens(fd, times) == 0 ? 0 : -1;
}

/* Gives what was built aside its name. */
static int publish_aside(struct tree_write *w, struct error *err)
{
	int r = 0;
	if (renameat(w->aside.dir, w->aside.temp, w->aside.dir, tree_put_name(w, w->aside.path)) != 0) {
		if (!*w->aside.path)
			r = error_errno(err, "%s", buf_str(&w->top_path));
		else
			r = tree_put_failed_errno(w, err);
		drop_aside(w);
		return r;
	}
	close_fdp(&w->aside.dir);
	close_fdp(&w->aside.fd);
	return 0;
}

static int leave_directory(struct tree_write *w, const struct record_entry *e, struct error *err)
{
	if (!w->placed || (!*e->path && w->top_given))
		return 0;
	buf_reset(&w->path);
	buf_adds(&w->path, e->path);
	if (w->aside.dir >= 0 && strcmp(w->aside.path, e->path) == 0) {
		if (set_mode_and_time(w, w->aside.fd, e) != 0)
			tree_put_failed(w, errno, NULL);
		return publish_aside(w, err);
	}
	int dir = directory_of(w, e->path);
	/* fchmod does not take an O_PATH descriptor. One that could not be made was reported then. */
	auto_close int fd = dir < 0 ? -1 : openat(dir, tree_put_name(w, e->path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && set_mode_and_time(w, fd, e) != 0)
		return tree_put_failed_errno(w, err);
	return 0;
}

/* --- entries --------------------------------------------------------------------------------------------------------------- */

/* The file an entry is a further name of: its directory (caller closes), with its name in *ret_name. -1: reported. */
static int earlier_file(struct tree_write *w, const struct record_entry *e, const char **ret_name)
{
	const char *slash = strrchr(e->target, '/');
	struct stat st;
	auto_close int dir = -1;
	*ret_name = slash ? slash + 1 : e->target;
	if (w->lost.len < TREE_LOST_MAX && !strv_has(&w->lost, e->target)) {
		dir = slash ? open_directory(w, e->target, (size_t)(slash - e->target)) : fcntl(w->top, F_DUPFD_CLOEXEC, 3);
		if (dir >= 0 && fstatat(dir, *ret_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			return steal_fd(&dir);
	}
	tree_put_failed(w, ENOENT, "the file that it is a further name of was not copied");
	return -1;
}

static int put_hard_link(struct tree_write *w, int dir, const struct record_entry *e, struct error *err)
{
	const char *name;
	auto_close int from = earlier_file(w, e, &name);
	return from < 0 ? 0 : tree_put_hard_link(w, dir, e, &(struct tree_place){ from, name }, err);
}

/* The directory that is being built aside, named again. */
static int meet_aside(struct tree_write *w, const struct record_entry *e)
{
	if (e->kind == RECORD_DIRECTORY)
		go_into(w, e->path, fcntl(w->aside.fd, F_DUPFD_CLOEXEC, 3));
	else
		tree_put_failed(w, EISDIR, NULL);
	return 0;
}

static int on_entry(struct tree_write *w, const struct record_entry *e, struct error *err)
{
	tree_put_drop(w); /* one that never ended */
	w->entered = -1;
	buf_reset(&w->path);
	buf_adds(&w->path, e->path);
	if (w->placed == !*e->path)
		return error_set(err, ERR_PROTOCOL, "the tree that was sent does not begin with its top");
	if (!w->placed && place_top(w, e->kind == RECORD_DIRECTORY, err) != 0)
		return -1;
	if (!*e->path && w->top_given) {
		w->counts.entries++;
		return 0;
	}
	if (*e->path && w->top < 0)
		return error_set(err, ERR_PROTOCOL, "an entry was sent below something that is no directory: %s", e->path);
	if (w->aside.dir >= 0 && strcmp(w->aside.path, e->path) == 0)
		return meet_aside(w, e);
	int dir = directory_of(w, e->path);
	if (dir < 0) {
		/* ELOOP and ENOTDIR are how a link in the way looks: that is no tree anybody made by accident. */
		tree_put_failed(w, errno, errno == ELOOP || errno == ENOTDIR ? "refused: what holds it is not a directory" : NULL);
		return 0;
	}
	switch (e->kind) {
	case RECORD_FILE:
		return tree_put_file(w, dir, e, err);
	case RECORD_SYMLINK:
		return tree_put_symlink(w, dir, e, err);
	case RECORD_HARDLINK:
		return put_hard_link(w, dir, e, err);
	case RECORD_DIRECTORY:
		break;
	}
	return make_directory(w, dir, e, err);
}

int tree_write_record(struct tree_write *w, const struct record *r, struct error *err)
{
	switch (r->type) {
	case RECORD_ENTRY:
		return on_entry(w, &r->entry, err);
	case RECORD_DATA:
		return tree_put_data(w, r->data, r->len, err);
	case RECORD_HOLE:
		return tree_put_hole(w, r->number, err);
	case RECORD_END:
		return tree_put_end(w, r->number, err);
	case RECORD_XATTR:
		tree_put_xattr(w, r->name, r->data, r->len);
		return 0;
	case RECORD_ABORT:
		if (w->file >= 0)
			tree_put_aborted(w, r->text);
		return 0;
	case RECORD_LEAVE:
		tree_put_drop(w);
		w->entered = -1;
		return leave_directory(w, &r->entry, err);
	case RECORD_SKIPPED:
	case RECORD_DONE:
	case RECORD_FAIL:
		break;
	}
	return 0;
}

int tree_write_finish(struct tree_write *w, struct error *err)
{
	tree_put_drop(w);
	if (!w->placed)
		return error_set(err, ERR_PROTOCOL, "an empty tree was sent");
	return w->aside.dir >= 0 ? publish_aside(w, err) : 0;
}
